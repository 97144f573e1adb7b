//! Medians, spreads and paired ratios.

/// The middle of some figures, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// None without figures. What is not a number is no figure.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().filter(|x| x.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        Some(Self {
            median: (sorted[lower] + sorted[upper]) / 2.0,
            min,
            max,
        })
    }
}

/// The ratio of `ours` to `theirs`, round by round.
///
/// What disturbs the machine for a while disturbs both runs of a round, so their
/// ratio moves less than either. Rounds that lack one of the two are left out.
pub fn paired_ratio(ours: &[(u32, f64)], theirs: &[(u32, f64)]) -> Option<Spread> {
    Spread::of(ours.iter().filter_map(|(round, figure)| {
        let (_, other) = theirs.iter().find(|(other, _)| other == round)?;
        (*other > 0.0).then(|| figure / other)
    }))
}

/// The nearest-rank percentile of sorted figures.
pub fn percentile(sorted: &[u32], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = (share * sorted.len() as f64).ceil() as usize;
    Some(f64::from(sorted[rank.saturating_sub(1).min(last)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).expect("figures");
        assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 4.0));
        assert_eq!(Spread::of([7.0]).map(|s| s.median), Some(7.0));
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
    }

    #[test]
    fn ratios_are_taken_inside_a_round_before_the_median() {
        // The machine got twice as slow in round 2: each ratio stays 0.5, which
        // the ratio of the medians would not show if a round were missing.
        let ours = [(0, 5.0), (1, 5.0), (2, 10.0)];
        let theirs = [(2, 20.0), (0, 10.0), (1, 10.0)];
        let ratio = paired_ratio(&ours, &theirs).expect("pairs");
        assert_eq!((ratio.median, ratio.min, ratio.max), (0.5, 0.5, 0.5));
    }

    #[test]
    fn a_round_without_its_partner_is_left_out() {
        let ratio = paired_ratio(&[(0, 1.0), (1, 9.0)], &[(0, 2.0)]).expect("one pair");
        assert_eq!(ratio.max, 0.5);
        assert_eq!(paired_ratio(&[(0, 1.0)], &[(1, 2.0)]), None);
        assert_eq!(paired_ratio(&[(0, 1.0)], &[(0, 0.0)]), None);
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let sorted: Vec<u32> = (1..=100).collect();
        assert_eq!(percentile(&sorted, 0.50), Some(50.0));
        assert_eq!(percentile(&sorted, 0.99), Some(99.0));
        assert_eq!(percentile(&sorted, 1.0), Some(100.0));
        assert_eq!(percentile(&[5], 0.5), Some(5.0));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
