//! The section on logins and TLS.

use super::markdown::table;
use crate::results::Figure;
use crate::secure::Secured;
use crate::target::names;
use crate::verdict::spread_words;

/// Adds the section.
pub fn render(text: &mut String, secured: &Secured) {
    text.push_str(
        "## Logins and TLS\n\nThe certificate's key is ECDSA P-256, the protocol TLS 1.3, at PgBouncer as at pgmux. \
         Where each transaction has a login of its own, its CPU is that of login, query and goodbye.\n\n",
    );
    figures(text, secured);
    idle(text, secured);
}

fn figures(text: &mut String, secured: &Secured) {
    const FIGURES: [Figure; 5] = [
        Figure::Tps,
        Figure::P99Ms,
        Figure::CpuUs,
        Figure::UserPercent,
        Figure::RssMib,
    ];
    let mut head = vec!["what", "clients", "target"];
    head.extend(FIGURES.iter().map(|figure| figure.head()));
    head.extend(["CPU/tx to PgBouncer", "TPS to PgBouncer", "errors"]);
    let mut rows = Vec::new();
    for (kind, results) in &secured.results {
        let cell = kind.cell();
        for name in &secured.names {
            let mut row = vec![
                kind.words().to_owned(),
                cell.clients.to_string(),
                name.clone(),
            ];
            row.extend(FIGURES.map(|figure| {
                let spread = results.spread(figure, name, cell);
                spread.map_or("–".to_owned(), |spread| {
                    format!("{:.*}", figure.decimals(), spread.median)
                })
            }));
            row.extend([Figure::CpuUs, Figure::Tps].map(|figure| {
                let ratio = (name != names::PGBOUNCER)
                    .then(|| results.ratio(figure, cell, name, names::PGBOUNCER))
                    .flatten();
                ratio.map_or("–".to_owned(), spread_words)
            }));
            row.push(results.errors(name, Some(cell)).to_string());
            rows.push(row);
        }
    }
    table(text, &head, rows);
}

fn idle(text: &mut String, secured: &Secured) {
    const HEAD: [&str; 6] = [
        "idle clients by TLS of",
        "clients",
        "RSS empty MiB",
        "with all MiB",
        "KiB/client over empty",
        "CPU µs/login",
    ];
    let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
    let rows = secured.idle.iter().map(|(name, figures)| {
        [
            name.clone(),
            figures.clients.to_string(),
            mib(figures.empty_kib),
            mib(figures.full_kib),
            format!("{:.2}", figures.kib_over_empty()),
            figures
                .login_cpu_us
                .map_or("–".to_owned(), |us| format!("{us:.0}")),
        ]
    });
    table(text, &HEAD, rows);
}
