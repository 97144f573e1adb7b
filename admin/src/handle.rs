//! What the API asks the engine, and what it is told.
//!
//! Every question to a shard has a deadline: a shard that does not answer
//! makes an answer that says so, never one that hangs.

use crate::access::Access;
use crate::stats::ShardStats;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The engine, as the API knows it.
pub trait Handle: Send + Sync + 'static {
    /// Who may ask.
    fn access(&self) -> Arc<Access>;
    /// Whether a database of this name is configured.
    fn has_database(&self, name: &str) -> bool;
    /// All figures.
    fn figures(&self) -> impl Future<Output = Figures>;
    /// Whether clients are served, of this database or of all.
    fn readiness(&self, database: Option<&str>) -> impl Future<Output = Readiness>;
    /// Whether the primaries can be reached.
    fn health(&self) -> impl Future<Output = Value>;
    /// The configuration in force, without secrets.
    fn config(&self) -> Value;
    /// Reads the configuration again, as SIGHUP does.
    fn reload(&self) -> impl Future<Output = Reloaded>;
    /// How many clients there are, of which users and databases.
    fn connections(&self) -> Connections;
    /// Some of the clients.
    fn sessions(&self, wanted: Wanted) -> impl Future<Output = Result<Page, Unclear>>;
    /// Cancels what a client has asked.
    fn cancel(&self, id: u32) -> impl Future<Output = Cancelled>;
    /// Since when there is maintenance.
    fn maintenance(&self) -> Maintenance;
    /// Begins or ends it, for a database or for all.
    fn set_maintenance(
        &self,
        database: Option<&str>,
        on: bool,
    ) -> impl Future<Output = Result<Changed, Unknown>>;
    /// Pauses a database or all, goes on, or replaces servers.
    fn order(
        &self,
        order: Order,
        database: Option<&str>,
    ) -> impl Future<Output = Result<Ordered, Unknown>>;
}

/// What is ordered of a database's servers and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// No client gets a server; transactions that run may end; then no server is open.
    Pause,
    /// It goes on.
    Resume,
    /// Every server is replaced when nobody has it.
    Reconnect,
    /// Its clients are ended at once, and it is paused.
    Kill,
}

/// What became of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// It is carried out.
    Done,
    /// Transactions still run; the database stays paused meanwhile.
    UnderWay,
    /// Somebody has resumed it in the meantime.
    Overridden,
    /// The process ends.
    Unavailable,
}

/// What is not there: the database's name is not configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

/// What is asked for cannot be understood, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unclear(pub String);

/// Figures of all shards, as they were told just now or last.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Of all shards together.
    pub all: ShardStats,
    /// Of each.
    pub shards: Vec<ShardFigures>,
    /// Of each database.
    pub databases: Vec<DatabaseFigures>,
    /// Errors, by who made them and their SQLSTATE.
    pub errors: Vec<(&'static str, String, u64)>,
    /// Clients by user and by database.
    pub connections: Connections,
    /// Since when which database is in maintenance.
    pub maintenance: Maintenance,
    /// When the process started.
    pub started: Option<SystemTime>,
    /// The admin thread's own.
    pub thread: ThreadFigures,
}

/// Of one shard.
#[derive(Clone, Debug, Default)]
pub struct ShardFigures {
    /// It has answered in time; else what it said last stands here.
    pub answered: bool,
    /// How long it took to answer.
    pub took: Duration,
    /// Its clients.
    pub clients: u64,
    /// How often it has entered the kernel.
    pub turns: u64,
    /// The CPU time of its thread.
    pub cpu: Duration,
}

/// Of one database.
#[derive(Clone, Debug, Default)]
pub struct DatabaseFigures {
    /// Its name.
    pub name: String,
    /// Where its primary is.
    pub address: String,
    /// Servers now, of all its pools.
    pub open: u64,
    /// Of these, idle.
    pub idle: u64,
    /// Clients that wait.
    pub waiting: u64,
    /// Servers given to clients since the start.
    pub acquires: u64,
    /// The most servers that the pool of its own user may have.
    pub max: u64,
    /// Nobody gets a server until it is resumed.
    pub paused: bool,
}

/// What the admin thread counts of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadFigures {
    /// Requests answered.
    pub requests: u64,
    /// Connections now.
    pub connections: u64,
    /// Connections refused or closed because there were too many.
    pub crowded_out: u64,
    /// Panics, each of which ended a connection or restarted the thread.
    pub panics: u64,
}

/// Whether clients are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They are.
    Ready,
    /// They are not, and why.
    NotReady(String),
    /// There is no such database.
    Unknown,
}

/// What a reload came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// The report of what has changed.
    Done(Value),
    /// Why all stays as it was, a line each, and the report.
    Failed(Vec<String>, Value),
    /// Nobody is there to do it: the process ends, or is at it for too long.
    Unavailable,
}

/// How many clients there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Connections {
    /// Users with the most clients first; those left out are counted.
    pub by_user: Vec<Share>,
    /// Users that are left out, and their clients.
    pub other_users: Left,
    /// By database, by name.
    pub by_database: Vec<Share>,
    /// Whether limits are on.
    pub limited: bool,
    /// The limits where nothing else is said; zero is none.
    pub defaults: Defaults,
}

/// A user's or a database's clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Its name.
    pub name: String,
    /// Its clients.
    pub active: u32,
    /// The most that it may have; zero is no limit.
    pub limit: u32,
}

/// What a list leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Left {
    /// Names.
    pub names: u64,
    /// Their clients.
    pub active: u64,
}

/// The limits of who has none of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Defaults {
    /// Of a user.
    pub per_user: u32,
    /// Of a database.
    pub per_database: u32,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing, outside a transaction.
    Idle,
    /// It waits for a server.
    Waiting,
    /// A server works for it.
    Active,
    /// Nothing, in a transaction.
    InTransaction,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Idle, Self::Waiting, Self::Active, Self::InTransaction];

    /// Its name, as in answers and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Active => "active",
            Self::InTransaction => "in_transaction",
        }
    }
}

/// Which clients are to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// In this state.
    pub state: Option<State>,
    /// Of this user.
    pub user: Option<String>,
    /// Of this database.
    pub database: Option<String>,
    /// At most so many.
    pub limit: usize,
    /// Behind this, which a page before has told.
    pub after: Option<String>,
}

/// Some clients.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    /// By number.
    pub sessions: Vec<Client>,
    /// Where the next page begins, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Shards that have not answered in time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub silent_shards: Vec<usize>,
}

/// A client that is logged in.
#[derive(Clone, Debug, Serialize)]
pub struct Client {
    /// The process id that it was told, by which it can be cancelled.
    pub id: u32,
    /// Where it comes from; `local` over a unix socket.
    pub client_addr: String,
    /// Who it has proved to be.
    pub user: String,
    /// The database that it has named.
    pub database: String,
    /// When it had logged in.
    pub connected_at: String,
    /// What it does.
    pub state: State,
    /// For how long, in milliseconds.
    pub state_ms: u64,
    /// How long it has waited for a server, while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Where its server is, while it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_addr: Option<String>,
    /// Whether it is in a transaction.
    pub in_transaction: bool,
    /// Whether its server stays its own behind a transaction.
    pub pinned: bool,
    /// The shard that serves it.
    pub shard: usize,
}

/// What came of a cancel request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It is on its way.
    Sent,
    /// The client has asked nothing.
    Idle,
    /// There is no such client.
    Unknown,
    /// Its shard has not answered in time.
    Silent,
}

/// Since when there is maintenance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// For all databases.
    pub all: Option<SystemTime>,
    /// For these only.
    pub databases: Vec<(String, SystemTime)>,
}

impl Maintenance {
    /// Whether there is, of a database or for all.
    pub fn holds(&self, database: Option<&str>) -> bool {
        self.since(database).is_some()
    }

    /// Since when, of a database or for all.
    pub fn since(&self, database: Option<&str>) -> Option<SystemTime> {
        let own = |name: &str| {
            let mut listed = self.databases.iter();
            listed.find(|(own, _)| own == name).map(|(_, since)| *since)
        };
        self.all.or_else(|| database.and_then(own))
    }
}

/// What became of maintenance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// It is not as it was.
    pub changed: bool,
    /// Shards that have not said that they know; they have been told.
    pub silent_shards: Vec<usize>,
}
