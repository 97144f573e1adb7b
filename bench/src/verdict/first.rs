//! The target of the first queries after a start.

use super::{Check, Verdict};
use crate::first::Figures;

/// Holds the section's results against its target.
pub fn judge(figures: &Figures) -> Check {
    let ratio = figures.warm_to_steady();
    Check {
        what: "p99 of the first queries with the servers open, over that of later ones".to_owned(),
        bound: format!("≤ {RATIO_MAX:.2}"),
        measured: ratio.map_or("not run".to_owned(), |ratio| format!("{ratio:.2}")),
        verdict: match ratio {
            Some(ratio) if ratio <= RATIO_MAX => Verdict::Pass,
            Some(_) => Verdict::Fail,
            None => Verdict::Open,
        },
    }
}

const RATIO_MAX: f64 = 1.20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_queries_may_take_a_fifth_longer() {
        let verdict = |warm| {
            judge(&Figures {
                warm: vec![warm],
                steady: vec![100.0],
                cold: Vec::new(),
            })
            .verdict
        };
        assert_eq!(verdict(120.0), Verdict::Pass);
        assert_eq!(verdict(121.0), Verdict::Fail);
        assert_eq!(judge(&Figures::default()).verdict, Verdict::Open);
    }
}
