//! The order of the runs: round by round, cell by cell, and inside a cell one
//! target after another, each round beginning with another target.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::pgbench::{Load, Outcome};
use crate::results::{Results, Sample};
use crate::target::{Cell, Target};

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The loads.
    pub cells: Vec<Cell>,
    /// How often each is run against each target.
    pub rounds: u32,
    /// When no further run may begin.
    pub deadline: Instant,
}

impl Plan {
    /// Runs everything; each run is shown on standard error as it ends.
    pub fn run(&self, load: &Load<'_>, targets: &[Target]) -> Result<Results> {
        let mut results = Results::default();
        let all = self.order(targets);
        for (done, (round, cell, target)) in all.iter().enumerate() {
            if Instant::now() + run_length(load) > self.deadline {
                eprintln!("no time is left: {} runs are not made", all.len() - done);
                results.cut_short = true;
                break;
            }
            load.interrupt.check()?;
            // Each further wait for a target that hangs would take half a minute.
            let outcome = if results.hangs(&target.name) {
                Outcome::failed("not run: it hung before".to_owned())
            } else {
                load.run(target, *cell)?
            };
            show(done + 1, all.len(), target, *cell, &outcome);
            results.samples.push(Sample {
                round: *round,
                target: target.name.clone(),
                cell: *cell,
                outcome,
            });
        }
        Ok(results)
    }

    /// How long it takes when nothing goes wrong.
    pub fn length(&self, load: &Load<'_>, targets: &[Target]) -> Duration {
        run_length(load) * u32::try_from(self.order(targets).len()).unwrap_or(u32::MAX)
    }

    fn order<'a>(&self, targets: &'a [Target]) -> Vec<(u32, Cell, &'a Target)> {
        let mut order = Vec::new();
        for round in 0..self.rounds {
            for cell in &self.cells {
                let able: Vec<&Target> = targets.iter().filter(|t| t.takes(*cell)).collect();
                for target in rotated(&able, round as usize) {
                    order.push((round, *cell, *target));
                }
            }
        }
        order
    }
}

/// The items, beginning with the `by`th and going round.
fn rotated<T>(items: &[T], by: usize) -> impl Iterator<Item = &T> {
    items
        .iter()
        .cycle()
        .skip(by % items.len().max(1))
        .take(items.len())
}

fn run_length(load: &Load<'_>) -> Duration {
    // Warm-up, window, the second for the last report, and the logins around them.
    Duration::from_secs(u64::from(load.seconds) + 2) + Duration::from_millis(400)
}

fn show(nth: usize, of: usize, target: &Target, cell: Cell, outcome: &Outcome) {
    use crate::results::Figure;
    let figure = |figure: Figure| match figure.of(outcome) {
        Some(value) => format!("{value:.*}", figure.decimals()),
        None => "-".to_owned(),
    };
    eprintln!(
        "[{nth:>3}/{of}] {:<14} {:<9} {:>4} clients: {:>7} TPS, {:>5} CPU µs/tx, p99 {} ms, others {} %",
        target.name,
        cell.mode,
        cell.clients,
        figure(Figure::Tps),
        figure(Figure::CpuUs),
        figure(Figure::P99Ms),
        figure(Figure::ForeignPercent),
    );
    if outcome.starved > 0 {
        eprintln!("          {} clients starved", outcome.starved);
    }
    if outcome.errors > 0 {
        let why = outcome
            .complaint
            .as_deref()
            .unwrap_or("failed transactions");
        eprintln!("          {} errors: {why}", outcome.errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsn::Dsn;
    use crate::target::Mode;

    fn target(name: &str, modes: &[Mode]) -> Target {
        Target {
            name: name.into(),
            dsn: Dsn::local(1),
            pids: Vec::new(),
            counters: None,
            modes: modes.into(),
            clients: None,
            version: String::new(),
        }
    }

    #[test]
    fn every_round_begins_with_another_target() {
        let targets = ["a", "b", "c"].map(|name| target(name, &[Mode::Simple]));
        let plan = Plan {
            cells: vec![Cell {
                mode: Mode::Simple,
                clients: 1,
            }],
            rounds: 4,
            deadline: Instant::now(),
        };
        let order: String = plan
            .order(&targets)
            .iter()
            .map(|(_, _, t)| t.name.as_str())
            .collect();
        assert_eq!(order, "abcbcacababc");
    }

    #[test]
    fn a_target_is_left_out_of_the_cells_it_cannot_run() {
        let targets = [
            target("a", &[Mode::Simple]),
            target("b", &[Mode::Simple, Mode::Prepared]),
        ];
        let cells = [Mode::Simple, Mode::Prepared].map(|mode| Cell { mode, clients: 1 });
        let plan = Plan {
            cells: cells.into(),
            rounds: 1,
            deadline: Instant::now(),
        };
        let order: String = plan
            .order(&targets)
            .iter()
            .map(|(_, _, t)| t.name.as_str())
            .collect();
        assert_eq!(order, "abb");
    }

    #[test]
    fn rotating_nothing_gives_nothing() {
        assert_eq!(rotated::<u8>(&[], 3).count(), 0);
    }
}
