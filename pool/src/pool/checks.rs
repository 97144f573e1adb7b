//! Whether servers that nobody uses are still alive.
//!
//! One at a time, and only those that have been idle for long: what is in use shows by itself whether it works. A check
//! is no use: a server that passes it goes back to the place that it had in the list of the idle, and grows old there.

use std::time::{Duration, Instant};

use super::{Placed, Pool};
use crate::servers::{ServerKey, State};

impl<K: ServerKey, W: Copy> Pool<K, W> {
    /// An idle server that is to be asked whether it is alive, and then to be reported by [`Pool::checked`] or discarded.
    pub fn check_due(&mut self, now: Instant) -> Option<K> {
        if self.servers.checking() > 0 {
            return None;
        }
        let interval = self.check_interval()?;
        let is_due = |at: &u32| self.check_of(*at, interval).is_some_and(|due| due <= now);
        let at = self.servers.idle_from_longest().find(is_due)?;
        Some(self.servers.begin_check(at))
    }

    /// A server has shown that it is alive.
    ///
    /// # Panics
    /// When it was not to be checked.
    pub fn checked(&mut self, key: K, now: Instant) -> Placed<W> {
        let at = self.servers.find(key).expect("a checked server is known");
        let slot = self.servers.slot(at);
        assert_eq!(slot.state, State::Checking, "server {key:?} is not checked");
        let since = slot.idle_since;
        self.servers.end_check(at, now);
        let placed = self.place(at, now);
        if let Placed::Idle = placed {
            self.servers.put_idle_back(at, since);
        }
        placed
    }

    /// When an idle server that is not used before is to be looked at.
    pub(super) fn next_check(&self) -> Option<Instant> {
        if self.servers.checking() > 0 {
            return None;
        }
        let interval = self.check_interval()?;
        let due = |at| self.check_of(at, interval);
        self.servers.idle_from_longest().filter_map(due).min()
    }

    /// How long a server may be idle without being looked at.
    pub(super) fn check_interval(&self) -> Option<Duration> {
        let interval = self.settings.check_interval()?;
        match self.target.is_unwell() {
            true => Some(interval.min(WHILE_UNWELL)),
            false => Some(interval),
        }
    }

    fn check_of(&self, at: u32, interval: Duration) -> Option<Instant> {
        let slot = self.servers.slot(at);
        slot.idle_since.max(slot.checked).checked_add(interval)
    }
}

/// While nobody is let in, idle servers may be dead too; and where a breaker is half-open, they are what it learns from.
const WHILE_UNWELL: Duration = Duration::from_millis(500);
