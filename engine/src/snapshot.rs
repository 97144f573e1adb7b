//! What the shards serve by: one configuration with what is made of it, never changed, replaced as a whole by a reload.
//!
//! ```text
//! Snapshot ── Config                          what the file says
//!          ├─ Acceptor, Credentials           made of its files
//!          └─ Database × n ── Group           what the file says of it
//!                          ├─ Connector       made of its files
//!                          └─ Shared          what outlives a reload: its budgets and switches
//! ```

use crate::client::Credentials;
use crate::config::{Config, Group};
use crate::tls::{Acceptor, Connector};
use ::pool::{Budget, Total};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// See the module's text.
pub struct Snapshot {
    /// How many there have been before it.
    pub number: u64,
    /// The file, with what cannot change while the process runs as it was at the start.
    pub config: Config,
    /// The databases, in the order of `config.groups`.
    pub databases: Vec<Arc<Database>>,
    /// TLS with clients, where it is on.
    pub acceptor: Option<Arc<Acceptor>>,
    /// Who may log in, and how.
    pub credentials: Credentials,
    /// Users are listed no more that were in the snapshot before.
    pub users_removed: bool,
}

/// A shard's own hold of the snapshot: to take one counts on this shard alone.
pub struct InForce(Arc<Snapshot>);

impl InForce {
    /// It is in force on a shard.
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self(snapshot)
    }
}

impl Deref for InForce {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0
    }
}

/// A database as the shards serve it.
pub struct Database {
    /// Its number: what the mailboxes and pools call it, of no other database in the life of the process.
    pub id: usize,
    /// What the configuration says of it.
    pub group: Group,
    /// TLS with its servers, where it is on.
    pub connector: Option<Arc<Connector>>,
    /// What outlives a reload.
    pub shared: Arc<Shared>,
}

/// What all shards share of a database, as long as it is in the configuration.
pub struct Shared {
    /// The servers of its own user.
    pub budget: Arc<Budget>,
    /// The servers of all roles together.
    pub total: Arc<Total>,
    /// The server that asks for users.
    pub asking: Arc<Budget>,
    /// Servers that were begun to be opened before this was raised are to be replaced.
    pub generation: AtomicU64,
    /// No client gets a server.
    pub paused: AtomicBool,
}

impl Snapshot {
    /// What a process starts with.
    pub fn first(config: Config, shards: usize) -> Result<Self, String> {
        let credentials = Credentials::new(&config);
        Self::make(config, credentials, |id, group| {
            (id, Arc::new(Shared::new(group, shards)))
        })
    }

    /// What takes the place of `before`. Databases of the same name stay the same; `fresh` counts those that there
    /// have been.
    pub fn after(
        before: &Self,
        config: Config,
        shards: usize,
        fresh: &mut usize,
    ) -> Result<Self, String> {
        let credentials = before.credentials.after(&config);
        let users_removed = config.auth.misses_some_of(&before.config.auth);
        let made = Self::make(config, credentials, |_, group| {
            match before.database_named(&group.name) {
                Some(database) => (database.id, Arc::clone(&database.shared)),
                None => {
                    *fresh += 1;
                    (*fresh - 1, Arc::new(Shared::new(group, shards)))
                }
            }
        });
        made.map(|made| Self {
            number: before.number + 1,
            users_removed,
            ..made
        })
    }

    fn make(
        config: Config,
        credentials: Credentials,
        mut shared: impl FnMut(usize, &Group) -> (usize, Arc<Shared>),
    ) -> Result<Self, String> {
        let acceptor = config.tls.as_ref().map(Acceptor::load).transpose();
        let acceptor = acceptor.map_err(|problem| format!("tls: {}", problem.text))?;
        let mut databases = Vec::new();
        for (place, group) in config.groups.iter().enumerate() {
            let connector = Connector::load(&group.tls, &group.target);
            let connector = connector
                .map_err(|problem| format!("database {}: {}", group.name, problem.text))?;
            let (id, shared) = shared(place, group);
            databases.push(Arc::new(Database {
                id,
                group: group.clone(),
                connector: connector.map(Arc::new),
                shared,
            }));
        }
        Ok(Self {
            number: 0,
            config,
            databases,
            acceptor: acceptor.map(Arc::new),
            credentials,
            users_removed: false,
        })
    }

    /// The database that clients call this.
    pub fn database_named(&self, name: &str) -> Option<&Arc<Database>> {
        let place = self.config.group(name)?;
        self.databases.get(place)
    }

    /// The database of clients that name none.
    pub fn default_database(&self) -> Option<&Arc<Database>> {
        self.databases.get(self.config.default_group)
    }

    /// The database with this number.
    pub fn database(&self, id: usize) -> Option<&Arc<Database>> {
        self.databases.iter().find(|database| database.id == id)
    }
}

impl Deref for Snapshot {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.config
    }
}

impl Deref for Database {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.group
    }
}

impl Database {
    /// Whether a server of `self` is none that `other` would have: it is somewhere else, or somebody else's.
    pub fn is_elsewhere(&self, other: &Self) -> bool {
        let (a, b) = (&self.group, &other.group);
        a.target != b.target || a.user != b.user || a.database != b.database || a.tls != b.tls
    }

    /// Has the limits of its budgets follow the configuration.
    pub fn limit(&self) {
        let (max, reserve) = self.group.limits();
        self.shared.budget.set_limits(max, reserve);
        self.shared.total.set_max(self.group.most_of_roles());
    }
}

impl Shared {
    fn new(group: &Group, shards: usize) -> Self {
        Self {
            budget: Arc::new(group.budget(shards)),
            total: Arc::new(Total::new(group.most_of_roles())),
            asking: Arc::new(Budget::new(1, shards)),
            generation: AtomicU64::new(0),
            paused: AtomicBool::new(false),
        }
    }

    /// All servers that there are now are to be replaced.
    pub fn renew(&self) {
        self.generation.fetch_add(1, SeqCst);
    }

    /// See [`Shared::generation`].
    pub fn generation(&self) -> u64 {
        self.generation.load(SeqCst)
    }

    /// See [`Shared::paused`].
    pub fn is_paused(&self) -> bool {
        self.paused.load(SeqCst)
    }
}
