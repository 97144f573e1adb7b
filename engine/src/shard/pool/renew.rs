//! What a reload, a pause and a reconnect do to a pool.
//!
//! The pool stays what it is to its clients, those that wait included. What is
//! behind it may become another: then its servers go, each when nobody has it.

use super::{LOOKUPS, PoolId, ShardPool, id};
use crate::config::{AuthQuery, Secret};
use crate::server::Server;
use crate::shard::{Shard, bump};
use crate::signal::Signal;
use crate::snapshot::{Database, Snapshot};
use ::pool::Settings;
use ::pool::config::PoolMode;
use protocol::startup::ProtocolVersion;
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// What a pool is for, never changed, replaced as a whole.
pub struct Facts {
    /// Whose servers it has.
    pub database: Arc<Database>,
    /// As whom they are logged in.
    pub user: Rc<str>,
    /// Where.
    pub database_name: String,
    /// With what, where that is not what clients prove.
    pub password: Option<Secret>,
}

/// What a pool is at, besides who has which server.
pub(super) struct State {
    /// Of clients that log in from now on.
    pub(super) mode: Cell<PoolMode>,
    pub(super) statements_max: Cell<usize>,
    /// See [`crate::snapshot::Shared::generation`].
    generation: Cell<u64>,
    /// Logins of this generation are given up when it is given.
    moved: RefCell<Rc<Signal>>,
    paused: Cell<bool>,
    removed: Cell<bool>,
}

impl Facts {
    /// For the group's own user.
    pub(super) fn own(database: &Arc<Database>) -> Self {
        Self {
            user: database.user.as_str().into(),
            database_name: database.group.database.clone(),
            password: database.password.clone(),
            database: Arc::clone(database),
        }
    }

    pub(super) fn of_role(database: &Arc<Database>, user: &str) -> Self {
        Self {
            user: user.into(),
            password: None,
            ..Self::own(database)
        }
    }

    pub(super) fn asking(database: &Arc<Database>, query: &AuthQuery) -> Self {
        let own = Self::own(database);
        let (user, password) = match &query.user {
            Some((user, password)) => (user.as_str().into(), password.clone()),
            None => (own.user, own.password),
        };
        Self {
            user,
            password,
            database_name: query.database.clone().unwrap_or(own.database_name),
            database: own.database,
        }
    }

    /// What the pool is to decide by.
    pub(super) fn settings(&self, id: PoolId) -> Settings {
        let mut settings = Settings::from(&self.pool);
        if id.role != 0 || self.passthrough {
            settings.min_connections = 0;
        }
        if id.role == LOOKUPS {
            settings.max_connections = 1;
        }
        settings
    }
}

impl Deref for Facts {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}

impl State {
    pub(super) fn of(facts: &Facts) -> Self {
        let shared = &facts.shared;
        Self {
            mode: Cell::new(facts.pool.mode),
            statements_max: Cell::new(facts.pool.max_prepared_statements as usize),
            generation: Cell::new(shared.generation()),
            moved: RefCell::default(),
            paused: Cell::new(shared.is_paused()),
            removed: Cell::new(false),
        }
    }
}

impl ShardPool {
    /// Serves by another snapshot from now on.
    pub(in crate::shard) fn follow(self: &Rc<Self>, database: &Arc<Database>) {
        let before = self.group();
        let facts = match self.id.role {
            0 => Facts::own(database),
            _ => Facts::of_role(database, &before.user),
        };
        let is_elsewhere = facts.database.is_elsewhere(&before.database);
        let state = &self.state;
        state.mode.set(facts.pool.mode);
        state
            .statements_max
            .set(facts.pool.max_prepared_statements as usize);
        let mut decide = self.decide.borrow_mut();
        decide.set_settings(facts.settings(self.id));
        decide.forgive();
        drop(decide);
        self.follow_target(&facts.target);
        *self.facts.borrow_mut() = Rc::new(facts);
        if self.shard.drain.is_given() {
            self.stop_warming();
        }
        if is_elsewhere {
            // What is being logged in to is not wanted, however long it takes.
            state.moved.take().give();
            self.newest_version.set(ProtocolVersion::V3_2);
            self.forget_reports();
        }
        self.follow_switches();
        while let Some(slot) = { self.decide.borrow_mut().shed_idle() } {
            self.close_idle(slot);
        }
        self.expire();
        self.start_logins();
        self.call_janitor();
    }

    /// Looks whether its servers are to be replaced, or nobody is to get one.
    pub(in crate::shard) fn follow_switches(self: &Rc<Self>) {
        let facts = self.group();
        let generation = facts.shared.generation();
        if self.state.generation.replace(generation) != generation {
            let idle = self.decide.borrow_mut().renew();
            for slot in idle {
                self.close_idle(slot);
            }
        }
        let is_paused = facts.shared.is_paused() && !self.is_removed();
        match (self.state.paused.replace(is_paused), is_paused) {
            (_, true) => self.decide.borrow_mut().rest(),
            (true, false) => self.decide.borrow_mut().restart_waits(Instant::now()),
            (false, false) => {}
        }
        self.start_logins();
        self.call_janitor();
    }

    /// Its database is not in the configuration any more. It serves those that
    /// it has until they have left, and then closes.
    pub(in crate::shard) fn remove(self: &Rc<Self>) {
        self.state.removed.set(true);
        let mut settings = self.decide.borrow().settings().clone();
        settings.min_connections = 0;
        self.decide.borrow_mut().set_settings(settings);
        self.follow_switches();
    }

    /// See [`ShardPool::remove`]. True once it has neither clients nor servers:
    /// then only the janitor knows it.
    pub(super) fn close_for_good(self: &Rc<Self>) -> bool {
        // The janitor, and the shard's list; one for look-ups is in none any more.
        let is_left = || Rc::strong_count(self) <= 1 + usize::from(!self.is_for_lookups());
        if is_left() {
            self.close_all_idle();
        }
        // A server on its way out has its task.
        let is_unused = {
            let decide = self.decide.borrow();
            is_left() && decide.open() == 0 && !decide.is_expecting()
        };
        if is_unused {
            self.shard.forget_pool(self);
        }
        is_unused
    }

    /// Whether one that asks for users would log in as this one does.
    pub(in crate::shard) fn asks_by_same_secret(
        &self,
        database: &Arc<Database>,
        snapshot: &Snapshot,
    ) -> bool {
        let Some(query) = &snapshot.auth.query else {
            return false;
        };
        let (old, new) = (self.group(), Facts::asking(database, query));
        let password = |facts: &Facts| facts.password.as_ref().map(|p| p.expose().to_owned());
        password(&old).map(Zeroizing::new) == password(&new).map(Zeroizing::new)
    }

    /// It serves no new client: its database is no longer configured.
    pub fn is_removed(&self) -> bool {
        self.state.removed.get()
    }

    /// No client gets a server now.
    pub fn is_paused(&self) -> bool {
        self.state.paused.get()
    }

    /// How often its servers have been replaced.
    pub(super) fn generation(&self) -> u64 {
        self.state.generation.get()
    }

    /// What a login that begins now must know to be of use when it ends.
    pub(super) fn begin_login(&self) -> (u64, Rc<Signal>) {
        (self.generation(), Rc::clone(&self.state.moved.borrow()))
    }

    /// A server has come that is none any more.
    pub(super) fn connected_late(self: &Rc<Self>, mut server: Server) {
        bump(&self.shard.counters.servers_opened);
        server.slot = id(self.servers.borrow_mut().insert(None));
        self.decide
            .borrow_mut()
            .connected_late(server.slot, Instant::now());
        self.discard(Box::new(server));
    }

    /// One will not come that would be none any more.
    pub(super) fn login_abandoned(self: &Rc<Self>) {
        self.decide.borrow_mut().login_abandoned();
        self.start_logins();
        self.call_janitor();
    }
}

impl Shard {
    /// A pool that nobody uses any more.
    fn forget_pool(&self, pool: &Rc<ShardPool>) {
        let id = pool.id();
        match id.is_role() {
            true => drop(self.role_pools.borrow_mut().remove(&id)),
            false if id.role == 0 => drop(self.group_pools.borrow_mut().remove(&id.group)),
            // Its shard has forgotten it already.
            false => {}
        }
        self.reports.forget(id);
    }
}

/// How often a pool that is to close looks whether it can.
pub(super) const REMOVED_POLL: Duration = Duration::from_millis(100);
