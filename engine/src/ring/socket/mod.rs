//! Sockets: what has arrived, what is to be sent, and back-pressure.
//!
//! | file | what it holds |
//! |---|---|
//! | here | the handle that an owner has |
//! | `entry` | the state of one socket |
//! | `all` | all sockets of a ring: handing over and taking what came |
//! | `moving` | how a socket leaves its ring for another one |

mod all;
mod entry;
mod moving;

pub(super) use all::Sockets;
pub use entry::RxEnd;
pub use moving::Detached;

use super::Ring;
use super::chunk::Chunk;
use super::late::Late;
use entry::{Entry, JOIN_MAX, Recv, SEND_MAX, TX_HIGH};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A connected socket with a receive always armed, unless its owner or a
/// full queue paused it. Dropping it closes the connection at once; see
/// [`Socket::flushed`] for a polite end.
pub struct Socket {
    ring: Ring,
    id: u32,
}

impl Socket {
    /// The next received chunk.
    pub fn take(&self) -> Option<Chunk> {
        let mut sockets = self.ring.0.sockets.borrow_mut();
        let entry = &mut sockets.slab[self.id as usize];
        let chunk = entry.rx.pop_front()?;
        entry.rx_bytes -= chunk.len();
        if entry.recv == Recv::Off && entry.wants_recv() {
            sockets.mark_dirty(self.id);
        }
        Some(chunk)
    }

    /// Looks at the next received chunk, if there is one.
    pub fn front<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.with(|entry| entry.rx.front().map(|chunk| look(chunk)))
    }

    /// Puts the rest of a taken chunk back in front.
    pub fn put_back(&self, chunk: Chunk) {
        if chunk.is_empty() {
            return;
        }
        let mut sockets = self.ring.0.sockets.borrow_mut();
        let holds = chunk.holds_buffer();
        let entry = &mut sockets.slab[self.id as usize];
        entry.rx_bytes += chunk.len();
        entry.rx.push_front(chunk);
        if holds {
            sockets.note_holding(self.id);
        }
    }

    /// Whether received bytes wait to be taken.
    pub fn has_bytes(&self) -> bool {
        self.with(|entry| !entry.rx.is_empty())
    }

    /// Bytes received and not taken.
    pub fn unread(&self) -> usize {
        self.with(|entry| entry.rx_bytes)
    }

    /// Why nothing more will come, once all that came has been taken. A
    /// failed send alone is no end while the socket receives: the peer may
    /// have said why before it left.
    pub fn end(&self) -> Option<RxEnd> {
        self.with(|entry| entry.end())
    }

    /// Whether the peer is known to be gone, even if bytes still wait.
    pub fn ended(&self) -> bool {
        self.with(|entry| entry.rx_end.is_some() || entry.tx_error.is_some())
    }

    /// Who is woken when bytes, the end, room to send, or an error comes.
    pub fn set_waker(&self, waker: &Waker) {
        self.with(|entry| match &mut entry.waker {
            Some(current) if current.will_wake(waker) => {}
            slot => *slot = Some(waker.clone()),
        });
    }

    /// Nobody uses the socket for now; see [`Ring::idle_news`].
    pub fn set_idle(&self, idle: bool) {
        self.with(|entry| entry.idle = idle);
    }

    /// Whether the connection is over for its owner: it broke, or it ended and
    /// all that came was taken.
    pub fn is_over(&self) -> bool {
        self.with(|entry| match entry.rx_end {
            _ if entry.tx_error.is_some() => true,
            Some(RxEnd::Error(_)) => true,
            Some(RxEnd::Eof) => entry.rx.is_empty(),
            None => false,
        })
    }

    /// Whether the connection broke, as opposed to a peer that has only closed
    /// its side and may still read.
    pub fn is_broken(&self) -> bool {
        self.with(|entry| entry.tx_error.is_some() || matches!(entry.rx_end, Some(RxEnd::Error(_))))
    }

    /// Nothing has come that was not taken, nothing is queued, and the peer
    /// is there.
    pub fn is_quiet(&self) -> bool {
        self.with(|entry| {
            entry.rx.is_empty()
                && entry.tx_bytes == 0
                && entry.rx_end.is_none()
                && entry.tx_error.is_none()
        })
    }

    /// Nobody is woken any more.
    pub fn clear_waker(&self) {
        self.with(|entry| entry.waker = None);
    }

    /// Stops to receive; what the kernel has delivered already stays queued.
    pub fn pause(&self) {
        let mut sockets = self.ring.0.sockets.borrow_mut();
        let entry = &mut sockets.slab[self.id as usize];
        entry.paused = true;
        if entry.recv == Recv::Armed {
            entry.recv = Recv::Ending;
            self.ring.0.sys.borrow_mut().cancel_recv(self.id);
        }
    }

    /// Receives again.
    pub fn resume(&self) {
        let mut sockets = self.ring.0.sockets.borrow_mut();
        let entry = &mut sockets.slab[self.id as usize];
        if std::mem::take(&mut entry.paused) {
            sockets.mark_dirty(self.id);
        }
    }

    /// Queues bytes; small pieces from receive buffers are copied, so that
    /// the buffer goes back at once and they travel together.
    pub fn send(&self, chunk: Chunk) {
        if chunk.is_empty() {
            return;
        }
        assert!(chunk.len() <= SEND_MAX, "a chunk fits one send");
        let mut sockets = self.ring.0.sockets.borrow_mut();
        let entry = &mut sockets.slab[self.id as usize];
        if chunk.len() <= JOIN_MAX && matches!(entry.tx.back(), Some(Chunk::Heap { .. })) {
            drop(sockets);
            self.write(&chunk);
            return;
        }
        if entry.tx_error.is_some() {
            return;
        }
        entry.tx_bytes += chunk.len();
        let holds = chunk.holds_buffer();
        entry.tx.push_back(chunk);
        if holds && entry.tx_slow {
            sockets.note_holding(self.id);
        }
        sockets.mark_dirty(self.id);
    }

    /// Queues a copy of `bytes`.
    pub fn write(&self, bytes: &[u8]) {
        let mut sockets = self.ring.0.sockets.borrow_mut();
        sockets.append(self.id, bytes);
    }

    /// Has `late` write to this socket at the end of the turn, once.
    pub fn at_turn_end(&self, late: Rc<dyn Late>) {
        self.ring.0.late.borrow_mut().push((self.id, late));
    }

    /// Bytes queued and not yet taken by the kernel.
    pub fn queued(&self) -> usize {
        self.with(|entry| entry.tx_bytes)
    }

    /// Whether more should wait: the queue is past its high watermark. The
    /// owner is woken when it has drained to the low one.
    pub fn is_full(&self) -> bool {
        self.with(|entry| {
            let full = entry.tx_bytes > TX_HIGH;
            entry.tx_watched |= full;
            full
        })
    }

    /// When dropped, the socket offers what is queued to the kernel once: for
    /// last words that are small and not vital.
    pub fn linger(&self) {
        self.with(|entry| entry.linger = true);
    }

    /// Why nothing can be sent any more.
    pub fn send_error(&self) -> Option<i32> {
        self.with(|entry| entry.tx_error)
    }

    /// Waits until all that is queued has been handed to the kernel. Takes
    /// the socket's waker. Dropping the future loses nothing.
    pub async fn flushed(&self) -> io::Result<()> {
        std::future::poll_fn(|cx: &mut Context<'_>| {
            self.set_waker(cx.waker());
            self.with(|entry| {
                if let Some(number) = entry.tx_error {
                    return Poll::Ready(Err(io::Error::from_raw_os_error(number)));
                }
                if entry.tx_bytes == 0 {
                    return Poll::Ready(Ok(()));
                }
                entry.tx_watched = true;
                Poll::Pending
            })
        })
        .await
    }

    /// Waits until bytes have come or there is an [`Socket::end`]. Takes the
    /// socket's waker. Dropping the future loses nothing.
    pub async fn readable(&self) {
        std::future::poll_fn(|cx: &mut Context<'_>| {
            self.set_waker(cx.waker());
            let ready = self.with(|entry| !entry.rx.is_empty() || entry.end().is_some());
            if ready {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// The descriptor, for socket options.
    pub fn raw_fd(&self) -> RawFd {
        self.with(|entry| entry.fd.as_raw_fd())
    }

    /// The ring that the socket lives on.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    fn with<T>(&self, read: impl FnOnce(&mut Entry) -> T) -> T {
        read(&mut self.ring.0.sockets.borrow_mut().slab[self.id as usize])
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.id == moving::GONE {
            return;
        }
        let mut sockets = self.ring.0.sockets.borrow_mut();
        let entry = &mut sockets.slab[self.id as usize];
        entry.closing = true;
        entry.waker = None;
        entry.rx = VecDeque::new();
        if !entry.linger {
            entry.tx = VecDeque::new();
        }
        sockets.mark_dirty(self.id);
    }
}
