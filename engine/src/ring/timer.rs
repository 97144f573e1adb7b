//! Timers: a heap of deadlines, of which the kernel knows only the earliest.

use super::{Inner, Ring};
use slab::Slab;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u32, u64)>>,
    live: Slab<Timer>,
    serial: u64,
    /// When the kernel will tick: it has one timeout at a time, or a pattern
    /// of short timers before a long one would heap them up.
    armed: Option<Instant>,
}

struct Timer {
    /// Tells a reused slot from the one that a heap entry meant.
    serial: u64,
    waker: Waker,
}

/// A deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl Ring {
    /// Ends at `deadline`. Dropping it forgets the timer.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep {
            ring: self.clone(),
            deadline,
            slot: None,
        }
    }

    /// Ends after `delay`.
    pub fn sleep(&self, delay: Duration) -> Sleep {
        self.sleep_until(Instant::now() + delay)
    }

    /// The future's output, unless `deadline` comes first; then the future is dropped.
    pub async fn until<T>(
        &self,
        deadline: Option<Instant>,
        future: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let Some(deadline) = deadline else {
            return Ok(future.await);
        };
        let sleep = self.sleep_until(deadline);
        futures_lite::future::or(async { Ok(future.await) }, async {
            sleep.await;
            Err(Elapsed)
        })
        .await
    }

    /// Wakes what is due and arms the kernel for the next deadline.
    pub(super) fn run_timers(&self, ticked: bool) {
        let mut timers = self.0.timers.borrow_mut();
        if ticked {
            timers.armed = None;
            let now = Instant::now();
            while let Some(&Reverse((deadline, slot, serial))) = timers.heap.peek() {
                let current = timers
                    .live
                    .get(slot as usize)
                    .is_some_and(|timer| timer.serial == serial);
                if current && deadline > now {
                    break;
                }
                timers.heap.pop();
                if current {
                    timers.live.remove(slot as usize).waker.wake();
                }
            }
        }
        let Some(&Reverse((deadline, ..))) = timers.heap.peek() else {
            return;
        };
        if timers.armed.is_some_and(|armed| armed <= deadline) {
            return;
        }
        let delay = deadline.saturating_duration_since(Instant::now());
        let mut sys = self.0.sys.borrow_mut();
        match timers.armed.replace(deadline) {
            None => sys.tick_after(delay),
            Some(_) => sys.move_tick(delay),
        }
    }
}

impl Timers {
    fn insert(&mut self, deadline: Instant, waker: Waker) -> (u32, u64) {
        self.serial += 1;
        let serial = self.serial;
        let slot = self.live.insert(Timer { serial, waker });
        let slot = u32::try_from(slot).expect("fewer than 2^32 timers");
        self.heap.push(Reverse((deadline, slot, serial)));
        (slot, serial)
    }

    fn remove(&mut self, slot: u32, serial: u64) {
        if self
            .live
            .get(slot as usize)
            .is_some_and(|timer| timer.serial == serial)
        {
            self.live.remove(slot as usize);
        }
        // Timers that were dropped early leave heap entries behind; sweep
        // when they are the majority.
        if self.heap.len() > 64 && self.heap.len() > 4 * self.live.len() {
            let live = &self.live;
            self.heap.retain(|&Reverse((_, slot, serial))| {
                live.get(slot as usize)
                    .is_some_and(|timer| timer.serial == serial)
            });
        }
    }
}

/// See [`Ring::sleep_until`].
pub struct Sleep {
    ring: Ring,
    deadline: Instant,
    slot: Option<(u32, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let inner: Rc<Inner> = Rc::clone(&self.ring.0);
        let mut timers = inner.timers.borrow_mut();
        match self.slot {
            None => self.slot = Some(timers.insert(self.deadline, cx.waker().clone())),
            Some((slot, serial)) => match timers.live.get_mut(slot as usize) {
                Some(timer) if timer.serial == serial => timer.waker.clone_from(cx.waker()),
                _ => return Poll::Ready(()),
            },
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((slot, serial)) = self.slot {
            self.ring.0.timers.borrow_mut().remove(slot, serial);
        }
    }
}

#[cfg(test)]
impl Timers {
    /// Entries of the heap, and timers that are live.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.heap.len(), self.live.len())
    }
}
