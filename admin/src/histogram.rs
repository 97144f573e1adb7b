//! How often something took how long, in cells of which each is a fifth to a
//! quarter wider than the one before: enough to tell medians apart.

use std::time::Duration;

/// Cells of a histogram.
pub const CELLS: usize = (LAST_OCTAVE - FIRST_OCTAVE) as usize * STEPS;

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram([u64; CELLS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; CELLS])
    }
}

/// Where a time is counted.
pub fn cell_of(time: Duration) -> usize {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let nanos = nanos.clamp(1 << FIRST_OCTAVE, (1 << LAST_OCTAVE) - 1);
    let octave = nanos.ilog2();
    // The two bits behind the first one.
    let step = (nanos >> (octave - 2)) as usize & (STEPS - 1);
    (octave - FIRST_OCTAVE) as usize * STEPS + step
}

/// The time below which all of a cell's are.
fn end_of(cell: usize) -> Duration {
    let octave = FIRST_OCTAVE + (cell / STEPS) as u32;
    let quarters = (STEPS + cell % STEPS + 1) as u64;
    Duration::from_nanos(quarters << (octave - 2))
}

impl Histogram {
    /// Of the counts of all cells.
    pub fn new(cells: [u64; CELLS]) -> Self {
        Self(cells)
    }

    /// Adds another shard's.
    pub fn merge(&mut self, other: &Self) {
        for (cell, more) in self.0.iter_mut().zip(&other.0) {
            *cell = cell.saturating_add(*more);
        }
    }

    /// How often in all.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// A time that so many per mille of all did not exceed; too long by a
    /// quarter at most. `None` when there are none.
    pub fn quantile(&self, per_mille: u64) -> Option<Duration> {
        let wanted = (self.count() * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let cell = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(end_of(cell))
    }
}

/// A quarter of a microsecond; nothing that is counted is shorter.
const FIRST_OCTAVE: u32 = 8;
/// Four seconds; all that is longer is counted here.
const LAST_OCTAVE: u32 = 32;
const STEPS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_a_cell_that_ends_above_it_by_a_quarter_at_most() {
        for nanos in (256..5_000_000).step_by(37) {
            let time = Duration::from_nanos(nanos);
            let end = end_of(cell_of(time));
            assert!(time < end && end <= time * 5 / 4, "{time:?} {end:?}");
        }
        assert_eq!(cell_of(Duration::ZERO), 0);
        assert_eq!(cell_of(Duration::MAX), CELLS - 1);
    }

    #[test]
    fn quantiles_are_of_all_shards_together() {
        let of = |times: &[u64]| {
            let mut cells = [0; CELLS];
            for &micros in times {
                cells[cell_of(Duration::from_micros(micros))] += 1;
            }
            Histogram::new(cells)
        };
        let mut sum = of(&[10, 11, 12]);
        sum.merge(&of(&[900, 1000]));
        let within = |per_mille, micros: u64| {
            let time = sum.quantile(per_mille).expect("some");
            let micros = Duration::from_micros(micros);
            micros < time && time <= micros * 5 / 4
        };
        assert!(within(500, 12) && within(990, 1000), "{sum:?}");
        assert_eq!(sum.count(), 5);
        assert_eq!(Histogram::default().quantile(500), None);
    }
}
