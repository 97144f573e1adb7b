//! Cancel requests that reach their client's shard, and the caps on all of a
//! shard's.

use super::{Guard, Home, Mail, Shard, Whereabouts};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};

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
pub(super) fn take(
    shard: &Rc<Shard>,
    slot: u32,
    key: Box<[u8]>,
    guard: Guard,
    until: Instant,
    known: &AtomicBool,
) {
    let found = shard.clients.find(slot, &key);
    known.store(found.is_some(), SeqCst);
    match found {
        Some(Whereabouts::Here(_)) => {}
        Some(Whereabouts::Away(home)) => return pass_on(shard, home, guard, until),
        None => return,
    }
    let shard = Rc::clone(shard);
    crate::ring::task::spawn(async move {
        // Mail may overtake the request that the client sent before it, which
        // is in the kernel by now: it is read first.
        next_turn(&shard).await;
        if Instant::now() >= until {
            return;
        }
        // Meanwhile it may have moved, and that request with it.
        match shard.clients.find(slot, &key) {
            Some(Whereabouts::Here(client)) => {
                client.cancel.borrow_mut().push(guard);
                client.wake();
            }
            Some(Whereabouts::Away(home)) => pass_on(&shard, home, guard, until),
            None => {}
        }
    });
}

/// To the shard where a client is that is at home here.
fn pass_on(shard: &Rc<Shard>, home: Arc<Home>, guard: Guard, until: Instant) {
    let to = home.place().shard;
    let mail = Mail::CancelGuest { home, guard, until };
    shard.post_until(to, mail, until);
}

/// The same for a client that has come from another shard. It may be on its
/// way here, or away again.
pub(super) fn take_for_guest(shard: &Rc<Shard>, home: Arc<Home>, guard: Guard, until: Instant) {
    let shard = Rc::clone(shard);
    crate::ring::task::spawn(async move {
        next_turn(&shard).await;
        while Instant::now() < until {
            let place = home.place();
            if place.shard != shard.id {
                return pass_on(&shard, home, guard, until);
            }
            if let Some(slot) = place.slot {
                if let Some(client) = shard.clients.guest(slot, &home) {
                    client.cancel.borrow_mut().push(guard);
                    client.wake();
                }
                return;
            }
            shard.ring.sleep(ARRIVAL_POLL).await;
        }
    });
}

/// Until the ring has handed out what has come.
pub(super) async fn next_turn(shard: &Shard) {
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

/// How often it is looked whether a client has come that is on its way.
const ARRIVAL_POLL: Duration = Duration::from_millis(1);
