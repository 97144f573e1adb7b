//! The targets of many shards.

use super::{Bound, Check, Rule, Verdict, check_ratio};
use crate::results::Figure;
use crate::scale::{CLIENTS_PER_SHARD, Scaling};
use crate::stats::Spread;
use crate::target::names;

/// CPU and instructions per transaction of four shards over those of one.
const COST_RATIO_MAX: f64 = 1.05;
/// The shards of the target.
const MANY: u32 = 4;
/// The median of a hand-over of an idle server.
const HANDOVER_US_MAX: f64 = 50.0;

/// Holds the section's results against its targets.
pub fn judge(scaling: &Scaling) -> Vec<Check> {
    let (many, one) = (names::pgmux_with_shards(MANY), names::pgmux_with_shards(1));
    let mut checks = Vec::new();
    for cell in scaling.results.cells() {
        let rule = Rule {
            figure: Figure::CpuUs,
            mode: cell.mode,
            clients: cell.clients,
            against: "",
            bound: Bound::AtMost(COST_RATIO_MAX),
        };
        checks.push(check_ratio(&scaling.results, &rule, &many, &one));
    }
    checks.push(check_instructions(scaling, &many, &one));
    checks.push(check_handovers(scaling));
    checks.push(super::check_errors(&scaling.results));
    checks
}

/// The figure that other work on the machine does not move.
fn check_instructions(scaling: &Scaling, many: &str, one: &str) -> Check {
    let of = |name: &str, shards: u32| {
        let (_, figures) = scaling.instructions.as_ref()?;
        let clients = CLIENTS_PER_SHARD * shards;
        let mut found = figures.iter().filter(|figures| figures.target == name);
        Some(
            found
                .find(|figures| figures.cell.clients == clients)?
                .per_transaction,
        )
    };
    let ratio = of(many, MANY).zip(of(one, 1)).map(|(many, one)| many / one);
    Check {
        what: format!(
            "user instructions per transaction, {CLIENTS_PER_SHARD} clients a shard, {many} against {one}"
        ),
        bound: Bound::AtMost(COST_RATIO_MAX).words(),
        measured: ratio.map_or("not run".to_owned(), |ratio| format!("{ratio:.3}")),
        verdict: verdict(ratio, COST_RATIO_MAX),
    }
}

fn check_handovers(scaling: &Scaling) -> Check {
    let samples = scaling.results.samples.iter();
    let median = Spread::of(samples.filter_map(|s| Figure::HandoverUs.of(&s.outcome)));
    Check {
        what: "hand-over of an idle server, median".to_owned(),
        bound: format!("< {HANDOVER_US_MAX} µs"),
        measured: median.map_or("none was counted".to_owned(), |spread| {
            format!(
                "{:.1} µs, at most {:.1} in one run",
                spread.median, spread.max
            )
        }),
        verdict: verdict(median.map(|spread| spread.median), HANDOVER_US_MAX),
    }
}

fn verdict(figure: Option<f64>, limit: f64) -> Verdict {
    match figure {
        Some(figure) if figure <= limit => Verdict::Pass,
        Some(_) => Verdict::Fail,
        None => Verdict::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Counters, Told};
    use crate::instructions::Figures;
    use crate::results::Results;
    use crate::results::tests::{CELL, sample};
    use crate::target::{Cell, Mode};

    fn scaling(cpu_us: f64) -> Scaling {
        Scaling {
            results: Results {
                samples: vec![
                    sample(0, &names::pgmux_with_shards(1), CELL, 1e4, 20.0),
                    sample(0, &names::pgmux_with_shards(4), CELL, 1e4, cpu_us),
                ],
                cut_short: false,
            },
            ..Scaling::default()
        }
    }

    fn find(checks: &[Check], what: &str) -> Verdict {
        let found = checks.iter().find(|check| check.what.starts_with(what));
        found.unwrap_or_else(|| panic!("no check {what}")).verdict
    }

    #[test]
    fn four_shards_may_cost_a_twentieth_more_than_one() {
        let cpu = "CPU per transaction, simple, 8 clients, pgmux-4-shards against pgmux-1-shards";
        assert_eq!(find(&judge(&scaling(21.0)), cpu), Verdict::Pass);
        assert_eq!(find(&judge(&scaling(21.1)), cpu), Verdict::Fail);
    }

    #[test]
    fn instructions_are_judged_where_both_were_counted() {
        let mut scaling = scaling(20.0);
        assert_eq!(find(&judge(&scaling), "user instructions"), Verdict::Open);
        let figures = |shards, per_transaction| Figures {
            target: names::pgmux_with_shards(shards),
            cell: Cell {
                mode: Mode::Simple,
                clients: CLIENTS_PER_SHARD * shards,
            },
            per_transaction,
        };
        scaling.instructions = Some((String::new(), vec![figures(1, 100.0), figures(4, 106.0)]));
        assert_eq!(find(&judge(&scaling), "user instructions"), Verdict::Fail);
        scaling.instructions = Some((String::new(), vec![figures(1, 100.0), figures(4, 104.0)]));
        assert_eq!(find(&judge(&scaling), "user instructions"), Verdict::Pass);
    }

    #[test]
    fn hand_overs_that_nobody_counts_are_neither_fast_nor_slow() {
        let mut scaling = scaling(20.0);
        assert_eq!(find(&judge(&scaling), "hand-over"), Verdict::Open);
        for (median_us, verdict) in [(49.0, Verdict::Pass), (51.0, Verdict::Fail)] {
            scaling.results.samples[1].outcome.told = Some(Told {
                after: Counters::from([("handover_p50_us".to_owned(), median_us)]),
                ..Told::default()
            });
            assert_eq!(find(&judge(&scaling), "hand-over"), verdict);
        }
    }
}
