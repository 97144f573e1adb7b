//! A socket that leaves its ring for the ring of another shard.
//!
//! Only a socket at rest may leave: nothing queued, nothing on its way, the
//! peer there. The kernel's standing receive is cancelled and its last
//! completion awaited; what it had received by then goes along. What comes
//! later stays in the kernel until the next ring asks for it. So no byte is
//! lost, seen twice or out of order, and a peer that closes meanwhile is
//! noticed by whichever ring has the socket then.

use super::entry::Recv;
use super::{Chunk, Entry, Ring, Socket};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::task::Poll;

/// A socket between two rings. Dropping it closes the connection.
#[derive(Debug)]
pub struct Detached {
    fd: OwnedFd,
    /// Received and not taken.
    bytes: Vec<u8>,
}

/// What a detached [`Socket`] has for an id: it is of no use but to be dropped.
pub(super) const GONE: u32 = u32::MAX;

impl Detached {
    /// Bytes that were received and go along.
    pub fn unread(&self) -> usize {
        self.bytes.len()
    }
}

impl Socket {
    /// Takes the socket off its ring. `None` where it is not at rest, or did
    /// not stay so until the kernel had let go of it: then it is what it was,
    /// but for its waker, and for [`Socket::set_idle`], which are taken.
    /// Whose future is dropped may not receive any more: drop it, too.
    ///
    /// Takes one turn of the ring.
    pub async fn detach(&mut self) -> Option<Detached> {
        if !self.is_at_rest() {
            return None;
        }
        let was_paused = self.with(|entry| {
            entry.idle = false;
            entry.leaving = true;
            entry.paused
        });
        self.pause();
        poll_fn(|cx| {
            self.set_waker(cx.waker());
            if self.with(|entry| entry.recv == Recv::Off) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        if self.is_at_rest() {
            return Some(self.take_out());
        }
        self.with(|entry| entry.leaving = false);
        if !was_paused {
            self.resume();
        }
        None
    }

    /// Nothing is to be sent, and the peer is there. What is on the ring's
    /// list for the end of the turn has something to send.
    fn is_at_rest(&self) -> bool {
        let late = self.ring.0.late.borrow();
        self.with(|entry| entry.is_at_rest()) && late.iter().all(|&(id, _)| id != self.id)
    }

    fn take_out(&mut self) -> Detached {
        let mut sockets = self.ring.0.sockets.borrow_mut();
        let entry = sockets.slab.remove(self.id as usize);
        self.id = GONE;
        let mut bytes = Vec::with_capacity(entry.rx_bytes);
        for chunk in &entry.rx {
            bytes.extend_from_slice(chunk);
        }
        Detached {
            fd: entry.fd,
            bytes,
        }
    }
}

impl Entry {
    fn is_at_rest(&self) -> bool {
        self.tx_bytes == 0
            && self.tx_flight.is_none()
            && self.tx_error.is_none()
            && self.rx_end.is_none()
    }
}

impl Ring {
    /// Takes over a socket that has left another ring, and receives.
    pub fn attach(&self, detached: Detached) -> Socket {
        let Detached { fd, bytes } = detached;
        let mut rx = VecDeque::new();
        if !bytes.is_empty() {
            rx.push_back(Chunk::heap(bytes));
        }
        self.socket_with(fd, rx)
    }
}
