//! The roles of clients that log in to servers themselves: each has a pool of
//! its own on every shard where it has clients, and one budget over them all.

use super::{Mail, PoolId, Shard, ShardPool};
use crate::client::Refused;
use crate::config::Group;
use crate::server::Keys;
use ::pool::{Budget, Total};
use protocol::error::SqlState;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// Shared by all shards; touched by the first login of a role on a shard.
pub struct Roles {
    shards: usize,
    /// By group, where it has roles.
    totals: Vec<Arc<Total>>,
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
}

impl Roles {
    /// No roles yet, of these groups on so many shards.
    pub fn new(groups: &[Group], shards: usize) -> Self {
        let total = |group: &Group| Arc::new(Total::new(group.most_of_roles()));
        Self {
            shards,
            totals: groups.iter().map(total).collect(),
            known: Mutex::default(),
        }
    }

    /// The role's number and budget; `None` when there are too many.
    fn admit(&self, index: usize, group: &Group, user: &str) -> Option<(PoolId, Arc<Budget>)> {
        // Nobody panics while holding the lock.
        let mut known = self.known.lock().ok()?;
        let Known { roles, last } = &mut *known;
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
            let (total, max) = (Arc::clone(&self.totals[index]), group.pool.max_connections);
            let budget = Budget::within(total, *last, max, self.shards);
            Role {
                number: *last,
                budget: Arc::new(budget.with_reserve(group.pool.reserve_connections)),
            }
        });
        let id = PoolId {
            group: index,
            role: role.number,
        };
        Some((id, Arc::clone(&role.budget)))
    }
}

/// A role that gets no server because all of them together have too many: the
/// shards say how many idle servers their richest pools have, and the one with
/// the most closes one. A message that is lost ends the round; who still wants
/// a server begins another.
impl Shard {
    /// Begins a round.
    pub(super) fn ask_for_idle(&self, group: usize) {
        if let Some(shard) = self.roles.totals[group].ask(self.peers.len()) {
            self.post(shard, Mail::Evict { group });
        }
        for shard in 0..self.peers.len() {
            self.post(shard, Mail::Offer { group });
        }
    }

    /// Answers; the last one to do so names the shard that closes a server.
    pub(super) fn offer_idle(&self, group: usize) {
        let idle = self.richest(group).map_or(0, |(idle, _)| idle);
        if let Some(shard) = self.roles.totals[group].offer(self.id, idle) {
            self.post(shard, Mail::Evict { group });
        }
    }

    /// Closes an idle server, if that is still wanted.
    pub(super) fn evict_idle(&self, group: usize) {
        let spared = self
            .richest(group)
            .is_some_and(|(_, pool)| pool.spare_idle());
        if spared && self.roles.totals[group].is_short() {
            self.ask_for_idle(group);
        }
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
        group: usize,
        user: &[u8],
        keys: Option<Keys>,
    ) -> Result<Rc<ShardPool>, Refused> {
        let settings = &self.config.groups[group];
        let Ok(user) = std::str::from_utf8(user) else {
            let text = "the name of the role is not UTF-8";
            let code = SqlState::INVALID_AUTHORIZATION_SPECIFICATION;
            return Err(Refused::fatal(code, text));
        };
        let Some((id, budget)) = self.roles.admit(group, settings, user) else {
            let text = "too many roles have connections (pool.max_role_pools)";
            return Err(Refused::fatal(SqlState::TOO_MANY_CONNECTIONS, text));
        };
        let known = self.role_pools.borrow().get(&id).cloned();
        let pool = known.unwrap_or_else(|| {
            let pool = ShardPool::of_role(Rc::clone(self), id, budget, user);
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
        let pool = self.role_pool(group, user.as_bytes(), None)?;
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

    #[test]
    fn roles_are_counted_and_those_that_are_unused_make_room() {
        let text = "databases: {a: {writer: /tmp}, b: {writer: /tmp}}\n\
            backend: {user: passthrough}\npool: {max_role_pools: 2}\n\
            auth: {users: [{username: x, password: y}]}\n";
        let config = Config::parse(text, "x").unwrap_or_else(|errors| panic!("{errors}"));
        let roles = Roles::new(&config.groups, 1);
        let admit = |index: usize, user| roles.admit(index, &config.groups[index], user);
        let one = admit(0, "one").expect("room");
        let two = admit(0, "two").expect("room");
        assert_eq!(admit(0, "one").map(|(id, _)| id), Some(one.0));
        assert!(admit(0, "three").is_none());
        assert!(admit(1, "three").is_some(), "another database");
        drop(two);
        assert!(admit(0, "three").is_some());
        assert_eq!(admit(0, "one").map(|(id, _)| id), Some(one.0));
    }
}
