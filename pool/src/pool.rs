//! The servers and the waiting clients of one shard for one (group, target), and every decision about them.

mod moving;
mod reload;

pub use moving::Moving;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backoff::{Backoff, shortened};
use crate::hunger::{Asking, Hunger};
use crate::servers::{ServerKey, Servers, State};
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
/// - a server is idle, leased or leaving;
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
    backoff: Backoff,
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

/// What has run out of time.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "expired servers are to be closed, expired waiters to be told"]
pub struct Expired<K, W> {
    /// To be closed, then discarded.
    pub servers: Vec<(K, CloseReason)>,
    /// Clients that have waited for `connection_timeout`; they are out of the queue.
    pub waiters: Vec<W>,
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

/// A server of a pool that is larger than `max_connections` leaves when it has been idle for this long: a client that
/// asks again and again keeps it, and does not wait for `reserve_timeout` each time.
const RESERVE_IDLE: Duration = Duration::from_secs(1);

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
            backoff: Backoff::default(),
            hunger: None,
            asking: Asking::default(),
            wakes: Vec::new(),
            want: None,
            asks: false,
            other_wakes: Vec::new(),
        }
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

    /// How many logins the engine must start now; each holds a permit until it is reported.
    pub fn logins_wanted(&mut self, now: Instant) -> u32 {
        self.backoff.settle(now);
        self.in_hand += self.budget.collect(self.shard);
        let before = self.logins;
        while self.lacking(now) > 0
            && (self.in_hand > 0 || self.budget.try_take() || self.takes_reserve(now))
        {
            self.in_hand = self.in_hand.saturating_sub(1);
            self.logins += 1;
        }
        self.want_of_total(now);
        self.ask_other_shards(now);
        self.refill(now);
        self.pass_on_surplus(now);
        self.logins - before
    }

    /// A login has succeeded. `jitter` (0 to 1) shortens the server's lifetime by up to a tenth, so that servers that
    /// were opened together do not all close together.
    ///
    /// # Panics
    /// When no login is in flight, or a server of this key is here already.
    pub fn connected(&mut self, key: K, now: Instant, jitter: f64) -> Placed<W> {
        self.end_login();
        self.backoff.succeeded();
        let lifetime = self
            .settings
            .max_lifetime()
            .map(|lifetime| shortened(lifetime, 0.1 * jitter));
        let end = lifetime.and_then(|lifetime| now.checked_add(lifetime));
        let at = self.servers.insert(key, now, now, end);
        self.budget.publish_open(self.shard, self.servers.open());
        self.place(at, now)
    }

    /// A login has failed, or was given up. The next is started after a pause. When this leaves the pool without a live
    /// server and without another login in flight, all waiting clients are returned: they fail with this login's error.
    ///
    /// # Panics
    /// When no login is in flight.
    pub fn login_failed(&mut self, now: Instant, jitter: f64) -> Vec<W> {
        self.end_login();
        self.backoff.failed(&self.settings, now, jitter);
        let mut failed = Vec::new();
        if self.servers.live() == 0 && self.logins == 0 {
            failed.reserve_exact(self.waiters.len());
            failed.extend(std::iter::from_fn(|| self.waiters.pop()));
        }
        self.end_hunger_of_nobody();
        self.return_permit();
        failed
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

    /// Whatever has run out of time; costs as much as there is of it.
    pub fn expire(&mut self, now: Instant) -> Expired<K, W> {
        let mut waiters = Vec::new();
        while self
            .waiter_deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            waiters.extend(self.waiters.pop());
        }
        self.end_hunger_of_nobody();
        let mut servers = Vec::new();
        while let Some(at) = self.servers.pop_outlived(now) {
            servers.push((self.servers.close(at, None), CloseReason::Lifetime));
        }
        while let Some((at, reason)) = self.useless_idle(now) {
            servers.push((self.servers.close(at, None), reason));
        }
        Expired { servers, waiters }
    }

    /// When [`Pool::expire`] and [`Pool::logins_wanted`] are to be called at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        let idle = self.servers.longest_idle().and_then(|at| {
            self.servers
                .slot(at)
                .idle_since
                .checked_add(self.idle_limit()?.0)
        });
        [
            self.waiter_deadline(),
            idle,
            self.servers.next_end(),
            self.login_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// When a server that becomes idle now is to be closed for that, unless it is used before.
    pub fn idle_end(&self, now: Instant) -> Option<Instant> {
        now.checked_add(self.idle_limit()?.0)
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

    /// Takes new settings; what they make superfluous goes with the next [`Pool::expire`] or release. The new maximum
    /// is set once, by [`Budget::set_max`]. Lifetimes of servers that are open stay as they were.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
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

    /// The logins that waiting clients lack, that may be started now, and for which there may be no permit.
    fn lacking(&self, now: Instant) -> u32 {
        if self.backoff.is_over(now) {
            self.unserved().min(self.logins_left())
        } else {
            0
        }
    }

    fn logins_left(&self) -> u32 {
        self.settings.logins_max.saturating_sub(self.logins)
    }

    /// Waiting clients for which no login is in flight.
    fn unserved(&self) -> u32 {
        u32::try_from(self.waiters.len())
            .unwrap_or(u32::MAX)
            .saturating_sub(self.logins)
    }

    /// Opens servers up to the minimum, but takes no permit that a starving shard could use.
    fn refill(&mut self, now: Instant) {
        if !self.backoff.is_over(now) {
            return;
        }
        while self.servers.live() + self.logins < self.min_share()
            && self.logins < self.settings.logins_max
            && self.budget.is_calm()
            && self.budget.try_take()
        {
            self.logins += 1;
        }
    }

    /// Whether a client has waited for so long that its server may be one of the reserve. Those before it have a login.
    fn reserve_is_due(&self, now: Instant) -> bool {
        let since = self.waiters.since_behind(self.logins);
        let waited = since.map(|since| now.saturating_duration_since(since));
        waited >= self.settings.reserve_timeout() && self.settings.reserve_timeout().is_some()
    }

    fn takes_reserve(&self, now: Instant) -> bool {
        self.reserve_is_due(now) && self.budget.try_take_reserve()
    }

    /// Where the total has no permit for a client, though the pool's own budget has.
    fn want_of_total(&mut self, now: Instant) {
        let Some(total) = self.budget.total() else {
            return;
        };
        let reserve = self.reserve_is_due(now);
        let lacks = self.lacking(now) > self.budget.promised(self.shard);
        let since = self
            .waiters
            .oldest()
            .filter(|_| lacks && self.budget.has_room(reserve));
        let Some(since) = since else {
            return self.end_want();
        };
        if total.want(&self.budget, self.shard, since, reserve) {
            self.logins += 1;
            return self.end_want();
        }
        let want = self.want.get_or_insert_default();
        self.asks |= want.asks(now) && total.is_short();
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

    fn ask_other_shards(&mut self, now: Instant) {
        if self.budget.shards() == 1 {
            return;
        }
        let promised = self.budget.promised(self.shard);
        let since = match self.waiters.oldest() {
            Some(since) if self.unserved() > promised => since,
            _ => return self.end_hunger(),
        };
        if self.hunger.is_none() {
            // Without any server nobody is served, however seldom one asks.
            if self.servers.live() == 0 && self.logins == 0 {
                self.asking.hurry();
            }
            if !self.asking.is_due(now) {
                return;
            }
        }
        let is_known = self.budget.is_hungry(self.shard);
        if Hunger::must_be_told(self.hunger.as_ref(), since, is_known) {
            self.budget.hunger(self.shard, since);
            self.hunger = Some(Hunger::new(since));
            if self.lacking(now) > 0 && self.budget.try_take() {
                self.logins += 1;
                self.end_hunger();
                return;
            }
        }
        if self.asking.asks(now) {
            self.wakes.extend(self.budget.owners(self.shard));
        }
    }

    fn pass_on_surplus(&mut self, now: Instant) {
        let usable = if self.backoff.is_over(now) {
            self.unserved()
        } else {
            0
        };
        while self.in_hand > usable {
            self.in_hand -= 1;
            self.return_permit();
        }
    }

    fn return_permit(&mut self) {
        self.wakes.extend(self.budget.pass_on(
            self.shard,
            self.waiters.oldest(),
            &mut self.other_wakes,
        ));
    }

    fn end_login(&mut self) {
        self.logins = self
            .logins
            .checked_sub(1)
            .expect("a login that ends is in flight");
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

    fn useless_idle(&self, now: Instant) -> Option<(u32, CloseReason)> {
        let at = self.servers.longest_idle()?;
        if self.budget.excess() > self.servers.closing() {
            return Some((at, CloseReason::Shrunk));
        }
        let (limit, reason) = self.idle_limit()?;
        let idle = now.saturating_duration_since(self.servers.slot(at).idle_since);
        (idle >= limit).then_some((at, reason))
    }

    /// How long a server may be idle, and why no longer.
    fn idle_limit(&self) -> Option<(Duration, CloseReason)> {
        let surplus = self.servers.live() > self.min_share();
        let timeout = self.settings.idle_timeout().filter(|_| surplus);
        if self.budget.uses_reserve() && timeout.is_none_or(|timeout| timeout > RESERVE_IDLE) {
            return Some((RESERVE_IDLE, CloseReason::Reserve));
        }
        timeout.map(|timeout| (timeout, CloseReason::IdleTimeout))
    }

    fn waiter_deadline(&self) -> Option<Instant> {
        self.waiters
            .oldest()?
            .checked_add(self.settings.connection_timeout?)
    }

    /// When [`Pool::logins_wanted`] may answer otherwise than now, without anything else happening.
    fn login_deadline(&self) -> Option<Instant> {
        let lacking = self.unserved().min(self.logins_left());
        let below_min = self.servers.live() + self.logins < self.min_share();
        let login = self.backoff.until().filter(|_| lacking > 0 || below_min);
        let may_log_in =
            self.backoff.until().is_none() && lacking > self.budget.promised(self.shard);
        let permit = self.permit_deadline().filter(|_| may_log_in);
        [login, permit, self.next_ask()].into_iter().flatten().min()
    }

    /// When there may be a permit of the total, or of the reserve.
    fn permit_deadline(&self) -> Option<Instant> {
        let next = self.want.as_ref().and_then(Asking::next);
        next.or_else(|| self.reserve_deadline())
    }

    /// When this shard asks the others the next time. They may have idle servers where no login succeeds.
    fn next_ask(&self) -> Option<Instant> {
        if self.budget.shards() == 1 || self.unserved() <= self.budget.promised(self.shard) {
            return None;
        }
        self.asking.next()
    }

    /// When the next client will have waited long enough for the reserve, if there is any left.
    fn reserve_deadline(&self) -> Option<Instant> {
        let timeout = self.settings.reserve_timeout()?;
        let since = self.waiters.since_behind(self.logins)?;
        since
            .checked_add(timeout)
            .filter(|_| self.budget.has_room(true))
    }

    fn min_share(&self) -> u32 {
        self.settings.min_share(self.shard, self.budget.shards())
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
        let mut held =
            self.servers.open() + self.logins + self.in_hand + self.budget.collect(self.shard);
        for shard in self.servers.promises() {
            self.budget.grant(shard);
            held -= 1;
        }
        (0..held).for_each(|_| self.budget.give_back());
    }
}
