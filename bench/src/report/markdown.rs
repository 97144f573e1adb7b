//! The report as Markdown.

use std::fmt::Write as _;

use super::{Report, first, picture_name, scale, secure};
use crate::results::{Figure, distinct};
use crate::target::{Cell, Mode, names};
use crate::verdict::spread_words;

/// The whole text.
pub fn render(report: &Report) -> String {
    let mut text = String::from("# pgmux-bench\n\n");
    machine(&mut text, report);
    checks(&mut text, report);
    let modes = distinct(report.results.cells().into_iter().map(|cell| cell.mode));
    for mode in modes {
        let _ = writeln!(text, "## {mode}\n");
        figures(&mut text, report, mode);
        ratios(&mut text, report, mode);
        for (figure, _) in report.pictures().into_iter().filter(|(_, m)| *m == mode) {
            let name = picture_name(figure, mode);
            let _ = writeln!(text, "![{} by clients, {mode}]({name})", figure.head());
        }
        text.push('\n');
    }
    if let Some(scaling) = &report.scaling {
        scale::render(&mut text, scaling);
    }
    if let Some(secured) = &report.secured {
        secure::render(&mut text, secured);
    }
    if let Some(figures) = &report.first {
        first::render(&mut text, figures);
    }
    idle(&mut text, report);
    instructions(&mut text, report);
    text
}

fn machine(text: &mut String, report: &Report) {
    let facts = report
        .machine
        .facts
        .iter()
        .map(|(key, value)| [(*key).to_owned(), value.clone()]);
    let versions = report.targets.iter().filter(|t| !t.pids.is_empty());
    let versions = versions.map(|target| [target.name.clone(), target.version.clone()]);
    table(text, &["machine", ""], facts.chain(versions));
    let _ = writeln!(text, "{}\n", report.settings);
    for note in &report.notes {
        let _ = writeln!(text, "- {note}");
    }
    if report.results.cut_short {
        text.push_str("- The time ran out before all runs were made.\n");
    }
    let starved = report
        .results
        .samples
        .iter()
        .filter(|s| s.outcome.starved > 0)
        .count();
    if starved > 0 {
        let _ = writeln!(
            text,
            "- In {starved} runs some clients got less than a tenth of their share (column *starved*): TPS and latency of those flatter."
        );
    }
    if let Some(worst) = disturbance(report) {
        let _ = writeln!(
            text,
            "- Others used {worst:.0} % of a core in the middle run: figures of a busy machine, to be taken again when it is quiet."
        );
    }
    text.push('\n');
}

/// The middle of what others used, when it is enough to mistrust the figures.
fn disturbance(report: &Report) -> Option<f64> {
    let samples = report.results.samples.iter();
    let used = samples.filter_map(|sample| Figure::ForeignPercent.of(&sample.outcome));
    let median = crate::stats::Spread::of(used)?.median;
    (median > FOREIGN_PERCENT_MAX).then_some(median)
}

fn checks(text: &mut String, report: &Report) {
    text.push_str("## Targets\n\nRatios are the median of the rounds' ratios; in brackets the smallest and the largest. \
         *Best* is the least CPU of all rounds over the least of the other: on a busy machine it is nearer to the truth.\n\n");
    let rows = report.checks.iter().map(|check| {
        [
            check.what.clone(),
            check.bound.clone(),
            check.measured.clone(),
            check.verdict.word().to_owned(),
        ]
    });
    table(text, &["what", "target", "measured", ""], rows);
}

fn figures(text: &mut String, report: &Report, mode: Mode) {
    let mut head = vec!["clients", "target"];
    head.extend(Figure::ALL.iter().map(|figure| figure.head()));
    head.extend(["starved", "errors"]);
    let mut rows = Vec::new();
    for cell in cells(report, mode) {
        for name in report.names() {
            if !report.results.has(name, cell) {
                continue;
            }
            let mut row = vec![cell.clients.to_string(), name.to_owned()];
            for figure in Figure::ALL {
                let spread = report.results.spread(figure, name, cell);
                row.push(spread.map_or("–".to_owned(), |spread| {
                    format!("{:.*}", figure.decimals(), spread.median)
                }));
            }
            row.push(report.results.starved(name, cell).to_string());
            row.push(report.results.errors(name, Some(cell)).to_string());
            rows.push(row);
        }
    }
    table(text, &head, rows);
}

fn ratios(text: &mut String, report: &Report, mode: Mode) {
    const HEAD: [&str; 7] = [
        "clients",
        "target",
        "CPU/tx to PgBouncer",
        "best CPU/tx to best",
        "TPS to PgBouncer",
        "TPS to direct",
        "p99 to PgBouncer",
    ];
    let mut rows = Vec::new();
    for cell in cells(report, mode) {
        for name in report.names() {
            let ratio = |figure, other: &str| {
                let ratio = (name != other)
                    .then(|| report.results.ratio(figure, cell, name, other))
                    .flatten();
                ratio.map_or("–".to_owned(), spread_words)
            };
            let best = (name != names::PGBOUNCER)
                .then(|| report.results.best_cpu_ratio(cell, name, names::PGBOUNCER))
                .flatten();
            let row = [
                cell.clients.to_string(),
                name.to_owned(),
                ratio(Figure::CpuUs, names::PGBOUNCER),
                best.map_or("–".to_owned(), |best| format!("{best:.2}")),
                ratio(Figure::Tps, names::PGBOUNCER),
                ratio(Figure::Tps, names::DIRECT),
                ratio(Figure::P99Ms, names::PGBOUNCER),
            ];
            if row[2..].iter().any(|value| value != "–") {
                rows.push(row);
            }
        }
    }
    if !rows.is_empty() {
        table(text, &HEAD, rows);
    }
}

fn idle(text: &mut String, report: &Report) {
    const HEAD: [&str; 13] = [
        "target",
        "login",
        "clients",
        "RSS empty MiB",
        "after one MiB",
        "with all MiB",
        "KiB/client over empty",
        "over one client",
        "at the margin",
        "after all left MiB",
        "CPU µs/login",
        "idle CPU %",
        "lost",
    ];
    if report.idle.is_empty() {
        return;
    }
    text.push_str("## Idle clients\n\n");
    let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
    let rows = report.idle.iter().map(|(name, auth, figures)| {
        let margin = figures.kib_at_the_margin();
        vec![
            name.clone(),
            auth.word().to_owned(),
            figures.clients.to_string(),
            mib(figures.empty_kib),
            mib(figures.warm_kib),
            mib(figures.full_kib),
            format!("{:.2}", figures.kib_over_empty()),
            format!("{:.2}", figures.kib_over_warm()),
            margin.map_or("–".to_owned(), |kib| format!("{kib:.2}")),
            mib(figures.after_kib),
            figures
                .login_cpu_us
                .map_or("–".to_owned(), |us| format!("{us:.0}")),
            format!(
                "{:.3} ({} clients)",
                figures.idle_cpu_percent, figures.watched_clients
            ),
            figures.lost.to_string(),
        ]
    });
    table(text, &HEAD, rows);
}

fn instructions(text: &mut String, report: &Report) {
    let Some((tool, figures)) = &report.instructions else {
        return;
    };
    let _ = writeln!(
        text,
        "## User instructions per transaction\n\nCounted by {tool}.\n"
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

fn cells(report: &Report, mode: Mode) -> impl Iterator<Item = Cell> {
    report
        .results
        .cells()
        .into_iter()
        .filter(move |cell| cell.mode == mode)
}

pub(super) fn table<R>(text: &mut String, head: &[&str], rows: impl IntoIterator<Item = R>)
where
    R: AsRef<[String]>,
{
    let _ = writeln!(text, "| {} |", head.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(head.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.as_ref().join(" | "));
    }
    text.push('\n');
}

/// Above this, others have disturbed the caches and the scheduler enough to say so.
const FOREIGN_PERCENT_MAX: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsn::Dsn;
    use crate::machine::Machine;
    use crate::results::Results;
    use crate::results::tests::{CELL, sample};
    use crate::target::Target;

    fn report() -> Report {
        let target = |name: &str, pids: &[u32]| Target {
            name: name.into(),
            dsn: Dsn::local(1),
            pids: pids.into(),
            counters: None,
            modes: vec![Mode::Simple],
            clients: None,
            version: "1".into(),
        };
        Report {
            machine: Machine { facts: Vec::new() },
            settings: "one round".into(),
            targets: vec![
                target(names::DIRECT, &[]),
                target(names::PGBOUNCER, &[1]),
                target(names::PGMUX, &[2]),
            ],
            results: Results {
                samples: vec![
                    sample(0, names::DIRECT, CELL, 2e4, 0.0),
                    sample(0, names::PGBOUNCER, CELL, 1e4, 20.0),
                    sample(0, names::PGMUX, CELL, 1.5e4, 10.0),
                ],
                cut_short: false,
            },
            scaling: None,
            secured: None,
            first: None,
            idle: Vec::new(),
            instructions: None,
            notes: vec!["a note".into()],
            checks: Vec::new(),
        }
    }

    #[test]
    fn tables_hold_figures_and_ratios_of_every_target() {
        let text = report().markdown();
        assert!(
            text.contains("| 8 | pgmux | 15000 | 0.050 | 0.099 | 10.0 |"),
            "{text}"
        );
        assert!(
            text.contains("| 8 | pgmux | 0.50 | 0.50 | 1.50 | 0.75 | 1.00 |"),
            "{text}"
        );
        assert!(
            text.contains("| 8 | direct | – | – | 2.00 | – | 1.00 |"),
            "{text}"
        );
        assert!(text.contains("- a note"));
    }

    #[test]
    fn every_row_of_a_table_is_as_wide_as_its_head() {
        let text = report().markdown();
        let widths: Vec<usize> = text
            .lines()
            .skip_while(|line| !line.starts_with("| clients | target | TPS"))
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.matches('|').count())
            .collect();
        assert_eq!(widths, [14; 5]);
    }

    #[test]
    fn empty_sections_are_left_out() {
        let text = report().markdown();
        assert!(!text.contains("Idle clients") && !text.contains("instructions/tx"));
    }
}
