//! The admin thread: an executor of its own, beside the shards. When it
//! panics it begins anew, and the shards hear nothing of it.

use crate::handle::{Handle, ThreadFigures};
use crate::routes::Scope;
use crate::server::{self, Server};
use std::io;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::LocalSet;

/// What the thread counts of itself.
#[derive(Debug, Default)]
pub struct Counts {
    requests: AtomicU64,
    connections: AtomicU64,
    crowded_out: AtomicU64,
    panics: AtomicU64,
}

impl Counts {
    pub(crate) fn request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    pub(crate) fn connections(&self, now: usize) {
        self.connections.store(now as u64, Relaxed);
    }

    pub(crate) fn crowded_out(&self) {
        self.crowded_out.fetch_add(1, Relaxed);
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Relaxed);
    }

    /// A copy.
    pub fn figures(&self) -> ThreadFigures {
        ThreadFigures {
            requests: self.requests.load(Relaxed),
            connections: self.connections.load(Relaxed),
            crowded_out: self.crowded_out.load(Relaxed),
            panics: self.panics.load(Relaxed),
        }
    }
}

/// An address that is listened on, and what is served there.
pub struct Listening {
    /// Bound already, so that a mistake ends the process at its start.
    pub listener: TcpListener,
    /// The page of figures.
    pub metrics: bool,
    /// Everything under `/admin`.
    pub admin: bool,
}

/// The thread, running. Dropping it leaves it running.
pub struct Thread {
    stop: watch::Sender<bool>,
    ended: Receiver<()>,
}

impl Thread {
    /// Starts it.
    pub fn start<H: Handle>(handle: Arc<H>, listening: Vec<Listening>) -> io::Result<Self> {
        for entry in &listening {
            entry.listener.set_nonblocking(true)?;
        }
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = channel();
        std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                let counts = Arc::new(Counts::default());
                let life = || live(&handle, &listening, &counts, &stopped);
                supervise(life, &counts, &stopped);
                // Who waits for the end may want the addresses.
                drop(listening);
                // Nobody waits for it any more.
                let _ = end.send(());
            })?;
        Ok(Self { stop, ended })
    }

    /// Has it end, and waits until it has or until that takes too long.
    pub fn stop(self) {
        // An error: it has ended.
        let _ = self.stop.send(true);
        if self.ended.recv_timeout(PARTING) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the admin thread does not end in time");
        }
    }
}

/// Runs `life` until it ends in order, again after each panic or error.
fn supervise(life: impl Fn() -> io::Result<()>, counts: &Counts, stopped: &watch::Receiver<bool>) {
    loop {
        match catch_unwind(AssertUnwindSafe(&life)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => tracing::error!(%error, "the admin API has ended; it begins anew"),
            Err(_) => {
                counts.panicked();
                tracing::error!("the admin thread has panicked; it begins anew");
            }
        }
        if *stopped.borrow() {
            return;
        }
        std::thread::sleep(RESTART_PAUSE);
    }
}

fn live<H: Handle>(
    handle: &Arc<H>,
    listening: &[Listening],
    counts: &Arc<Counts>,
    stopped: &watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // For names only; requests wait for them one after the other.
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let local = LocalSet::new();
    let outcome = local.block_on(&runtime, async {
        let mut listeners = Vec::new();
        for entry in listening {
            let listener = tokio::net::TcpListener::from_std(entry.listener.try_clone()?)?;
            let scope = Scope {
                metrics: entry.metrics,
                admin: entry.admin,
            };
            listeners.push((listener, scope));
        }
        let server = Server::new(Arc::clone(handle), Arc::clone(counts));
        server::run(server, listeners, stopped.clone()).await;
        Ok(())
    });
    // A name that is being looked up must not hold the process up.
    runtime.shutdown_background();
    outcome
}

const BLOCKING_THREADS: usize = 4;
/// Between a panic and the next attempt.
const RESTART_PAUSE: Duration = Duration::from_millis(200);
/// How long the process waits for the thread's end: a little longer than the
/// thread waits for its answers to leave.
const PARTING: Duration = Duration::from_millis(1500);

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_life_that_panics_begins_anew_and_is_counted() {
        let (_stop, stopped) = watch::channel(false);
        let (counts, lives) = (Counts::default(), Cell::new(0));
        let life = || {
            lives.set(lives.get() + 1);
            match lives.get() {
                1 => panic!("on purpose"),
                2 => Err(io::Error::other("on purpose")),
                _ => Ok(()),
            }
        };
        supervise(life, &counts, &stopped);
        assert_eq!((lives.get(), counts.figures().panics), (3, 1));
    }

    #[test]
    fn a_life_that_panics_while_it_is_told_to_stop_is_the_last() {
        let (_stop, stopped) = watch::channel(true);
        let counts = Counts::default();
        supervise(|| panic!("on purpose"), &counts, &stopped);
        assert_eq!(counts.figures().panics, 1);
    }
}
