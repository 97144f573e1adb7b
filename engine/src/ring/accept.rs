//! Listening: a multishot accept that backs off when descriptors run out.

use super::Ring;
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub(super) type Listeners = Slab<Entry>;

pub(super) struct Entry {
    fd: OwnedFd,
    queue: VecDeque<OwnedFd>,
    error: Option<i32>,
    /// After an error: when to try again.
    pause: Option<Instant>,
    armed: bool,
    /// No more are wanted, but those that have been accepted are.
    finishing: bool,
    /// The kernel is to try anew.
    anew: bool,
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
        let entry = Entry {
            fd,
            queue: VecDeque::new(),
            error: None,
            pause: None,
            armed: true,
            finishing: false,
            anew: false,
            closing: false,
            waker: None,
        };
        let id = u32::try_from(self.0.listeners.borrow_mut().insert(entry)).expect("few listeners");
        self.0.sys.borrow_mut().accept(id, raw);
        Listener {
            ring: self.clone(),
            id,
        }
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
            Err(_) if entry.finishing || entry.anew => {}
            Err(number) => {
                entry.error = Some(number);
                entry.pause = Some(Instant::now() + ACCEPT_PAUSE);
                self.count(|stats| stats.accept_failures += 1);
            }
        }
        if let Some(waker) = &entry.waker {
            waker.wake_by_ref();
        }
    }

    /// Has the kernel look anew for connections on all listening sockets. It
    /// wakes one of those who wait for a connection; where that was another
    /// process which has given up in this moment, the connection would wait
    /// for the next one to come.
    pub fn accept_anew(&self) {
        for (id, entry) in self.0.listeners.borrow_mut().iter_mut() {
            if entry.armed && !entry.closing && !entry.finishing {
                entry.anew = true;
                let id = u32::try_from(id).expect("few listeners");
                self.0.sys.borrow_mut().cancel_accept(id);
            }
        }
    }
}

impl Listener {
    /// The next connection. An error has ended the kernel's accept for now:
    /// the call after it arms it again, but not before a pause, so that a
    /// process out of descriptors keeps serving those whom it has. Dropping
    /// the future loses nothing.
    pub async fn accept(&self) -> io::Result<OwnedFd> {
        loop {
            let pause = match self.arm() {
                Armed::Ready(next) => return next,
                Armed::Paused(until) => Some(until),
                Armed::Waiting => None,
            };
            let next = std::future::poll_fn(|cx| self.poll_next(cx));
            if let Ok(next) = self.ring.until(pause, next).await {
                return next;
            }
        }
    }

    /// Accepts no more; gives those that were accepted before. Those that wait
    /// to be accepted are left to others who listen on the same socket.
    pub async fn finish(self) -> Vec<OwnedFd> {
        {
            let mut listeners = self.ring.0.listeners.borrow_mut();
            let entry = &mut listeners[self.id as usize];
            entry.finishing = true;
            if entry.armed {
                self.ring.0.sys.borrow_mut().cancel_accept(self.id);
            }
        }
        std::future::poll_fn(|cx| {
            let mut listeners = self.ring.0.listeners.borrow_mut();
            let entry = &mut listeners[self.id as usize];
            entry.waker = Some(cx.waker().clone());
            if entry.armed {
                return Poll::Pending;
            }
            Poll::Ready(entry.queue.drain(..).collect())
        })
        .await
    }

    /// What is there at once; else makes the kernel accept, if it may.
    fn arm(&self) -> Armed {
        let mut listeners = self.ring.0.listeners.borrow_mut();
        let entry = &mut listeners[self.id as usize];
        if let Some(next) = entry.next() {
            return Armed::Ready(next);
        }
        if entry.armed {
            return Armed::Waiting;
        }
        if let Some(until) = entry.pause
            && Instant::now() < until
        {
            return Armed::Paused(until);
        }
        entry.pause = None;
        entry.anew = false;
        entry.armed = true;
        self.ring
            .0
            .sys
            .borrow_mut()
            .accept(self.id, entry.fd.as_raw_fd());
        Armed::Waiting
    }

    fn poll_next(&self, cx: &Context<'_>) -> Poll<io::Result<OwnedFd>> {
        let mut listeners = self.ring.0.listeners.borrow_mut();
        let entry = &mut listeners[self.id as usize];
        entry.waker = Some(cx.waker().clone());
        if entry.anew && !entry.armed {
            entry.anew = false;
            entry.armed = true;
            let fd = entry.fd.as_raw_fd();
            self.ring.0.sys.borrow_mut().accept(self.id, fd);
        }
        entry.next().map_or(Poll::Pending, Poll::Ready)
    }
}

enum Armed {
    Ready(io::Result<OwnedFd>),
    Waiting,
    Paused(Instant),
}

impl Entry {
    fn next(&mut self) -> Option<io::Result<OwnedFd>> {
        let error = |number| Err(io::Error::from_raw_os_error(number));
        self.queue
            .pop_front()
            .map(Ok)
            .or_else(|| self.error.take().map(error))
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
