//! Ctrl-C and SIGTERM as a question that every waiting loop asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Set once a signal asked the program to end.
///
/// A second signal ends the program at once; the children then get the signal
/// that [`crate::process`] asked the kernel to send on the death of their parent.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for SIGINT, SIGTERM and SIGHUP.
    pub fn listen() -> Result<Self> {
        let this = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Order matters: the shutdown looks at the flag that the line after it sets.
            signal_hook::flag::register_conditional_shutdown(signal, 130, this.0.clone())?;
            signal_hook::flag::register(signal, this.0.clone())?;
        }
        Ok(this)
    }

    /// An error when the program was asked to end.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Sleeps, but not through a signal.
    pub fn sleep(&self, length: Duration) -> Result<()> {
        let end = Instant::now() + length;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(SLICE));
        }
    }

    /// Asks `done` every few milliseconds until it says yes; false when `limit` passed first.
    pub fn wait_until(
        &self,
        limit: Duration,
        mut done: impl FnMut() -> Result<bool>,
    ) -> Result<bool> {
        let end = Instant::now() + limit;
        loop {
            self.check()?;
            if done()? {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            std::thread::sleep(SLICE);
        }
    }
}

/// How late a signal may be noticed.
const SLICE: Duration = Duration::from_millis(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_a_sleep() {
        let interrupt = Interrupt::default();
        interrupt.0.store(true, Ordering::Relaxed);
        let begin = Instant::now();
        assert!(interrupt.sleep(Duration::from_secs(60)).is_err());
        assert!(begin.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn waiting_ends_at_its_limit() {
        let interrupt = Interrupt::default();
        let never = interrupt.wait_until(Duration::from_millis(1), || Ok(false));
        assert!(!never.expect("not interrupted"));
        let at_once = interrupt.wait_until(Duration::ZERO, || Ok(true));
        assert!(at_once.expect("not interrupted"));
    }
}
