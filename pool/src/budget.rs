//! Permits for servers, shared by the shards of one pool: the exact sum, and who is owed the next one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::total::{Total, Wake};

/// The permits of one (group, target) over all shards. A permit stands for one server that is open, closing or logging
/// in; never more than `max` are out.
///
/// A server that moves to another shard takes its permit along: nothing is counted anew.
///
/// A permit that comes back goes straight to the shard that has been hungry for the longest time, if one is; only
/// else does it become free for whoever asks first. So a busy shard cannot take permits past a starving one.
///
/// Lines and who writes them: `taken` with each login and close; `signal` when a shard begins or ceases to be hungry;
/// a shard's slot likewise. A query on a pool that is not starved reads `signal` and writes none of them.
#[derive(Debug)]
pub struct Budget {
    taken: Padded<Taken>,
    signal: Padded<AtomicU32>,
    slots: Box<[Padded<Slot>]>,
    epoch: OnceLock<Instant>,
    /// By which the engine knows it.
    name: u32,
    /// What it shares with other budgets.
    total: Option<Arc<Total>>,
}

#[derive(Debug)]
struct Taken {
    permits: AtomicU32,
    max: AtomicU32,
    /// Permits beyond `max`, for clients that have waited for long.
    reserve: AtomicU32,
}

/// What the other shards must know of one shard.
#[derive(Debug, Default)]
struct Slot {
    /// Since when the shard is hungry, see [`Budget::stamp`]; 0 when it is not, or when a permit is promised to it.
    since: AtomicU64,
    /// Permits and servers that other shards have undertaken to send, the granted ones included.
    promised: AtomicU32,
    /// Permits that have arrived and that the shard has not yet collected.
    granted: AtomicU32,
    /// It stands in the queue of the total, since then; 0: it does not.
    wants: AtomicU64,
    /// Servers open in the shard, so that a hungry one knows whom to ask.
    open: AtomicU32,
}

/// Two cache lines, because x86 fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

impl Budget {
    /// A budget of `max` permits for `shards` shards.
    pub fn new(max: u32, shards: usize) -> Self {
        Budget {
            taken: Padded(Taken {
                permits: AtomicU32::new(0),
                max: AtomicU32::new(max),
                reserve: AtomicU32::new(0),
            }),
            signal: Padded(AtomicU32::new(0)),
            slots: (0..shards.max(1)).map(|_| Padded::default()).collect(),
            epoch: OnceLock::new(),
            name: 0,
            total: None,
        }
    }

    /// A budget whose permits count against a total too. `name`: by which the engine knows it.
    pub fn within(total: Arc<Total>, name: u32, max: u32, shards: usize) -> Self {
        Budget {
            total: Some(total),
            name,
            ..Budget::new(max, shards)
        }
    }

    /// The same with so many permits more, for clients that have waited for long.
    pub fn with_reserve(self, reserve: u32) -> Self {
        self.taken.0.reserve.store(reserve, SeqCst);
        self
    }

    /// The total that it shares with others.
    pub fn total(&self) -> Option<&Arc<Total>> {
        self.total.as_ref()
    }

    /// Takes a permit if one is free, of the total too.
    pub fn try_take(&self) -> bool {
        self.take(false)
    }

    /// The same for a client that has waited for long.
    pub(crate) fn try_take_reserve(&self) -> bool {
        self.take(true)
    }

    fn take(&self, reserve: bool) -> bool {
        if !self.try_take_own(reserve) {
            return false;
        }
        if self.total.as_ref().is_none_or(|total| total.try_take()) {
            return true;
        }
        self.give_back_own();
        false
    }

    /// Takes a permit without regard to the total.
    pub(crate) fn try_take_own(&self, reserve: bool) -> bool {
        let max = self.most(reserve);
        self.taken
            .0
            .permits
            .fetch_update(SeqCst, SeqCst, |taken| (taken < max).then_some(taken + 1))
            .is_ok()
    }

    /// Makes a taken permit free.
    ///
    /// # Panics
    /// When no permit is out: the sum would be wrong for ever.
    pub fn give_back(&self) {
        // A pool that the total gives it to looks for itself.
        let _ = self.give_back_to_all();
    }

    /// The same; says who has been given the total's.
    pub(crate) fn give_back_to_all(&self) -> Option<Wake> {
        self.give_back_own();
        self.total.as_ref().and_then(|total| total.give_back())
    }

    fn give_back_own(&self) {
        let before = self
            .taken
            .0
            .permits
            .fetch_update(SeqCst, SeqCst, |taken| taken.checked_sub(1));
        assert!(before.is_ok(), "a permit came back that was never taken");
    }

    /// Permits that are out.
    pub fn taken(&self) -> u32 {
        self.taken.0.permits.load(SeqCst)
    }

    /// Most permits that may be out.
    pub fn max(&self) -> u32 {
        self.taken.0.max.load(SeqCst)
    }

    fn most(&self, reserve: bool) -> u32 {
        let reserve = if reserve { self.reserve() } else { 0 };
        self.max().saturating_add(reserve)
    }

    /// Whether a permit of its own is free.
    pub(crate) fn has_room(&self, reserve: bool) -> bool {
        self.taken() < self.most(reserve)
    }

    /// Whether permits of the reserve are out.
    pub(crate) fn uses_reserve(&self) -> bool {
        self.reserve() > 0 && self.taken() > self.max()
    }

    fn reserve(&self) -> u32 {
        self.taken.0.reserve.load(SeqCst)
    }

    pub(crate) fn name(&self) -> u32 {
        self.name
    }

    /// Notes since when the shard stands in the queue of the total; what was noted before.
    pub(crate) fn set_wanting(&self, shard: usize, since: u64) -> u64 {
        self.slots[shard].0.wants.swap(since, SeqCst)
    }

    pub(crate) fn wanting(&self, shard: usize) -> u64 {
        self.slots[shard].0.wants.load(SeqCst)
    }

    /// The total gives the shard a permit, which it takes if there is one of its own too.
    pub(crate) fn accept(&self, shard: usize, reserve: bool) -> bool {
        self.set_wanting(shard, 0);
        let accepted = self.try_take_own(reserve);
        if accepted {
            self.slots[shard].0.promised.fetch_add(1, SeqCst);
            self.grant(shard);
        }
        accepted
    }

    /// Changes the maximum and the reserve. When more permits are out than that, the pools close servers as they come
    /// back. A shard that takes a permit in this moment may still go by the old one: so every shard is to say it once
    /// more when it has heard of it.
    pub fn set_limits(&self, max: u32, reserve: u32) {
        self.taken.0.reserve.store(reserve, SeqCst);
        self.set_max(max);
    }

    /// Changes the maximum alone.
    pub fn set_max(&self, max: u32) {
        self.taken.0.max.store(max, SeqCst);
        if self.taken() > self.most(true) {
            self.signal.0.fetch_or(SHRUNK, SeqCst);
        }
    }

    /// How many shards share this budget.
    pub fn shards(&self) -> usize {
        self.slots.len()
    }

    /// The one read of a release: whether there may be a reason not to keep the server. Relaxed, because a shard that
    /// becomes hungry also wakes the others through their mailboxes.
    pub(crate) fn is_calm(&self) -> bool {
        self.signal.0.load(Relaxed) == 0
    }

    /// How many more permits are out than allowed, after [`Budget::set_max`] lowered the limit.
    pub(crate) fn excess(&self) -> u32 {
        if self.signal.0.load(SeqCst) & SHRUNK == 0 {
            return 0;
        }
        let excess = self.taken().saturating_sub(self.most(true));
        if excess == 0 {
            self.signal.0.fetch_and(!SHRUNK, SeqCst);
        }
        excess
    }

    /// The shard's clients have waited since `since` and it gets no permit. To be followed by [`Budget::try_take`]:
    /// either that sees a permit that came back meanwhile, or whoever gives it back sees the hunger.
    pub(crate) fn hunger(&self, shard: usize, since: Instant) {
        let slot = &self.slots[shard].0;
        let stamp = self.stamp(since);
        // A failed update means that the hunger is new, or was answered by a promise in this moment and begins anew.
        if slot
            .since
            .fetch_update(SeqCst, SeqCst, |old| (old != 0).then_some(stamp))
            .is_err()
        {
            self.signal.0.fetch_add(1, SeqCst);
            slot.since.store(stamp, SeqCst);
        }
    }

    /// The shard has what it wants, or wants no more.
    pub(crate) fn sated(&self, shard: usize) {
        if self.slots[shard].0.since.swap(0, SeqCst) != 0 {
            self.signal.0.fetch_sub(1, SeqCst);
        }
    }

    pub(crate) fn is_hungry(&self, shard: usize) -> bool {
        self.slots[shard].0.since.load(SeqCst) != 0
    }

    /// Promises a permit to the longest hungry shard other than `me`. When `me` has waiters itself (`own` is the
    /// oldest), only to one that is hungry for longer, by at least `margin`.
    pub(crate) fn promise(
        &self,
        me: usize,
        own: Option<Instant>,
        margin: Duration,
    ) -> Option<usize> {
        loop {
            let (shard, since) = self.longest_hungry(me)?;
            if own.is_some_and(|own| {
                self.stamp(own) < since.saturating_add(nanos(margin)).saturating_add(1)
            }) {
                return None;
            }
            let slot = &self.slots[shard].0;
            slot.promised.fetch_add(1, SeqCst);
            if slot
                .since
                .compare_exchange(since, 0, SeqCst, SeqCst)
                .is_ok()
            {
                self.signal.0.fetch_sub(1, SeqCst);
                return Some(shard);
            }
            slot.promised.fetch_sub(1, SeqCst);
        }
    }

    /// What was promised to `shard` has arrived, or will not.
    pub(crate) fn fulfil(&self, shard: usize) {
        self.slots[shard].0.promised.fetch_sub(1, SeqCst);
    }

    /// Hands a taken permit to `shard`, which was promised one.
    pub(crate) fn grant(&self, shard: usize) {
        self.slots[shard].0.granted.fetch_add(1, SeqCst);
    }

    /// A permit comes back from `me`: to the longest hungry shard, which the caller must wake, or to be free.
    #[must_use]
    pub(crate) fn pass_on(
        &self,
        me: usize,
        own: Option<Instant>,
        others: &mut Vec<Wake>,
    ) -> Option<usize> {
        loop {
            if !self.is_calm()
                && self.excess() == 0
                && !self.uses_reserve()
                && let Some(shard) = self.promise(me, own, Duration::ZERO)
            {
                self.grant(shard);
                return Some(shard);
            }
            others.extend(self.give_back_to_all());
            // A shard that became hungry between the look and the give-back may have missed the permit.
            if self.longest_hungry(me).is_none() || own.is_some() || !self.try_take() {
                return None;
            }
        }
    }

    /// The permits that were granted to the shard since it last asked.
    pub(crate) fn collect(&self, shard: usize) -> u32 {
        let slot = &self.slots[shard].0;
        if slot.granted.load(SeqCst) == 0 {
            return 0;
        }
        let granted = slot.granted.swap(0, SeqCst);
        slot.promised.fetch_sub(granted, SeqCst);
        granted
    }

    /// Permits and servers that are on their way to the shard.
    pub(crate) fn promised(&self, shard: usize) -> u32 {
        self.slots[shard].0.promised.load(SeqCst)
    }

    /// Permits that are in no pool's hands: granted, and not collected.
    pub fn granted(&self) -> u32 {
        self.slots
            .iter()
            .map(|slot| slot.0.granted.load(SeqCst))
            .sum()
    }

    pub(crate) fn publish_open(&self, shard: usize, open: u32) {
        self.slots[shard].0.open.store(open, SeqCst);
    }

    /// The other shards that have servers.
    pub(crate) fn owners(&self, me: usize) -> impl Iterator<Item = usize> + '_ {
        let has_servers = move |(shard, slot): &(usize, &Padded<Slot>)| {
            *shard != me && slot.0.open.load(SeqCst) > 0
        };
        self.slots
            .iter()
            .enumerate()
            .filter(has_servers)
            .map(|(shard, _)| shard)
    }

    fn longest_hungry(&self, me: usize) -> Option<(usize, u64)> {
        let hunger = |(shard, slot): (usize, &Padded<Slot>)| (shard, slot.0.since.load(SeqCst));
        self.slots
            .iter()
            .enumerate()
            .map(hunger)
            .filter(|&(shard, since)| shard != me && since != 0)
            .min_by_key(|&(_, since)| since)
    }

    /// Instants as numbers that fit an atomic: nanoseconds since the first one that was seen, from 1 on.
    fn stamp(&self, at: Instant) -> u64 {
        let epoch = *self.epoch.get_or_init(|| at);
        nanos(at.saturating_duration_since(epoch)).saturating_add(1)
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Bit of `signal` that says that more permits may be out than allowed; the bits below count hungry shards.
const SHRUNK: u32 = 1 << 31;
