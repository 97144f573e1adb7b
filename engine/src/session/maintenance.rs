//! Maintenance, and what a client does as others may see it.

use super::{End, Session};
use crate::shard::{Doing, maintenance_words};
use ::pool::config::PoolMode;
use protocol::backend::TransactionStatus;
use protocol::tag::frontend_tag as tag;

impl Session {
    /// A client that has no transaction and says something is sent away; a
    /// request that waits for a server already, or has been refused one, came
    /// before. To be asked before anything is read.
    #[inline]
    pub(super) fn heed_maintenance(&mut self) -> Result<(), End> {
        if self.shard.maintenance.holds(self.pool.index()) && self.is_shut_out() {
            return Err(End::Saying(maintenance_words(&self.shard)));
        }
        Ok(())
    }

    #[cold]
    fn is_shut_out(&self) -> bool {
        let between = match &self.server {
            None => true,
            Some(server) => {
                let keeps = self.pool.mode() == PoolMode::Session || server.pinned;
                keeps && server.is_at_rest()
            }
        };
        between
            && self.may_read()
            && self.refusal.is_none()
            && self.socket.has_bytes()
            && !self.says_goodbye()
    }

    fn says_goodbye(&self) -> bool {
        let first = self.socket.front(|bytes| bytes.first().copied()).flatten();
        self.frames.at_boundary() && first == Some(tag::TERMINATE)
    }

    /// Notes what the client does now, and begins the time of its query.
    #[inline]
    pub(super) fn stand(&mut self) {
        let waits = self.is_waiting();
        let now = self.shard.ring.micros();
        let doing = match &mut self.server {
            None if waits => Doing::WAITING,
            None if self.settling.is_some() => Doing::ACTIVE,
            None => Doing::IDLE,
            Some(server) => {
                let rests = server.ledger.is_idle();
                if rests {
                    server.asked = None;
                } else if server.asked.is_none() {
                    server.asked = Some(now);
                }
                let open = server.status != TransactionStatus::Idle;
                Doing::with_server(rests, open, server.pinned)
            }
        };
        self.shard.clients.note(&self.entered.control, doing, now);
    }
}
