//! How long things took: counts of durations by size, in plain cells.
//!
//! Eight classes to each doubling, so a figure read from a histogram is at most an eighth too large, from a microsecond
//! to 19 hours. To record one touches two cells; the whole table is 2 KiB a histogram, and is
//! copied only when somebody asks.

use std::array;
use std::cell::Cell;

/// Classes of durations: of 16 µs and less each its own, then eight to a doubling up to 2^36 µs.
const CLASSES: usize = 272;

/// One shard's: only its own thread writes or reads it.
#[derive(Debug)]
pub struct Recorder {
    classes: [Cell<u64>; CLASSES],
    sum: Cell<u64>,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder {
            classes: array::from_fn(|_| Cell::default()),
            sum: Cell::default(),
        }
    }
}

impl Recorder {
    /// Something took so many microseconds.
    #[inline]
    pub fn record(&self, micros: u64) {
        let class = &self.classes[class_of(micros)];
        class.set(class.get() + 1);
        self.sum.set(self.sum.get().wrapping_add(micros));
    }

    /// A copy that may leave the shard.
    pub fn snapshot(&self) -> Histogram {
        Histogram {
            classes: self.classes.iter().map(Cell::get).collect(),
            sum: self.sum.get(),
        }
    }
}

/// Durations of one shard, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Empty, or one for each class.
    classes: Vec<u64>,
    sum: u64,
}

impl Histogram {
    /// Adds another shard's.
    pub fn merge(&mut self, other: &Histogram) {
        self.classes
            .resize(self.classes.len().max(other.classes.len()), 0);
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            *mine = mine.saturating_add(*theirs);
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// What they took together, in microseconds.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// How many took no longer than this for certain: those of a class that
    /// goes on beyond it are left out.
    pub fn within(&self, micros: u64) -> u64 {
        let classes = self.classes.iter().enumerate();
        classes
            .take_while(|(class, _)| longest(*class) <= micros)
            .map(|(_, count)| count)
            .sum()
    }

    /// So many thousandths of them took no longer than this many microseconds; 0 where there are none.
    pub fn quantile(&self, thousandths: u64) -> u64 {
        let count = u128::from(self.count());
        let rank = (count * u128::from(thousandths)).div_ceil(1000).max(1);
        let mut seen = 0;
        let reached = self.classes.iter().position(|n| {
            seen += u128::from(*n);
            seen >= rank
        });
        reached.map_or(0, longest)
    }
}

/// The top four bits, and by how many places they are shifted.
#[inline]
fn class_of(micros: u64) -> usize {
    let shift = 60 - (micros | 15).leading_zeros();
    let class = u64::from(shift) * 8 + (micros >> shift);
    (class as usize).min(CLASSES - 1)
}

/// The longest duration of a class.
fn longest(class: usize) -> u64 {
    let class = class as u64;
    if class < 16 {
        return class;
    }
    let shift = class / 8 - 1;
    ((class - shift * 8 + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations: impl IntoIterator<Item = u64>) -> Histogram {
        let recorder = Recorder::default();
        durations
            .into_iter()
            .for_each(|micros| recorder.record(micros));
        recorder.snapshot()
    }

    #[test]
    fn classes_follow_each_other_without_gap_and_are_an_eighth_wide_at_most() {
        let mut next = 0;
        for class in 0..CLASSES - 1 {
            assert_eq!(class_of(next), class, "the shortest of class {class}");
            assert_eq!(
                class_of(longest(class)),
                class,
                "the longest of class {class}"
            );
            assert!(longest(class) - next <= next / 8, "class {class}");
            next = longest(class) + 1;
        }
        assert!(next > 17 * 3_600_000_000, "hours fit");
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn quantiles_are_at_most_an_eighth_too_large_and_never_too_small() {
        let histogram = of(1..=100_000);
        for thousandths in [1, 10, 500, 900, 950, 990, 999, 1000] {
            let exact = thousandths * 100;
            let told = histogram.quantile(thousandths);
            assert!(
                (exact..=exact + exact / 8).contains(&told),
                "{thousandths}: {told} for {exact}"
            );
        }
        assert_eq!(
            (histogram.count(), histogram.sum()),
            (100_000, 5_000_050_000)
        );
    }

    #[test]
    fn nothing_has_no_quantile_and_one_has_all() {
        assert_eq!(of([]).quantile(500), 0);
        assert_eq!(Histogram::default().quantile(1000), 0);
        assert_eq!([1, 500, 1000].map(|q| of([7]).quantile(q)), [7; 3]);
        assert_eq!(of([0]).quantile(500), 0);
    }

    #[test]
    fn merged_histograms_are_that_of_all_their_durations() {
        let (small, large) = (0..500, 400..90_000);
        let mut merged = Histogram::default();
        merged.merge(&of(small.clone()));
        merged.merge(&of(large.clone()));
        merged.merge(&Histogram::default());
        assert_eq!(merged, of(small.chain(large)));
    }
}
