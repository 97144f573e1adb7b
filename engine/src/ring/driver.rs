//! The task that enters the kernel.

use super::sys::Event;
use super::{Ring, task};
use std::io;
use std::time::Instant;

/// Runs the ring until `finished` says so, or until the ring itself fails.
/// It must be the executor's first future, or a plain glommio task: it must
/// not count itself.
pub async fn drive(ring: Ring, finished: impl Fn() -> bool) -> io::Result<()> {
    // What was spawned before goes first.
    let mut polls = task::polls().wrapping_sub(1);
    let mut passes = 0;
    loop {
        let now = task::polls();
        let progressed = now != polls;
        polls = now;
        // While tasks make progress, give way a few times: what they queue
        // meanwhile goes to the kernel together. But never starve I/O.
        if progressed && passes < PASSES_MAX {
            passes += 1;
            futures_lite::future::yield_now().await;
            continue;
        }
        passes = 0;
        let last = finished();
        ring.turn(!progressed && !last)?;
        if last {
            return Ok(());
        }
        futures_lite::future::yield_now().await;
    }
}

impl Ring {
    /// One turn: hand over what is queued, sleep if allowed, take what came.
    pub(super) fn turn(&self, may_sleep: bool) -> io::Result<()> {
        let more = self.flush_sockets();
        let may_sleep = may_sleep && !more;
        self.run_timers(false);
        self.0
            .sleeps
            .set(self.0.sleeps.get() + u64::from(may_sleep));
        self.0.sys.borrow_mut().enter(may_sleep)?;
        self.0.now.set(Instant::now());
        self.detach_lingering();
        let mut ticked = false;
        loop {
            let event = self.0.sys.borrow_mut().next_event()?;
            let Some(event) = event else { break };
            self.0.completions.set(self.0.completions.get() + 1);
            match event {
                Event::Recv {
                    socket,
                    bytes,
                    more,
                } => self.on_recv(socket, bytes, more),
                Event::Sent {
                    socket,
                    chunks,
                    sent,
                    error,
                } => self.on_sent(socket, chunks, sent, error),
                Event::Accepted { listener, fd, more } => self.on_accepted(listener, fd, more),
                Event::Done { op, result } => self.on_done(op, result),
                Event::Tick => ticked = true,
                Event::Woken => self.on_woken(),
            }
        }
        if ticked {
            self.run_timers(true);
        }
        Ok(())
    }
}

/// How often the driver lets tasks go first before it enters the kernel
/// anyway: a chain of tasks that wake each other is two or three deep.
const PASSES_MAX: u32 = 3;
