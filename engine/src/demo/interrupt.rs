//! Signals that shall end the demo, as a flag that its waits look at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::Stop;

/// Set once a signal came.
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From here on the signals set the flag and do nothing else.
    pub(super) fn install() -> Result<Self, Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(|error| Stop::failed("cannot catch signals", error))?;
        }
        Ok(Self(flag))
    }

    pub(super) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once a signal came, for `?` in waits.
    pub(super) fn check(&self) -> Result<(), Stop> {
        if self.came() {
            Err(Stop::Interrupted)
        } else {
            Ok(())
        }
    }
}
