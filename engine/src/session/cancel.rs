//! What a cancel request is for: the oldest request of the client that is not
//! answered. The client that sent it waits for the end of its connection, and
//! what it asks behind that must never be hit.
//!
//! | the client | the cancel request |
//! |---|---|
//! | waits for an answer | goes to the server |
//! | the same, and the server is still at something of ours | waits for that |
//! | waits for a server | ends the wait |
//! | has asked what could not be read yet | waits until it is read |
//! | is idle | does nothing |

use super::Session;
use super::body::Body;
use crate::server::cancel;
use crate::shard::{Refusal, Seat};
use protocol::error::SqlState;
use std::task::Context;

impl Session {
    /// See the module's text. To be called when everything that has come is
    /// read as far as it may be.
    #[cold]
    pub(super) fn heed_cancels(&mut self, cx: &Context<'_>) {
        let cancels = &self.entered.control.cancel;
        if let Some(server) = &self.server
            && server.ledger.owes_client()
        {
            // What makes the server ready for the request must not fail.
            if server.ledger.is_at_ours() {
                self.cancels_bound = u32::try_from(cancels.borrow().len()).unwrap_or(u32::MAX);
                return;
            }
            let (waker, guards) = (cx.waker().clone(), cancels.take());
            self.cancels_bound = 0;
            cancel::send(&self.pool, server.cancel_handle(), Some(waker), guards);
            return;
        }
        if self.seat.as_mut().is_some_and(Seat::leave) {
            self.refusal = Some(Box::new(Refusal {
                code: SqlState::QUERY_CANCELED,
                message: "canceling statement due to user request".to_owned(),
            }));
            cx.waker().wake_by_ref();
        } else if self.has_unheard() {
            return;
        }
        drop(cancels.take());
    }

    /// Requests that waited for an answer to something of ours are over with
    /// what they were for.
    #[cold]
    pub(super) fn heed_bound_cancels(&mut self) {
        let server = self.server.as_ref();
        if server.is_some_and(|server| server.ledger.owes_client()) {
            return;
        }
        let bound = std::mem::take(&mut self.cancels_bound) as usize;
        let mut cancels = self.entered.control.cancel.borrow_mut();
        let bound = bound.min(cancels.len());
        let later = cancels.split_off(bound);
        let over = std::mem::replace(&mut *cancels, later);
        drop(cancels);
        drop(over);
    }

    /// A cancel request is on its way to the server.
    pub(super) fn is_being_cancelled(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.cancels.under_way() > 0)
    }

    /// The client has asked something that may not be read yet.
    fn has_unheard(&self) -> bool {
        let gathered = matches!(&self.request, Body::Collect(collected) if collected.is_complete());
        let held_up = self.settling.is_some() || self.withheld || self.is_being_cancelled();
        gathered || held_up && self.socket.has_bytes()
    }
}
