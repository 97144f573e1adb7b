//! All runs, and the figures that are drawn from them.

use crate::parts;
use crate::pgbench::Outcome;
use crate::stats::{Spread, paired_ratio};
use crate::target::Cell;

/// One run.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Runs of the same round followed each other closely.
    pub round: u32,
    /// The target's name.
    pub target: String,
    /// The load.
    pub cell: Cell,
    /// What came out.
    pub outcome: Outcome,
}

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Transactions per second.
    Tps,
    /// Latency, middle, milliseconds.
    P50Ms,
    /// Latency, 99th percentile, milliseconds.
    P99Ms,
    /// The pooler's CPU microseconds per transaction.
    CpuUs,
    /// The share of user mode in the pooler's CPU time, percent.
    UserPercent,
    /// The pooler's context switches per transaction.
    Switches,
    /// The pooler's resident memory, MiB.
    RssMib,
    /// PostgreSQL's CPU microseconds per transaction.
    PostgresUs,
    /// CPU used by others, percent of one CPU.
    ForeignPercent,
    /// The longest wait of any client, milliseconds; only where every transaction is logged.
    WorstMs,
    /// The largest of the clients' mean latencies, milliseconds.
    WorstMeanMs,
    /// CPU of the busiest shard or process over the mean of all.
    Imbalance,
    /// Servers that were opened during the run.
    ServerLogins,
    /// Clients that moved from shard to shard during the run.
    ClientsMoved,
    /// Servers that went from shard to shard during the run.
    Handovers,
    /// How long the middle one of them took, microseconds.
    HandoverUs,
}

impl Figure {
    /// Those of every run, in the order of the tables.
    pub const ALL: [Self; 9] = [
        Self::Tps,
        Self::P50Ms,
        Self::P99Ms,
        Self::CpuUs,
        Self::UserPercent,
        Self::Switches,
        Self::RssMib,
        Self::PostgresUs,
        Self::ForeignPercent,
    ];

    /// Those of the section that compares shard counts.
    pub const SCALE: [Self; 14] = [
        Self::Tps,
        Self::P50Ms,
        Self::P99Ms,
        Self::WorstMs,
        Self::WorstMeanMs,
        Self::CpuUs,
        Self::Switches,
        Self::Imbalance,
        Self::ServerLogins,
        Self::ClientsMoved,
        Self::Handovers,
        Self::HandoverUs,
        Self::RssMib,
        Self::ForeignPercent,
    ];

    /// The head of its column.
    pub fn head(self) -> &'static str {
        match self {
            Self::Tps => "TPS",
            Self::P50Ms => "p50 ms",
            Self::P99Ms => "p99 ms",
            Self::CpuUs => "CPU µs/tx",
            Self::UserPercent => "user %",
            Self::Switches => "switches/tx",
            Self::RssMib => "RSS MiB",
            Self::PostgresUs => "PostgreSQL µs/tx",
            Self::ForeignPercent => "others' CPU %",
            Self::WorstMs => "worst wait ms",
            Self::WorstMeanMs => "worst client's mean ms",
            Self::Imbalance => "busiest/mean",
            Self::ServerLogins => "servers opened",
            Self::ClientsMoved => "clients moved",
            Self::Handovers => "hand-overs",
            Self::HandoverUs => "hand-over p50 µs",
        }
    }

    /// Decimals worth printing.
    pub fn decimals(self) -> usize {
        match self {
            Self::Tps
            | Self::UserPercent
            | Self::ForeignPercent
            | Self::ServerLogins
            | Self::ClientsMoved
            | Self::Handovers => 0,
            Self::CpuUs | Self::PostgresUs | Self::RssMib | Self::WorstMs | Self::HandoverUs => 1,
            Self::Switches | Self::Imbalance => 2,
            Self::P50Ms | Self::P99Ms | Self::WorstMeanMs => 3,
        }
    }

    /// Its value in one run; none where it has no meaning, as CPU of the pooler on a direct connection.
    pub fn of(self, outcome: &Outcome) -> Option<f64> {
        let usage = &outcome.usage;
        if outcome.tps <= 0.0 {
            return None;
        }
        let pooled = usage.rss_kib;
        let value = match self {
            Self::Tps => outcome.tps,
            Self::P50Ms => outcome.p50_us / 1e3,
            Self::P99Ms => outcome.p99_us / 1e3,
            Self::CpuUs => pooled.map(|_| outcome.per_transaction_us(usage.pooler.cpu_ns))?,
            Self::UserPercent => {
                let user = pooled.map(|_| usage.pooler.user_ticks)? as f64;
                100.0 * user / (user + usage.pooler.system_ticks as f64)
            }
            Self::Switches => {
                let switches = pooled.map(|_| usage.pooler.switches)? as f64;
                switches / (usage.window.as_secs_f64() * outcome.tps)
            }
            Self::RssMib => pooled? as f64 / 1024.0,
            Self::PostgresUs => outcome.per_transaction_us(usage.postgres_ns),
            Self::ForeignPercent => {
                100.0 * usage.foreign_ns as f64 / usage.window.as_nanos() as f64
            }
            Self::WorstMs => outcome.worst_us / 1e3,
            Self::WorstMeanMs => outcome.worst_mean_us / 1e3,
            Self::Imbalance => parts::imbalance(&usage.parts)?,
            Self::ClientsMoved => outcome.told.as_ref()?.clients_moved()?,
            Self::Handovers => outcome.told.as_ref()?.handovers()?,
            Self::HandoverUs => outcome.told.as_ref()?.handover_median_us()?,
            Self::ServerLogins => outcome.told.as_ref()?.server_logins()?,
        };
        value.is_finite().then_some(value)
    }
}

/// Everything that was run.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// In the order in which they were run.
    pub samples: Vec<Sample>,
    /// The time ran out before the last run.
    pub cut_short: bool,
}

impl Results {
    /// A figure over the rounds.
    pub fn spread(&self, figure: Figure, target: &str, cell: Cell) -> Option<Spread> {
        Spread::of(
            self.by_round(figure, target, cell)
                .into_iter()
                .map(|(_, x)| x),
        )
    }

    /// A figure of one target over the same figure of another, round by round.
    pub fn ratio(&self, figure: Figure, cell: Cell, ours: &str, theirs: &str) -> Option<Spread> {
        paired_ratio(
            &self.by_round(figure, ours, cell),
            &self.by_round(figure, theirs, cell),
        )
    }

    /// The least CPU of one target over the least of another. What disturbs a run only ever adds
    /// to its CPU, so on a busy machine the best rounds are nearest to the truth.
    pub fn best_cpu_ratio(&self, cell: Cell, ours: &str, theirs: &str) -> Option<f64> {
        let ours = self.spread(Figure::CpuUs, ours, cell)?.min;
        let theirs = self.spread(Figure::CpuUs, theirs, cell)?.min;
        (theirs > 0.0).then(|| ours / theirs)
    }

    /// Errors of a target, in one cell or in all.
    pub fn errors(&self, target: &str, cell: Option<Cell>) -> u64 {
        self.of(target)
            .filter(|sample| cell.is_none_or(|cell| sample.cell == cell))
            .map(|sample| sample.outcome.errors)
            .sum()
    }

    /// Whether a run against this target had to be ended.
    pub fn hangs(&self, target: &str) -> bool {
        self.of(target).any(|sample| sample.outcome.hung)
    }

    /// Clients that starved in the worst round of a cell.
    pub fn starved(&self, target: &str, cell: Cell) -> u32 {
        let here = self.of(target).filter(|sample| sample.cell == cell);
        here.map(|sample| sample.outcome.starved).max().unwrap_or(0)
    }

    /// Whether a target was run in a cell at all.
    pub fn has(&self, target: &str, cell: Cell) -> bool {
        self.of(target).any(|sample| sample.cell == cell)
    }

    /// The cells in the order in which they were first run.
    pub fn cells(&self) -> Vec<Cell> {
        distinct(self.samples.iter().map(|sample| sample.cell))
    }

    fn of<'a>(&'a self, target: &str) -> impl Iterator<Item = &'a Sample> {
        self.samples
            .iter()
            .filter(move |sample| sample.target == target)
    }

    fn by_round(&self, figure: Figure, target: &str, cell: Cell) -> Vec<(u32, f64)> {
        self.of(target)
            .filter(|sample| sample.cell == cell)
            .filter_map(|sample| Some((sample.round, figure.of(&sample.outcome)?)))
            .collect()
    }
}

/// The distinct values, in the order of their first appearance.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::procfs::Task;
    use crate::target::Mode;
    use crate::usage::Usage;

    /// A run of one second in which a pooler used `cpu_us` per transaction.
    pub(crate) fn sample(round: u32, target: &str, cell: Cell, tps: f64, cpu_us: f64) -> Sample {
        let pooled = cpu_us > 0.0;
        Sample {
            round,
            target: target.to_owned(),
            cell,
            outcome: Outcome {
                tps,
                p50_us: 50.0,
                p99_us: 99.0,
                usage: Usage {
                    window: Duration::from_secs(1),
                    pooler: Task {
                        cpu_ns: (cpu_us * tps * 1e3) as u64,
                        user_ticks: 1,
                        system_ticks: 3,
                        switches: tps as u64,
                    },
                    rss_kib: pooled.then_some(2048),
                    ..Usage::default()
                },
                ..Outcome::default()
            },
        }
    }

    pub(crate) const CELL: Cell = Cell {
        mode: Mode::Simple,
        clients: 8,
    };

    #[test]
    fn figures_of_a_pooler_have_no_meaning_without_one() {
        let direct = sample(0, "direct", CELL, 1000.0, 0.0).outcome;
        assert_eq!(Figure::CpuUs.of(&direct), None);
        assert_eq!(Figure::RssMib.of(&direct), None);
        assert_eq!(Figure::Tps.of(&direct), Some(1000.0));
        let pooled = sample(0, "p", CELL, 1000.0, 12.0).outcome;
        assert_eq!(Figure::CpuUs.of(&pooled), Some(12.0));
        assert_eq!(Figure::Switches.of(&pooled), Some(1.0));
        assert_eq!(Figure::UserPercent.of(&pooled), Some(25.0));
        assert_eq!(Figure::RssMib.of(&pooled), Some(2.0));
    }

    #[test]
    fn a_failed_run_gives_errors_and_no_figures() {
        let outcome = Outcome::failed("gone".into());
        assert!(
            Figure::ALL
                .iter()
                .all(|figure| figure.of(&outcome).is_none())
        );
        let results = Results {
            samples: vec![Sample {
                outcome,
                ..sample(0, "p", CELL, 1.0, 1.0)
            }],
            cut_short: false,
        };
        assert_eq!(results.errors("p", None), 1);
        assert!(!results.hangs("p"), "an error is not a hang");
        assert_eq!(results.errors("q", None), 0);
        assert!(results.spread(Figure::Tps, "p", CELL).is_none());
    }

    #[test]
    fn ratios_pair_the_rounds() {
        let results = Results {
            samples: vec![
                sample(0, "a", CELL, 1.0e4, 10.0),
                sample(0, "b", CELL, 1.0e4, 20.0),
                sample(1, "b", CELL, 1.0e4, 40.0),
                sample(1, "a", CELL, 1.0e4, 30.0),
            ],
            cut_short: false,
        };
        let ratio = results.ratio(Figure::CpuUs, CELL, "a", "b").expect("pairs");
        assert_eq!((ratio.min, ratio.median, ratio.max), (0.5, 0.625, 0.75));
        assert_eq!(results.best_cpu_ratio(CELL, "a", "b"), Some(0.5));
        assert_eq!(results.best_cpu_ratio(CELL, "a", "c"), None);
    }
}
