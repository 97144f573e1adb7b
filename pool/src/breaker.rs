//! The circuit breaker of one target: whether what it has done of late is worth another try.
//!
//! ```text
//!            failures / outcomes >= threshold             open_duration is over
//!   closed ──────────────────────────────────▶ open ─────────────────────────▶ half-open
//!      ▲                                        ▲                                │    │
//!      │                                        └────────────── a failure ───────┘    │
//!      └──────────────────────── half_open_max successes ─────────────────────────────┘
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the operator asks of a breaker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerSettings {
    /// The part of failures among the last outcomes at which it opens: above 0, at most 1.
    pub error_threshold: f64,
    /// How long it stays open before something is tried.
    pub open_duration: Duration,
    /// How many successes close it again; and how many logins may be tried at once meanwhile.
    pub half_open_max: u32,
    /// How many outcomes are looked at. With fewer it stays closed.
    pub window_size: u32,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            error_threshold: 0.5,
            open_duration: Duration::from_secs(10),
            half_open_max: 3,
            window_size: 10,
        }
    }
}

/// What a breaker lets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BreakerState {
    /// Everything.
    #[default]
    Closed,
    /// Nothing.
    Open,
    /// A few logins, to see.
    HalfOpen,
}

impl BreakerState {
    /// By which people and metrics call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Breaker {
    settings: BreakerSettings,
    state: State,
    /// The last outcomes, at most `window_size`; true is a failure.
    window: VecDeque<bool>,
    failures: usize,
    opened: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed,
    Open { until: Instant },
    HalfOpen { successes: u32 },
}

impl Breaker {
    pub(crate) fn new(settings: BreakerSettings) -> Self {
        Breaker {
            settings,
            state: State::Closed,
            window: VecDeque::new(),
            failures: 0,
            opened: 0,
        }
    }

    /// Takes new settings; what has been seen is kept as far as they look back.
    pub(crate) fn set(&mut self, settings: BreakerSettings) {
        self.settings = settings;
        self.trim(self.size());
    }

    pub(crate) fn settings(&self) -> BreakerSettings {
        self.settings
    }

    /// Something has failed that is the target's fault. What was begun before it opened tells nothing new.
    pub(crate) fn failed(&mut self, now: Instant) {
        match self.state(now) {
            BreakerState::Open => {}
            BreakerState::HalfOpen => self.open(now),
            BreakerState::Closed => {
                self.note(true);
                let share = self.failures as f64 / self.size() as f64;
                if self.window.len() == self.size() && share >= self.settings.error_threshold {
                    self.open(now);
                }
            }
        }
    }

    /// So many things have gone well.
    pub(crate) fn succeeded(&mut self, times: u64, now: Instant) {
        let size = self.size();
        match self.state(now) {
            BreakerState::Open => {}
            BreakerState::Closed => {
                let times = usize::try_from(times).unwrap_or(size).min(size);
                (0..times).for_each(|_| self.note(false));
            }
            BreakerState::HalfOpen => {
                let State::HalfOpen { successes } = self.state else {
                    return;
                };
                let times = u32::try_from(times).unwrap_or(u32::MAX);
                let successes = successes.saturating_add(times);
                self.state = State::HalfOpen { successes };
                if successes >= self.settings.half_open_max {
                    self.state = State::Closed;
                    self.trim(0);
                }
            }
        }
    }

    pub(crate) fn state(&mut self, now: Instant) -> BreakerState {
        match self.state {
            State::Open { until } if until <= now => {
                self.state = State::HalfOpen { successes: 0 };
                BreakerState::HalfOpen
            }
            State::Open { .. } => BreakerState::Open,
            State::Closed => BreakerState::Closed,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// When it will be half-open.
    pub(crate) fn open_until(&self) -> Option<Instant> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed | State::HalfOpen { .. } => None,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// How often it has opened.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    fn open(&mut self, now: Instant) {
        self.state = State::Open {
            until: now + self.settings.open_duration,
        };
        self.opened += 1;
        self.trim(0);
    }

    fn note(&mut self, failure: bool) {
        self.trim(self.size() - 1);
        self.window.push_back(failure);
        self.failures += usize::from(failure);
    }

    fn trim(&mut self, len: usize) {
        while self.window.len() > len {
            let failure = self.window.pop_front();
            self.failures -= usize::from(failure == Some(true));
        }
    }

    fn size(&self) -> usize {
        usize::try_from(self.settings.window_size)
            .unwrap_or(usize::MAX)
            .max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BreakerState::{Closed, HalfOpen, Open};

    const OPEN: Duration = Duration::from_secs(10);

    fn breaker(window_size: u32) -> Breaker {
        Breaker::new(BreakerSettings {
            window_size,
            open_duration: OPEN,
            ..BreakerSettings::default()
        })
    }

    /// `x` is a failure, `.` a success.
    fn play(breaker: &mut Breaker, outcomes: &str, now: Instant) -> BreakerState {
        for outcome in outcomes.chars() {
            match outcome {
                'x' => breaker.failed(now),
                _ => breaker.succeeded(1, now),
            }
        }
        breaker.state(now)
    }

    #[test]
    fn it_opens_when_the_window_is_full_and_has_enough_failures() {
        let rows = [
            ("xxx", Closed),
            ("xxxx", Open),
            ("..xx", Open),
            ("...x", Closed),
            // The window rolls: what is older than four outcomes is forgotten; and a success opens nothing.
            ("x..x", Open),
            ("xx..", Closed),
            ("x...x", Closed),
            ("....xx", Open),
            (".x.x", Open),
        ];
        for (outcomes, expected) in rows {
            let now = Instant::now();
            assert_eq!(play(&mut breaker(4), outcomes, now), expected, "{outcomes}");
        }
    }

    #[test]
    fn it_lets_something_through_after_its_time_and_one_failure_opens_it_again() {
        let start = Instant::now();
        let mut breaker = breaker(2);
        assert_eq!(play(&mut breaker, "xx", start), Open);
        let half = start + OPEN;
        assert_eq!(breaker.state(half - Duration::from_millis(1)), Open);
        assert_eq!(breaker.open_until(), Some(half));
        assert_eq!(breaker.state(half), HalfOpen);
        assert_eq!(play(&mut breaker, "..x", half), Open);
        assert_eq!(breaker.open_until(), Some(half + OPEN));
        assert_eq!(breaker.opened(), 2);
    }

    #[test]
    fn enough_successes_close_it_and_nothing_of_before_counts() {
        let start = Instant::now();
        let mut breaker = breaker(2);
        play(&mut breaker, "xx", start);
        assert_eq!(play(&mut breaker, "..", start + OPEN), HalfOpen);
        assert_eq!(play(&mut breaker, ".", start + OPEN), Closed);
        assert_eq!(play(&mut breaker, "x", start + OPEN), Closed, "one of one");
        assert_eq!(play(&mut breaker, "x", start + OPEN), Open);
    }

    #[test]
    fn what_was_begun_before_it_opened_neither_prolongs_nor_ends_that() {
        let start = Instant::now();
        let mut breaker = breaker(2);
        play(&mut breaker, "xx", start);
        assert_eq!(
            play(&mut breaker, "x...x", start + Duration::from_secs(9)),
            Open
        );
        assert_eq!(breaker.open_until(), Some(start + OPEN));
        assert_eq!(breaker.state(start + OPEN), HalfOpen);
    }

    #[test]
    fn thousands_of_successes_cost_no_more_than_a_window() {
        let now = Instant::now();
        let mut breaker = breaker(4);
        play(&mut breaker, "xxx", now);
        breaker.succeeded(u64::MAX, now);
        assert_eq!(play(&mut breaker, "x", now), Closed);
        assert_eq!(breaker.window.len(), 4);
    }

    #[test]
    fn a_smaller_window_forgets_what_is_older() {
        let now = Instant::now();
        let mut breaker = breaker(4);
        play(&mut breaker, "xx.", now);
        breaker.set(BreakerSettings {
            window_size: 1,
            ..breaker.settings()
        });
        assert_eq!(breaker.failures, 0);
        assert_eq!(play(&mut breaker, "x", now), Open);
    }
}
