//! What changes something: maintenance, by the shards; a reload, by whom SIGHUP
//! asks too.

use super::{Desk, lock};
use crate::reload::{Outcome, Paused, ReloadReport};
use crate::shard::Question;
use admin::handle::{Changed, Maintenance, Order, Ordered, Reloaded, Unknown};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Which databases are in maintenance, by their numbers, and since when.
#[derive(Default)]
pub(super) struct Closed {
    all: Option<SystemTime>,
    databases: BTreeMap<usize, SystemTime>,
}

impl Desk {
    /// It blocks for seconds at most, so on a thread beside this one.
    pub(super) async fn order_reload(&self) -> Reloaded {
        if self.operator.is_stopping() {
            return Reloaded::Unavailable;
        }
        let operator = Arc::clone(&self.operator);
        let reload = tokio::task::spawn_blocking(move || operator.reload());
        match reload.await {
            Ok(report) => told(&report),
            Err(_) => Reloaded::Unavailable,
        }
    }

    /// When this ends all shards that have answered heed it: whoever says
    /// something later meets it.
    pub(super) async fn change_maintenance(
        &self,
        database: Option<&str>,
        on: bool,
    ) -> Result<Changed, Unknown> {
        let group = match database {
            None => None,
            Some(name) => {
                let snapshot = self.snapshot();
                Some(snapshot.database_named(name).ok_or(Unknown)?.id)
            }
        };
        let changed = lock(&self.closed).note(group, on);
        // Also when nothing has changed: a shard may have been silent before.
        let question = |reply| Question::Maintenance { group, on, reply };
        let told = self.ask_all(question).await;
        let silent = told.iter().enumerate();
        let silent = silent.filter(|(_, told)| told.is_none());
        let silent_shards: Vec<usize> = silent.map(|(shard, _)| shard).collect();
        tracing::info!(
            database = database.unwrap_or("all"),
            on,
            changed,
            ?silent_shards,
            "maintenance"
        );
        Ok(Changed {
            changed,
            silent_shards,
        })
    }

    /// It blocks for seconds at most, so on a thread beside this one.
    pub(super) async fn carry_out(
        &self,
        order: Order,
        database: Option<&str>,
    ) -> Result<Ordered, Unknown> {
        if self.operator.is_stopping() {
            return Ok(Ordered::Unavailable);
        }
        let operator = Arc::clone(&self.operator);
        let database = database.map(str::to_owned);
        let work = move || {
            let database = database.as_deref();
            match order {
                Order::Pause => operator.pause(database, QUIET_MAX).map(outcome),
                Order::Kill => operator.kill(database, QUIET_MAX).map(outcome),
                Order::Resume => operator.resume(database).map(|()| Ordered::Done),
                Order::Reconnect => operator.reconnect(database).map(|()| Ordered::Done),
            }
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(ordered) => ordered.map_err(|_| Unknown),
            Err(_) => Ok(Ordered::Unavailable),
        }
    }

    pub(super) fn told_maintenance(&self) -> Maintenance {
        let closed = lock(&self.closed);
        let snapshot = self.snapshot();
        let databases = snapshot.databases.iter().filter_map(|database| {
            let since = closed.databases.get(&database.id)?;
            Some((database.name.clone(), *since))
        });
        Maintenance {
            all: closed.all,
            databases: databases.collect(),
        }
    }
}

impl Closed {
    /// True if it was not so before.
    fn note(&mut self, group: Option<usize>, on: bool) -> bool {
        let now = SystemTime::now();
        let was = match group {
            None => self.all.is_some(),
            Some(group) => self.databases.contains_key(&group),
        };
        if was != on {
            match (group, on) {
                (None, _) => self.all = on.then_some(now),
                (Some(group), true) => drop(self.databases.insert(group, now)),
                (Some(group), false) => drop(self.databases.remove(&group)),
            }
        }
        was != on
    }
}

fn outcome(paused: Paused) -> Ordered {
    match paused {
        Paused::Quiet => Ordered::Done,
        Paused::NotYet => Ordered::UnderWay,
        Paused::Overridden => Ordered::Overridden,
    }
}

fn told(report: &ReloadReport) -> Reloaded {
    let told = serde_json::to_value(report).unwrap_or_default();
    match report.outcome {
        Outcome::Applied => Reloaded::Done(told),
        Outcome::Refused => {
            let problems = report.errors.iter().map(ToString::to_string);
            Reloaded::Failed(problems.collect(), told)
        }
    }
}

/// Who asks by HTTP is told after this time that the pause is under way; it goes on.
const QUIET_MAX: Duration = Duration::from_secs(5);
