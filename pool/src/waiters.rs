//! The queue of clients that wait for a server: first in, first out.

use std::collections::VecDeque;
use std::time::Instant;

/// Names one wait of one client; never used twice in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Entries are in order of `ticket` and of `since`. One that was cancelled stays as a gap (`waiter` is `None`) until it
/// reaches the front, or until gaps are the bigger half. The front entry is never a gap.
#[derive(Debug)]
pub(crate) struct Waiters<W> {
    queue: VecDeque<Entry<W>>,
    gaps: usize,
    next: u64,
}

#[derive(Debug)]
struct Entry<W> {
    ticket: u64,
    since: Instant,
    waiter: Option<W>,
}

impl<W: Copy> Waiters<W> {
    pub(crate) fn new() -> Self {
        Waiters {
            queue: VecDeque::new(),
            gaps: 0,
            next: 0,
        }
    }

    pub(crate) fn push(&mut self, waiter: W, now: Instant) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        // A caller whose clock steps back between turns must not break the order that `expire` relies on.
        let since = self.queue.back().map_or(now, |last| last.since.max(now));
        self.queue.push_back(Entry {
            ticket,
            since,
            waiter: Some(waiter),
        });
        Ticket(ticket)
    }

    pub(crate) fn pop(&mut self) -> Option<W> {
        let waiter = self.queue.pop_front()?.waiter;
        self.trim();
        waiter
    }

    /// Whether the client was still waiting.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        let Ok(index) = self
            .queue
            .binary_search_by_key(&ticket.0, |entry| entry.ticket)
        else {
            return false;
        };
        if self.queue[index].waiter.take().is_none() {
            return false;
        }
        self.gaps += 1;
        self.trim();
        if self.gaps > GAPS_MIN && self.gaps > self.queue.len() / 2 {
            self.queue.retain(|entry| entry.waiter.is_some());
            self.gaps = 0;
        }
        true
    }

    /// Since when the longest waiting client waits.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.queue.front().map(|entry| entry.since)
    }

    /// Since when the client waits that has about so many before it; those that gave up may be counted too.
    pub(crate) fn since_behind(&self, before: u32) -> Option<Instant> {
        let entry = self.queue.get(before as usize)?;
        Some(entry.since)
    }

    /// Everybody waits since now, in the same order.
    pub(crate) fn restart(&mut self, now: Instant) {
        for entry in &mut self.queue {
            entry.since = entry.since.max(now);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len() - self.gaps
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn check_invariants(&self) {
        let gaps = self
            .queue
            .iter()
            .filter(|entry| entry.waiter.is_none())
            .count();
        assert_eq!(gaps, self.gaps, "the count of gaps is exact");
        assert!(
            self.queue
                .front()
                .is_none_or(|entry| entry.waiter.is_some()),
            "the front is no gap"
        );
        let ordered = |a: &Entry<W>, b: &Entry<W>| a.ticket < b.ticket && a.since <= b.since;
        assert!(
            self.queue
                .iter()
                .zip(self.queue.iter().skip(1))
                .all(|(a, b)| ordered(a, b))
        );
    }

    fn trim(&mut self) {
        while self
            .queue
            .front()
            .is_some_and(|entry| entry.waiter.is_none())
        {
            self.queue.pop_front();
            self.gaps -= 1;
        }
    }
}

/// Below this many gaps a compaction is not worth its copy.
const GAPS_MIN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_waiter_is_passed_over_and_cancels_once() {
        let now = Instant::now();
        let mut waiters = Waiters::new();
        let tickets: Vec<_> = (0..4).map(|w| waiters.push(w, now)).collect();
        assert!(waiters.cancel(tickets[1]) && waiters.cancel(tickets[0]));
        assert!(!waiters.cancel(tickets[1]) && !waiters.cancel(tickets[0]));
        waiters.check_invariants();
        assert_eq!(
            (waiters.len(), waiters.pop(), waiters.pop(), waiters.pop()),
            (2, Some(2), Some(3), None)
        );
        assert!(
            !waiters.cancel(tickets[2]),
            "a served waiter cannot be cancelled"
        );
    }

    #[test]
    fn gaps_behind_a_patient_front_do_not_pile_up() {
        let now = Instant::now();
        let mut waiters = Waiters::new();
        waiters.push(0, now);
        for w in 1..100_000 {
            let ticket = waiters.push(w, now);
            assert!(waiters.cancel(ticket));
            assert!(waiters.queue.len() <= 2 * GAPS_MIN + 2);
        }
        waiters.check_invariants();
        assert_eq!((waiters.len(), waiters.pop()), (1, Some(0)));
    }
}
