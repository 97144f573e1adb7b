//! Failed logins are answered late, by the source and by the user, so that
//! nobody guesses quickly. Good logins are never late, and whoever waits for
//! such an answer holds no server.
//!
//! The memory is two tables of a fixed size. Names that share a place are
//! taken for the same one; which do, nobody outside can know.

use crate::auth::Source;
use foldhash::fast::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Shared by all shards; touched by failed logins only.
pub struct Brakes {
    epoch: Instant,
    hash: RandomState,
    sources: Box<[AtomicU64]>,
    users: Box<[AtomicU64]>,
}

impl Default for Brakes {
    fn default() -> Self {
        let table = || (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self {
            epoch: Instant::now(),
            hash: RandomState::default(),
            sources: table(),
            users: table(),
        }
    }
}

impl Brakes {
    /// A login has failed: how long to keep that to ourselves.
    pub(super) fn failed(&self, source: Source, user: &[u8], now: Instant) -> Duration {
        let second = now.saturating_duration_since(self.epoch).as_secs();
        let by_user = self.count(&self.users, user, second);
        let by_source = match source {
            Source::Local => 0,
            Source::Host(address) => self.count(&self.sources, address, second),
        };
        delay(by_user.max(by_source))
    }

    /// The failures of late; those of before a quiet [`WINDOW`] are forgotten.
    fn count(&self, table: &[AtomicU64], key: impl Hash, second: u64) -> u64 {
        let place = &table[self.hash.hash_one(key) as usize % PLACES];
        let next = |old: u64| {
            let (then, count) = (old >> 32, old & u64::from(u32::MAX));
            let of_late = second.saturating_sub(then) < WINDOW;
            let count = if of_late {
                (count + 1).min(COUNT_MAX)
            } else {
                1
            };
            second << 32 | count
        };
        let old = place.fetch_update(Relaxed, Relaxed, |old| Some(next(old)));
        next(old.unwrap_or_default()) & u64::from(u32::MAX)
    }
}

/// A few slips are free.
fn delay(failures: u64) -> Duration {
    match failures.checked_sub(FREE) {
        None | Some(0) => Duration::ZERO,
        Some(over) => (FIRST * 2_u32.pow(u32::try_from(over - 1).unwrap_or(6).min(6))).min(LONGEST),
    }
}

const PLACES: usize = 4096;
/// Seconds.
const WINDOW: u64 = 60;
const COUNT_MAX: u64 = 1 << 20;
const FREE: u64 = 10;
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_answered_later_and_later_and_forgotten_in_the_end() {
        let brakes = Brakes::default();
        let source = |last: u8| Source::Host([127, 0, 0, last].into());
        let start = brakes.epoch + Duration::from_secs(100);
        for _ in 0..FREE {
            assert_eq!(brakes.failed(source(1), b"a", start), Duration::ZERO);
        }
        assert_eq!(brakes.failed(source(1), b"b", start), FIRST, "the source's");
        assert_eq!(
            brakes.failed(Source::Local, b"a", start),
            FIRST,
            "the user's"
        );
        assert_eq!(brakes.failed(Source::Local, b"a", start), FIRST * 2);
        for _ in 0..100 {
            brakes.failed(Source::Local, b"a", start);
        }
        assert_eq!(brakes.failed(Source::Local, b"a", start), LONGEST);
        let later = start + Duration::from_secs(WINDOW);
        assert_eq!(brakes.failed(source(1), b"a", later), Duration::ZERO);
    }
}
