//! The pause between failed logins.

use std::time::{Duration, Instant};

/// Each pause is twice as long as the one before, up to a longest.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    failures: u32,
    until: Option<Instant>,
}

impl Pauses {
    /// `jitter` (0 to 1) shortens the pause by up to a quarter, so that shards that failed together come back apart.
    pub(crate) fn failed(&mut self, min: Duration, max: Duration, now: Instant, jitter: f64) {
        let doubled = min.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX));
        let pause = shortened(doubled.min(max), 0.25 * jitter);
        self.failures = self.failures.saturating_add(1);
        self.until = now.checked_add(pause);
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Pauses::default();
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// Forgets a pause that is over, so that it is no deadline any more; the count of failures stays.
    pub(crate) fn settle(&mut self, now: Instant) {
        if self.is_over(now) {
            self.until = None;
        }
    }

    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }
}

/// `span` less `part` of it; a `part` outside of 0 to 1 (or not a number) is clamped.
pub(crate) fn shortened(span: Duration, part: f64) -> Duration {
    let kept = (1.0 - part).clamp(0.0, 1.0);
    span.mul_f64(if kept.is_nan() { 1.0 } else { kept })
}

/// Past 2^16 times any useful `backoff_min`, `backoff_max` has long taken over.
const DOUBLINGS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_from_min_to_max_and_success_resets_it() {
        let (min, max) = (Duration::from_millis(100), Duration::from_millis(500));
        let now = Instant::now();
        let mut backoff = Pauses::default();
        for pause_ms in [100, 200, 400, 500, 500] {
            backoff.failed(min, max, now, 0.0);
            assert_eq!(backoff.until(), Some(now + Duration::from_millis(pause_ms)));
        }
        backoff.succeeded();
        assert!(backoff.is_over(now));
        backoff.failed(min, max, now, 1.0);
        assert_eq!(backoff.until(), Some(now + Duration::from_millis(75)));
        assert!(!backoff.is_over(now) && backoff.is_over(now + Duration::from_millis(75)));
    }

    #[test]
    fn a_part_that_is_not_in_range_is_clamped() {
        let span = Duration::from_secs(1);
        assert_eq!(shortened(span, f64::NAN), span);
        assert_eq!(shortened(span, -3.0), span);
        assert_eq!(shortened(span, 7.0), Duration::ZERO);
    }
}
