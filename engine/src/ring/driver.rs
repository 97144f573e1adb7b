//! The task that enters the kernel.

use super::sys::Event;
use super::{Ring, task};
use std::io;

/// Runs the ring for ever. Spawned as a plain glommio task, so that it does
/// not count itself. Ends only when the ring itself fails.
pub async fn drive(ring: Ring) -> io::Error {
    let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
    let mut polls = task::polls();
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
        if let Err(error) = ring.turn(!progressed, &mut events) {
            return error;
        }
        futures_lite::future::yield_now().await;
    }
}

impl Ring {
    /// One turn: hand over what is queued, sleep if allowed, take what came.
    fn turn(&self, may_sleep: bool, events: &mut Vec<Event>) -> io::Result<()> {
        let more = self.flush_sockets();
        let may_sleep = may_sleep && !more;
        self.run_timers(false);
        self.count(|stats| {
            stats.enters += 1;
            stats.sleeps += u64::from(may_sleep);
        });
        self.0.sys.borrow_mut().enter(may_sleep)?;
        self.0.sys.borrow_mut().reap(events);
        self.count(|stats| stats.completions += events.len() as u64);
        self.detach_lingering();
        let mut ticked = false;
        for event in events.drain(..) {
            match event {
                Event::Recv { socket, bytes, more } => self.on_recv(socket, bytes, more),
                Event::Sent { socket, chunks, sent, error } => self.on_sent(socket, chunks, sent, error),
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
const EVENTS_AT_ONCE: usize = 1024;
