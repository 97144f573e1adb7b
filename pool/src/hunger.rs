//! What a starving shard has told the others, and when it tells them again.

use std::time::{Duration, Instant};

use crate::PATIENCE;

#[derive(Debug)]
pub(crate) struct Hunger {
    since: Instant,
    ask_at: Instant,
    pause: Duration,
}

impl Hunger {
    pub(crate) fn new(since: Instant, now: Instant) -> Self {
        Hunger {
            since,
            ask_at: now,
            pause: PATIENCE,
        }
    }

    /// Whether the others know nothing (any more), or something that has become untrue enough to mislead them. Coarse,
    /// so that a busy shard does not write its shared slot for each client that it serves.
    pub(crate) fn must_be_told(told: Option<&Self>, since: Instant, is_known: bool) -> bool {
        told.is_none_or(|told| !is_known || since.saturating_duration_since(told.since) >= PATIENCE)
    }

    /// The client that waited the longest was served; the next one waits since `since`.
    pub(crate) fn move_to(&mut self, since: Instant) {
        self.since = since;
    }

    /// Whether to wake the shards that have servers, now. A shard in use sees the hunger at its next release; the wakes
    /// are for idle servers, and are repeated ever more slowly because a server may become idle just after one.
    pub(crate) fn asks_again(&mut self, now: Instant) -> bool {
        let asks = self.ask_at <= now;
        if asks {
            self.ask_at = now + self.pause;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        asks
    }

    pub(crate) fn next_ask(&self) -> Instant {
        self.ask_at
    }
}

const PAUSE_MAX: Duration = Duration::from_millis(160);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_at_once_and_then_ever_more_slowly() {
        let start = Instant::now();
        let mut hunger = Hunger::new(start, start);
        let mut asked = Vec::new();
        for ms in 0..600 {
            if hunger.asks_again(start + Duration::from_millis(ms)) {
                asked.push(ms);
            }
        }
        assert_eq!(asked, [0, 10, 30, 70, 150, 310, 470]);
    }

    #[test]
    fn it_is_told_again_only_when_it_was_answered_or_has_moved_by_the_patience() {
        let start = Instant::now();
        let told = Hunger::new(start, start);
        assert!(Hunger::must_be_told(None, start, false));
        assert!(Hunger::must_be_told(Some(&told), start, false));
        assert!(!Hunger::must_be_told(
            Some(&told),
            start + PATIENCE / 2,
            true
        ));
        assert!(Hunger::must_be_told(Some(&told), start + PATIENCE, true));
    }
}
