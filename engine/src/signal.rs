//! Something that happens once, and tasks that wait for it. For one shard.

use slab::Slab;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// See the module's text.
#[derive(Default)]
pub struct Signal {
    given: Cell<bool>,
    waiting: RefCell<Slab<Waker>>,
}

/// See [`Signal::wait`]. Dropping it forgets the waiter.
pub struct Wait<'a> {
    signal: &'a Signal,
    slot: Option<usize>,
}

impl Signal {
    /// It has happened.
    pub fn give(&self) {
        self.given.set(true);
        for (_, waker) in self.waiting.borrow().iter() {
            waker.wake_by_ref();
        }
    }

    /// Whether it has happened.
    pub fn is_given(&self) -> bool {
        self.given.get()
    }

    /// Until it has happened.
    pub fn wait(&self) -> Wait<'_> {
        Wait {
            signal: self,
            slot: None,
        }
    }

    /// Tasks that wait now.
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.signal.given.get() {
            return Poll::Ready(());
        }
        let mut waiting = self.signal.waiting.borrow_mut();
        match self.slot {
            Some(slot) => waiting[slot].clone_from(cx.waker()),
            None => {
                let slot = waiting.insert(cx.waker().clone());
                drop(waiting);
                self.slot = Some(slot);
            }
        }
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.signal.waiting.borrow_mut().remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stops_waiting_is_forgotten() {
        let signal = Signal::default();
        let mut cx = Context::from_waker(Waker::noop());
        let mut wait = Box::pin(signal.wait());
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        assert_eq!(signal.waiting(), 1);
        signal.give();
        assert!(wait.as_mut().poll(&mut cx).is_ready());
        drop(wait);
        assert_eq!(signal.waiting(), 0);
    }
}
