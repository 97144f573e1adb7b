//! All sockets of a ring: what is handed to the kernel in a turn, and what
//! comes back.

use super::super::Ring;
use super::super::chunk::Chunk;
use super::super::sys::{Event, Outgoing, Slice, Sys};
use super::Socket;
use super::entry::{COPY_MAX, Entry, RX_HIGH, Recv, RxEnd, SEND_MAX, TX_LOW, recycle};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

#[derive(Default)]
pub(in crate::ring) struct Sockets {
    pub(super) slab: Slab<Entry>,
    /// Sockets with something to hand to the kernel at the next turn.
    pub(super) dirty: Vec<u32>,
    /// Sockets that took receive buffers in this turn, and in the one before.
    pub(super) holding: Vec<u32>,
    pub(super) lingering: Vec<u32>,
    /// Sockets whose receive ended because no buffer was free.
    pub(super) starved: Vec<u32>,
    /// Heap buffers for small writes, kept for reuse.
    pub(super) spare: Vec<Vec<u8>>,
}

impl Sockets {
    pub(in crate::ring) fn len(&self) -> usize {
        self.slab.len()
    }
}

impl Ring {
    /// Takes a connected socket over and starts to receive.
    pub fn socket(&self, fd: OwnedFd) -> Socket {
        self.socket_with(fd, VecDeque::new())
    }

    /// The same for a socket that bytes were received from.
    pub(super) fn socket_with(&self, fd: OwnedFd, rx: VecDeque<Chunk>) -> Socket {
        let mut sockets = self.0.sockets.borrow_mut();
        let id = sockets.slab.insert(Entry {
            fd,
            rx_bytes: rx.iter().map(|chunk| chunk.len()).sum(),
            rx,
            rx_end: None,
            recv: Recv::Off,
            paused: false,
            tx: VecDeque::new(),
            tx_bytes: 0,
            tx_flight: None,
            tx_slow: false,
            tx_error: None,
            tx_watched: false,
            dirty: false,
            holding: false,
            starved: false,
            closing: false,
            leaving: false,
            idle: false,
            linger: false,
            waker: None,
        });
        let id = u32::try_from(id).expect("fewer than 2^32 sockets");
        sockets.mark_dirty(id);
        Socket {
            ring: self.clone(),
            id,
        }
    }

    /// Hands queued sends and receives to the kernel. True when there is more
    /// to do than the kernel will report: do not sleep on that.
    pub(in crate::ring) fn flush_sockets(&self) -> bool {
        let mut sockets = self.0.sockets.borrow_mut();
        let mut sys = self.0.sys.borrow_mut();
        if sys.free_buffers() > 0 {
            sockets.feed_starved();
        }
        let Sockets {
            slab, dirty, spare, ..
        } = &mut *sockets;
        let mut more = false;
        for id in dirty.drain(..) {
            let Some(entry) = slab.get_mut(id as usize) else {
                continue;
            };
            entry.dirty = false;
            if entry.closing {
                if entry.linger && !entry.tx_slow {
                    entry.flush(id, &mut sys, spare);
                }
                if entry.finish_close(id, &mut sys) {
                    sys.close(slab.remove(id as usize).fd);
                }
                continue;
            }
            if entry.recv == Recv::Off && entry.wants_recv() && !entry.starved {
                entry.recv = Recv::Armed;
                sys.recv(id, entry.fd.as_raw_fd());
            }
            more |= entry.flush(id, &mut sys, spare);
        }
        more || sockets.feeds_soon(&sys)
    }

    /// Takes what came for sockets, up to an event that is not for one.
    pub(in crate::ring) fn take_socket_events(&self) -> io::Result<Option<Event>> {
        let mut sockets = self.0.sockets.borrow_mut();
        let mut sys = self.0.sys.borrow_mut();
        let mut taken = 0;
        let other = loop {
            match sys.next_event()? {
                Some(Event::Recv {
                    socket,
                    bytes,
                    more,
                }) => self.on_recv(&mut sockets, &mut sys, socket, bytes, more),
                Some(Event::Sent {
                    socket,
                    chunks,
                    sent,
                    error,
                }) => self.on_sent(&mut sockets, socket, chunks, sent, error),
                other => break other,
            }
            taken += 1;
        };
        let taken = taken + u64::from(other.is_some());
        self.0.completions.set(self.0.completions.get() + taken);
        Ok(other)
    }

    pub(super) fn on_recv(
        &self,
        sockets: &mut Sockets,
        sys: &mut Sys,
        id: u32,
        bytes: Result<Option<Slice>, i32>,
        more: bool,
    ) {
        let entry = &mut sockets.slab[id as usize];
        if !more {
            entry.recv = Recv::Off;
        }
        match bytes {
            Ok(Some(slice)) if !entry.closing => {
                entry.rx_bytes += slice.len();
                entry.rx.push_back(Chunk::Ring(slice));
                if entry.rx_bytes > RX_HIGH && entry.recv == Recv::Armed {
                    entry.recv = Recv::Ending;
                    sys.cancel_recv(id);
                }
                self.notify(entry);
                if !entry.holding {
                    entry.holding = true;
                    sockets.holding.push(id);
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => {
                entry.rx_end = Some(RxEnd::Eof);
                self.notify(entry);
            }
            Err(libc::ENOBUFS) => {
                self.count(|stats| stats.no_buffers += 1);
                entry.starved = true;
                sockets.starved.push(id);
            }
            Err(libc::ECANCELED | libc::EINTR) => {}
            Err(number) => {
                entry.rx_end = Some(RxEnd::Error(number));
                self.notify(entry);
            }
        }
        if !more {
            if sockets.slab[id as usize].leaving {
                self.notify(&sockets.slab[id as usize]);
            }
            sockets.mark_dirty(id);
        }
    }

    pub(super) fn on_sent(
        &self,
        sockets: &mut Sockets,
        id: u32,
        chunks: Outgoing,
        sent: usize,
        error: Option<i32>,
    ) {
        let Sockets { slab, spare, .. } = sockets;
        let entry = &mut slab[id as usize];
        entry.tx_flight = None;
        entry.tx_bytes -= sent;
        if entry.tx_bytes == 0
            && error.is_none()
            && !entry.closing
            && !entry.tx_watched
            && let Outgoing::One(chunk) = chunks
        {
            // Nearly always: all that was queued has gone.
            entry.tx_slow = false;
            recycle(chunk, spare);
            return;
        }
        let unsent = entry.restore(chunks, sent, spare);
        if unsent && error.is_none() {
            entry.tx_slow = true;
            entry.tx.iter_mut().for_each(Chunk::detach);
            self.count(|stats| stats.short_sends += 1);
        }
        if error.is_some() {
            entry.tx_error = error;
            entry.tx.clear();
            entry.tx_bytes = 0;
        }
        let drained = entry.tx_watched && entry.tx_bytes <= TX_LOW;
        if drained {
            entry.tx_watched = false;
        }
        if drained || error.is_some() {
            self.notify(entry);
        }
        if entry.closing || !entry.tx.is_empty() {
            sockets.mark_dirty(id);
        } else {
            entry.tx_slow = false;
        }
    }

    /// Tells the owner, or who looks after idle sockets.
    pub(super) fn notify(&self, entry: &Entry) {
        if entry.idle {
            self.on_idle_news();
        } else if let Some(waker) = &entry.waker {
            waker.wake_by_ref();
        }
    }

    /// Moves bytes that have been queued for two turns out of the receive
    /// buffers, unless there are plenty of those.
    pub(in crate::ring) fn detach_lingering(&self) {
        let mut sockets = self.0.sockets.borrow_mut();
        let Sockets {
            slab,
            holding,
            lingering,
            ..
        } = &mut *sockets;
        if self.0.sys.borrow().has_plenty_of_buffers() {
            lingering.append(holding);
            return;
        }
        for id in lingering.drain(..) {
            if let Some(entry) = slab.get_mut(id as usize) {
                entry.holding = false;
                entry.rx.iter_mut().for_each(Chunk::detach);
                entry.tx.iter_mut().for_each(Chunk::detach);
            }
        }
        std::mem::swap(holding, lingering);
    }
}

impl Sockets {
    /// Lets the starved receive again.
    pub(super) fn feed_starved(&mut self) {
        for id in std::mem::take(&mut self.starved) {
            if let Some(entry) = self.slab.get_mut(id as usize) {
                entry.starved = false;
                self.mark_dirty(id);
            }
        }
    }

    /// Whether some are starved and the next turns give buffers back. If not,
    /// tasks hold them all, and only what wakes those can help.
    pub(super) fn feeds_soon(&self, sys: &Sys) -> bool {
        let buffers_return =
            !self.holding.is_empty() || !self.lingering.is_empty() || sys.has_quick();
        !self.starved.is_empty() && buffers_return
    }

    /// Queues a copy of `bytes` at a socket.
    pub(in crate::ring) fn append(&mut self, id: u32, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        assert!(bytes.len() <= SEND_MAX, "a chunk fits one send");
        let Sockets { slab, spare, .. } = self;
        let entry = &mut slab[id as usize];
        if entry.tx_error.is_some() {
            return;
        }
        entry.tx_bytes += bytes.len();
        match entry.tx.back_mut() {
            Some(Chunk::Heap { bytes: last, .. }) if last.len() < COPY_MAX => {
                last.extend_from_slice(bytes)
            }
            _ => {
                let mut fresh = spare.pop().unwrap_or_default();
                fresh.extend_from_slice(bytes);
                entry.tx.push_back(Chunk::heap(fresh));
            }
        }
        self.mark_dirty(id);
    }

    pub(super) fn mark_dirty(&mut self, id: u32) {
        let entry = &mut self.slab[id as usize];
        if !entry.dirty {
            entry.dirty = true;
            self.dirty.push(id);
        }
    }

    pub(super) fn note_holding(&mut self, id: u32) {
        let entry = &mut self.slab[id as usize];
        if !entry.holding {
            entry.holding = true;
            self.holding.push(id);
        }
    }
}
