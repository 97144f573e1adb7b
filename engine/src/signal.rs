//! Something that happens once, and tasks that wait for it. For one shard.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// See the module's text.
#[derive(Default)]
pub struct Signal {
    given: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Signal {
    /// It has happened.
    pub fn give(&self) {
        self.given.set(true);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Whether it has happened.
    pub fn is_given(&self) -> bool {
        self.given.get()
    }

    /// Until it has happened.
    pub async fn wait(&self) {
        std::future::poll_fn(|cx: &mut Context<'_>| {
            if self.given.get() {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
