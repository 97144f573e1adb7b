//! The data plane's I/O: one `io_uring` a shard, and the task that drives it.
//!
//! ```text
//!   tasks ──▶ queued sends, armed receives, timers ──▶ submission queue
//!     ▲                                                     │ io_uring_enter
//!     └──── wakers ◀──── Driver::turn ◀──── completions ◀───┘
//! ```
//!
//! The driver is the future that the shard's glommio executor runs. It sleeps
//! in `io_uring_enter` exactly when nothing else is runnable, which it knows
//! because it owns the run queue: see [`task`].
//!
//! Invariants
//! * a socket has at most one send in flight; the rest waits in its queue;
//! * an entry leaves its slab only when the kernel owes it no completion, so
//!   a late completion can never meet a stranger;
//! * when less than half of the receive buffers are free, bytes that stay
//!   queued for two turns leave them for the heap, so a slow peer never
//!   starves the shard's receives.

mod accept;
mod chunk;
mod driver;
mod late;
mod op;
mod socket;
mod sys;
pub mod task;
mod timer;
mod wake;

pub use accept::Listener;
pub use chunk::Chunk;
pub use driver::drive;
pub use late::Late;
pub use socket::{Detached, RxEnd, Socket};
pub use sys::{Slice, return_free_memory};
pub use timer::{Elapsed, Sleep};
pub use wake::WakeHandle;

use admin::histogram::{Histogram, Recorder};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

/// How large the ring's parts are.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Submission queue entries.
    pub submissions: u32,
    /// Completion queue entries.
    pub completions: u32,
    /// Receive buffers, a power of two.
    pub buffers: u16,
    /// Bytes of each receive buffer.
    pub buffer_bytes: u32,
}

impl Default for Sizes {
    /// 8 MiB of receive buffers: enough for a thousand sockets that become
    /// readable in one turn, each with a full 8 KiB.
    fn default() -> Self {
        Self {
            submissions: 1024,
            completions: 8192,
            buffers: 1024,
            buffer_bytes: 8192,
        }
    }
}

/// What the ring has done since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingStats {
    /// Calls of `io_uring_enter`.
    pub enters: u64,
    /// Of those, how many were allowed to sleep.
    pub sleeps: u64,
    /// Completions seen.
    pub completions: u64,
    /// Sends that did not fit the peer's window at once.
    pub short_sends: u64,
    /// Receives that ended because no buffer was free.
    pub no_buffers: u64,
    /// Accepts that failed for want of descriptors or memory.
    pub accept_failures: u64,
}

/// A shard's ring. Cheap to clone; all clones are the same ring.
#[derive(Clone)]
pub struct Ring(Rc<Inner>);

struct Inner {
    sys: RefCell<sys::Sys>,
    sockets: RefCell<socket::Sockets>,
    listeners: RefCell<accept::Listeners>,
    ops: RefCell<op::Ops>,
    late: RefCell<late::List>,
    timers: RefCell<timer::Timers>,
    stats: Cell<RingStats>,
    /// Counted apart from the rest, for they change with every turn.
    sleeps: Cell<u64>,
    completions: Cell<u64>,
    /// When the last turn came back from the kernel.
    now: Cell<Instant>,
    /// The same in microseconds since the ring was made.
    micros: Cell<u64>,
    made: Instant,
    /// How long turns took that ended without sleep.
    turns: Recorder,
    /// Who looks after idle sockets.
    on_idle: RefCell<Option<Waker>>,
    idle_news: Cell<bool>,
    wake: wake::Wake,
    on_wake: RefCell<Option<Waker>>,
}

impl Ring {
    /// Makes a ring for the calling thread.
    pub fn new(sizes: Sizes) -> io::Result<Self> {
        let wake = wake::Wake::new()?;
        let sys = sys::Sys::new(sizes, wake.raw_fd())?;
        Ok(Self(Rc::new(Inner {
            sys: RefCell::new(sys),
            sockets: RefCell::default(),
            listeners: RefCell::default(),
            ops: RefCell::default(),
            late: RefCell::default(),
            timers: RefCell::default(),
            stats: Cell::default(),
            sleeps: Cell::new(0),
            completions: Cell::new(0),
            now: Cell::new(Instant::now()),
            micros: Cell::new(0),
            made: Instant::now(),
            turns: Recorder::default(),
            on_idle: RefCell::new(None),
            idle_news: Cell::new(false),
            wake,
            on_wake: RefCell::new(None),
        })))
    }

    /// What the ring has done so far.
    pub fn stats(&self) -> RingStats {
        RingStats {
            enters: self.0.sys.borrow().entered(),
            sleeps: self.0.sleeps.get(),
            completions: self.0.completions.get(),
            ..self.0.stats.get()
        }
    }

    /// How long turns took that ended without sleep: the others have no end that
    /// the clock is read at.
    pub fn turns(&self) -> Histogram {
        self.0.turns.snapshot()
    }

    /// When the current turn began: for decisions that need no clock of their
    /// own.
    pub fn now(&self) -> Instant {
        self.0.now.get()
    }

    /// The same in microseconds since the ring was made: what took how long.
    pub fn micros(&self) -> u64 {
        self.0.micros.get()
    }

    /// When [`Ring::micros`] is so much.
    pub fn moment(&self, micros: u64) -> Instant {
        self.0.made + std::time::Duration::from_micros(micros)
    }

    /// Reads the clock, once a turn.
    fn tick(&self) {
        let now = Instant::now();
        let since = now.saturating_duration_since(self.0.made);
        let micros = since.as_secs() * 1_000_000 + u64::from(since.subsec_micros());
        self.0.now.set(now);
        self.0.micros.set(micros);
    }

    /// Receive buffers that the kernel may fill now.
    pub fn free_buffers(&self) -> u32 {
        self.0.sys.borrow().free_buffers()
    }

    /// Receive buffers that hold bytes of somebody.
    pub fn lent_buffers(&self) -> u32 {
        self.0.sys.borrow().lent_buffers()
    }

    /// Sockets whose entry is still in use.
    pub fn open_sockets(&self) -> usize {
        self.0.sockets.borrow().len()
    }

    fn count(&self, change: impl FnOnce(&mut RingStats)) {
        let mut stats = self.0.stats.get();
        change(&mut stats);
        self.0.stats.set(stats);
    }
}

#[cfg(test)]
pub(crate) mod tests;
