//! The acting half of a pool: what [`pool::Pool`] decides is done here.

mod ends;
mod health;
mod moves;
mod renew;
mod seat;

pub use moves::Arriving;
pub use renew::Facts;
pub use seat::{Refusal, Seat};

use super::roles::{Admitted, RoleKeys};
use super::{Mail, Shard, TargetState, bump};
use crate::config::{AuthQuery, Secret};
use crate::random;
use crate::ring::task;
use crate::server::login::LoginError;
use crate::server::{Keys, Parameters, Server};
use crate::settings::Labels;
use crate::snapshot::Database;
use ::pool::config::PoolMode;
use ::pool::{Acquire, Budget, Placed, Pool};
use ends::{Closing, LoginGuard};
use protocol::startup::ProtocolVersion;
use seat::Waiter;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Which pool: the same on all shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolId {
    /// The group.
    pub group: usize,
    /// 0 for the group's own user, else the number of a client's role.
    pub role: u32,
}

impl PoolId {
    /// Of the group's own user.
    pub fn of(group: usize) -> Self {
        Self { group, role: 0 }
    }

    /// Of whoever asks PostgreSQL for secrets.
    pub fn is_lookup(self) -> bool {
        self.role == LOOKUPS
    }

    /// Of a client's own role.
    pub fn is_role(self) -> bool {
        self.role != 0 && self.role != LOOKUPS
    }
}

/// The role of whoever asks PostgreSQL for secrets.
const LOOKUPS: u32 = u32::MAX;

/// One shard's servers for one group and role.
pub struct ShardPool {
    /// The shard that owns it.
    pub shard: Rc<Shard>,
    /// The labels of its clients and servers.
    pub labels: Labels,
    id: PoolId,
    facts: RefCell<Rc<Facts>>,
    state: renew::State,
    /// Where its servers are.
    target: RefCell<Arc<TargetState>>,
    /// Leases that ended with a server given back clean.
    transactions: Cell<u64>,
    /// As many of them as the target's breaker has heard of.
    told_target: Cell<u64>,
    /// At which of the addresses of its host's name each server is.
    origins: RefCell<HashMap<u32, IpAddr>>,
    /// What a client's role has proved.
    keys: Arc<RoleKeys>,
    decide: RefCell<Pool<u32, u32>>,
    /// Idle servers; a place without one is of a leased server.
    servers: RefCell<Slab<Option<Box<Server>>>>,
    waiters: RefCell<Slab<Waiter>>,
    /// What servers are asked to speak.
    newest_version: Cell<ProtocolVersion>,
    salted: RefCell<Option<SaltedKey>>,
    janitor: Janitor,
    /// What the first server reported when it had logged in.
    fresh: RefCell<Option<Arc<Parameters>>>,
    /// Clients that got a server or an error, from all pools of the database.
    acquires: Rc<Cell<u64>>,
}

struct SaltedKey {
    password: Secret,
    salt: Vec<u8>,
    iterations: u32,
    key: Zeroizing<[u8; 32]>,
}

#[derive(Default)]
struct Janitor {
    waker: RefCell<Option<Waker>>,
    sleeps_until: Cell<Option<Instant>>,
    called: Cell<bool>,
}

impl ShardPool {
    /// A pool without servers, for the group's own user. Does no I/O.
    pub fn new(shard: Rc<Shard>, database: &Arc<Database>) -> Rc<Self> {
        let id = PoolId::of(database.id);
        let budget = Arc::clone(&database.shared.budget);
        Self::make(shard, id, Facts::own(database), budget)
    }

    /// The same for a client's role, whose keys come with each login.
    pub(super) fn of_role(
        shard: Rc<Shard>,
        role: Admitted,
        database: &Arc<Database>,
        user: &str,
    ) -> Rc<Self> {
        let facts = Facts::of_role(database, user);
        Self::with_keys(shard, role.id, facts, role.budget, role.keys)
    }

    /// One server that asks for secrets, out of every budget.
    pub(super) fn for_lookups(
        shard: Rc<Shard>,
        database: &Arc<Database>,
        query: &AuthQuery,
    ) -> Rc<Self> {
        let id = PoolId {
            group: database.id,
            role: LOOKUPS,
        };
        let budget = Arc::clone(&database.shared.asking);
        Self::make(shard, id, Facts::asking(database, query), budget)
    }

    fn make(shard: Rc<Shard>, id: PoolId, facts: Facts, budget: Arc<Budget>) -> Rc<Self> {
        Self::with_keys(shard, id, facts, budget, Arc::default())
    }

    fn with_keys(
        shard: Rc<Shard>,
        id: PoolId,
        facts: Facts,
        budget: Arc<Budget>,
        keys: Arc<RoleKeys>,
    ) -> Rc<Self> {
        let place = shard.id;
        let state = renew::State::of(&facts);
        let settings = facts.settings(id);
        let target = shard.targets.of(&facts.target);
        let decide = Pool::new(settings, budget, place).with_target(Arc::clone(&target.health));
        let acquires = shard.acquires_of(id);
        Rc::new(Self {
            shard,
            labels: Labels::default(),
            id,
            facts: RefCell::new(Rc::new(facts)),
            state,
            target: RefCell::new(target),
            transactions: Cell::new(0),
            told_target: Cell::new(0),
            origins: RefCell::default(),
            keys,
            decide: RefCell::new(decide),
            servers: RefCell::default(),
            waiters: RefCell::default(),
            newest_version: Cell::new(ProtocolVersion::V3_2),
            salted: RefCell::new(None),
            janitor: Janitor::default(),
            fresh: RefCell::new(None),
            acquires,
        })
    }

    /// The group that it serves, and as whom: as it is now, which a reload
    /// changes. Not for the way of a query.
    pub fn group(&self) -> Rc<Facts> {
        Rc::clone(&self.facts.borrow())
    }

    /// Which one it is.
    pub fn id(&self) -> PoolId {
        self.id
    }

    /// Its group's place among the groups.
    pub fn index(&self) -> usize {
        self.id.group
    }

    /// As whom its servers are logged in.
    pub fn user(&self) -> Rc<str> {
        Rc::clone(&self.facts.borrow().user)
    }

    /// With what they log in.
    pub fn keys(&self) -> Option<Keys> {
        let facts = self.facts.borrow();
        match self.id.is_role() {
            true => self.keys.get(),
            false => facts.password.clone().map(Keys::Password),
        }
    }

    /// A client of the role has proved who it is.
    pub(super) fn set_keys(&self, keys: Option<Keys>) {
        self.keys.set(keys);
    }

    /// No client ever gets a server of it.
    pub fn is_for_lookups(&self) -> bool {
        self.id.role == LOOKUPS
    }

    /// When servers go back.
    pub fn mode(&self) -> PoolMode {
        self.state.mode.get()
    }

    /// Prepared statements that a server may have.
    pub fn statements_max(&self) -> usize {
        self.state.statements_max.get()
    }

    /// A server; or `None`, and the client has a place in the queue: its
    /// waker is woken when [`Seat::take`] has something. The seat must be of
    /// this pool and not be waited on.
    pub fn acquire(self: &Rc<Self>, seat: &mut Option<Seat>, waker: &Waker) -> Option<Box<Server>> {
        let now = self.shard.ring.now();
        let waiter = match seat {
            Some(seat) => seat.waiter,
            None => id(self.waiters.borrow().vacant_key()),
        };
        loop {
            let acquired = self.decide.borrow_mut().acquire(waiter, now);
            match acquired {
                Acquire::Lease(slot) => {
                    let server = self
                        .servers
                        .borrow_mut()
                        .get_mut(slot as usize)
                        .and_then(Option::take);
                    let mut server = server.expect("an idle server is in its place");
                    if server.check_idle() {
                        bump(&self.acquires);
                        server.socket.set_idle(false);
                        server.leased = self.shard.ring.micros();
                        return Some(server);
                    }
                    self.discard(server);
                }
                Acquire::Wait(ticket) => {
                    bump(&self.shard.counters.waits);
                    let seat = seat.get_or_insert_with(|| Seat::new(self, waker));
                    debug_assert!(seat.ticket.is_none() && seat.waiter == waiter);
                    seat.ticket = Some(ticket);
                    self.waiters.borrow_mut()[seat.waiter as usize].since =
                        self.shard.ring.micros();
                    let waiting = &self.shard.waiting;
                    waiting.set(waiting.get() + 1);
                    if self.target.borrow().health.refuses(now) && !self.is_paused() {
                        self.decide.borrow_mut().cancel_wait(ticket);
                        self.refuse(waiter);
                    } else if !self.decide.borrow().queues_quietly() {
                        self.start_logins();
                        self.call_janitor_if_late();
                    }
                    return None;
                }
            }
        }
    }

    /// A client is done with a server that is clean and at rest.
    pub fn release(self: &Rc<Self>, server: Box<Server>) {
        debug_assert!(!server.is_suspect() && server.cancels.under_way() == 0);
        if server.cancels.are_lost() {
            self.discard(server);
            return;
        }
        bump(&self.transactions);
        let micros = self.shard.ring.micros();
        self.shard
            .times
            .lease
            .record(micros.saturating_sub(server.leased));
        let placed = self
            .decide
            .borrow_mut()
            .release(server.slot, self.shard.ring.now());
        self.place(server, placed);
    }

    /// A server that was leased is of no use any more. Its permit comes back
    /// when PostgreSQL has closed its end too, so that not even the server's
    /// own count exceeds the limit.
    pub fn discard(self: &Rc<Self>, server: Box<Server>) {
        server.socket.set_idle(false);
        if server.socket.ended() {
            self.forget(server);
            self.start_logins();
            return;
        }
        let closing = Closing {
            pool: Rc::clone(self),
            server: Some(server),
        };
        task::spawn(closing.run());
    }

    fn forget(&self, server: Box<Server>) {
        let slot = server.slot;
        drop(server);
        self.forget_slot(slot);
    }

    fn forget_slot(&self, slot: u32) {
        self.servers.borrow_mut().remove(slot as usize);
        self.origins.borrow_mut().remove(&slot);
        bump(&self.shard.counters.servers_closed);
        self.decide.borrow_mut().discard(slot);
    }

    fn place(self: &Rc<Self>, mut server: Box<Server>, placed: Placed<u32>) {
        match placed {
            Placed::Idle if server.socket.ended() => self.discard(server),
            Placed::Idle => {
                server.socket.set_idle(true);
                // What a client changed is no news from outside.
                server.parameters.take_changed();
                let slot = server.slot as usize;
                self.servers.borrow_mut()[slot] = Some(server);
                if self.oversleeps() {
                    self.call_janitor();
                }
            }
            Placed::HandOff(waiter) => self.grant(waiter, Ok(server)),
            Placed::Close(_) => self.discard(server),
            Placed::GiveAway { .. } => self.give_away(server),
        }
    }

    fn grant(&self, waiter: u32, mut granted: Result<Box<Server>, Refusal>) {
        let micros = self.shard.ring.micros();
        if let Ok(server) = &mut granted {
            server.leased = micros;
        }
        let mut waiters = self.waiters.borrow_mut();
        let waiter = &mut waiters[waiter as usize];
        let waited = micros.saturating_sub(waiter.since);
        self.shard.times.wait.record(waited);
        bump(&self.acquires);
        waiter.granted = Some(granted);
        waiter.waker.wake_by_ref();
    }

    /// Starts the logins that the pool wants, and wakes the shards that it
    /// gave something to or wants something from.
    pub fn start_logins(self: &Rc<Self>) {
        if self.is_paused() {
            return self.send_wakes();
        }
        let mut decide = self.decide.borrow_mut();
        let wanted = decide.logins_wanted(Instant::now());
        let warming = decide.take_warming();
        drop(decide);
        for nth in 0..wanted {
            task::spawn(LoginGuard::new(self, nth < warming).run());
        }
        self.send_wakes();
        if self.decide.borrow_mut().take_ask() {
            self.shard.ask_for_idle(self.id.group);
        }
    }

    /// Gives an idle server up for another role that gets none. True if one
    /// is wanted, and there was one.
    pub(super) fn spare_idle(self: &Rc<Self>) -> bool {
        let spared = self.decide.borrow_mut().spare_idle();
        spared.map(|slot| self.close_idle(slot)).is_some()
    }

    fn send_wakes(&self) {
        let group = self.id.group;
        if self.decide.borrow_mut().take_news() {
            self.shard.spread_news(self.target.borrow().id());
        }
        loop {
            let shard = self.decide.borrow_mut().next_wake();
            let Some(shard) = shard else { break };
            self.shard.post(shard, Mail::Budget { pool: self.id });
        }
        loop {
            let wake = self.decide.borrow_mut().next_other_wake();
            let Some(wake) = wake else { break };
            let role = wake.name;
            let pool = PoolId { group, role };
            self.shard.post(wake.shard, Mail::Budget { pool });
        }
    }

    /// Another shard has given a permit, or wants a server.
    pub fn on_budget_mail(self: &Rc<Self>) {
        loop {
            let slot = self.decide.borrow_mut().give_up_idle();
            let Some(slot) = slot else { break };
            if let Some(server) = self.take_idle(slot) {
                self.give_away(server);
            }
        }
        self.start_logins();
        self.call_janitor();
    }

    fn close_idle(self: &Rc<Self>, slot: u32) {
        if let Some(server) = self.take_idle(slot) {
            self.discard(server);
        }
    }

    fn take_idle(&self, slot: u32) -> Option<Box<Server>> {
        let mut servers = self.servers.borrow_mut();
        servers.get_mut(slot as usize).and_then(Option::take)
    }

    fn connected(self: &Rc<Self>, mut server: Server) {
        bump(&self.shard.counters.servers_opened);
        self.fresh
            .borrow_mut()
            .get_or_insert_with(|| Arc::new(server.parameters.clone()));
        let slot = id(self.servers.borrow_mut().insert(None));
        server.slot = slot;
        self.note_origin(&server);
        self.tell_served();
        let placed = self
            .decide
            .borrow_mut()
            .connected(slot, Instant::now(), random::fraction());
        self.place(Box::new(server), placed);
        self.start_logins();
        self.call_janitor();
    }

    fn login_failed(self: &Rc<Self>, error: &LoginError) {
        bump(&self.shard.counters.server_login_failures);
        tracing::warn!(database = %self.group().name, %error, "no new server");
        self.tell_served();
        let fault = self.blame(error);
        let failed =
            self.decide
                .borrow_mut()
                .login_failed_by(fault, Instant::now(), random::fraction());
        let refusal = Refusal::of(&self.group().name, error);
        for waiter in failed {
            self.grant(waiter, Err(refusal.clone()));
        }
        self.send_wakes();
        self.call_janitor();
    }

    /// Whether a fresh session reports this value of a setting.
    pub fn starts_with(&self, name: &[u8], value: &[u8]) -> bool {
        let fresh = self.fresh.borrow();
        fresh.as_ref().and_then(|fresh| fresh.get(name)) == Some(value)
    }

    /// The newest protocol version that its servers do not refuse.
    pub fn newest_version(&self) -> ProtocolVersion {
        self.newest_version.get()
    }

    /// Its servers refuse to be asked for a newer one.
    pub fn set_newest_version(&self, version: ProtocolVersion) {
        self.newest_version.set(version);
    }

    /// The password's key for this salt, if it was the last one used.
    pub fn salted_key(
        &self,
        password: &Secret,
        salt: &[u8],
        iterations: u32,
    ) -> Option<Zeroizing<[u8; 32]>> {
        let salted = self.salted.borrow();
        let known = salted.as_ref().filter(|known| {
            known.password.expose() == password.expose()
                && known.salt == salt
                && known.iterations == iterations
        })?;
        Some(known.key.clone())
    }

    /// Remembers the password's key for a salt.
    pub fn remember_salted_key(
        &self,
        password: &Secret,
        salt: &[u8],
        iterations: u32,
        key: &Zeroizing<[u8; 32]>,
    ) {
        *self.salted.borrow_mut() = Some(SaltedKey {
            password: password.clone(),
            salt: salt.to_vec(),
            iterations,
            key: key.clone(),
        });
    }

    /// Servers that are open, idle ones among them, and clients that wait.
    pub fn counts(&self) -> (u32, u32, usize) {
        let decide = self.decide.borrow();
        (decide.open(), decide.idle(), decide.waiting())
    }

    /// Whether the janitor sleeps past the end of a server that is idle from
    /// now on.
    fn oversleeps(&self) -> bool {
        let end = self.decide.borrow().idle_end(self.shard.ring.now());
        let sleeps = self.janitor.sleeps_until.get();
        end.is_some_and(|end| sleeps.is_none_or(|until| until > end))
    }

    /// A client waits: only if that is due before the janitor wakes anyway.
    /// On a busy pool nearly every transaction waits, and the janitor's
    /// rounds would cost more than the waiting.
    fn call_janitor_if_late(&self) {
        let next = self.decide.borrow().next_deadline();
        let sleeps = self.janitor.sleeps_until.get();
        if next.is_some_and(|next| sleeps.is_none_or(|until| next < until)) {
            self.call_janitor();
        }
    }

    fn call_janitor(&self) {
        self.janitor.called.set(true);
        if let Some(waker) = &*self.janitor.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Ends what has run out of time and what died while idle, keeps
    /// `min_connections`; for ever.
    pub async fn keep(self: Rc<Self>) {
        self.start_logins();
        loop {
            let mut next = self.decide.borrow().next_deadline();
            if self.is_paused() {
                next = None;
            }
            if self.is_removed() {
                if self.close_for_good() {
                    return;
                }
                let look = Instant::now() + renew::REMOVED_POLL;
                next = Some(next.map_or(look, |next| next.min(look)));
            } else if self.id.is_role() {
                if self.is_unused() {
                    self.shard.role_pools.borrow_mut().remove(&self.id);
                    return;
                }
                let look = Instant::now() + self.leisure();
                next = Some(next.map_or(look, |next| next.min(look)));
            }
            next = self.next_look(next);
            self.janitor.sleeps_until.set(next);
            let called = std::future::poll_fn(|cx: &mut Context<'_>| {
                if self.janitor.called.take() {
                    return Poll::Ready(());
                }
                let mut waker = self.janitor.waker.borrow_mut();
                if waker
                    .as_ref()
                    .is_none_or(|known| !known.will_wake(cx.waker()))
                {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            });
            let _ = self.shard.ring.until(next, called).await;
            self.expire();
            self.look_after();
            self.start_logins();
        }
    }

    /// The role has neither clients nor servers here: only the shard and the
    /// janitor know the pool.
    fn is_unused(self: &Rc<Self>) -> bool {
        let decide = self.decide.borrow();
        Rc::strong_count(self) <= 2 && decide.open() == 0 && !decide.is_expecting()
    }

    /// Whether another shard may have sent it something.
    pub(super) fn is_expecting(&self) -> bool {
        self.decide.borrow().is_expecting()
    }

    /// How long a pool may be unused.
    fn leisure(&self) -> Duration {
        let idle = self.group().pool.idle_timeout;
        idle.filter(|time| !time.is_zero())
            .map_or(LEISURE_MAX, |time| time.min(LEISURE_MAX))
    }

    /// A server, however long it takes to get one.
    pub(crate) async fn lease(self: &Rc<Self>) -> Result<Box<Server>, Refusal> {
        let mut seat = None;
        std::future::poll_fn(|cx| {
            let Some(seat) = &mut seat else {
                return match self.acquire(&mut seat, cx.waker()) {
                    Some(server) => Poll::Ready(Ok(server)),
                    None => Poll::Pending,
                };
            };
            seat.take().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Idle servers have news: removes those that are gone.
    pub fn sweep_dead(self: &Rc<Self>) {
        let mut dead = Vec::new();
        let mut changed = false;
        for (slot, server) in self.servers.borrow_mut().iter_mut() {
            if let Some(server) = server {
                if !server.check_idle() {
                    dead.push(id(slot));
                }
                changed |= server.parameters.take_changed();
            }
        }
        if changed {
            self.forget_reports();
        }
        for slot in dead {
            let server = self.servers.borrow_mut()[slot as usize].take();
            if let Some(server) = server {
                tracing::info!(database = %self.group().name, "an idle server has gone");
                self.discard(server);
            }
        }
    }

    /// What servers report has changed from outside.
    fn forget_reports(&self) {
        self.labels.forget_reports();
        *self.fresh.borrow_mut() = None;
        self.shard.reports.forget(self.id);
    }

    fn expire(self: &Rc<Self>) {
        if self.is_paused() {
            return;
        }
        let expired = self.decide.borrow_mut().expire(Instant::now());
        for (slot, _) in expired.servers {
            self.close_idle(slot);
        }
        for waiter in expired.waiters {
            bump(&self.shard.counters.wait_timeouts);
            self.grant(waiter, Err(self.timed_out()));
        }
    }

    /// Closes idle servers when the process ends.
    pub fn close_all_idle(self: &Rc<Self>) {
        let retired = self.decide.borrow_mut().retire();
        for slot in retired {
            self.close_idle(slot);
        }
    }
}

fn id(key: usize) -> u32 {
    u32::try_from(key).expect("fewer than 2^32 of anything in a pool")
}

/// How long at most an unused pool of a role stays.
const LEISURE_MAX: Duration = Duration::from_secs(60);
