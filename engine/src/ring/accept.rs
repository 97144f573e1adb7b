//! Listening: a multishot accept that backs off when descriptors run out.

use super::Ring;
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(super) type Listeners = Slab<Entry>;

pub(super) struct Entry {
    fd: OwnedFd,
    queue: VecDeque<OwnedFd>,
    error: Option<i32>,
    armed: bool,
    closing: bool,
    waker: Option<Waker>,
}

/// A listening socket. Dropping it stops to accept.
pub struct Listener {
    ring: Ring,
    id: u32,
}

impl Ring {
    /// Starts to accept on a listening socket.
    pub fn listener(&self, fd: OwnedFd) -> Listener {
        let raw = fd.as_raw_fd();
        let entry = Entry { fd, queue: VecDeque::new(), error: None, armed: true, closing: false, waker: None };
        let id = u32::try_from(self.0.listeners.borrow_mut().insert(entry)).expect("few listeners");
        self.0.sys.borrow_mut().accept(id, raw);
        Listener { ring: self.clone(), id }
    }

    pub(super) fn on_accepted(&self, listener: u32, fd: Result<OwnedFd, i32>, more: bool) {
        let mut listeners = self.0.listeners.borrow_mut();
        let entry = &mut listeners[listener as usize];
        entry.armed = more;
        if entry.closing {
            if !more {
                listeners.remove(listener as usize);
            }
            return;
        }
        match fd {
            Ok(fd) => entry.queue.push_back(fd),
            Err(number) => {
                entry.error = Some(number);
                self.count(|stats| stats.accept_failures += 1);
            }
        }
        if let Some(waker) = &entry.waker {
            waker.wake_by_ref();
        }
    }
}

impl Listener {
    /// The next connection. An error has ended the kernel's accept for now:
    /// it is armed again after a pause, so that a process out of descriptors
    /// keeps serving those whom it has. Dropping the future loses nothing.
    pub async fn accept(&self) -> io::Result<OwnedFd> {
        let next = std::future::poll_fn(|cx: &mut Context<'_>| {
            let mut listeners = self.ring.0.listeners.borrow_mut();
            let entry = &mut listeners[self.id as usize];
            if let Some(fd) = entry.queue.pop_front() {
                return Poll::Ready(Ok(fd));
            }
            if let Some(number) = entry.error.take() {
                return Poll::Ready(Err(io::Error::from_raw_os_error(number)));
            }
            if !entry.armed {
                entry.armed = true;
                self.ring.0.sys.borrow_mut().accept(self.id, entry.fd.as_raw_fd());
            }
            entry.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        if next.is_err() {
            self.ring.sleep(ACCEPT_PAUSE).await;
        }
        next
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = self.ring.0.listeners.borrow_mut();
        let entry = &mut listeners[self.id as usize];
        entry.queue.clear();
        entry.waker = None;
        if entry.armed {
            entry.closing = true;
            self.ring.0.sys.borrow_mut().cancel_accept(self.id);
        } else {
            listeners.remove(self.id as usize);
        }
    }
}

/// Pause after a failed accept: long enough not to spin, short enough that
/// clients in the backlog hardly notice.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
