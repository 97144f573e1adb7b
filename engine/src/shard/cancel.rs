//! Cancel requests that reach their client's shard, and the caps on all of a
//! shard's.

use super::{Guard, Shard};
use std::cell::Cell;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

/// The cancel requests of a shard.
pub struct Cancels {
    /// Connections that have brought one and wait for its end.
    pub heard: Cell<usize>,
    /// Those under way to servers.
    pub sent: Cell<usize>,
    /// Those under way to each peer of the configuration.
    pub forwarded: Box<[Cell<usize>]>,
}

impl Cancels {
    pub(super) fn new(peers: usize) -> Self {
        Self {
            heard: Cell::new(0),
            sent: Cell::new(0),
            forwarded: (0..peers).map(|_| Cell::new(0)).collect(),
        }
    }

    /// All that are not over.
    pub fn under_way(&self) -> usize {
        self.heard.get() + self.sent.get()
    }
}

/// One of so many at a time; given back when dropped.
pub struct Capped<'a>(&'a Cell<usize>);

impl<'a> Capped<'a> {
    /// One, unless there are as many.
    pub fn enter(count: &'a Cell<usize>, most: usize) -> Option<Self> {
        if count.get() >= most {
            return None;
        }
        count.set(count.get() + 1);
        Some(Self(count))
    }
}

impl Drop for Capped<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A cancel request for a client of this shard. Whoever sent it has stopped
/// waiting at `until`, and perhaps asked its next question.
pub(super) fn take(shard: &Rc<Shard>, slot: u32, key: &[u8], guard: Guard, until: Instant) {
    let Some(client) = shard.clients.find(slot, key) else {
        return;
    };
    let shard = Rc::clone(shard);
    crate::ring::task::spawn(async move {
        // Mail may overtake the request that the client sent before it, which
        // is in the kernel by now: it is read first.
        next_turn(&shard).await;
        if Instant::now() < until {
            client.cancel.borrow_mut().push(guard);
            client.wake();
        }
    });
}

/// Until the ring has handed out what has come.
async fn next_turn(shard: &Shard) {
    let now = shard.ring.now();
    std::future::poll_fn(|cx| {
        if shard.ring.now() != now {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
