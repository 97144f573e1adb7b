//! Who may work on a handshake now.
//!
//! A full handshake costs a signature and a key exchange, a few hundred
//! microseconds, where all else costs a few. So that a crowd of them holds
//! nobody up, only so much time of a turn goes into handshakes; the rest
//! wait, and the newest and the oldest go on by turns: who comes after a
//! crowd does not wait for all of it, and nobody starves.

use crate::limits::HANDSHAKES_PER_TURN;
use crate::ring::{Ring, task};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// See the module's text.
#[derive(Clone, Default)]
pub struct Handshakes(Rc<Gate>);

#[derive(Default)]
struct Gate {
    waiting: RefCell<VecDeque<Rc<Ticket>>>,
    /// The turn in which `spent` was.
    turn: Cell<Option<Instant>>,
    spent: Cell<Duration>,
    newest_next: Cell<bool>,
    pacing: Cell<bool>,
}

#[derive(Default)]
struct Ticket {
    called: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// The time until it is dropped counts.
pub(super) struct Permit<'a> {
    gate: &'a Gate,
    since: Instant,
}

impl Handshakes {
    /// Waits for its turn. Dropping the future gives the place up.
    pub(super) async fn enter(&self, ring: &Ring) -> Permit<'_> {
        let gate = &*self.0;
        if !gate.waiting.borrow().is_empty() || gate.is_spent(ring) {
            let ticket = Rc::new(Ticket::default());
            gate.waiting.borrow_mut().push_back(Rc::clone(&ticket));
            if !gate.pacing.replace(true) {
                task::spawn(Rc::clone(&self.0).pace(ring.clone()));
            }
            std::future::poll_fn(|cx| {
                if ticket.called.get() {
                    return Poll::Ready(());
                }
                ticket.waker.replace(Some(cx.waker().clone()));
                Poll::Pending
            })
            .await;
        }
        Permit {
            gate,
            since: Instant::now(),
        }
    }
}

impl Gate {
    fn is_spent(&self, ring: &Ring) -> bool {
        let now = ring.now();
        if self.turn.replace(Some(now)) != Some(now) {
            self.spent.set(Duration::ZERO);
        }
        self.spent.get() >= HANDSHAKES_PER_TURN
    }

    /// Calls one after the other, as long as there are any.
    async fn pace(self: Rc<Self>, ring: Ring) {
        while !self.waiting.borrow().is_empty() {
            if !self.is_spent(&ring) {
                self.call_next();
            }
            // Who was called works before this goes on.
            futures_lite::future::yield_now().await;
        }
        self.pacing.set(false);
    }

    fn call_next(&self) {
        let mut waiting = self.waiting.borrow_mut();
        loop {
            let newest = self.newest_next.get();
            let next = if newest {
                waiting.pop_back()
            } else {
                waiting.pop_front()
            };
            let Some(ticket) = next else { return };
            // Otherwise whoever had it has given up.
            if Rc::strong_count(&ticket) > 1 {
                self.newest_next.set(!newest);
                ticket.called.set(true);
                if let Some(waker) = ticket.waker.take() {
                    waker.wake();
                }
                return;
            }
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let spent = self.gate.spent.get() + self.since.elapsed();
        self.gate.spent.set(spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(gate: &Gate) -> Rc<Ticket> {
        let ticket = Rc::new(Ticket::default());
        gate.waiting.borrow_mut().push_back(Rc::clone(&ticket));
        ticket
    }

    #[test]
    fn the_oldest_and_the_newest_are_called_by_turns_and_who_has_left_is_not() {
        let gate = Gate::default();
        let mut tickets: Vec<_> = (0..6).map(|_| Some(ticket(&gate))).collect();
        // Two have given up.
        tickets[0] = None;
        tickets[4] = None;
        let mut order = Vec::new();
        for _ in 0..4 {
            gate.call_next();
            let called = |ticket: &Option<Rc<Ticket>>| {
                ticket.as_ref().is_some_and(|ticket| ticket.called.get())
            };
            let next = tickets.iter().position(called).expect("one is called");
            tickets[next] = None;
            order.push(next);
        }
        assert_eq!(order, [1, 5, 2, 3]);
        gate.call_next();
        assert!(gate.waiting.borrow().is_empty());
    }

    #[test]
    fn so_much_time_and_no_more_is_had_in_a_turn() {
        let ring = Ring::new(crate::ring::Sizes {
            submissions: 8,
            completions: 16,
            buffers: 8,
            buffer_bytes: 4096,
        })
        .expect("a ring");
        let gate = Gate::default();
        assert!(!gate.is_spent(&ring));
        drop(Permit {
            gate: &gate,
            since: Instant::now() - HANDSHAKES_PER_TURN,
        });
        assert!(gate.is_spent(&ring));
        gate.turn.set(None);
        assert!(!gate.is_spent(&ring), "another turn");
    }
}
