//! What a starving shard has told the others, and when it asks them.

use std::time::{Duration, Instant};

use crate::PATIENCE;

/// What the budget says of the shard.
#[derive(Debug)]
pub(crate) struct Hunger {
    since: Instant,
}

impl Hunger {
    pub(crate) fn new(since: Instant) -> Self {
        Hunger { since }
    }

    /// Whether the others know nothing (any more), or something that has become untrue enough to mislead them. Coarse,
    /// so that a busy shard does not write its shared slot for each client that it serves.
    pub(crate) fn must_be_told(told: Option<&Self>, since: Instant, is_known: bool) -> bool {
        told.is_none_or(|told| !is_known || since.saturating_duration_since(told.since) >= PATIENCE)
    }
}

/// When the shards that have servers are woken, because clients wait here: at once, and again as soon as a server has
/// come; else ever more slowly, for on a pool whose servers are all in use nearly every transaction waits. A shard in
/// use sees the hunger at its next release; the wakes are for idle servers.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// Not before.
    next: Option<Instant>,
    pause: Duration,
}

impl Asking {
    /// Whether it is time.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// Asks, if it is time.
    pub(crate) fn asks(&mut self, now: Instant) -> bool {
        if !self.is_due(now) {
            return false;
        }
        let is_long_ago = |next: Instant| now.saturating_duration_since(next) >= PAUSE_MAX;
        self.pause = match self.next {
            Some(next) if !is_long_ago(next) => (self.pause * 2).clamp(PATIENCE, PAUSE_MAX),
            _ => PATIENCE,
        };
        self.next = Some(now + self.pause);
        true
    }

    /// It was worth it, or cannot wait: the next one is at once.
    pub(crate) fn hurry(&mut self) {
        self.next = None;
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }
}

const PAUSE_MAX: Duration = Duration::from_millis(160);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_at_once_and_then_ever_more_slowly_until_a_server_comes() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut asking = Asking::default();
        let mut asked = Vec::new();
        for ms in 0..1000 {
            if ms == 600 {
                asking.hurry();
            }
            if asking.asks(at(ms)) {
                asked.push(ms);
            }
        }
        assert_eq!(
            asked,
            [0, 10, 30, 70, 150, 310, 470, 600, 610, 630, 670, 750, 910]
        );
        assert!(asking.asks(at(2000)));
        assert_eq!(asking.next(), Some(at(2010)), "after a long rest");
    }

    #[test]
    fn it_is_told_again_only_when_it_was_answered_or_has_moved_by_the_patience() {
        let start = Instant::now();
        let told = Hunger::new(start);
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
