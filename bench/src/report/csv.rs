//! One line per run, for those who want to reckon themselves.

use std::fmt::Write as _;

use crate::results::{Figure, Results};

/// The table of all runs.
pub fn render(results: &Results, figures: &[Figure]) -> String {
    let mut text = String::from("round,target,mode,clients,errors,starved");
    for figure in figures {
        let _ = write!(text, ",{}", figure.head());
    }
    text.push('\n');
    for sample in &results.samples {
        let cell = sample.cell;
        let _ = write!(
            text,
            "{},{},{},{},{},{}",
            sample.round,
            sample.target,
            cell.mode,
            cell.clients,
            sample.outcome.errors,
            sample.outcome.starved
        );
        for figure in figures {
            let value = figure
                .of(&sample.outcome)
                .map(|value| format!("{value:.4}"));
            let _ = write!(text, ",{}", value.unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{CELL, sample};

    #[test]
    fn every_line_has_as_many_fields_as_the_head() {
        let results = Results {
            samples: vec![
                sample(0, "direct", CELL, 10.0, 0.0),
                sample(1, "p", CELL, 10.0, 5.0),
            ],
            cut_short: false,
        };
        let text = render(&results, &Figure::ALL);
        let counts: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(counts, [15, 15, 15]);
        assert!(text.contains("1,p,simple,8,0,0,10.0000"));
    }
}
