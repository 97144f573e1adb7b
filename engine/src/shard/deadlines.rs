//! When which client's time may be up: one task for all clients of a shard.
//!
//! A client has one deadline at a time, and with each request another one. It
//! is booked here only when it is earlier than what is booked already: a client
//! that is woken too early finds that out, and books what holds by then. So a
//! client is booked about once in the time that it has, not once a request, and
//! the kernel knows one timer of the shard.

use super::Shard;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// See the module's text. Times are those of [`Ring::micros`](crate::ring::Ring::micros).
#[derive(Default)]
pub struct Deadlines {
    heap: RefCell<BinaryHeap<Reverse<(u64, u32)>>>,
    /// For each client's place the earliest tick that is in the heap for it.
    booked: RefCell<Vec<u64>>,
    /// Until when the task sleeps.
    asleep: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

impl Deadlines {
    /// The client at this place is to be woken then, or earlier.
    #[inline]
    pub fn book(&self, slot: u32, due: u64) {
        let tick = due.div_ceil(TICK);
        let known = self.booked.borrow().get(slot as usize).copied();
        if known.is_none_or(|known| tick < known) {
            self.enter(slot, tick);
        }
    }

    #[cold]
    fn enter(&self, slot: u32, tick: u64) {
        let mut booked = self.booked.borrow_mut();
        if booked.len() <= slot as usize {
            booked.resize(slot as usize + 1, NEVER);
        }
        booked[slot as usize] = tick;
        let mut heap = self.heap.borrow_mut();
        if heap.len() > 64 && heap.len() > 2 * booked.len() {
            heap.retain(|Reverse((tick, slot))| booked[*slot as usize] == *tick);
        }
        heap.push(Reverse((tick, slot)));
        if tick < self.asleep.get()
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// A place whose time has come, which is forgotten.
    fn take_due(&self, now: u64) -> Option<u32> {
        let mut heap = self.heap.borrow_mut();
        while let Some(&Reverse((tick, slot))) = heap.peek() {
            if tick.saturating_mul(TICK) > now {
                break;
            }
            heap.pop();
            let mut booked = self.booked.borrow_mut();
            if booked[slot as usize] == tick {
                booked[slot as usize] = NEVER;
                return Some(slot);
            }
        }
        None
    }

    fn next(&self) -> u64 {
        let heap = self.heap.borrow();
        heap.peek().map_or(NEVER, |Reverse((tick, _))| *tick)
    }
}

/// Wakes the clients of a shard whose time may be up; for ever.
pub(super) async fn keep(shard: Rc<Shard>) {
    let deadlines = &shard.deadlines;
    loop {
        let next = deadlines.next();
        deadlines.asleep.set(next);
        let earlier = std::future::poll_fn(|cx| {
            if deadlines.next() < next {
                return Poll::Ready(());
            }
            *deadlines.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        });
        let until = (next != NEVER).then(|| shard.ring.moment(next.saturating_mul(TICK)));
        let _ = shard.ring.until(until, earlier).await;
        let now = shard.ring.micros();
        while let Some(slot) = deadlines.take_due(now) {
            shard.clients.wake(slot);
        }
    }
}

/// Clients whose deadlines are closer than this are woken together.
const TICK: u64 = 4_000;
const NEVER: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn due(deadlines: &Deadlines, now: u64) -> Vec<u32> {
        std::iter::from_fn(|| deadlines.take_due(now)).collect()
    }

    #[test]
    fn who_is_due_is_woken_once_and_never_early() {
        let deadlines = Deadlines::default();
        deadlines.book(7, 10_001);
        deadlines.book(2, 9_000);
        assert!(due(&deadlines, 9_000).is_empty());
        assert_eq!(due(&deadlines, 12_000), [2, 7]);
        assert!(due(&deadlines, u64::MAX).is_empty());
    }

    #[test]
    fn a_later_deadline_costs_nothing_and_an_earlier_one_counts() {
        let deadlines = Deadlines::default();
        deadlines.book(1, 40_000);
        for later in 0..1000 {
            deadlines.book(1, 40_000 + later * TICK);
        }
        assert_eq!(deadlines.heap.borrow().len(), 1);
        deadlines.book(1, 8_000);
        assert_eq!(due(&deadlines, 8_000), [1]);
        // What was booked before it is forgotten with it.
        assert!(due(&deadlines, 40_000).is_empty());
    }

    #[test]
    fn deadlines_that_mean_nothing_any_more_do_not_add_up() {
        let deadlines = Deadlines::default();
        for round in 0..100_000_u64 {
            deadlines.book((round % 10) as u32, (200_000 - round) * TICK);
        }
        assert!(deadlines.heap.borrow().len() <= 66);
        assert_eq!(due(&deadlines, u64::MAX).len(), 10);
    }
}
