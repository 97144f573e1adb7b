//! What the admin API asks, answered: over the shards' mailboxes, each question
//! with a deadline. It runs on the admin thread; no shard ever waits for it.
//!
//! | file | what it does |
//! |---|---|
//! | `figures` | the figures of all shards, those that are silent as they were |
//! | `clients` | lists of clients, and cancelling |
//! | `checks` | whether primaries can be reached |
//! | `orders` | maintenance; what the process itself must do |

mod checks;
mod clients;
mod figures;
mod listen;
mod orders;

pub use listen::listen;

use crate::client::Places;
use crate::reload::Operator;
use crate::shard::{Mail, Postbox, ProcessIds, Question, Report};
use crate::snapshot::{Database, Snapshot};
use admin::access::Access;
use admin::handle::{
    Cancelled, Changed, Connections, Defaults, Figures, Handle, Left, Maintenance, Order, Ordered,
    Page, Readiness, Reloaded, Share, Unclear, Unknown, Wanted,
};
use checks::Checks;
use orders::Closed;
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The engine, as the admin thread knows it. It outlives that thread's panics.
pub struct Desk {
    operator: Arc<Operator>,
    posts: Vec<Postbox>,
    places: Arc<Places>,
    process_ids: ProcessIds,
    closed: Mutex<Closed>,
    /// What each shard has told last.
    told: Mutex<Vec<Report>>,
    checks: Checks,
    started: SystemTime,
}

impl Desk {
    /// Of a process that has just started.
    pub fn new(operator: Arc<Operator>, posts: Vec<Postbox>, places: Arc<Places>) -> Self {
        let shards = posts.len();
        let instance = operator.snapshot().engine.instance_id;
        Self {
            process_ids: ProcessIds::new(instance, shards),
            closed: Mutex::default(),
            told: Mutex::new(vec![Report::default(); shards]),
            checks: Checks::default(),
            started: SystemTime::now(),
            operator,
            posts,
            places,
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.operator.snapshot()
    }

    /// Asks a shard. `None` when it does not answer in time.
    async fn ask<T>(
        &self,
        shard: usize,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let mail = Mail::Ask(question(reply));
        self.posts.get(shard)?.try_post(mail).ok()?;
        timeout(PATIENCE, answer).await.ok()?.ok()
    }

    /// Asks all shards at once; the answers in their order.
    async fn ask_all<T>(
        &self,
        question: impl Fn(oneshot::Sender<T>) -> Question,
    ) -> Vec<Option<T>> {
        let asked = (0..self.posts.len()).map(|shard| self.ask(shard, &question));
        // All mail is posted before the first answer is awaited.
        join(asked.map(Box::pin).collect()).await
    }
}

impl Handle for Desk {
    fn access(&self) -> Arc<Access> {
        Arc::clone(&self.snapshot().admin.access)
    }

    fn has_database(&self, name: &str) -> bool {
        self.snapshot().database_named(name).is_some()
    }

    async fn figures(&self) -> Figures {
        self.all_figures().await
    }

    async fn readiness(&self, database: Option<&str>) -> Readiness {
        let snapshot = self.snapshot();
        let asked: Vec<&Arc<Database>> = match database {
            None => snapshot.databases.iter().collect(),
            Some(name) => match snapshot.database_named(name) {
                Some(database) => vec![database],
                None => return Readiness::Unknown,
            },
        };
        let not = |reason: &str| Readiness::NotReady(reason.to_owned());
        if self.operator.is_stopping() {
            return not("pgmux is shutting down");
        }
        let maintenance = self.maintenance();
        if maintenance.all.is_some() {
            return not("pgmux is in maintenance mode");
        }
        let closed = |database: &Database| maintenance.holds(Some(&database.name));
        if let Some(names) = those(&asked, closed) {
            return Readiness::NotReady(format!("in maintenance mode: {names}"));
        }
        if let Some(names) = those(&asked, |database| database.shared.is_paused()) {
            return Readiness::NotReady(format!("paused: {names}"));
        }
        let reached = self.checks.reached(&snapshot).await;
        let lost = |database: &Database| !reached.contains(&database.target);
        match those(&asked, lost) {
            Some(names) => Readiness::NotReady(format!("primary unreachable: {names}")),
            None => Readiness::Ready,
        }
    }

    async fn health(&self) -> Value {
        let snapshot = self.snapshot();
        let reached = self.checks.reached(&snapshot).await;
        let databases = snapshot.databases.iter().map(|database| {
            let healthy = reached.contains(&database.target);
            let writer =
                serde_json::json!({ "addr": database.target.to_string(), "healthy": healthy });
            let told = serde_json::json!({ "writer": writer, "readers": [] });
            (database.name.clone(), told)
        });
        let databases: serde_json::Map<_, _> = databases.collect();
        serde_json::json!({ "databases": databases })
    }

    fn config(&self) -> Value {
        let snapshot = self.snapshot();
        let mut shown = (*snapshot.shown).clone();
        // What the command line has laid over the file, and what a reload could not change.
        let listen = snapshot.proxy.listen.iter().map(ToString::to_string);
        shown["proxy"]["listen"] = listen.collect();
        if let Some(shards) = snapshot.engine.shards {
            shown["engine"]["shards"] = shards.into();
        }
        shown["engine"]["pin"] = snapshot.engine.pin.name().into();
        shown
    }

    async fn reload(&self) -> Reloaded {
        self.order_reload().await
    }

    fn connections(&self) -> Connections {
        self.count_connections()
    }

    async fn sessions(&self, wanted: Wanted) -> Result<Page, Unclear> {
        self.list(wanted).await
    }

    async fn cancel(&self, id: u32) -> Cancelled {
        self.cancel_client(id).await
    }

    fn maintenance(&self) -> Maintenance {
        self.told_maintenance()
    }

    async fn set_maintenance(&self, database: Option<&str>, on: bool) -> Result<Changed, Unknown> {
        self.change_maintenance(database, on).await
    }

    async fn order(&self, order: Order, database: Option<&str>) -> Result<Ordered, Unknown> {
        self.carry_out(order, database).await
    }
}

impl Desk {
    fn count_connections(&self) -> Connections {
        let (mut users, mut databases) = self.places.counts();
        let snapshot = self.snapshot();
        let limits = &snapshot.limits;
        users.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let left = users.split_off(users.len().min(USERS_MAX));
        databases.sort();
        let name = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let user = |(text, active): (Arc<[u8]>, u32)| Share {
            limit: snapshot.most_of_user(&text).unwrap_or(0),
            name: name(&text),
            active,
        };
        let database = |(text, active): (Arc<[u8]>, u32)| {
            let name = name(&text);
            let known = snapshot.database_named(&name);
            let limit = known.and_then(|database| snapshot.most_of_database(database));
            Share {
                limit: limit.unwrap_or(0),
                name,
                active,
            }
        };
        Connections {
            by_user: users.into_iter().map(user).collect(),
            other_users: Left {
                names: left.len() as u64,
                active: left.iter().map(|(_, active)| u64::from(*active)).sum(),
            },
            by_database: databases.into_iter().map(database).collect(),
            limited: limits.enabled,
            defaults: Defaults {
                per_user: limits.default_max_connections_per_user,
                per_database: limits.default_max_connections_per_database,
            },
        }
    }
}

/// The names of those of which this holds; `None` where there are none.
fn those(databases: &[&Arc<Database>], holds: impl Fn(&Database) -> bool) -> Option<String> {
    let found = databases.iter().filter(|database| holds(database));
    let names: Vec<&str> = found.map(|database| &*database.name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// All of them, in their order.
async fn join<T>(mut futures: Vec<std::pin::Pin<Box<impl Future<Output = T>>>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(cx)
            {
                *done = Some(value);
            }
        }
        match done.iter().all(Option::is_some) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Nobody leaves anything half done behind a panic here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a shard may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Users that are told of by name.
const USERS_MAX: usize = 1000;
