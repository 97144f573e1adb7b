//! What an operator can have the running process do: read its configuration again, pause a database, replace its
//! servers. Called by signals, by the watch of the file, by the control socket and by whoever else is asked.
//!
//! | file | what it does |
//! |---|---|
//! | `report` | what a reload has done, and what not |
//! | `fixed` | what cannot change while the process runs |
//! | `stage` | all shards take a snapshot over, or none |
//! | `pause` | PAUSE, RESUME, RECONNECT and KILL |
//! | `watch` | notices that files have changed |

mod fixed;
mod pause;
mod report;
mod stage;
mod watch;

pub use pause::{OrderError, Paused};
pub use report::{Change, Fault, Outcome, Pending, ReloadReport};

use crate::config::{Config, ConfigErrors};
use crate::logging;
use crate::notify::{self, Phase};
use crate::shard::{Answers, Mail, Postbox, Roles, Targets};
use crate::snapshot::Snapshot;
use ::pool::Budget;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Reads the configuration, with what the command line lays over it.
pub type Loader = Box<dyn Fn() -> Result<Config, ConfigErrors> + Send + Sync>;

/// What the parts of a running process are, to whom it is told what to do. Any thread may hold it; nothing that it
/// does is on the way of a query.
pub struct Operator {
    load: Loader,
    shards: usize,
    posts: Vec<Postbox>,
    roles: Arc<Roles>,
    answers: Arc<Answers>,
    replications: Arc<Budget>,
    targets: Arc<Targets>,
    /// What the shards serve by.
    now: RwLock<Arc<Snapshot>>,
    /// One reload at a time. How many databases there have been.
    reloading: Mutex<usize>,
    stopping: AtomicBool,
    /// The configuration's own file, and whether a thread watches it.
    file: PathBuf,
    watched: AtomicBool,
}

/// What an operator is made of.
pub struct Parts {
    /// Where the configuration is.
    pub file: PathBuf,
    /// How the configuration is read again.
    pub load: Loader,
    /// What the shards serve by.
    pub snapshot: Arc<Snapshot>,
    /// How the shards are reached.
    pub posts: Vec<Postbox>,
    /// The clients' roles.
    pub roles: Arc<Roles>,
    /// What PostgreSQL has said of users.
    pub answers: Arc<Answers>,
    /// The replication connections.
    pub replications: Arc<Budget>,
    /// The PostgreSQLs.
    pub targets: Arc<Targets>,
}

impl Operator {
    /// Of a process whose shards serve.
    pub fn new(parts: Parts) -> Self {
        Self {
            load: parts.load,
            shards: parts.posts.len(),
            posts: parts.posts,
            roles: parts.roles,
            answers: parts.answers,
            replications: parts.replications,
            targets: parts.targets,
            reloading: Mutex::new(parts.snapshot.databases.len()),
            now: RwLock::new(parts.snapshot),
            stopping: AtomicBool::new(false),
            file: parts.file,
            watched: AtomicBool::new(false),
        }
    }

    /// What the shards serve by.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The PostgreSQLs, and how they are.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// Whether the process has been told to stop: no new client should be sent to it.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Another process accepts clients in our place: ours end to listen.
    pub fn leave_listeners(&self) {
        if !stage::tell(&self.posts, |reply| Mail::TakenOver { reply }) {
            tracing::warn!("a shard has not said yet that it accepts no more; it will");
        }
    }

    /// Another process has ended to accept in our place.
    pub fn accept_anew(&self) {
        for post in &self.posts {
            post.post(Mail::AcceptAnew);
        }
    }

    /// The process has been told to stop.
    pub fn stop(&self) {
        self.stopping.store(true, SeqCst);
    }

    /// Reads the configuration and all files that it names again, and has all shards serve by it, or none. Waits until
    /// they do: seconds at most.
    pub fn reload(self: &Arc<Self>) -> ReloadReport {
        let mut fresh = self.lock();
        notify::tell(Phase::Reloading, "reading the configuration again");
        let report = match self.prepare(&mut fresh) {
            Ok((snapshot, report)) => match self.take_over(&snapshot) {
                Ok(()) => report,
                Err(reason) => ReloadReport::refused(vec![Fault::plain(reason)]),
            },
            Err(faults) => ReloadReport::refused(faults),
        };
        report.log();
        drop(fresh);
        notify::tell(Phase::Ready, report.status());
        self.watch();
        report
    }

    /// Has a thread notice changes of the configuration's files, if that is wanted and none does yet.
    pub fn watch(self: &Arc<Self>) {
        if self.snapshot().watch && !self.watched.swap(true, SeqCst) {
            watch::spawn(Arc::clone(self));
        }
    }

    /// All that can be wrong is found here, before anybody hears of it.
    fn prepare(&self, fresh: &mut usize) -> Result<(Arc<Snapshot>, ReloadReport), Vec<Fault>> {
        let mut config = (self.load)().map_err(Fault::all)?;
        let before = self.snapshot();
        let mut report = ReloadReport::applied();
        report.restart = fixed::keep(&before.config, &mut config);
        if let Some(level) = &config.log_level
            && before.config.log_level.as_ref() != Some(level)
            && let Some(origin) = logging::fixed_by()
        {
            report.restart.push(Pending {
                key: "log.level".to_owned(),
                reason: format!("{origin} wins over it"),
            });
        }
        let changed = before.config.facts.differences(&config.facts);
        report.changed = changed.into_iter().map(Change::from).collect();
        let snapshot = Snapshot::after(&before, config, self.shards, fresh)
            .map_err(|text| vec![Fault::plain(text)])?;
        for database in &snapshot.databases {
            match before.database(database.id) {
                None => report.databases_added.push(database.name.clone()),
                Some(old) if old.is_elsewhere(database) => {
                    report.servers_replaced.push(database.name.clone());
                }
                Some(_) => {}
            }
        }
        let gone = |name: &str| snapshot.database_named(name).is_none();
        let removed = before.databases.iter().filter(|old| gone(&old.name));
        report.databases_removed = removed.map(|old| old.name.clone()).collect();
        Ok((Arc::new(snapshot), report))
    }

    fn take_over(&self, snapshot: &Arc<Snapshot>) -> Result<(), String> {
        stage::stage(&self.posts, snapshot, stage::STAGING)?;
        let before = self.snapshot();
        for database in &snapshot.databases {
            if let Some(old) = before.database(database.id) {
                database.limit();
                self.roles.limit(database);
                if old.is_elsewhere(database) {
                    database.shared.renew();
                }
            }
        }
        for old in &before.databases {
            if snapshot.database(old.id).is_none() {
                // Its clients may finish what they are at.
                old.shared.paused.store(false, SeqCst);
            }
        }
        self.replications
            .set_max(snapshot.proxy.max_replication_connections);
        self.targets.set_breaker(snapshot.breaker);
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(snapshot);
        if !stage::commit(&self.posts, snapshot.number) {
            tracing::warn!("reload: a shard has not said yet that it has followed; it will");
        }
        // After that: what is asked from now on comes by the new rules.
        self.answers.forget();
        logging::set_level(snapshot.log_level.as_deref());
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.reloading
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
