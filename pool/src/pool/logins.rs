//! Logins: how many there must be, for whom, and what comes of them.

use std::time::Instant;

use super::{Placed, Pool};
use crate::Settings;
use crate::backoff::shortened;
use crate::hunger::{Asking, Hunger};
use crate::servers::ServerKey;
use crate::target::{Fault, Pass};

impl<K: ServerKey, W: Copy> Pool<K, W> {
    /// How many logins the engine must start now; each holds a permit until it is reported.
    pub fn logins_wanted(&mut self, now: Instant) -> u32 {
        self.backoff.settle(now);
        self.in_hand += self.budget.collect(self.shard);
        let before = self.logins;
        while self.lacking(now) > 0 && self.takes_permit(now) && self.begin_login(now) {}
        self.want_of_total(now);
        self.ask_other_shards(now);
        self.refill(now);
        self.pass_on_surplus(now);
        self.admits_from = self.target.admits_from(now);
        self.is_barred = !self.target.admits(self.logins, now);
        self.logins - before
    }

    /// How many of the logins that were just wanted no client waits for.
    pub fn take_warming(&mut self) -> u32 {
        std::mem::take(&mut self.warming)
    }

    /// Whether the engine must tell all shards that something has changed for the pools of this target.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// The target has news: all waiting clients, if there is no server on any shard that could come to them, and the
    /// target does not let anybody in.
    pub fn hopeless(&mut self, now: Instant) -> Vec<W> {
        let is_hopeless =
            self.target.refuses(now) || self.target.lets_nobody_in() && self.is_deserted();
        if !is_hopeless {
            return Vec::new();
        }
        let failed = std::iter::from_fn(|| self.waiters.pop()).collect();
        self.end_hunger_of_nobody();
        failed
    }

    /// Whether no server is here, none logs in, and no other shard has one.
    fn is_deserted(&self) -> bool {
        self.has_no_server() && self.logins == 0
    }

    /// Whether no server is here, and no other shard has one.
    pub fn has_no_server(&self) -> bool {
        self.servers.live() == 0 && self.budget.owners(self.shard).next().is_none()
    }

    /// A login has succeeded. `jitter` (0 to 1) shortens the server's lifetime by up to a tenth, so that servers that
    /// were opened together do not all close together.
    ///
    /// # Panics
    /// When no login is in flight, or a server of this key is here already.
    pub fn connected(&mut self, key: K, now: Instant, jitter: f64) -> Placed<W> {
        let pass = self.end_login();
        self.backoff.succeeded();
        self.has_news |= self.target.answered(pass, true, now);
        let lifetime = self
            .settings
            .max_lifetime()
            .map(|lifetime| shortened(lifetime, 0.1 * jitter));
        let end = lifetime.and_then(|lifetime| now.checked_add(lifetime));
        let at = self.servers.insert(key, now, now, end);
        self.budget.publish_open(self.shard, self.servers.open());
        self.place(at, now)
    }

    /// [`Pool::login_failed_by`] this pool's own fault.
    pub fn login_failed(&mut self, now: Instant, jitter: f64) -> Vec<W> {
        self.login_failed_by(Fault::Pool, now, jitter)
    }

    /// A login has failed, or was given up. The next is started after a pause. When this leaves the pool without a live
    /// server and without another login in flight, all waiting clients are returned: they fail with this login's error.
    ///
    /// # Panics
    /// When no login is in flight.
    pub fn login_failed_by(&mut self, fault: Fault, now: Instant, jitter: f64) -> Vec<W> {
        let pass = self.end_login();
        let Settings {
            backoff_min,
            backoff_max,
            ..
        } = self.settings;
        self.has_news |= match fault {
            Fault::Target => self.target.failed(pass, now, jitter),
            Fault::Pool => {
                self.backoff.failed(backoff_min, backoff_max, now, jitter);
                self.target.answered(pass, false, now)
            }
        };
        let mut failed = Vec::new();
        if self.servers.live() == 0 && self.logins == 0 {
            failed.reserve_exact(self.waiters.len());
            failed.extend(std::iter::from_fn(|| self.waiters.pop()));
        }
        self.end_hunger_of_nobody();
        self.return_permit();
        failed
    }

    /// The logins that waiting clients lack, that may be started now, and for which there may be no permit.
    fn lacking(&self, now: Instant) -> u32 {
        match self.unserved().min(self.logins_left()) {
            lacking if lacking > 0 && self.may_log_in(now) => lacking,
            _ => 0,
        }
    }

    /// Whether a login that begins now has a chance.
    fn may_log_in(&self, now: Instant) -> bool {
        self.backoff.is_over(now) && self.target.admits(self.logins, now)
    }

    fn takes_permit(&mut self, now: Instant) -> bool {
        if self.in_hand > 0 {
            self.in_hand -= 1;
            return true;
        }
        self.budget.try_take() || self.takes_reserve(now)
    }

    /// Begins a login for which a permit was taken; gives that back if the target is not to be bothered.
    fn begin_login(&mut self, now: Instant) -> bool {
        let Some(pass) = self.target.admit(self.logins, now) else {
            self.return_permit();
            return false;
        };
        self.probes |= pass.is_probe;
        self.logins += 1;
        true
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
        while self.is_below_min()
            && self.logins < self.settings.logins_max
            && self.may_log_in(now)
            && self.budget.is_calm()
            && self.budget.try_take()
            && self.begin_login(now)
        {
            self.warming += 1;
        }
        let later = (self.is_below_min() && self.logins == 0)
            .then(|| now.checked_add(self.settings.refill_interval()));
        self.refills_at = later.flatten();
    }

    fn is_below_min(&self) -> bool {
        self.servers.live() + self.logins < self.min_share()
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
            self.begin_login(now);
            return self.end_want();
        }
        let want = self.want.get_or_insert_default();
        self.asks |= want.asks(now) && total.is_short();
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
            if self.lacking(now) > 0 && self.budget.try_take() && self.begin_login(now) {
                self.end_hunger();
                return;
            }
        }
        if self.asking.asks(now) {
            self.wakes.extend(self.budget.owners(self.shard));
        }
    }

    fn pass_on_surplus(&mut self, now: Instant) {
        let usable = if self.in_hand > 0 && self.may_log_in(now) {
            self.unserved()
        } else {
            0
        };
        while self.in_hand > usable {
            self.in_hand -= 1;
            self.return_permit();
        }
    }

    pub(super) fn end_login(&mut self) -> Pass {
        self.logins = self
            .logins
            .checked_sub(1)
            .expect("a login that ends is in flight");
        // It was admitted only because no other of this pool was in flight.
        let is_probe = std::mem::take(&mut self.probes);
        Pass { is_probe }
    }

    /// When [`Pool::logins_wanted`] may answer otherwise than now, without anything else happening.
    pub(super) fn login_deadline(&self) -> Option<Instant> {
        let lacking = self.unserved().min(self.logins_left());
        let wants = lacking > 0 || self.is_below_min();
        let login = self.backoff.until().max(self.admits_from);
        let may_log_in = login.is_none() && !self.is_barred;
        let lacks = lacking > self.budget.promised(self.shard);
        let permit = self.permit_deadline().filter(|_| may_log_in && lacks);
        let deadlines = [
            login.filter(|_| wants),
            permit,
            self.next_ask(),
            self.refills_at,
        ];
        deadlines.into_iter().flatten().min()
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

    pub(super) fn min_share(&self) -> u32 {
        self.settings.min_share(self.shard, self.budget.shards())
    }
}
