//! One socket's state: what has arrived, what is to be sent, what the kernel
//! is doing for it.

use super::super::chunk::Chunk;
use super::super::sys::{Outgoing, Sys};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::Waker;

pub(in crate::ring) struct Entry {
    pub(super) fd: OwnedFd,
    pub(super) rx: VecDeque<Chunk>,
    pub(super) rx_bytes: usize,
    pub(super) rx_end: Option<RxEnd>,
    pub(super) recv: Recv,
    pub(super) paused: bool,
    pub(super) tx: VecDeque<Chunk>,
    /// Bytes queued, those in flight included.
    pub(super) tx_bytes: usize,
    pub(super) tx_flight: Option<u32>,
    /// The peer's window was full: send patiently until the queue is empty.
    pub(super) tx_slow: bool,
    pub(super) tx_error: Option<i32>,
    /// Wake the owner when the queue has drained to the low watermark.
    pub(super) tx_watched: bool,
    pub(super) dirty: bool,
    pub(super) holding: bool,
    /// Waits among the starved.
    pub(super) starved: bool,
    pub(super) closing: bool,
    /// Its owner waits for the kernel to let go of it.
    pub(super) leaving: bool,
    /// Nobody uses it: news go to who looks after idle sockets.
    pub(super) idle: bool,
    /// On closing, what is queued is offered to the kernel once.
    pub(super) linger: bool,
    pub(super) waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Recv {
    Off,
    Armed,
    Ending,
}

/// Why no more bytes will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxEnd {
    /// The peer closed its side.
    Eof,
    /// The connection broke, with this error number.
    Error(i32),
}

impl Entry {
    pub(super) fn end(&self) -> Option<RxEnd> {
        let paused_for_ever = self
            .paused
            .then_some(self.tx_error)
            .flatten()
            .map(RxEnd::Error);
        self.rx
            .is_empty()
            .then_some(self.rx_end.or(paused_for_ever))
            .flatten()
    }

    pub(super) fn wants_recv(&self) -> bool {
        !self.paused && self.rx_end.is_none() && self.rx_bytes <= RX_LOW
    }

    /// Starts the next send. True when the driver must not sleep on it: the
    /// kernel is silent about a quick send that succeeds, but chunks are left
    /// that it did not take, or the owner waits for its end.
    pub(super) fn flush(&mut self, id: u32, sys: &mut Sys, spare: &mut Vec<Vec<u8>>) -> bool {
        if self.tx_flight.is_some() || self.tx.is_empty() || self.tx_error.is_some() {
            return false;
        }
        let chunks = if self.tx_slow {
            self.take_slow()
        } else {
            self.take_quick(spare)
        };
        self.tx_flight = Some(sys.send(id, self.fd.as_raw_fd(), chunks, !self.tx_slow));
        !self.tx_slow && (!self.tx.is_empty() || self.tx_watched)
    }

    /// All that is queued, in one operation: small pieces are copied
    /// together, larger ones gathered.
    pub(super) fn take_quick(&mut self, spare: &mut Vec<Vec<u8>>) -> Outgoing {
        if self.tx.len() == 1 {
            return Outgoing::One(
                self.tx
                    .pop_front()
                    .unwrap_or_else(|| Chunk::heap(Vec::new())),
            );
        }
        if self.tx_bytes <= COPY_MAX {
            let mut together = spare.pop().unwrap_or_default();
            for chunk in self.tx.drain(..) {
                together.extend_from_slice(&chunk);
                recycle(chunk, spare);
            }
            return Outgoing::One(Chunk::heap(together));
        }
        let mut bytes = 0;
        let fits = |chunk: &&Chunk| {
            bytes += chunk.len();
            bytes <= SEND_MAX
        };
        let parts = self
            .tx
            .iter()
            .take(GATHER_MAX)
            .take_while(fits)
            .count()
            .max(1);
        Outgoing::Many(self.tx.drain(..parts).collect())
    }

    /// The front of the queue, off the receive buffers: it may wait long.
    pub(super) fn take_slow(&mut self) -> Outgoing {
        let mut together = Vec::new();
        while let Some(chunk) = self.tx.front_mut() {
            let room = SLOW_MAX - together.len();
            if chunk.len() > room {
                together.extend_from_slice(&chunk[..room]);
                chunk.advance(room);
                break;
            }
            together.extend_from_slice(chunk);
            self.tx.pop_front();
        }
        Outgoing::One(Chunk::heap(together))
    }

    /// Puts what was not sent back in front; true if there is any.
    pub(super) fn restore(
        &mut self,
        chunks: Outgoing,
        mut sent: usize,
        spare: &mut Vec<Vec<u8>>,
    ) -> bool {
        let mut restore = |mut chunk: Chunk, tx: &mut VecDeque<Chunk>| {
            let done = sent.min(chunk.len());
            sent -= done;
            if done == chunk.len() {
                recycle(chunk, spare);
                return;
            }
            chunk.advance(done);
            chunk.detach();
            tx.push_back(chunk);
        };
        match chunks {
            Outgoing::One(chunk) if self.tx.is_empty() => restore(chunk, &mut self.tx),
            chunks => {
                let later = std::mem::take(&mut self.tx);
                match chunks {
                    Outgoing::One(chunk) => restore(chunk, &mut self.tx),
                    Outgoing::Many(many) => many
                        .into_iter()
                        .for_each(|chunk| restore(chunk, &mut self.tx)),
                }
                let unsent = !self.tx.is_empty();
                self.tx.extend(later);
                return unsent;
            }
        }
        !self.tx.is_empty()
    }

    /// Ends what the kernel does for a socket whose owner is gone; true when it
    /// owes nothing any more.
    pub(super) fn finish_close(&mut self, id: u32, sys: &mut Sys) -> bool {
        if self.recv == Recv::Armed {
            self.recv = Recv::Ending;
            sys.cancel_recv(id);
        }
        if let Some(flight) = self.tx_flight {
            sys.cancel_send(flight);
        }
        self.recv == Recv::Off && self.tx_flight.is_none()
    }
}

pub(super) fn recycle(chunk: Chunk, spare: &mut Vec<Vec<u8>>) {
    if let Chunk::Heap { mut bytes, .. } = chunk
        && bytes.capacity() <= 2 * COPY_MAX
        && spare.len() < SPARE_MAX
    {
        bytes.clear();
        spare.push(bytes);
    }
}

/// Above this many unread bytes the receive is ended; one turn's worth may
/// still come on top.
pub(super) const RX_HIGH: usize = 64 * 1024;
/// The receive starts again below.
pub(super) const RX_LOW: usize = 16 * 1024;
/// Output watermarks (design, section 9).
pub(super) const TX_HIGH: usize = 256 * 1024;
pub(super) const TX_LOW: usize = 64 * 1024;
/// Up to this much, several chunks are copied into one send: cheaper than
/// gathering (measured by `bench`).
pub(super) const COPY_MAX: usize = 4096;
/// A piece up to this size joins the heap chunk before it.
pub(super) const JOIN_MAX: usize = 512;
/// Parts of one gathered send.
pub(super) const GATHER_MAX: usize = 64;
/// Bytes of one send: the kernel cuts off silently what is past 2 GiB less a
/// page (`MAX_RW_COUNT`).
pub(super) const SEND_MAX: usize = 1 << 30;
/// Bytes of one patient send. The kernel hands a send that had to wait more
/// than a hundred times to a thread; this much never does.
pub(super) const SLOW_MAX: usize = 64 * 1024;
/// Heap buffers kept for reuse.
pub(super) const SPARE_MAX: usize = 256;
