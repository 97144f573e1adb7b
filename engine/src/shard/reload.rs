//! A shard takes over another snapshot: first it says that it can, then, when
//! all have said so, it does.

use super::{Shard, ShardPool, Wishes};
use crate::ring::task;
use crate::snapshot::{InForce, Snapshot};
use crossbeam_channel::Sender;
use std::rc::Rc;
use std::sync::Arc;

impl Shard {
    /// A pool for each database, at the start.
    pub(super) fn open_pools(self: &Rc<Self>) {
        for database in &self.config().databases {
            let pool = ShardPool::new(Rc::clone(self), database);
            self.group_pools
                .borrow_mut()
                .insert(database.id, Rc::clone(&pool));
            task::spawn(pool.keep());
        }
    }

    /// Prepares for a snapshot; nothing changes yet.
    pub(super) fn stage(
        &self,
        snapshot: Arc<Snapshot>,
        reply: &Sender<(usize, Result<(), String>)>,
    ) {
        let answer = match self.drain.is_given() {
            true => Err("it is stopping".to_owned()),
            false => Ok(()),
        };
        if answer.is_ok() {
            *self.staged.borrow_mut() = Some(snapshot);
        }
        // Who has asked may have lost patience.
        let _ = reply.try_send((self.id, answer));
    }

    /// Serves by it, or forgets it.
    pub(super) fn commit(self: &Rc<Self>, number: Option<u64>, reply: &Sender<usize>) {
        let staged = self.staged.borrow_mut().take();
        if let Some(snapshot) = staged.filter(|staged| Some(staged.number) == number) {
            let in_force = InForce::new(Arc::clone(&snapshot));
            self.snapshot.replace(Rc::new(in_force));
            self.follow(&snapshot);
        }
        let _ = reply.try_send(self.id);
    }

    fn follow(self: &Rc<Self>, snapshot: &Arc<Snapshot>) {
        self.drop_lookups(snapshot);
        for pool in self.pools() {
            match snapshot.database(pool.index()) {
                _ if pool.is_for_lookups() || pool.is_removed() => {}
                Some(database) => {
                    // Once more after all shards have heard of it, see
                    // `Budget::set_limits`.
                    database.limit();
                    self.roles.limit(database);
                    pool.follow(database);
                }
                None => {
                    pool.remove();
                    self.clients.tell(Some(pool.index()), Wishes::REMOVED);
                }
            }
        }
        let known = |id: &usize| self.group_pools.borrow().contains_key(id);
        for database in snapshot.databases.iter().filter(|fresh| !known(&fresh.id)) {
            let pool = ShardPool::new(Rc::clone(self), database);
            self.group_pools
                .borrow_mut()
                .insert(database.id, Rc::clone(&pool));
            task::spawn(pool.keep());
        }
        // Of those that are here too, however long they have been idle.
        self.clients.tell(None, Wishes::LIMITS);
        if snapshot.users_removed {
            self.clients.tell(None, Wishes::CHECK);
        }
    }

    /// Those that would ask something else now, or somewhere else.
    fn drop_lookups(&self, snapshot: &Snapshot) {
        self.lookups.borrow_mut().retain(|group, lookup| {
            let pool = lookup.pool();
            let same_query = snapshot.auth.query.as_ref().is_some_and(|q| lookup.asks(q));
            let same_secret = snapshot.database(*group).is_some_and(|database| {
                !database.is_elsewhere(&pool.group().database)
                    && pool.asks_by_same_secret(database, snapshot)
            });
            if !(same_query && same_secret) {
                pool.remove();
            }
            same_query && same_secret
        });
    }

    /// A database is paused, goes on, or gets other servers.
    pub(super) fn follow_switches(self: &Rc<Self>, reply: &Sender<usize>) {
        for pool in self.pools() {
            pool.follow_switches();
        }
        let _ = reply.try_send(self.id);
    }
}
