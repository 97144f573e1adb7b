//! What is known of the health of one PostgreSQL, for the pools of all databases and roles that lead to it, on all shards.
//!
//! A target that does not let us in is *unwell*: from then on one login at a time, of the whole process, tries whether
//! that has changed, with a pause after each that fails. The first that gets an answer makes it well again. Beside that
//! its breaker, where there is one, counts everything that is the target's own fault.
//!
//! All of it is touched by logins, by servers that die, and by checks. A query reads one atomic, and that only if there
//! is no idle server.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::backoff::Pauses;
use crate::breaker::{Breaker, BreakerSettings, BreakerState};

/// See the module's text.
#[derive(Debug, Default)]
pub struct Target {
    /// What of `inner` concerns everybody: [`CLOSED_DOOR`], [`UNPROVEN`], [`REFUSES`].
    signs: AtomicU8,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    pauses: Pauses,
    is_unwell: bool,
    /// A login tries whether it is well again; by then it has ended.
    probe: Option<Instant>,
    /// Logins that were admitted and are not reported yet.
    logins: u32,
    breaker: Option<Breaker>,
}

/// Whose fault it was that a login failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The target's: nobody else gets in either.
    Target,
    /// That of this pool alone: a password, a database that is not there.
    Pool,
}

/// The right to begin one login.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// It tries whether an unwell target is well again.
    pub(crate) is_probe: bool,
}

/// What there is to show of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The last login that was tried did not get in.
    pub is_unwell: bool,
    /// Of its breaker; `None` where there is none.
    pub breaker: Option<BreakerState>,
    /// How often the breaker has opened.
    pub opened: u64,
}

impl Target {
    /// A target that is taken to be well.
    pub fn new(breaker: Option<BreakerSettings>) -> Self {
        let target = Target::default();
        target.set_breaker(breaker);
        target
    }

    /// Gives it a breaker, takes it away, or changes its settings.
    pub fn set_breaker(&self, settings: Option<BreakerSettings>) {
        let mut inner = self.lock();
        match (&mut inner.breaker, settings) {
            (Some(breaker), Some(settings)) => breaker.set(settings),
            (breaker, settings) => *breaker = settings.map(Breaker::new),
        }
        self.show(&inner);
    }

    /// Whether the last login that was tried did not get in, or the breaker is not closed.
    pub fn is_unwell(&self) -> bool {
        self.signs.load(Relaxed) & (CLOSED_DOOR | UNPROVEN) != 0
    }

    /// Whether the last login that was tried did not get in.
    pub fn lets_nobody_in(&self) -> bool {
        self.signs.load(Relaxed) & CLOSED_DOOR != 0
    }

    /// Whether clients that would have to wait for a server are to be refused.
    pub fn refuses(&self, now: Instant) -> bool {
        if self.signs.load(Relaxed) & REFUSES == 0 {
            return false;
        }
        let mut inner = self.lock();
        let refuses = inner.breaker_state(now) == Some(BreakerState::Open);
        self.show(&inner);
        refuses
    }

    /// Whether a login that is begun now has a chance. `own`: logins of this pool in flight.
    pub(crate) fn admits(&self, own: u32, now: Instant) -> bool {
        !self.is_unwell() || self.lock().admits(own, now)
    }

    /// Lets one login begin, which is to be reported once: by `succeeded`, `failed` or `withdraw`.
    pub(crate) fn admit(&self, own: u32, now: Instant) -> Option<Pass> {
        let mut inner = self.lock();
        if !inner.admits(own, now) {
            return None;
        }
        inner.logins += 1;
        let is_probe = inner.is_unwell;
        if is_probe {
            inner.probe = Some(now + PROBE_MAX);
        }
        self.show(&inner);
        Some(Pass { is_probe })
    }

    /// When a login that is not admitted now will be, as far as time alone decides.
    pub(crate) fn admits_from(&self, now: Instant) -> Option<Instant> {
        if !self.is_unwell() {
            return None;
        }
        let inner = self.lock();
        let open = inner.breaker.as_ref().and_then(Breaker::open_until);
        let pause = inner.pauses.until().filter(|_| inner.is_unwell);
        let probe = inner.probe.filter(|_| inner.is_unwell);
        [open, pause, probe]
            .into_iter()
            .flatten()
            .max()
            .filter(|from| *from > now)
    }

    /// A login has succeeded, or was refused for a reason that is not the target's. True if all shards must hear of it.
    pub(crate) fn answered(&self, pass: Pass, succeeded: bool, now: Instant) -> bool {
        self.end(pass, |inner| {
            inner.pauses.succeeded();
            inner.is_unwell = false;
            inner.probe = None;
            if succeeded && let Some(breaker) = &mut inner.breaker {
                breaker.succeeded(1, now);
            }
            inner.breaker_state(now);
        })
    }

    /// A login has failed, and others would too. True if all shards must hear of it.
    pub(crate) fn failed(&self, pass: Pass, now: Instant, jitter: f64) -> bool {
        self.end(pass, |inner| {
            // Those that were begun together have found out the same thing.
            if inner.probe.is_none() {
                if !inner.is_unwell || inner.pauses.is_over(now) {
                    inner.pauses.failed(PAUSE_MIN, PAUSE_MAX, now, jitter);
                }
                inner.is_unwell = true;
            }
            if let Some(breaker) = &mut inner.breaker {
                breaker.failed(now);
            }
            inner.breaker_state(now);
        })
    }

    /// A login that was admitted is not begun, or nobody wants to know what comes of it. True if all shards must hear of it.
    pub(crate) fn withdraw(&self, pass: Pass) -> bool {
        self.end(pass, |_| {})
    }

    /// A server has died in use, or has not passed its check. True if all shards must hear of it.
    pub fn lost(&self, now: Instant) -> bool {
        self.change(now, |inner| {
            if let Some(breaker) = &mut inner.breaker {
                breaker.failed(now);
            }
        })
    }

    /// Servers have done so many things well. True if all shards must hear of it.
    pub fn served(&self, times: u64, now: Instant) -> bool {
        times > 0
            && self.change(now, |inner| {
                if let Some(breaker) = &mut inner.breaker {
                    breaker.succeeded(times, now);
                }
            })
    }

    /// Whether it has a breaker, for which successes are to be counted.
    pub fn has_breaker(&self) -> bool {
        self.lock().breaker.is_some()
    }

    /// What there is to show.
    pub fn condition(&self, now: Instant) -> Condition {
        let mut inner = self.lock();
        Condition {
            breaker: inner.breaker_state(now),
            opened: inner.breaker.as_ref().map_or(0, Breaker::opened),
            is_unwell: inner.is_unwell,
        }
    }

    fn end(&self, pass: Pass, report: impl FnOnce(&mut Inner)) -> bool {
        let mut inner = self.lock();
        let before = inner.summary();
        inner.logins = inner
            .logins
            .checked_sub(1)
            .expect("a login that is reported was admitted");
        if pass.is_probe {
            inner.probe = None;
        }
        report(&mut inner);
        self.show(&inner);
        // Where few may log in, the next may be of any shard.
        pass.is_probe || self.is_unwell() || before != inner.summary()
    }

    fn change(&self, now: Instant, change: impl FnOnce(&mut Inner)) -> bool {
        let mut inner = self.lock();
        let before = inner.summary();
        change(&mut inner);
        inner.breaker_state(now);
        self.show(&inner);
        before != inner.summary()
    }

    fn show(&self, inner: &Inner) {
        let (is_unwell, is_open, is_closed) = inner.summary();
        let sign = |shown: bool, sign: u8| if shown { sign } else { 0 };
        let signs =
            sign(is_unwell, CLOSED_DOOR) | sign(!is_closed, UNPROVEN) | sign(is_open, REFUSES);
        self.signs.store(signs, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What a panic leaves is at worst a login too many or too few in the count of trials.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn admits(&mut self, own: u32, now: Instant) -> bool {
        let by_breaker = match self.breaker_state(now) {
            None | Some(BreakerState::Closed) => true,
            Some(BreakerState::Open) => false,
            Some(BreakerState::HalfOpen) => self
                .breaker
                .as_ref()
                .is_some_and(|breaker| self.logins < breaker.settings().half_open_max),
        };
        // One that is overdue is not waited for.
        let by_probe = self.probe.is_none_or(|end| end <= now) && own == 0;
        by_breaker && (!self.is_unwell || (by_probe && self.pauses.is_over(now)))
    }

    fn breaker_state(&mut self, now: Instant) -> Option<BreakerState> {
        self.breaker.as_mut().map(|breaker| breaker.state(now))
    }

    /// Unwell, breaker open, breaker closed.
    fn summary(&self) -> (bool, bool, bool) {
        let Some(breaker) = &self.breaker else {
            return (self.is_unwell, false, true);
        };
        (
            self.is_unwell,
            breaker.open_until().is_some(),
            breaker.is_closed(),
        )
    }
}

/// The pause after the first failure.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest pause: a target that is back is found within this and the time of one login.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A probe of which nothing is heard for longer than any login may take is given up.
const PROBE_MAX: Duration = Duration::from_secs(20);

/// It does not let us in.
const CLOSED_DOOR: u8 = 1;

/// Its breaker is not closed.
const UNPROVEN: u8 = 4;

/// Its breaker is open.
const REFUSES: u8 = 2;
