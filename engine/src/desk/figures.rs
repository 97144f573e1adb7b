//! The figures of all shards. A shard that is silent stands there with what it
//! told last: a counter that fell would be taken for a restart.

use super::{Desk, lock};
use crate::shard::{Question, Report, fault_label};
use crate::snapshot::Database;
use admin::handle::{DatabaseFigures, Figures, Handle, ShardFigures};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

impl Desk {
    pub(super) async fn all_figures(&self) -> Figures {
        let asked = Instant::now();
        let answers = (0..self.posts.len()).map(|shard| async move {
            let report = self.ask(shard, Question::Figures).await;
            (report, asked.elapsed())
        });
        let answers = super::join(answers.map(Box::pin).collect()).await;
        let mut told = lock(&self.told);
        let mut shards = Vec::new();
        for (told, (answer, took)) in told.iter_mut().zip(answers) {
            let answered = answer.is_some();
            if let Some(report) = answer {
                *told = report;
            }
            shards.push(of_shard(told, answered, took));
        }
        Figures {
            shards,
            ..self.merged(&told)
        }
    }

    fn merged(&self, told: &[Report]) -> Figures {
        let snapshot = self.snapshot();
        let mut figures = Figures {
            databases: snapshot
                .databases
                .iter()
                .map(|one| of_database(one))
                .collect(),
            connections: self.connections(),
            maintenance: self.maintenance(),
            started: Some(self.started),
            ..Figures::default()
        };
        let mut errors = BTreeMap::new();
        for report in told {
            figures.all.merge(&report.stats);
            for (told, database) in figures.databases.iter_mut().zip(&snapshot.databases) {
                let Some(group) = report.groups.get(&database.id) else {
                    continue;
                };
                told.open += group.open;
                told.idle += group.idle;
                told.waiting += group.waiting;
                told.acquires += group.acquires;
            }
            for (maker, code, count) in &report.errors {
                *errors.entry((*maker, fault_label(code))).or_default() += count;
            }
        }
        let errors = errors.into_iter();
        figures.errors = errors
            .map(|((maker, code), count)| (maker, code, count))
            .collect();
        figures
    }
}

fn of_database(database: &Database) -> DatabaseFigures {
    DatabaseFigures {
        name: database.name.clone(),
        address: database.target.to_string(),
        max: u64::from(database.pool.max_connections),
        paused: database.shared.is_paused(),
        ..DatabaseFigures::default()
    }
}

fn of_shard(told: &Report, answered: bool, took: Duration) -> ShardFigures {
    ShardFigures {
        answered,
        took,
        clients: told.stats.clients,
        turns: told.stats.ring_enters,
        cpu: told.cpu,
    }
}
