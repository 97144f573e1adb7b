//! The section on the first queries after a start.

use std::fmt::Write as _;

use super::markdown::table;
use crate::first::{CLIENTS, Figures, QUERIES};
use crate::stats::Spread;

/// Adds the section.
pub fn render(text: &mut String, figures: &Figures) {
    let _ = writeln!(
        text,
        "## First queries\n\np99 of the first {QUERIES} queries of each of {CLIENTS} clients that begin together, in microseconds: the median of \
         {} starts, in brackets the smallest and the largest. *Warm* has {CLIENTS} servers open (`pool.min_connections`), *cold* none but the one \
         by which the first client was let in, *steady* is the warm one later.\n",
        figures.warm.len(),
    );
    let row = |name: &str, p99: &[f64]| {
        let spread = Spread::of(p99.iter().copied());
        [name.to_owned(), spread.map_or("–".to_owned(), words)]
    };
    let ratio = figures.warm_to_steady();
    let ratio = ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
    let rows = [
        row("warm", &figures.warm),
        row("cold", &figures.cold),
        row("steady", &figures.steady),
        ["warm to steady".to_owned(), ratio],
    ];
    table(text, &["first queries", "p99 µs"], rows);
}

fn words(spread: Spread) -> String {
    format!("{:.0} ({:.0}–{:.0})", spread.median, spread.min, spread.max)
}
