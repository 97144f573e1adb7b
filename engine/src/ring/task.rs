//! The one way to spawn a task on a data shard.
//!
//! It counts polls, by which the driver knows whether anything is runnable,
//! and contains panics, which would end the whole executor otherwise
//! (glommio tears the executor down when a task unwinds).

use pin_project_lite::pin_project;
use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    static POLLS: Cell<u64> = const { Cell::new(0) };
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Polls of spawned tasks on this thread so far. A spawn counts as one, since
/// it makes a task runnable.
pub fn polls() -> u64 {
    POLLS.get()
}

/// Tasks on this thread that ended by a panic.
pub fn panics() -> u64 {
    PANICS.get()
}

/// Starts a task on the current shard. A panic in it ends only this task:
/// what it owned is dropped, the panic is counted and logged.
pub fn spawn(future: impl Future<Output = ()> + 'static) {
    POLLS.set(POLLS.get() + 1);
    glommio::spawn_local(Task { future }).detach();
}

pin_project! {
    struct Task<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future<Output = ()>> Future for Task<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        POLLS.set(POLLS.get() + 1);
        let future = self.project().future;
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(poll) => poll,
            Err(panic) => {
                PANICS.set(PANICS.get() + 1);
                tracing::error!(
                    panic = text(&*panic),
                    "a task panicked; its connections are closed"
                );
                Poll::Ready(())
            }
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}
