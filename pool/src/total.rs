//! Permits for servers that several budgets share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::{Budget, MARGIN};

/// The permits of a database whose roles have a budget each, and the pools that want one and get none, in the order in
/// which they came. A permit that comes back goes to the first of them, so one is free only while nobody wants it.
///
/// Nothing depends on a message that might be lost: a pool that wants a permit asks again and again
/// ([`Pool::take_ask`](crate::Pool::take_ask)), and finds what it was given whenever it looks.
///
/// The lock is taken when servers come and go and when a pool begins or ceases to want one; a query on its way takes
/// none, and reads `short_since` at most.
#[derive(Debug)]
pub struct Total {
    max: AtomicU32,
    epoch: OnceLock<Instant>,
    /// Since when the first pool wants a permit for which no server is on its way out; 0: there is none.
    short_since: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: u32,
    queue: VecDeque<Want>,
    /// Idle servers that are being closed for those in the queue.
    evicting: u32,
    /// What each shard can spare, as far as it has answered; empty when nobody has asked.
    offers: Vec<Option<u32>>,
}

#[derive(Debug)]
struct Want {
    budget: Weak<Budget>,
    shard: usize,
    /// It may use the reserve of its budget.
    reserve: bool,
}

/// A pool that was given a permit: who is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The name of its budget.
    pub name: u32,
    /// Its shard.
    pub shard: usize,
}

impl Total {
    /// At most `max` permits.
    pub fn new(max: u32) -> Self {
        Total {
            max: AtomicU32::new(max),
            epoch: OnceLock::new(),
            short_since: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Most permits that may be out.
    pub fn max(&self) -> u32 {
        self.max.load(SeqCst)
    }

    /// Changes that. When more permits are out, those that come back are given to nobody, and idle servers are shed by
    /// [`Pool::shed_idle`](crate::Pool::shed_idle). The pools that want one are to look again: there may be more now.
    pub fn set_max(&self, max: u32) {
        let _state = self.lock();
        self.max.store(max, SeqCst);
    }

    /// How many more permits are out than allowed.
    pub(crate) fn excess(&self) -> u32 {
        self.taken().saturating_sub(self.max())
    }

    /// Permits that are out.
    pub fn taken(&self) -> u32 {
        self.lock().taken
    }

    /// Pools that want a permit.
    pub fn wanted(&self) -> usize {
        self.lock().queue.len()
    }

    /// Whether a pool wants a permit for which no server is on its way out.
    pub fn is_short(&self) -> bool {
        self.short_since.load(SeqCst) != 0
    }

    /// Whether that one has waited for longer than `own`, by more than it costs to move a server.
    pub(crate) fn is_overdue(&self, own: Option<Instant>) -> bool {
        let since = self.short_since.load(SeqCst);
        since != 0 && own.is_none_or(|own| self.stamp(own) > since.saturating_add(nanos(MARGIN)))
    }

    /// Asks every shard what it can spare. The answer of a round before that not all have answered: who had the most.
    pub fn ask(&self, shards: usize) -> Option<usize> {
        let mut state = self.lock();
        let before = most(&state.offers);
        state.offers = vec![None; shards];
        before
    }

    /// A shard says how many idle servers its richest pool has. When all have said so: who has the most.
    pub fn offer(&self, shard: usize, idle: u32) -> Option<usize> {
        let mut state = self.lock();
        *state.offers.get_mut(shard)? = Some(idle);
        if state.offers.iter().any(Option::is_none) {
            return None;
        }
        most(&std::mem::take(&mut state.offers))
    }

    /// An idle server may be closed for the others. To be followed by [`Total::evicted`].
    pub(crate) fn claim_eviction(&self) -> bool {
        let mut state = self.lock();
        let due = (state.evicting as usize) < state.queue.len();
        state.evicting += u32::from(due);
        self.publish(&state);
        due
    }

    pub(crate) fn evicted(&self, servers: u32) {
        let mut state = self.lock();
        let left = state.evicting.checked_sub(servers);
        state.evicting = left.expect("an eviction that ends was claimed");
        self.publish(&state);
    }

    pub(crate) fn try_take(&self) -> bool {
        let mut state = self.lock();
        let free = state.taken < self.max();
        state.taken += u32::from(free);
        free
    }

    /// A permit comes back: to the first in the queue whose own budget has room, or to be free.
    #[must_use = "who was given it does not know yet"]
    pub(crate) fn give_back(&self) -> Option<Wake> {
        let mut state = self.lock();
        let mut wake = None;
        while state.taken <= self.max()
            && let Some(want) = state.queue.pop_front()
        {
            let budget = want.budget.upgrade();
            let accepts = |budget: &Arc<Budget>| budget.accept(want.shard, want.reserve);
            if let Some(budget) = budget.filter(accepts) {
                let (name, shard) = (budget.name(), want.shard);
                wake = Some(Wake { name, shard });
                break;
            }
        }
        if wake.is_none() {
            let left = state.taken.checked_sub(1);
            state.taken = left.expect("a permit came back that was never taken");
        }
        self.publish(&state);
        wake
    }

    /// The pool of this shard wants a permit. True: it has one, which came back in this moment.
    pub(crate) fn want(
        &self,
        budget: &Arc<Budget>,
        shard: usize,
        since: Instant,
        reserve: bool,
    ) -> bool {
        let mut state = self.lock();
        if state.taken < self.max() {
            let taken = budget.try_take_own(reserve);
            state.taken += u32::from(taken);
            return taken;
        }
        if budget.set_wanting(shard, self.stamp(since)) == 0 {
            let budget = Arc::downgrade(budget);
            state.queue.push_back(Want {
                budget,
                shard,
                reserve,
            });
        }
        self.publish(&state);
        false
    }

    /// The client of that pool that waits the longest is another one now.
    pub(crate) fn moves_to(&self, budget: &Budget, shard: usize, since: Option<Instant>) {
        let state = self.lock();
        if budget.wanting(shard) != 0 {
            budget.set_wanting(shard, since.map_or(u64::MAX, |since| self.stamp(since)));
            self.publish(&state);
        }
    }

    /// It wants none any more, or has one.
    pub(crate) fn unwant(&self, budget: &Budget, shard: usize) {
        let mut state = self.lock();
        if budget.set_wanting(shard, 0) != 0 {
            let is_it =
                |want: &Want| want.shard == shard && std::ptr::eq(want.budget.as_ptr(), budget);
            state.queue.retain(|want| !is_it(want));
            self.publish(&state);
        }
    }

    fn publish(&self, state: &State) {
        let first = state.queue.get(state.evicting as usize);
        let since = |want: &Want| Some(want.budget.upgrade()?.wanting(want.shard));
        let since = first.and_then(since).unwrap_or_default();
        // The line is read by others: it is written only if that says something new.
        if self.short_since.load(SeqCst) != since {
            self.short_since.store(since, SeqCst);
        }
    }

    /// Nanoseconds since the first instant that was seen, from 1 on.
    fn stamp(&self, at: Instant) -> u64 {
        let epoch = *self.epoch.get_or_init(|| at);
        nanos(at.saturating_duration_since(epoch)).saturating_add(1)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shard that offers the most, if any offers something.
fn most(offers: &[Option<u32>]) -> Option<usize> {
    let offers = offers.iter().enumerate();
    let (shard, offer) = offers.max_by_key(|(_, offer)| **offer)?;
    offer.filter(|idle| *idle > 0).map(|_| shard)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_share_a_total_and_keep_to_their_own() {
        let total = Arc::new(Total::new(3));
        let [a, b] = [1, 2].map(|name| Arc::new(Budget::within(Arc::clone(&total), name, 2, 1)));
        assert!(a.try_take() && a.try_take() && !a.try_take());
        assert!(b.try_take() && !b.try_take());
        assert_eq!((a.taken(), b.taken(), total.taken()), (2, 1, 3));
        a.give_back();
        assert!(b.try_take());
        assert_eq!((a.taken(), b.taken(), total.taken()), (1, 2, 3));
    }

    #[test]
    fn a_permit_goes_to_whoever_wanted_one_first_and_has_room() {
        let total = Arc::new(Total::new(2));
        let [a, b, c] =
            [1, 2, 3].map(|name| Arc::new(Budget::within(Arc::clone(&total), name, 1, 2)));
        let now = Instant::now();
        assert!(a.try_take() && b.try_take() && !c.try_take());
        assert!(!total.want(&c, 1, now, false) && !total.want(&a, 0, now, false));
        assert!(total.is_short() && total.claim_eviction() && total.claim_eviction());
        assert!(!total.is_short() && !total.claim_eviction());
        total.evicted(2);
        // `a` itself gives one back: `c` was first.
        let wake = a.give_back_to_all();
        assert_eq!(wake, Some(Wake { name: 3, shard: 1 }));
        assert_eq!((c.collect(1), c.collect(1)), (1, 0));
        // Next is `a`, unless it wants none any more.
        total.unwant(&a, 0);
        assert!(!total.is_short());
        assert_eq!(b.give_back_to_all(), None);
        assert_eq!(
            (a.taken(), b.taken(), c.taken(), total.taken()),
            (0, 0, 1, 1)
        );
        // One that is gone is passed over.
        assert!(b.try_take() && !total.want(&a, 0, now, false));
        drop(a);
        assert_eq!(b.give_back_to_all(), None);
        assert_eq!(total.taken(), 1);
    }

    #[test]
    fn the_shard_with_the_most_to_spare_is_named_once_all_have_answered() {
        let total = Total::new(1);
        assert_eq!(total.offer(0, 9), None, "nobody has asked");
        assert_eq!(total.ask(3), None);
        assert_eq!((total.offer(1, 2), total.offer(2, 5)), (None, None));
        assert_eq!(total.offer(0, 3), Some(2));
        assert_eq!(total.offer(0, 9), None, "the round is over");
        total.ask(2);
        assert_eq!((total.offer(0, 0), total.offer(1, 0)), (None, None));
        total.ask(2);
        total.offer(1, 1);
        assert_eq!(total.ask(2), Some(1), "shard 0 has not answered");
    }
}
