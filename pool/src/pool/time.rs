//! What has run out of time, and when that will be.

use std::time::{Duration, Instant};

use super::{CloseReason, Pool};
use crate::servers::ServerKey;

/// What has run out of time.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "expired servers are to be closed, expired waiters to be told"]
pub struct Expired<K, W> {
    /// To be closed, then discarded.
    pub servers: Vec<(K, CloseReason)>,
    /// Clients that have waited for `connection_timeout`; they are out of the queue.
    pub waiters: Vec<W>,
}

impl<K: ServerKey, W: Copy> Pool<K, W> {
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
            self.next_check(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// When a server that becomes idle now is to be closed for that, or looked at, unless it is used before.
    pub fn idle_end(&self, now: Instant) -> Option<Instant> {
        let limit = self.idle_limit().map(|(limit, _)| limit);
        let ends = [limit, self.settings.check_interval()];
        now.checked_add(ends.into_iter().flatten().min()?)
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
}

/// A server of a pool that is larger than `max_connections` leaves when it has been idle for this long: a client that
/// asks again and again keeps it, and does not wait for `reserve_timeout` each time.
const RESERVE_IDLE: Duration = Duration::from_secs(1);
