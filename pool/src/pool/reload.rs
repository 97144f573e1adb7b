//! What a new configuration, a pause and a reconnect do to a pool that is in use.
//!
//! The pool stays, and with it the clients that wait. Its servers go: idle ones at once, leased ones when they come back
//! ([`Pool::retire`]), and those that are still logging in when they have arrived ([`Pool::connected_late`]).

use std::sync::Arc;
use std::time::Instant;

use super::Pool;
use crate::backoff::Pauses;
use crate::servers::ServerKey;
use crate::target::{Pass, Target};

impl<K: ServerKey, W: Copy> Pool<K, W> {
    /// As [`Pool::retire`], and the next login may be started at once: what failed before, failed elsewhere.
    pub fn renew(&mut self) -> Vec<K> {
        self.forgive();
        self.retire()
    }

    /// Forgets that logins have failed: what they failed by may have been changed.
    pub fn forgive(&mut self) {
        self.backoff = Pauses::default();
    }

    /// A login has succeeded that was begun before [`Pool::renew`]: no client gets the server, it is to be closed and
    /// then discarded.
    ///
    /// # Panics
    /// When no login is in flight, or a server of this key is here already.
    pub fn connected_late(&mut self, key: K, now: Instant) {
        self.withdraw_login();
        let at = self.servers.insert(key, now, now, None);
        self.servers.close(at, None);
        self.budget.publish_open(self.shard, self.servers.open());
    }

    /// A login that was begun before [`Pool::renew`] has failed, or was given up: that says nothing about the next.
    ///
    /// # Panics
    /// When no login is in flight.
    pub fn login_abandoned(&mut self) {
        self.withdraw_login();
        self.return_permit();
    }

    /// What its servers are servers of is another from now on. Logins in flight are none of it: [`Pool::renew`] them too.
    pub fn set_target(&mut self, target: Arc<Target>) {
        if Arc::ptr_eq(&target, &self.target) {
            return;
        }
        for _ in self.strays..self.logins {
            let is_probe = std::mem::take(&mut self.probes);
            self.has_news |= self.target.withdraw(Pass { is_probe });
        }
        self.strays = self.logins;
        self.target = target;
    }

    /// A login ends that says nothing of the target.
    fn withdraw_login(&mut self) {
        let pass = self.end_login();
        match self.strays.checked_sub(1) {
            Some(strays) => self.strays = strays,
            None => self.has_news |= self.target.withdraw(pass),
        }
    }

    /// All servers are to go and none is to come for a while: permits that it has no login for are free.
    pub fn rest(&mut self) {
        self.in_hand += self.budget.collect(self.shard);
        while self.in_hand > 0 {
            self.in_hand -= 1;
            self.return_permit();
        }
    }

    /// Clients have waited for what they could not get: their time begins anew.
    pub fn restart_waits(&mut self, now: Instant) {
        self.waiters.restart(now);
    }

    /// The server of a role that has been idle for the longest time, if the database has more than it may.
    pub fn shed_idle(&mut self) -> Option<K> {
        let at = self.servers.longest_idle()?;
        let total = self.budget.total()?;
        (total.excess() > self.servers.closing()).then(|| self.servers.close(at, None))
    }
}
