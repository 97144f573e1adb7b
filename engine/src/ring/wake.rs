//! How another thread wakes a shard out of its sleep: an eventfd that the
//! ring reads.

use super::Ring;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll};

pub(super) struct Wake {
    fd: Arc<OwnedFd>,
    called: std::cell::Cell<bool>,
}

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self {
            fd: Arc::new(fd),
            called: std::cell::Cell::new(false),
        })
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Wakes a shard from any thread.
#[derive(Clone, Debug)]
pub struct WakeHandle(Arc<OwnedFd>);

impl WakeHandle {
    /// Makes the shard's [`Ring::woken`] return.
    pub fn wake(&self) {
        // The counter can only be full when 2^64-2 calls are unread, which
        // still means "awake".
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl Ring {
    /// A handle by which other threads wake this ring.
    pub fn wake_handle(&self) -> WakeHandle {
        WakeHandle(Arc::clone(&self.0.wake.fd))
    }

    /// Waits until a [`WakeHandle`] was used. One waiter at a time.
    /// Dropping the future loses nothing: a call is remembered.
    pub async fn woken(&self) {
        std::future::poll_fn(|cx: &mut Context<'_>| {
            if self.0.wake.called.take() {
                return Poll::Ready(());
            }
            *self.0.on_wake.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Waits until something has come from, or happened to, an idle socket.
    /// One waiter at a time. Dropping the future loses nothing.
    pub async fn idle_news(&self) {
        std::future::poll_fn(|cx: &mut Context<'_>| {
            if self.0.idle_news.take() {
                return Poll::Ready(());
            }
            *self.0.on_idle.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    pub(super) fn on_idle_news(&self) {
        self.0.idle_news.set(true);
        if let Some(waker) = self.0.on_idle.borrow_mut().take() {
            waker.wake();
        }
    }

    pub(super) fn on_woken(&self) {
        self.0.wake.called.set(true);
        if let Some(waker) = self.0.on_wake.borrow_mut().take() {
            waker.wake();
        }
    }
}
