//! The servers and the waiting clients of one shard for one (group, target), and every decision about them.

mod checks;
mod logins;
mod moving;
mod reload;
mod time;

pub use moving::Moving;
pub use time::Expired;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backoff::Pauses;
use crate::hunger::{Asking, Hunger};
use crate::servers::{ServerKey, Servers, State};
use crate::target::{Pass, Target};
use crate::total::Wake;
use crate::waiters::{Ticket, Waiters};
use crate::{Budget, Settings};

/// One shard's pool. `K` names a server, `W` a waiting client; both are the engine's. See the crate's text for the
/// order of calls.
///
/// Invariants, checked by [`Pool::check_invariants`]:
/// - a permit of the budget is held for each server until it is discarded or handed over, for each login in flight, and
///   for each permit that another shard sent and that is not used yet; for nothing else. A server between two shards
///   has its permit with it, see [`Moving`];
/// - a server is idle, leased, being checked or leaving;
/// - no client waits while a server is idle;
/// - clients are served in the order in which they came.
#[derive(Debug)]
pub struct Pool<K, W> {
    settings: Settings,
    budget: Arc<Budget>,
    shard: usize,
    servers: Servers<K>,
    waiters: Waiters<W>,
    logins: u32,
    /// Permits that another shard sent and for which no login has been started.
    in_hand: u32,
    backoff: Pauses,
    target: Arc<Target>,
    /// One of the logins in flight tries whether the target is well again.
    probes: bool,
    /// Logins in flight to a target that was before this one.
    strays: u32,
    /// When the target may admit the next login.
    admits_from: Option<Instant>,
    /// It does not admit any now; when that ends, there is news, or a login of this pool ends.
    is_barred: bool,
    /// Something is to be told to the pools of this target on all shards.
    has_news: bool,
    /// Of the logins that were last wanted, those that no client waits for.
    warming: u32,
    /// When it is looked again whether the minimum can be reached.
    refills_at: Option<Instant>,
    hunger: Option<Hunger>,
    asking: Asking,
    wakes: Vec<usize>,
    /// It wants a permit of the total.
    want: Option<Asking>,
    /// All shards are to be asked for an idle server of another role.
    asks: bool,
    other_wakes: Vec<Wake>,
}

/// Answer to a client that needs a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquire<K> {
    /// The client owns this server until it is released or discarded.
    Lease(K),
    /// The client is queued; the ticket takes it out again.
    Wait(Ticket),
}

/// What becomes of a server that has just logged in or was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a server that is handed off or to be closed is no longer idle"]
pub enum Placed<W> {
    /// It waits for the next client.
    Idle,
    /// It is leased to this client, which has waited the longest.
    HandOff(W),
    /// To be closed, then discarded.
    Close(CloseReason),
    /// To be handed over to a shard whose clients starve, by [`Pool::hand_over`]. If it breaks before, it is discarded:
    /// then its permit goes there.
    GiveAway {
        /// The starving shard; [`Pool::next_wake`] names it too, where the server is discarded.
        to_shard: usize,
    },
}

/// Why a healthy server is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Not used for `idle_timeout`.
    IdleTimeout,
    /// Open for `max_lifetime`.
    Lifetime,
    /// `max_connections` was lowered.
    Shrunk,
    /// Nobody needs the reserve any more.
    Reserve,
    /// Another role of the database gets no server.
    Evicted,
    /// [`Pool::retire`] was called after it connected.
    Retired,
}

/// Clients that go on waiting ask the other shards again after this time, and then ever more slowly.
pub const PATIENCE: Duration = Duration::from_millis(10);

/// A client waits for this much longer than another shard's before a server in use there moves. Moving is cheap, but
/// where more shards than CPUs are all saturated, waits differ by the kernel's time slices for no better reason, and a
/// server that has moved waits for its new shard's slice. 4 shards on 2 CPUs that others used too, 20 servers, 64 clients,
/// against one shard: 0.5 to 0.8 of its transactions with 1 to 5 ms (50 to 500 moves a second), 0.8 and more with 20 ms,
/// 0.6 to 1.4 with 100 ms; at 256 clients 0.5 to 0.95, 0.75 to 0.86, 0.8 to 1.1. A quiet machine has not been asked yet.
pub const MARGIN: Duration = Duration::from_millis(20);

/// For this long a server that has moved stays while clients wait.
pub const SETTLING: Duration = Duration::from_millis(5);

impl<K: ServerKey, W: Copy> Pool<K, W> {
    /// An empty pool of shard number `shard` (from 0 to the budget's number of shards less one).
    ///
    /// # Panics
    /// When the budget has no such shard.
    pub fn new(settings: Settings, budget: Arc<Budget>, shard: usize) -> Self {
        assert!(
            shard < budget.shards(),
            "shard {shard} of {}",
            budget.shards()
        );
        Pool {
            settings,
            budget,
            shard,
            servers: Servers::new(),
            waiters: Waiters::new(),
            logins: 0,
            in_hand: 0,
            backoff: Pauses::default(),
            target: Arc::default(),
            probes: false,
            strays: 0,
            admits_from: None,
            is_barred: false,
            has_news: false,
            warming: 0,
            refills_at: None,
            hunger: None,
            asking: Asking::default(),
            wakes: Vec::new(),
            want: None,
            asks: false,
            other_wakes: Vec::new(),
        }
    }

    /// The same pool, of a target that others share.
    pub fn with_target(mut self, target: Arc<Target>) -> Self {
        self.target = target;
        self
    }

    /// A client needs a server: the one that was released last, or a place in the queue.
    pub fn acquire(&mut self, waiter: W, now: Instant) -> Acquire<K> {
        match self.servers.pop_idle() {
            Some(key) => Acquire::Lease(key),
            None => Acquire::Wait(self.waiters.push(waiter, now)),
        }
    }

    /// The client left, or gave up. False when it was served, or had expired, before.
    pub fn cancel_wait(&mut self, ticket: Ticket) -> bool {
        let waited = self.waiters.cancel(ticket);
        self.end_hunger_of_nobody();
        waited
    }

    /// A client is done with its server, and the server is clean.
    ///
    /// # Panics
    /// When the server is not leased: two clients would share it.
    pub fn release(&mut self, key: K, now: Instant) -> Placed<W> {
        let at = self.servers.find(key).expect("a released server is known");
        assert_eq!(
            self.servers.slot(at).state,
            State::Leased,
            "server {key:?} is released but was not leased"
        );
        self.place(at, now)
    }

    /// The server's socket is closed, whoever closed it: its permit goes back. False when the server is not known (any
    /// more), so that two reports of one end do no harm.
    pub fn discard(&mut self, key: K) -> bool {
        let Some(at) = self.servers.find(key) else {
            return false;
        };
        if self.servers.slot(at).evicted
            && let Some(total) = self.budget.total()
        {
            total.evicted(1);
        }
        let promised_to = self.servers.remove(at);
        self.budget.publish_open(self.shard, self.servers.open());
        match promised_to {
            Some(shard) => {
                self.budget.grant(shard);
                self.wakes.push(shard);
            }
            None => self.return_permit(),
        }
        true
    }

    /// Whether one more waiting client changes nothing: others wait already, there is no permit for a login, and no
    /// other shard that could be asked.
    pub fn queues_quietly(&self) -> bool {
        self.waiters.len() > 1
            && self.budget.shards() == 1
            && (self.want.is_some() || self.budget.taken() >= self.budget.max())
            && self.in_hand == 0
    }

    /// If another role of the database gets no server, the one that has been idle for the longest time leaves, to be
    /// closed and then discarded.
    pub fn spare_idle(&mut self) -> Option<K> {
        let at = self.servers.longest_idle()?;
        let wanted = self.budget.total()?.claim_eviction();
        wanted.then(|| self.servers.evict(at))
    }

    /// Whether the engine must ask all shards of the database for an idle server, see [`Total::ask`](crate::Total::ask).
    pub fn take_ask(&mut self) -> bool {
        std::mem::take(&mut self.asks)
    }

    /// The next pool of another role that has been given a permit, which the engine must tell.
    pub fn next_other_wake(&mut self) -> Option<Wake> {
        self.other_wakes.pop()
    }

    /// The next shard to which the engine must send a wake, because it was given a permit or because this shard starves.
    pub fn next_wake(&mut self) -> Option<usize> {
        self.wakes.pop()
    }

    /// Every present server is to go (credentials or address changed, RECONNECT): idle ones are returned, to be closed
    /// and then discarded; leased ones are answered [`CloseReason::Retired`] when they come back. Which logins in flight were begun before is the
    /// engine's to know: it gives those up and reports them by [`Pool::login_failed`].
    pub fn retire(&mut self) -> Vec<K> {
        self.servers.retire();
        std::iter::from_fn(|| Some(self.servers.close(self.servers.longest_idle()?, None)))
            .collect()
    }

    /// The same for those of which the engine says so.
    pub fn retire_some(&mut self, is_meant: impl Fn(K) -> bool) -> Vec<K> {
        let idle = self.servers.retire_some(is_meant);
        idle.into_iter()
            .map(|at| self.servers.close(at, None))
            .collect()
    }

    /// Takes new settings; what they make superfluous goes with the next [`Pool::expire`] or release. The new maximum
    /// is set once, by [`Budget::set_max`]. Lifetimes of servers that are open stay as they were.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// From now on no server is opened but for a client.
    pub fn stop_warming(&mut self) {
        self.settings.min_connections = 0;
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Servers that nobody uses.
    pub fn idle(&self) -> u32 {
        self.servers.idle()
    }

    /// Servers that a client owns.
    pub fn leased(&self) -> u32 {
        self.servers.leased()
    }

    /// Clients in the queue.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Since when the client at the head of the queue waits.
    pub fn waiting_since(&self) -> Option<Instant> {
        self.waiters.oldest()
    }

    /// Logins that are not reported yet.
    pub fn logins_in_flight(&self) -> u32 {
        self.logins
    }

    /// Servers that hold a permit: idle, leased, and those that are to be closed and are not discarded yet.
    pub fn open(&self) -> u32 {
        self.servers.open()
    }

    /// Permits of the budget that this pool holds.
    pub fn permits(&self) -> u32 {
        self.servers.open() + self.logins + self.in_hand
    }

    /// Panics when an invariant of the type does not hold.
    pub fn check_invariants(&self) {
        self.servers.check_invariants();
        self.waiters.check_invariants();
        assert!(
            self.waiters.is_empty() || self.servers.idle() == 0,
            "a client waits beside an idle server"
        );
        assert!(
            self.permits() <= self.budget.taken(),
            "every permit is counted in the budget"
        );
        assert!(
            self.hunger.is_none() || !self.waiters.is_empty(),
            "only waiting clients make a shard hungry"
        );
    }

    /// Finds a use for a leased server that nobody owns any more.
    fn place(&mut self, at: u32, now: Instant) -> Placed<W> {
        let slot = self.servers.slot(at);
        let settled = slot.settled <= now;
        let reason = match slot.end {
            _ if slot.retired => Some(CloseReason::Retired),
            Some(end) if end <= now => Some(CloseReason::Lifetime),
            _ => None,
        };
        if let Some(reason) = reason {
            self.servers.close(at, None);
            return Placed::Close(reason);
        }
        if !self.budget.is_calm() {
            if self.budget.excess() > self.servers.closing() {
                self.servers.close(at, None);
                return Placed::Close(CloseReason::Shrunk);
            }
            let own = self.waiters.oldest();
            if (settled || own.is_none())
                && let Some(to_shard) = self.budget.promise(self.shard, own, MARGIN)
            {
                self.servers.close(at, Some(to_shard));
                return Placed::GiveAway { to_shard };
            }
        }
        if settled && self.owes_total() {
            self.servers.evict(at);
            return Placed::Close(CloseReason::Evicted);
        }
        self.place_here(at, now)
    }

    /// The same, whoever starves elsewhere.
    fn place_here(&mut self, at: u32, now: Instant) -> Placed<W> {
        match self.waiters.pop() {
            Some(waiter) => {
                self.end_hunger_of_nobody();
                Placed::HandOff(waiter)
            }
            None => {
                self.servers.push_idle(at, now);
                Placed::Idle
            }
        }
    }

    /// Whether a pool that shares the total has waited so much longer that a server in use here is to be its, which is
    /// then promised.
    fn owes_total(&self) -> bool {
        let own = self.waiters.oldest();
        let Some(total) = self.budget.total().filter(|total| total.is_overdue(own)) else {
            return false;
        };
        // The one that waits may be this pool itself, by a client that has been served since.
        if self.want.is_some() {
            total.moves_to(&self.budget, self.shard, own);
        }
        total.is_overdue(own) && total.claim_eviction()
    }

    fn end_want(&mut self) {
        if self.want.take().is_some()
            && let Some(total) = self.budget.total()
        {
            total.unwant(&self.budget, self.shard);
        }
    }

    fn return_permit(&mut self) {
        self.wakes.extend(self.budget.pass_on(
            self.shard,
            self.waiters.oldest(),
            &mut self.other_wakes,
        ));
    }

    fn end_hunger_of_nobody(&mut self) {
        if self.waiters.is_empty() {
            self.end_hunger();
            self.end_want();
        }
    }

    fn end_hunger(&mut self) {
        if self.hunger.take().is_some() {
            self.budget.sated(self.shard);
        }
    }
}

impl<K, W> Drop for Pool<K, W> {
    /// A pool that is dropped, servers and all, leaves no permit behind and breaks no promise.
    fn drop(&mut self) {
        self.budget.sated(self.shard);
        if let Some(total) = self.budget.total() {
            total.unwant(&self.budget, self.shard);
            total.evicted(self.servers.evictions());
        }
        self.budget.publish_open(self.shard, 0);
        (self.strays..self.logins).for_each(|login| {
            let is_probe = self.probes && login == self.strays;
            self.target.withdraw(Pass { is_probe });
        });
        let mut held =
            self.servers.open() + self.logins + self.in_hand + self.budget.collect(self.shard);
        for shard in self.servers.promises() {
            self.budget.grant(shard);
            held -= 1;
        }
        (0..held).for_each(|_| self.budget.give_back());
    }
}
