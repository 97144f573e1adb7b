//! The section on many shards.

use std::fmt::Write as _;

use super::markdown::table;
use crate::results::Figure;
use crate::scale::{Placement, Scaling};
use crate::target::names;
use crate::verdict::spread_words;

/// Adds the section.
pub fn render(text: &mut String, scaling: &Scaling) {
    text.push_str(
        "## Many shards, and a fleet of processes\n\nEvery transaction is logged here; TPS is a little lower for it than above. \
         *Worst wait* is the longest latency of any client; *busiest/mean* is the CPU of the busiest shard or process over the mean of all.\n\n",
    );
    let versions = scaling
        .targets
        .iter()
        .map(|t| [t.name.clone(), t.version.clone()]);
    table(text, &["target", "version"], versions);
    if scaling.results.cut_short {
        text.push_str("The time ran out before all runs were made.\n\n");
    }
    figures(text, scaling);
    to_one_shard(text, scaling);
    fleet(text, scaling);
    placements(text, scaling);
    instructions(text, scaling);
}

fn figures(text: &mut String, scaling: &Scaling) {
    let mut head = vec!["clients", "target"];
    head.extend(Figure::SCALE.iter().map(|figure| figure.head()));
    head.extend(["starved", "errors"]);
    let mut rows = Vec::new();
    for cell in scaling.results.cells() {
        for name in scaling.targets.iter().map(|target| &target.name) {
            let mut row = vec![cell.clients.to_string(), name.clone()];
            for figure in Figure::SCALE {
                let spread = scaling.results.spread(figure, name, cell);
                row.push(spread.map_or("–".to_owned(), |spread| {
                    format!("{:.*}", figure.decimals(), spread.median)
                }));
            }
            row.push(scaling.results.starved(name, cell).to_string());
            row.push(scaling.results.errors(name, Some(cell)).to_string());
            rows.push(row);
        }
    }
    table(text, &head, rows);
}

fn to_one_shard(text: &mut String, scaling: &Scaling) {
    const HEAD: [&str; 6] = [
        "clients",
        "target",
        "CPU/tx to one shard",
        "best CPU/tx to best",
        "TPS to one shard",
        "worst wait to one shard",
    ];
    let one = names::pgmux_with_shards(1);
    let mut rows = Vec::new();
    for cell in scaling.results.cells() {
        for name in scaling
            .targets
            .iter()
            .map(|target| &target.name)
            .filter(|name| **name != one)
        {
            let ratio = |figure| {
                let ratio = scaling.results.ratio(figure, cell, name, &one);
                ratio.map_or("–".to_owned(), spread_words)
            };
            let best = scaling.results.best_cpu_ratio(cell, name, &one);
            rows.push([
                cell.clients.to_string(),
                name.clone(),
                ratio(Figure::CpuUs),
                best.map_or("–".to_owned(), |best| format!("{best:.2}")),
                ratio(Figure::Tps),
                ratio(Figure::WorstMs),
            ]);
        }
    }
    table(text, &HEAD, rows);
}

fn fleet(text: &mut String, scaling: &Scaling) {
    const HEAD: [&str; 7] = [
        "clients",
        "TPS",
        "CPU/tx",
        "best CPU/tx to best",
        "p99",
        "worst wait",
        "worst client's mean",
    ];
    let Some((ours, theirs)) = scaling.rivals() else {
        return;
    };
    let _ = writeln!(
        text,
        "### {ours} over {theirs}\n\nThe same rounds, the same budget of servers.\n"
    );
    let rows = scaling.results.cells().into_iter().map(|cell| {
        let ratio = |figure| {
            let ratio = scaling.results.ratio(figure, cell, &ours, &theirs);
            ratio.map_or("–".to_owned(), spread_words)
        };
        let best = scaling.results.best_cpu_ratio(cell, &ours, &theirs);
        [
            cell.clients.to_string(),
            ratio(Figure::Tps),
            ratio(Figure::CpuUs),
            best.map_or("–".to_owned(), |best| format!("{best:.2}")),
            ratio(Figure::P99Ms),
            ratio(Figure::WorstMs),
            ratio(Figure::WorstMeanMs),
        ]
    });
    table(text, &HEAD, rows.collect::<Vec<_>>());
}

fn placements(text: &mut String, scaling: &Scaling) {
    if scaling.placements.is_empty() {
        return;
    }
    text.push_str("### Where clients go\n\nThey log in one after the other and stay.\n\n");
    let rows = scaling.placements.iter().map(|placement| {
        [
            placement.target.clone(),
            placement.clients.to_string(),
            spread_of(placement),
        ]
    });
    table(
        text,
        &["target", "clients", "each shard or process has"],
        rows,
    );
}

fn spread_of(placement: &Placement) -> String {
    let mut counts: Vec<u32> = placement.by_part.values().copied().collect();
    counts.sort_unstable();
    let words: Vec<String> = counts.iter().map(u32::to_string).collect();
    words.join(" ")
}

fn instructions(text: &mut String, scaling: &Scaling) {
    let Some((tool, figures)) = &scaling.instructions else {
        return;
    };
    let _ = writeln!(
        text,
        "### User instructions per transaction by shards\n\nCounted by {tool}.\n"
    );
    let rows = figures.iter().map(|figures| {
        [
            figures.target.clone(),
            figures.cell.to_string(),
            format!("{:.0}", figures.per_transaction),
        ]
    });
    table(text, &["target", "load", "instructions/tx"], rows);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsn::Dsn;
    use crate::results::Results;
    use crate::results::tests::{CELL, sample};
    use crate::target::{Mode, Target};

    fn scaling() -> Scaling {
        let target = |name: &str| Target {
            name: name.into(),
            dsn: Dsn::local(1),
            pids: Vec::new(),
            counters: None,
            modes: vec![Mode::Simple],
            clients: None,
            version: "1".into(),
        };
        let names = ["pgmux-1-shards", "pgmux-4-shards", "pgbouncer-fleet-4"];
        Scaling {
            shards: vec![1, 4],
            fleet: 4,
            targets: names.map(target).into(),
            results: Results {
                samples: vec![
                    sample(0, names[0], CELL, 1.0e4, 10.0),
                    sample(0, names[1], CELL, 1.5e4, 11.0),
                    sample(0, names[2], CELL, 1.0e4, 22.0),
                ],
                cut_short: false,
            },
            placements: vec![Placement {
                target: names[1].into(),
                clients: 8,
                by_part: [
                    ("shard-0", 3),
                    ("shard-1", 1),
                    ("shard-2", 2),
                    ("shard-3", 2),
                ]
                .map(|(part, count)| (part.to_owned(), count))
                .into(),
            }],
            instructions: None,
        }
    }

    #[test]
    fn shards_are_held_against_one_shard_and_against_the_fleet() {
        let mut text = String::new();
        render(&mut text, &scaling());
        assert!(
            text.contains("| 8 | pgmux-4-shards | 1.10 | 1.10 | 1.50 |"),
            "{text}"
        );
        assert!(
            text.contains("### pgmux-4-shards over pgbouncer-fleet-4"),
            "{text}"
        );
        assert!(text.contains("| 8 | 1.50 | 0.50 | 0.50 | 1.00 |"), "{text}");
        assert!(text.contains("| pgmux-4-shards | 8 | 1 2 2 3 |"), "{text}");
    }

    #[test]
    fn without_a_fleet_there_is_nothing_to_hold_against() {
        let mut scaling = scaling();
        scaling.targets.pop();
        let mut text = String::new();
        render(&mut text, &scaling);
        assert!(!text.contains("over pgbouncer-fleet"));
    }
}
