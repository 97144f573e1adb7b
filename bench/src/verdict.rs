//! The targets that pgmux must meet, and whether it does.

pub mod first;
pub mod scale;
pub mod secure;

use crate::idle;
use crate::peers::Auth;
use crate::results::{Figure, Results};
use crate::stats::Spread;
use crate::target::{Cell, Mode, names};

/// One line of the table of targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What is looked at.
    pub what: String,
    /// The bound, in words.
    pub bound: String,
    /// What was measured, in words.
    pub measured: String,
    /// The outcome.
    pub verdict: Verdict,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Met.
    Pass,
    /// Missed.
    Fail,
    /// Not measured in this run.
    Open,
}

impl Verdict {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Open => "not measured",
        }
    }
}

/// A bound of a ratio between two targets.
#[derive(Clone, Copy, Debug)]
struct Rule {
    figure: Figure,
    mode: Mode,
    clients: u32,
    against: &'static str,
    bound: Bound,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }

    fn words(self) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {limit:.2}"),
            Self::AtLeast(limit) => format!("≥ {limit:.2}"),
        }
    }
}

/// CPU per transaction against PgBouncer and the spike.
const CPU_RULES: [(Mode, u32, &str, f64); 7] = [
    (Mode::Simple, 1, names::PGBOUNCER, 0.95),
    (Mode::Simple, 8, names::PGBOUNCER, 0.95),
    (Mode::Simple, 64, names::PGBOUNCER, 0.80),
    (Mode::Simple, 256, names::PGBOUNCER, 0.70),
    (Mode::Extended, 64, names::PGBOUNCER, 0.75),
    (Mode::Prepared, 64, names::PGBOUNCER, 0.70),
    (Mode::Simple, 64, names::SPIKE, 1.15),
];
/// Resident memory per idle client, KiB over the empty process.
const IDLE_KIB_MAX: f64 = 2.0;
/// The number of clients that the bound is meant for.
const IDLE_CLIENTS: u32 = 10_000;
/// CPU with a thousand idle clients, percent of one core.
const IDLE_CPU_PERCENT_MAX: f64 = 0.2;
/// CPU per transaction with more shards against one.
const SHARDS_RATIO_MAX: f64 = 1.10;

/// Holds the results against every target.
pub fn judge(
    results: &Results,
    shards: &[u32],
    idle: &[(String, Auth, idle::Figures)],
) -> Vec<Check> {
    let mut checks: Vec<Check> = rules(results)
        .iter()
        .map(|rule| check_ratio(results, rule, names::PGMUX, rule.against))
        .collect();
    for count in shards.iter().filter(|count| **count != 1) {
        for clients in SHARD_CLIENTS {
            let rule = Rule {
                figure: Figure::CpuUs,
                mode: Mode::Simple,
                clients,
                against: names::PGMUX,
                bound: Bound::AtMost(SHARDS_RATIO_MAX),
            };
            let ours = names::pgmux_with_shards(*count);
            checks.push(check_ratio(results, &rule, &ours, names::PGMUX));
        }
    }
    checks.push(check_errors(results));
    checks.push(check_idle_memory(idle));
    checks.push(check_idle_cpu(idle));
    checks
}

fn rules(results: &Results) -> Vec<Rule> {
    let cpu = CPU_RULES.map(|(mode, clients, against, limit)| Rule {
        figure: Figure::CpuUs,
        mode,
        clients,
        against,
        bound: Bound::AtMost(limit),
    });
    // "At every client count" means those that were run.
    let tps = results.cells().into_iter().map(|cell| Rule {
        figure: Figure::Tps,
        mode: cell.mode,
        clients: cell.clients,
        against: names::PGBOUNCER,
        bound: Bound::AtLeast(1.0),
    });
    cpu.into_iter().chain(tps).collect()
}

fn check_ratio(results: &Results, rule: &Rule, ours: &str, theirs: &str) -> Check {
    let cell = Cell {
        mode: rule.mode,
        clients: rule.clients,
    };
    let figure = match rule.figure {
        Figure::Tps => "TPS",
        _ => "CPU per transaction",
    };
    let ratio = results.ratio(rule.figure, cell, ours, theirs);
    let best = match (ratio, rule.figure) {
        (Some(ratio), Figure::CpuUs) if ratio.min < ratio.max => {
            results.best_cpu_ratio(cell, ours, theirs)
        }
        _ => None,
    };
    let missing = [ours, theirs]
        .into_iter()
        .find(|name| !results.has(name, cell));
    Check {
        what: format!("{figure}, {cell}, {ours} against {theirs}"),
        bound: rule.bound.words(),
        measured: match (ratio, missing) {
            (Some(ratio), _) => match best {
                Some(best) => format!("{}, best {best:.2}", spread_words(ratio)),
                None => spread_words(ratio),
            },
            (None, Some(name)) => format!("{name} did not run it"),
            (None, None) => "no run without errors".to_owned(),
        },
        verdict: match ratio {
            Some(ratio) if rule.bound.holds(ratio.median) => Verdict::Pass,
            Some(_) => Verdict::Fail,
            None if missing.is_some() => Verdict::Open,
            None => Verdict::Fail,
        },
    }
}

fn check_errors(results: &Results) -> Check {
    let mut runs = 0;
    let mut errors = 0;
    for sample in results
        .samples
        .iter()
        .filter(|s| s.target.starts_with(names::PGMUX))
    {
        runs += 1;
        errors += sample.outcome.errors;
    }
    Check {
        what: format!("errors of {}", names::PGMUX),
        bound: "0".to_owned(),
        measured: format!("{errors} in {runs} runs"),
        verdict: match (runs, errors) {
            (0, _) => Verdict::Open,
            (_, 0) => Verdict::Pass,
            _ => Verdict::Fail,
        },
    }
}

fn check_idle_memory(idle: &[(String, Auth, idle::Figures)]) -> Check {
    let measured = ours(idle).max_by_key(|figures| figures.clients);
    let kib = measured.map(idle::Figures::kib_over_empty);
    Check {
        what: "RSS per idle client over the empty process".to_owned(),
        bound: format!("≤ {IDLE_KIB_MAX} KiB at {IDLE_CLIENTS} clients"),
        measured: match (measured, kib) {
            (Some(figures), Some(kib)) => format!("{kib:.2} KiB at {} clients", figures.clients),
            _ => "not run".to_owned(),
        },
        verdict: match kib {
            Some(kib) if kib <= IDLE_KIB_MAX => Verdict::Pass,
            // What is paid once weighs too much on few clients to call it missed.
            Some(_) if measured.is_some_and(|f| f.clients < IDLE_CLIENTS) => Verdict::Open,
            Some(_) => Verdict::Fail,
            None => Verdict::Open,
        },
    }
}

fn check_idle_cpu(idle: &[(String, Auth, idle::Figures)]) -> Check {
    let worst = ours(idle).max_by(|a, b| a.idle_cpu_percent.total_cmp(&b.idle_cpu_percent));
    Check {
        what: "CPU with idle clients only".to_owned(),
        bound: format!("< {IDLE_CPU_PERCENT_MAX} % of a core"),
        measured: worst.map_or("not run".to_owned(), |figures| {
            let (percent, clients) = (figures.idle_cpu_percent, figures.watched_clients);
            format!("{percent:.3} % with {clients} clients")
        }),
        verdict: match worst {
            Some(figures) if figures.idle_cpu_percent < IDLE_CPU_PERCENT_MAX => Verdict::Pass,
            Some(_) => Verdict::Fail,
            None => Verdict::Open,
        },
    }
}

fn ours(idle: &[(String, Auth, idle::Figures)]) -> impl Iterator<Item = &idle::Figures> {
    idle.iter()
        .filter(|(name, ..)| name == names::PGMUX)
        .map(|(_, _, figures)| figures)
}

/// The median, and from where to where the rounds lie when they differ.
pub fn spread_words(spread: Spread) -> String {
    if spread.min == spread.max {
        return format!("{:.2}", spread.median);
    }
    format!("{:.2} ({:.2}–{:.2})", spread.median, spread.min, spread.max)
}

/// The client counts at which shard counts are compared.
pub const SHARD_CLIENTS: [u32; 2] = [8, 64];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{CELL, sample};

    fn find<'a>(checks: &'a [Check], what: &str) -> &'a Check {
        let found = checks.iter().find(|check| check.what.starts_with(what));
        found.unwrap_or_else(|| panic!("no check {what}"))
    }

    fn results(ours_us: f64, ours_tps: f64) -> Results {
        Results {
            samples: vec![
                sample(0, names::PGMUX, CELL, ours_tps, ours_us),
                sample(0, names::PGBOUNCER, CELL, 1e4, 20.0),
            ],
            cut_short: false,
        }
    }

    const CPU_8: &str = "CPU per transaction, simple, 8 clients, pgmux against pgbouncer";
    const TPS_8: &str = "TPS, simple, 8 clients";

    #[test]
    fn a_bound_is_met_at_the_bound_and_missed_past_it() {
        let checks = judge(&results(19.0, 1e4), &[1], &[]);
        assert_eq!(find(&checks, CPU_8).verdict, Verdict::Pass);
        assert_eq!(find(&checks, TPS_8).verdict, Verdict::Pass);
        let checks = judge(&results(19.1, 9.9e3), &[1], &[]);
        assert_eq!(find(&checks, CPU_8).verdict, Verdict::Fail);
        assert_eq!(find(&checks, TPS_8).verdict, Verdict::Fail);
    }

    #[test]
    fn what_was_not_run_is_neither_met_nor_missed() {
        let checks = judge(&results(1.0, 1e4), &[1, 4], &[]);
        let spike = find(
            &checks,
            "CPU per transaction, simple, 64 clients, pgmux against spike",
        );
        assert_eq!(spike.verdict, Verdict::Open);
        let shards = find(
            &checks,
            "CPU per transaction, simple, 8 clients, pgmux-4-shards",
        );
        assert_eq!(shards.verdict, Verdict::Open);
        assert_eq!(find(&checks, "RSS per idle").verdict, Verdict::Open);
    }

    #[test]
    fn one_error_misses_the_target() {
        let mut results = results(1.0, 1e4);
        results.samples[0].outcome.errors = 1;
        let checks = judge(&results, &[1], &[]);
        assert_eq!(find(&checks, "errors").verdict, Verdict::Fail);
    }

    #[test]
    fn a_run_that_failed_altogether_is_missed_not_open() {
        let mut results = results(1.0, 1e4);
        results.samples[0].outcome = crate::pgbench::Outcome::failed("gone".into());
        let checks = judge(&results, &[1], &[]);
        assert_eq!(find(&checks, CPU_8).verdict, Verdict::Fail);
    }

    #[test]
    fn idle_targets_look_at_pgmux_alone() {
        let figures = |kib: u64, clients, idle_cpu_percent| idle::Figures {
            clients,
            full_kib: kib,
            idle_cpu_percent,
            ..idle::Figures::default()
        };
        let peers = (
            names::PGBOUNCER.to_owned(),
            Auth::Trust,
            figures(90_000, 10_000, 5.0),
        );
        let ours = (
            names::PGMUX.to_owned(),
            Auth::Trust,
            figures(20_000, 10_000, 0.1),
        );
        let checks = judge(&Results::default(), &[1], &[peers.clone(), ours]);
        assert_eq!(find(&checks, "RSS per idle").verdict, Verdict::Pass);
        assert_eq!(find(&checks, "CPU with idle").verdict, Verdict::Pass);
        let ours = (
            names::PGMUX.to_owned(),
            Auth::Scram,
            figures(20_001, 10_000, 0.2),
        );
        let checks = judge(&Results::default(), &[1], &[peers, ours]);
        assert_eq!(find(&checks, "RSS per idle").verdict, Verdict::Fail);
        assert_eq!(find(&checks, "CPU with idle").verdict, Verdict::Fail);
    }
}
