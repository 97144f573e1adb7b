//! PAUSE, RESUME, RECONNECT and KILL of a database, or of all.
//!
//! A paused database gives no client a server: transactions that run may end, who asks for a server waits (and the time
//! that it may wait begins when the pause is over), and every server is closed. What the servers' permits say is exact,
//! so a pause is complete when none is out.

use super::{Operator, stage};
use crate::shard::Mail;
use crate::snapshot::Database;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// What came of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// No server is open any more.
    Quiet,
    /// Transactions still run; the database stays paused.
    NotYet,
    /// Somebody has resumed it meanwhile.
    Overridden,
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// There is no such database.
    Unknown(String),
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "database \"{name}\" does not exist"),
        }
    }
}

impl std::error::Error for OrderError {}

impl Operator {
    /// Pauses a database, or all, and waits until it is quiet, at most so long. It stays paused until it is resumed,
    /// whatever becomes of who asked.
    pub fn pause(&self, database: Option<&str>, patience: Duration) -> Result<Paused, OrderError> {
        let databases = self.ordered(database)?;
        for database in &databases {
            database.shared.paused.store(true, SeqCst);
            database.shared.renew();
            tracing::info!(database = %database.name, "paused");
        }
        self.tell_switches();
        Ok(self.until_quiet(&databases, patience))
    }

    /// Goes on with a database, or all.
    pub fn resume(&self, database: Option<&str>) -> Result<(), OrderError> {
        for database in self.ordered(database)? {
            database.shared.paused.store(false, SeqCst);
            tracing::info!(database = %database.name, "resumed");
        }
        self.tell_switches();
        Ok(())
    }

    /// Replaces all servers of a database, or of all: each when nobody has it.
    pub fn reconnect(&self, database: Option<&str>) -> Result<(), OrderError> {
        for database in self.ordered(database)? {
            database.shared.renew();
            tracing::info!(database = %database.name, "its servers are replaced");
        }
        self.tell_switches();
        Ok(())
    }

    /// Ends all clients of a database, or of all, at once, and pauses it.
    pub fn kill(&self, database: Option<&str>, patience: Duration) -> Result<Paused, OrderError> {
        let databases = self.ordered(database)?;
        self.pause(database, Duration::ZERO)?;
        for database in &databases {
            for post in &self.posts {
                post.post(Mail::EndClients { group: database.id });
            }
            tracing::warn!(database = %database.name, "its clients are ended");
        }
        Ok(self.until_quiet(&databases, patience))
    }

    /// The databases that are paused.
    pub fn paused(&self) -> Vec<String> {
        let snapshot = self.snapshot();
        let paused = snapshot.databases.iter().filter(|d| d.shared.is_paused());
        paused.map(|database| database.name.clone()).collect()
    }

    fn ordered(&self, database: Option<&str>) -> Result<Vec<Arc<Database>>, OrderError> {
        let snapshot = self.snapshot();
        let Some(name) = database else {
            return Ok(snapshot.databases.clone());
        };
        match snapshot.database_named(name) {
            Some(database) => Ok(vec![Arc::clone(database)]),
            None => Err(OrderError::Unknown(name.to_owned())),
        }
    }

    fn tell_switches(&self) {
        if !stage::tell(&self.posts, |reply| Mail::Follow { reply }) {
            tracing::warn!("a shard has not said yet that it has followed; it will");
        }
    }

    fn until_quiet(&self, databases: &[Arc<Database>], patience: Duration) -> Paused {
        let deadline = Instant::now() + patience;
        loop {
            if databases.iter().any(|d| !d.shared.is_paused()) {
                return Paused::Overridden;
            }
            if databases.iter().all(|database| self.is_quiet(database)) {
                return Paused::Quiet;
            }
            if Instant::now() >= deadline {
                return Paused::NotYet;
            }
            std::thread::sleep(LOOK.min(deadline.saturating_duration_since(Instant::now())));
        }
    }

    /// No server is open, nor being opened or closed, on any shard, nor between two. A permit that is on its way to a
    /// shard has no server.
    fn is_quiet(&self, database: &Database) -> bool {
        let shared = &database.shared;
        let mut quiet = true;
        let mut look = |budget: &::pool::Budget| quiet &= budget.taken() <= budget.granted();
        look(&shared.budget);
        look(&shared.asking);
        self.roles.of(database.id, look);
        quiet
    }
}

/// How often it is looked whether a database is quiet: servers say so to their shard alone.
const LOOK: Duration = Duration::from_millis(5);
