//! The servers of one pool: who is leased, who is idle and in which order, who grows old.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Debug;
use std::time::Instant;

/// The engine's name of a server.
pub trait ServerKey: Copy + Eq + Debug {
    /// A number that no other live server of this pool has, small because the pool keeps a table up to the largest:
    /// the server's place in the engine's slab.
    fn index(self) -> usize;
}

impl ServerKey for usize {
    fn index(self) -> usize {
        self
    }
}

impl ServerKey for u32 {
    fn index(self) -> usize {
        usize::try_from(self).unwrap_or(usize::MAX)
    }
}

/// A slab with an intrusive list through the idle servers, so that each step of the hot path is O(1) and allocates
/// nothing. `head` is the server that was released last: it is the next to be leased, its caches are warm.
#[derive(Debug)]
pub(crate) struct Servers<K> {
    slots: Vec<Slot<K>>,
    vacant: Vec<u32>,
    place: Vec<u32>,
    head: u32,
    tail: u32,
    idle: u32,
    leased: u32,
    checking: u32,
    closing: u32,
    /// When servers outlive their time. Entries of servers that left are recognised by `birth` and dropped late.
    ends: BinaryHeap<Reverse<(Instant, u32, u64)>>,
    births: u64,
}

#[derive(Debug)]
pub(crate) struct Slot<K> {
    pub(crate) key: K,
    pub(crate) state: State,
    /// Since when idle; meaningful in that state only.
    pub(crate) idle_since: Instant,
    /// When it was last seen to be alive without being used.
    pub(crate) checked: Instant,
    /// When its lifetime is over.
    pub(crate) end: Option<Instant>,
    /// Before this it is not given to another shard while clients of this one wait.
    pub(crate) settled: Instant,
    /// To be closed when it comes back, whatever its age.
    pub(crate) retired: bool,
    /// It is closed for a pool that shares the total.
    pub(crate) evicted: bool,
    birth: u64,
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Vacant,
    Idle,
    Leased,
    /// The engine looks whether it is alive; it keeps its `idle_since`.
    Checking,
    /// The engine was told to close it, or to hand it over; it holds its permit until it has done that.
    Closing {
        /// The shard that gets the permit, or the server.
        promised_to: Option<usize>,
    },
}

impl<K: ServerKey> Servers<K> {
    pub(crate) fn new() -> Self {
        Servers {
            slots: Vec::new(),
            vacant: Vec::new(),
            place: Vec::new(),
            head: NONE,
            tail: NONE,
            idle: 0,
            leased: 0,
            checking: 0,
            closing: 0,
            ends: BinaryHeap::new(),
            births: 0,
        }
    }

    /// Adds a server, leased by nobody in particular until the caller places it.
    pub(crate) fn insert(
        &mut self,
        key: K,
        now: Instant,
        settled: Instant,
        end: Option<Instant>,
    ) -> u32 {
        assert!(self.find(key).is_none(), "server {key:?} connected twice");
        let birth = self.births;
        self.births += 1;
        let slot = Slot {
            key,
            state: State::Leased,
            idle_since: now,
            checked: now,
            end,
            settled,
            retired: false,
            evicted: false,
            birth,
            prev: NONE,
            next: NONE,
        };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                let at = u32::try_from(self.slots.len()).expect("fewer than 2^32 servers");
                assert_ne!(at, NONE);
                self.slots.push(slot);
                at
            }
        };
        let index = key.index();
        if index >= self.place.len() {
            self.place.resize(index + 1, NONE);
        }
        self.place[index] = at;
        self.leased += 1;
        if let Some(end) = end {
            self.ends.push(Reverse((end, at, birth)));
        }
        at
    }

    /// Where `key` is, unless it is unknown.
    pub(crate) fn find(&self, key: K) -> Option<u32> {
        let at = *self.place.get(key.index())?;
        (at != NONE && self.slots[at as usize].key == key).then_some(at)
    }

    pub(crate) fn slot(&self, at: u32) -> &Slot<K> {
        &self.slots[at as usize]
    }

    /// A leased server becomes the first to be leased again.
    pub(crate) fn push_idle(&mut self, at: u32, now: Instant) {
        let head = self.head;
        let slot = &mut self.slots[at as usize];
        debug_assert_eq!(slot.state, State::Leased);
        slot.state = State::Idle;
        slot.idle_since = now;
        slot.prev = NONE;
        slot.next = head;
        match head {
            NONE => self.tail = at,
            head => self.slots[head as usize].prev = at,
        }
        self.head = at;
        self.leased -= 1;
        self.idle += 1;
    }

    /// Leases the server that was released last.
    pub(crate) fn pop_idle(&mut self) -> Option<K> {
        let at = self.head;
        if at == NONE {
            return None;
        }
        let slot = &mut self.slots[at as usize];
        slot.state = State::Leased;
        self.head = slot.next;
        let key = slot.key;
        match self.head {
            NONE => self.tail = NONE,
            head => self.slots[head as usize].prev = NONE,
        }
        self.idle -= 1;
        self.leased += 1;
        Some(key)
    }

    /// The server that has been idle for the longest time.
    pub(crate) fn longest_idle(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    /// The idle servers from the one that has been idle for the longest time on.
    pub(crate) fn idle_from_longest(&self) -> impl Iterator<Item = u32> + '_ {
        let at = |at: u32| (at != NONE).then_some(at);
        std::iter::successors(at(self.tail), move |last| at(self.slot(*last).prev))
    }

    /// Takes an idle server out of the list, to be looked at.
    pub(crate) fn begin_check(&mut self, at: u32) -> K {
        self.leave(at);
        self.checking += 1;
        let slot = &mut self.slots[at as usize];
        slot.state = State::Checking;
        slot.key
    }

    /// It has been looked at, and is leased by nobody in particular.
    pub(crate) fn end_check(&mut self, at: u32, now: Instant) {
        self.leave(at);
        self.leased += 1;
        let slot = &mut self.slots[at as usize];
        slot.state = State::Leased;
        slot.checked = now;
    }

    /// An idle server gets the place among the others that it would have if it had been idle since then.
    pub(crate) fn put_idle_back(&mut self, at: u32, since: Instant) {
        debug_assert_eq!(self.slot(at).state, State::Idle);
        self.leave(at);
        let newer = |other: &u32| self.slot(*other).idle_since > since;
        let prev = self.idle_from_longest().find(newer).unwrap_or(NONE);
        let next = match prev {
            NONE => self.head,
            prev => self.slot(prev).next,
        };
        match prev {
            NONE => self.head = at,
            prev => self.slots[prev as usize].next = at,
        }
        match next {
            NONE => self.tail = at,
            next => self.slots[next as usize].prev = at,
        }
        let slot = &mut self.slots[at as usize];
        slot.idle_since = since;
        (slot.prev, slot.next) = (prev, next);
        self.idle += 1;
    }

    /// From now on it waits for its [`Servers::remove`].
    pub(crate) fn close(&mut self, at: u32, promised_to: Option<usize>) -> K {
        self.leave(at);
        self.closing += 1;
        let slot = &mut self.slots[at as usize];
        slot.state = State::Closing { promised_to };
        slot.key
    }

    /// The same, for a pool that shares the total.
    pub(crate) fn evict(&mut self, at: u32) -> K {
        self.slots[at as usize].evicted = true;
        self.close(at, None)
    }

    /// Forgets the server; says whom its permit was promised to.
    pub(crate) fn remove(&mut self, at: u32) -> Option<usize> {
        self.leave(at);
        let slot = &mut self.slots[at as usize];
        let promised_to = match slot.state {
            State::Closing { promised_to } => promised_to,
            State::Vacant | State::Idle | State::Leased | State::Checking => None,
        };
        slot.state = State::Vacant;
        let index = slot.key.index();
        self.place[index] = NONE;
        self.vacant.push(at);
        self.compact_ends();
        promised_to
    }

    /// The next idle server whose lifetime is over. A leased one is left to [`Pool::release`](crate::Pool::release).
    pub(crate) fn pop_outlived(&mut self, now: Instant) -> Option<u32> {
        while let Some(&Reverse((end, at, birth))) = self.ends.peek() {
            if end > now {
                return None;
            }
            self.ends.pop();
            let slot = &self.slots[at as usize];
            if slot.birth == birth && slot.state == State::Idle {
                return Some(at);
            }
        }
        None
    }

    /// No idle server outlives its time before this; may be earlier than needed, by an entry that was dropped late.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.peek().map(|&Reverse((end, ..))| end)
    }

    /// Marks every server to be closed when it comes back.
    pub(crate) fn retire(&mut self) {
        for slot in &mut self.slots {
            slot.retired = true;
        }
    }

    /// Marks some to be closed when they come back; says which of them are idle.
    pub(crate) fn retire_some(&mut self, is_meant: impl Fn(K) -> bool) -> Vec<u32> {
        let mut idle = Vec::new();
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if slot.state != State::Vacant && is_meant(slot.key) {
                slot.retired = true;
                if slot.state == State::Idle {
                    idle.extend(u32::try_from(at));
                }
            }
        }
        idle
    }

    pub(crate) fn check_invariants(&self) {
        let count = |wanted: fn(&State) -> bool| {
            self.slots.iter().filter(|slot| wanted(&slot.state)).count()
        };
        assert_eq!(count(|s| *s == State::Idle), self.idle as usize);
        assert_eq!(count(|s| *s == State::Leased), self.leased as usize);
        assert_eq!(count(|s| *s == State::Checking), self.checking as usize);
        assert_eq!(
            count(|s| matches!(s, State::Closing { .. })),
            self.closing as usize
        );
        assert_eq!(count(|s| *s == State::Vacant), self.vacant.len());
        let mut at = self.head;
        let mut before = NONE;
        let mut seen = 0;
        while at != NONE {
            let slot = self.slot(at);
            assert_eq!(
                slot.state,
                State::Idle,
                "only idle servers are in the idle list"
            );
            assert_eq!(slot.prev, before, "the idle list is linked both ways");
            if before != NONE {
                assert!(
                    slot.idle_since <= self.slot(before).idle_since,
                    "last released, first leased"
                );
            }
            seen += 1;
            assert!(seen <= self.idle, "no server is in the idle list twice");
            (before, at) = (at, slot.next);
        }
        assert_eq!(
            (seen, before),
            (self.idle, self.tail),
            "every idle server is in the idle list"
        );
        for (at, slot) in self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.state != State::Vacant)
        {
            assert_eq!(
                self.find(slot.key),
                Some(u32::try_from(at).unwrap()),
                "a server is found by its key"
            );
        }
        let placed = self.place.iter().filter(|&&at| at != NONE).count();
        assert_eq!(
            placed,
            self.open() as usize,
            "no key points at a server that left"
        );
        assert!(
            self.ends.len() <= 2 * self.open() as usize + STALE_ENDS_MIN,
            "late dropping is bounded"
        );
    }

    /// Takes the server out of the count, and the list, of its present state.
    fn leave(&mut self, at: u32) {
        let slot = &self.slots[at as usize];
        let (prev, next) = (slot.prev, slot.next);
        match slot.state {
            State::Leased => self.leased -= 1,
            State::Checking => self.checking -= 1,
            State::Closing { .. } => self.closing -= 1,
            State::Vacant => unreachable!("a vacant slot has no key and is never found"),
            State::Idle => {
                self.idle -= 1;
                match prev {
                    NONE => self.head = next,
                    prev => self.slots[prev as usize].next = next,
                }
                match next {
                    NONE => self.tail = prev,
                    next => self.slots[next as usize].prev = prev,
                }
            }
        }
    }

    fn compact_ends(&mut self) {
        if self.ends.len() > 2 * self.open() as usize + STALE_ENDS_MIN {
            let slots = &self.slots;
            self.ends.retain(|Reverse((_, at, birth))| {
                let slot = &slots[*at as usize];
                slot.birth == *birth && slot.state != State::Vacant
            });
        }
    }
}

impl<K> Servers<K> {
    pub(crate) fn idle(&self) -> u32 {
        self.idle
    }

    pub(crate) fn leased(&self) -> u32 {
        self.leased
    }

    /// Servers that serve or can serve.
    pub(crate) fn live(&self) -> u32 {
        self.idle + self.leased + self.checking
    }

    /// Servers that hold a permit.
    pub(crate) fn open(&self) -> u32 {
        self.live() + self.closing
    }

    /// Servers that are being checked.
    pub(crate) fn checking(&self) -> u32 {
        self.checking
    }

    /// Servers that are to be discarded.
    pub(crate) fn closing(&self) -> u32 {
        self.closing
    }

    /// Servers that are to be discarded for pools that share the total.
    pub(crate) fn evictions(&self) -> u32 {
        let evicted = |slot: &&Slot<K>| slot.evicted && slot.state != State::Vacant;
        u32::try_from(self.slots.iter().filter(evicted).count()).unwrap_or(u32::MAX)
    }

    /// The shards that were promised the permits of closing servers.
    pub(crate) fn promises(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots.iter().filter_map(|slot| match slot.state {
            State::Closing { promised_to } => promised_to,
            State::Vacant | State::Idle | State::Leased | State::Checking => None,
        })
    }
}

const NONE: u32 = u32::MAX;

/// Below this many entries of servers that left, a compaction is not worth its pass.
const STALE_ENDS_MIN: usize = 32;
