//! The loop that runs a shard: tasks, then the kernel.

use super::sys::Event;
use super::{Ring, task};
use std::io;

/// Runs the shard's tasks and its ring until `finished` says so, or until the
/// ring itself fails. Sleeps exactly when no task is runnable. At the end all
/// tasks are dropped.
///
/// `crowded`: there is more work than can be done at once. Then a shard that
/// has nothing to do lets others have the CPU before it sleeps: what they do
/// meanwhile comes to it together, and nobody has to wake it. Asked whenever
/// it would sleep. Measured on 2 CPUs: a third less CPU a transaction at 64
/// clients on 20 servers, and 4 shards at 1.0 to 1.1 times the CPU of one
/// instead of 1.4; but a tenth more at 8 clients, where nobody waits.
pub fn drive(
    ring: &Ring,
    crowded: impl Fn() -> bool,
    finished: impl Fn() -> bool,
) -> io::Result<()> {
    task::answer_to(ring.wake_handle());
    let outcome = spin(ring, crowded, finished);
    task::drop_all();
    outcome
}

fn spin(ring: &Ring, crowded: impl Fn() -> bool, finished: impl Fn() -> bool) -> io::Result<()> {
    loop {
        // Tasks that wake each other go first: what they queue goes to the
        // kernel together. But never starve I/O.
        let mut runnable = true;
        for _ in 0..PASSES_MAX {
            runnable = task::run_queued();
            if !runnable {
                break;
            }
        }
        let last = finished();
        let may_sleep = !runnable && !last;
        if may_sleep && crowded() {
            if ring.finds_something()? {
                continue;
            }
            rustix::thread::sched_yield();
        }
        ring.turn(may_sleep)?;
        if last {
            return Ok(());
        }
    }
}

impl Ring {
    /// A turn without sleep; true when something had come, so that tasks may
    /// be runnable again.
    fn finds_something(&self) -> io::Result<bool> {
        let before = self.0.completions.get();
        self.turn(false)?;
        Ok(self.0.completions.get() != before)
    }

    /// One turn: hand over what is queued, sleep if allowed, take what came.
    pub(super) fn turn(&self, may_sleep: bool) -> io::Result<()> {
        self.run_late();
        let more = self.flush_sockets();
        let may_sleep = may_sleep && !more;
        self.run_timers(false);
        self.0
            .sleeps
            .set(self.0.sleeps.get() + u64::from(may_sleep));
        self.0.sys.borrow_mut().enter(may_sleep)?;
        let begun = self.micros();
        self.tick();
        if !may_sleep {
            self.0.turns.record(self.micros().saturating_sub(begun));
        }
        self.detach_lingering();
        let mut ticked = false;
        while let Some(event) = self.take_socket_events()? {
            match event {
                Event::Accepted { listener, fd, more } => self.on_accepted(listener, fd, more),
                Event::Done { op, result } => self.on_done(op, result),
                Event::Tick => ticked = true,
                Event::Woken => {
                    task::take_calls();
                    self.on_woken();
                }
                Event::Recv { .. } | Event::Sent { .. } => {}
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
