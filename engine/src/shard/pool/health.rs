//! Whether servers are alive and their target lets us in: what [`pool::Target`] and [`pool::Pool`] decide is done here.

use super::{Refusal, ShardPool, seat};
use crate::config::Target;
use crate::ring::task;
use crate::server::Server;
use crate::server::login::LoginError;
use crate::shard::{TargetState, bump, is_death};
use ::pool::Fault;
use protocol::error::{Fields, SqlState};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl ShardPool {
    /// Where its servers are.
    pub fn target(&self) -> Arc<TargetState> {
        Arc::clone(&self.target.borrow())
    }

    /// Leases that ended with a server given back clean.
    pub fn transactions(&self) -> u64 {
        self.transactions.get()
    }

    /// It is of this target from now on.
    pub(super) fn follow_target(&self, target: &Target) {
        let target = self.shard.targets.of(target);
        let health = Arc::clone(&target.health);
        self.target.replace(target);
        self.decide.borrow_mut().set_target(health);
    }

    /// The process ends: no server is opened but for a client.
    pub(in crate::shard) fn stop_warming(&self) {
        self.decide.borrow_mut().stop_warming();
    }

    /// Something has changed about the target.
    pub(in crate::shard) fn on_news(self: &Rc<Self>) {
        self.retire_lost();
        // Who waits for a paused database waits for RESUME.
        if !self.is_paused() {
            let hopeless = self.decide.borrow_mut().hopeless(Instant::now());
            for waiter in hopeless {
                self.refuse(waiter);
            }
        }
        self.start_logins();
        self.call_janitor();
    }

    /// A server has died while a client used it; `words` is the body of its last error, if it had time for one.
    pub fn on_death(&self, words: Option<&[u8]>) {
        let code = words.map(|words| Fields::new(words).code());
        let is_own = match code {
            None => true,
            Some(code) => code.is_some_and(|code| is_death(code.as_bytes())),
        };
        if is_own {
            bump(&self.shard.counters.servers_died);
            self.blame_target();
        }
    }

    fn blame_target(&self) {
        self.tell_served();
        if self.target.borrow().health.lost(Instant::now()) {
            self.shard.spread_news(self.target.borrow().id());
        }
    }

    /// What servers have done well since it was last told, for the target's breaker.
    pub(super) fn tell_served(&self) {
        let all = self.transactions.get();
        let new = all - self.told_target.replace(all);
        if self.target.borrow().health.served(new, Instant::now()) {
            self.shard.spread_news(self.target.borrow().id());
        }
    }

    /// Whose fault it was that a login failed. If the target's, others hear why.
    pub(super) fn blame(&self, error: &LoginError) -> Fault {
        let fault = error.fault(self.id.is_role());
        if fault == Fault::Target {
            let (code, reason) = seat::reason(error);
            self.target.borrow().remember(code, reason);
        }
        fault
    }

    /// A client that waits, or would have to, gets none: nobody is let in.
    pub(super) fn refuse(&self, waiter: u32) {
        let database = &self.group().name;
        let is_open = self.target.borrow().health.refuses(Instant::now());
        let refusal = match self.target.borrow().last_failure() {
            _ if is_open => {
                bump(&self.shard.counters.breaker_refusals);
                let reason =
                    "its server keeps failing and is left alone for a while (circuit_breaker)";
                Refusal::because(database, SqlState::CONNECTION_FAILURE, reason)
            }
            Some((code, reason)) => Refusal::because(database, code, &reason),
            None => self.timed_out(),
        };
        self.grant(waiter, Err(refusal));
    }

    /// What a client is told that has waited for `connection_timeout`.
    pub(super) fn timed_out(&self) -> Refusal {
        let database = &self.group().name;
        let failure = self.target.borrow().last_failure();
        let has_none = self.decide.borrow().has_no_server();
        match failure.filter(|_| self.target.borrow().health.lets_nobody_in()) {
            Some((code, reason)) if has_none => Refusal::because(database, code, &reason),
            None if has_none => {
                let reason = "it did not answer within pool.connection_timeout";
                Refusal::because(database, SqlState::CONNECTION_FAILURE, reason)
            }
            _ => Refusal {
                code: SqlState::TOO_MANY_CONNECTIONS,
                message: "no server became free within pool.connection_timeout".to_owned(),
            },
        }
    }

    /// When the janitor looks again, who would look at `next`: a breaker that is half-open learns from what is served.
    pub(super) fn next_look(&self, next: Option<Instant>) -> Option<Instant> {
        let (open, ..) = self.counts();
        if open == 0 || !self.target.borrow().health.is_unwell() {
            return next;
        }
        let soon = Instant::now() + WHILE_UNWELL;
        Some(next.map_or(soon, |next| next.min(soon)))
    }

    /// What is due of an idle server, and of the target.
    pub(super) fn look_after(self: &Rc<Self>) {
        if self.target.borrow().health.is_unwell() {
            self.tell_served();
        }
        // The news of it may have been lost.
        self.retire_lost();
        let due = self.decide.borrow_mut().check_due(Instant::now());
        let Some(slot) = due else { return };
        let Some(server) = self.take_idle(slot) else {
            return;
        };
        let check = Check {
            pool: Rc::clone(self),
            server: Some(server),
        };
        task::spawn(check.run());
    }

    /// Remembers at which address of a name the server is. One without a cancel key does not say.
    pub(super) fn note_origin(&self, server: &Server) {
        let key = server.cancel_key.as_ref();
        let address = key.and_then(|key| key.address.as_socket());
        if let Some(address) = address.filter(|_| self.target.borrow().is_named()) {
            self.origins.borrow_mut().insert(server.slot, address.ip());
        }
    }

    /// Servers at addresses that the name has lost go: idle ones now, others when they come back.
    fn retire_lost(self: &Rc<Self>) {
        if self.origins.borrow().is_empty() {
            return;
        }
        let mut lost = HashSet::new();
        self.origins.borrow_mut().retain(|slot, address| {
            let is_lost = self.target.borrow().has_lost(*address);
            if is_lost {
                lost.insert(*slot);
            }
            !is_lost
        });
        if lost.is_empty() {
            return;
        }
        tracing::info!(database = %self.group().name, servers = lost.len(), "the host's name has lost their address");
        let moved_away = &self.shard.counters.servers_moved_away;
        moved_away.set(moved_away.get() + lost.len() as u64);
        let idle = self
            .decide
            .borrow_mut()
            .retire_some(|slot| lost.contains(&slot));
        for slot in idle {
            self.close_idle(slot);
        }
    }
}

impl Drop for ShardPool {
    fn drop(&mut self) {
        let all = &self.shard.counters.transactions;
        all.set(all.get() + self.transactions.get());
    }
}

/// An idle server that is asked whether it is alive. Whatever happens, the pool hears what became of it.
struct Check {
    pool: Rc<ShardPool>,
    server: Option<Box<Server>>,
}

impl Check {
    async fn run(mut self) {
        let pool = Rc::clone(&self.pool);
        let Some(server) = &mut self.server else {
            return;
        };
        if !server.check_idle() {
            // Its end was seen: as if that had woken somebody.
            return;
        }
        server.socket.set_idle(false);
        bump(&pool.shard.counters.health_checks);
        let patience = pool.group().pool.health_check_timeout;
        let deadline = Instant::now() + patience;
        let asked = pool
            .shard
            .ring
            .until(Some(deadline), server.query(QUESTION))
            .await;
        let error = match asked {
            Ok(Ok(answer)) => answer.error,
            Ok(Err(_)) | Err(_) => return self.fail(),
        };
        let code = error.and_then(|error| Fields::new(&error).code());
        if code.is_some_and(|code| is_death(code.as_bytes())) || !server.is_at_rest() {
            return self.fail();
        }
        if let Some(server) = self.server.take() {
            pool.tell_good();
            let placed = pool
                .decide
                .borrow_mut()
                .checked(server.slot, Instant::now());
            pool.place(server, placed);
        }
        pool.look_after();
        pool.call_janitor();
    }

    fn fail(&self) {
        let pool = &self.pool;
        bump(&pool.shard.counters.health_check_failures);
        tracing::warn!(database = %pool.group().name, "an idle server does not answer and is replaced");
        pool.blame_target();
    }
}

impl ShardPool {
    fn tell_good(&self) {
        self.tell_served();
        if self.target.borrow().health.served(1, Instant::now()) {
            self.shard.spread_news(self.target.borrow().id());
        }
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.pool.discard(server);
            self.pool.call_janitor();
        }
    }
}

/// It needs no table, no name and no right.
const QUESTION: &[u8] = b"SELECT 1";

/// How often a pool looks at its target while that is unwell.
const WHILE_UNWELL: Duration = Duration::from_millis(500);
