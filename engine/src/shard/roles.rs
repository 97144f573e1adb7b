//! The roles of clients that log in to servers themselves: each has a pool of
//! its own on every shard where it has clients, and one budget over them all.

use super::{Mail, PoolId, Shard, ShardPool};
use crate::client::Refused;
use crate::server::Keys;
use crate::snapshot::Database;
use ::pool::{Budget, Total};
use protocol::error::SqlState;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// Shared by all shards; touched by the first login of a role on a shard.
pub struct Roles {
    shards: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By group and name. One that no shard has a pool of any more stays until
    /// its place is wanted.
    roles: HashMap<(usize, String), Role>,
    last: u32,
}

struct Role {
    number: u32,
    budget: Arc<Budget>,
    keys: Arc<RoleKeys>,
}

/// With what a role logs in to servers: the newest that a client has proved, on
/// whatever shard. A role that changes its password changes it for all of them.
#[derive(Default)]
pub(super) struct RoleKeys(Mutex<Option<Keys>>);

impl RoleKeys {
    pub(super) fn get(&self) -> Option<Keys> {
        // Nobody panics while holding the lock.
        self.0.lock().ok()?.clone()
    }

    pub(super) fn set(&self, keys: Option<Keys>) {
        if let Ok(mut known) = self.0.lock() {
            *known = keys;
        }
    }
}

/// What a pool of a role is made of.
pub(super) struct Admitted {
    pub(super) id: PoolId,
    pub(super) budget: Arc<Budget>,
    pub(super) keys: Arc<RoleKeys>,
}

impl Roles {
    /// No roles yet, on so many shards.
    pub fn new(shards: usize) -> Self {
        Self {
            shards,
            known: Mutex::default(),
        }
    }

    /// Has the limits of a database's roles follow the configuration.
    pub fn limit(&self, database: &Database) {
        let pool = &database.pool;
        self.of(database.id, |budget| {
            budget.set_limits(pool.max_connections, pool.reserve_connections);
        });
    }

    /// Shows the budgets of a database's roles.
    pub fn of(&self, group: usize, mut look: impl FnMut(&Budget)) {
        // Nobody panics while holding the lock.
        if let Ok(known) = self.known.lock() {
            let of_group = known.roles.iter().filter(|((of, _), _)| *of == group);
            of_group.for_each(|(_, role)| look(&role.budget));
        }
    }

    /// The role's number, budget and keys; `None` when there are too many.
    fn admit(&self, group: &Database, user: &str) -> Option<Admitted> {
        // Nobody panics while holding the lock.
        let mut known = self.known.lock().ok()?;
        let Known { roles, last } = &mut *known;
        let index = group.id;
        let key = (index, user.to_owned());
        if !roles.contains_key(&key) {
            let most = group.pool.max_role_pools as usize;
            let count = |roles: &HashMap<(usize, String), Role>| {
                roles.keys().filter(|(group, _)| *group == index).count()
            };
            if count(roles) >= most {
                roles.retain(|(group, _), role| {
                    *group != index || Arc::strong_count(&role.budget) > 1
                });
                if count(roles) >= most {
                    return None;
                }
            }
        }
        let role = roles.entry(key).or_insert_with(|| {
            *last += 1;
            let (total, max) = (Arc::clone(&group.shared.total), group.pool.max_connections);
            let budget = Budget::within(total, *last, max, self.shards);
            Role {
                number: *last,
                budget: Arc::new(budget.with_reserve(group.pool.reserve_connections)),
                keys: Arc::default(),
            }
        });
        let id = PoolId {
            group: index,
            role: role.number,
        };
        Some(Admitted {
            id,
            budget: Arc::clone(&role.budget),
            keys: Arc::clone(&role.keys),
        })
    }
}

/// A role that gets no server because all of them together have too many: the
/// shards say how many idle servers their richest pools have, and the one with
/// the most closes one. A message that is lost ends the round; who still wants
/// a server begins another.
impl Shard {
    /// Begins a round.
    pub(super) fn ask_for_idle(&self, group: usize) {
        let Some(total) = self.total(group) else {
            return;
        };
        if let Some(shard) = total.ask(self.peers.len()) {
            self.post(shard, Mail::Evict { group });
        }
        for shard in 0..self.peers.len() {
            self.post(shard, Mail::Offer { group });
        }
    }

    /// Answers; the last one to do so names the shard that closes a server.
    pub(super) fn offer_idle(&self, group: usize) {
        let idle = self.richest(group).map_or(0, |(idle, _)| idle);
        let Some(total) = self.total(group) else {
            return;
        };
        if let Some(shard) = total.offer(self.id, idle) {
            self.post(shard, Mail::Evict { group });
        }
    }

    /// Closes an idle server, if that is still wanted.
    pub(super) fn evict_idle(&self, group: usize) {
        let spared = self
            .richest(group)
            .is_some_and(|(_, pool)| pool.spare_idle());
        let is_short = |total: Arc<Total>| total.is_short();
        if spared && self.total(group).is_some_and(is_short) {
            self.ask_for_idle(group);
        }
    }

    /// What the roles of a database share, be it in the configuration or not.
    fn total(&self, group: usize) -> Option<Arc<Total>> {
        if let Some(database) = self.config().database(group) {
            return Some(Arc::clone(&database.shared.total));
        }
        let pools = self.role_pools.borrow();
        let pool = pools.values().find(|pool| pool.index() == group)?;
        Some(Arc::clone(&pool.group().shared.total))
    }

    /// The pool of a role that has the most idle servers, and how many.
    fn richest(&self, group: usize) -> Option<(u32, Rc<ShardPool>)> {
        let pools = self.role_pools.borrow();
        let of_group = pools.values().filter(|pool| pool.index() == group);
        let counted = of_group.map(|pool| (pool.counts().1, pool));
        let (idle, pool) = counted.max_by_key(|(idle, _)| *idle)?;
        Some((idle, Rc::clone(pool)))
    }
}

impl Shard {
    /// The pool of a client's own role, which has just proved who it is.
    pub(crate) fn role_pool(
        self: &Rc<Self>,
        database: &Arc<Database>,
        user: &[u8],
        keys: Option<Keys>,
    ) -> Result<Rc<ShardPool>, Refused> {
        let Ok(user) = std::str::from_utf8(user) else {
            let text = "the name of the role is not UTF-8";
            let code = SqlState::INVALID_AUTHORIZATION_SPECIFICATION;
            return Err(Refused::fatal(code, text));
        };
        let Some(role) = self.roles.admit(database, user) else {
            let text = "too many roles have connections (pool.max_role_pools)";
            return Err(Refused::fatal(SqlState::TOO_MANY_CONNECTIONS, text));
        };
        let id = role.id;
        let known = self.role_pools.borrow().get(&id).cloned();
        let pool = known.unwrap_or_else(|| {
            let pool = ShardPool::of_role(Rc::clone(self), role, database, user);
            self.role_pools.borrow_mut().insert(id, Rc::clone(&pool));
            crate::ring::task::spawn(Rc::clone(&pool).keep());
            pool
        });
        // The newest that were proved are those that the server knows.
        if keys.is_some() {
            pool.set_keys(keys);
        }
        Ok(pool)
    }
}

impl Shard {
    /// The same for a client that has proved it on another shard. Keys that are
    /// known here may be newer.
    pub(crate) fn pool_of_guest(
        self: &Rc<Self>,
        group: usize,
        user: &str,
        keys: Option<Keys>,
    ) -> Result<Rc<ShardPool>, Refused> {
        let gone = || {
            let text = "the database is not in the configuration any more";
            Refused::fatal(SqlState::DATABASE_DROPPED, text)
        };
        let config = self.config();
        let database = config.database(group).ok_or_else(gone)?;
        let pool = self.role_pool(database, user.as_bytes(), None)?;
        if pool.keys().is_none() {
            pool.set_keys(keys);
        }
        Ok(pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::snapshot::Snapshot;

    #[test]
    fn roles_are_counted_and_those_that_are_unused_make_room() {
        let text = "databases: {a: {writer: /tmp}, b: {writer: /tmp}}\n\
            backend: {user: passthrough}\npool: {max_role_pools: 2}\n\
            auth: {users: [{username: x, password: y}]}\n";
        let config = Config::parse(text, "x").unwrap_or_else(|errors| panic!("{errors}"));
        let snapshot = Snapshot::first(config, 1).expect("a snapshot");
        let roles = Roles::new(1);
        let admit = |index: usize, user| roles.admit(&snapshot.databases[index], user);
        let one = admit(0, "one").expect("room");
        let two = admit(0, "two").expect("room");
        assert_eq!(admit(0, "one").map(|role| role.id), Some(one.id));
        assert!(admit(0, "three").is_none());
        assert!(admit(1, "three").is_some(), "another database");
        drop(two);
        assert!(admit(0, "three").is_some());
        assert_eq!(admit(0, "one").map(|role| role.id), Some(one.id));
    }
}
