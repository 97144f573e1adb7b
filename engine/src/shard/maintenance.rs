//! Maintenance: who has no transaction is sent away when it says something, and
//! nobody new is let in. Transactions that are open end as they would.

use super::{Shard, bump};
use crate::client::{Refused, fatal};
use protocol::error::SqlState;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// What of it holds on a shard.
#[derive(Default)]
pub struct Maintenance {
    /// Of some database.
    some: Cell<bool>,
    /// Of all.
    all: Cell<bool>,
    /// Of these alone, by their numbers.
    groups: RefCell<BTreeSet<usize>>,
}

impl Maintenance {
    /// Begins or ends it.
    pub(super) fn set(&self, group: Option<usize>, on: bool) {
        let mut groups = self.groups.borrow_mut();
        match group {
            None => self.all.set(on),
            Some(group) if on => drop(groups.insert(group)),
            Some(group) => drop(groups.remove(&group)),
        }
        self.some.set(self.all.get() || !groups.is_empty());
    }

    /// Whether it holds for a database.
    #[inline]
    pub fn holds(&self, group: usize) -> bool {
        self.some.get() && (self.all.get() || self.groups.borrow().contains(&group))
    }

    /// Whether a client may log in to this database.
    pub(crate) fn permit(&self, shard: &Shard, group: usize) -> Result<(), Refused> {
        let refused = self.holds(group);
        refused
            .then(|| words(shard))
            .map_or(Ok(()), |words| Err(Refused::Saying(words)))
    }

    /// Whether one may log in at all. Asked first: while all is closed nobody
    /// need prove anything. Which databases are closed nobody is told before.
    pub(crate) fn permit_any(&self, shard: &Shard) -> Result<(), Refused> {
        let refused = self.all.get();
        refused
            .then(|| words(shard))
            .map_or(Ok(()), |words| Err(Refused::Saying(words)))
    }
}

/// What a client is told, and that it was.
pub(crate) fn words(shard: &Shard) -> Vec<u8> {
    bump(&shard.counters.maintenance_refusals);
    fatal(SqlState::ADMIN_SHUTDOWN, "pgmux is in maintenance mode")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_closed_by_itself_or_with_all() {
        let maintenance = Maintenance::default();
        let closed = || [0, 1].map(|group| maintenance.holds(group));
        assert_eq!(closed(), [false, false]);
        maintenance.set(Some(1), true);
        assert_eq!(closed(), [false, true]);
        maintenance.set(None, true);
        assert_eq!(closed(), [true, true]);
        maintenance.set(Some(1), false);
        maintenance.set(None, false);
        assert_eq!(closed(), [false, false]);
    }
}
