//! Sockets: what has arrived, what is to be sent, and back-pressure.

use super::Ring;
use super::chunk::Chunk;
use super::late::Late;
use super::sys::{Event, Outgoing, Slice, Sys};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

#[derive(Default)]
pub(super) struct Sockets {
    slab: Slab<Entry>,
    /// Sockets with something to hand to the kernel at the next turn.
    dirty: Vec<u32>,
    /// Sockets that took receive buffers in this turn, and in the one before.
    holding: Vec<u32>,
    lingering: Vec<u32>,
    /// Sockets whose receive ended because no buffer was free.
    starved: Vec<u32>,
    /// Heap buffers for small writes, kept for reuse.
    spare: Vec<Vec<u8>>,
}

struct Entry {
    fd: OwnedFd,
    rx: VecDeque<Chunk>,
    rx_bytes: usize,
    rx_end: Option<RxEnd>,
    recv: Recv,
    paused: bool,
    tx: VecDeque<Chunk>,
    /// Bytes queued, those in flight included.
    tx_bytes: usize,
    tx_flight: Option<u32>,
    /// The peer's window was full: send patiently until the queue is empty.
    tx_slow: bool,
    tx_error: Option<i32>,
    /// Wake the owner when the queue has drained to the low watermark.
    tx_watched: bool,
    dirty: bool,
    holding: bool,
    /// Waits in [`Sockets::starved`].
    starved: bool,
    closing: bool,
    /// Nobody uses it: news go to who looks after idle sockets.
    idle: bool,
    /// On closing, what is queued is offered to the kernel once.
    linger: bool,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Recv {
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

impl Sockets {
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }
}

/// A connected socket with a receive always armed, unless its owner or a
/// full queue paused it. Dropping it closes the connection at once; see
/// [`Socket::flushed`] for a polite end.
pub struct Socket {
    ring: Ring,
    id: u32,
}

impl Ring {
    /// Takes a connected socket over and starts to receive.
    pub fn socket(&self, fd: OwnedFd) -> Socket {
        let mut sockets = self.0.sockets.borrow_mut();
        let id = sockets.slab.insert(Entry {
            fd,
            rx: VecDeque::new(),
            rx_bytes: 0,
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
    pub(super) fn flush_sockets(&self) -> bool {
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
    pub(super) fn take_socket_events(&self) -> io::Result<Option<Event>> {
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

    fn on_recv(
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
            sockets.mark_dirty(id);
        }
    }

    fn on_sent(
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
    fn notify(&self, entry: &Entry) {
        if entry.idle {
            self.on_idle_news();
        } else if let Some(waker) = &entry.waker {
            waker.wake_by_ref();
        }
    }

    /// Moves bytes that have been queued for two turns out of the receive
    /// buffers, unless there are plenty of those.
    pub(super) fn detach_lingering(&self) {
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
    fn feed_starved(&mut self) {
        for id in std::mem::take(&mut self.starved) {
            if let Some(entry) = self.slab.get_mut(id as usize) {
                entry.starved = false;
                self.mark_dirty(id);
            }
        }
    }

    /// Whether some are starved and the next turns give buffers back. If not,
    /// tasks hold them all, and only what wakes those can help.
    fn feeds_soon(&self, sys: &Sys) -> bool {
        let buffers_return =
            !self.holding.is_empty() || !self.lingering.is_empty() || sys.has_quick();
        !self.starved.is_empty() && buffers_return
    }

    /// Queues a copy of `bytes` at a socket.
    pub(super) fn append(&mut self, id: u32, bytes: &[u8]) {
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

    fn mark_dirty(&mut self, id: u32) {
        let entry = &mut self.slab[id as usize];
        if !entry.dirty {
            entry.dirty = true;
            self.dirty.push(id);
        }
    }

    fn note_holding(&mut self, id: u32) {
        let entry = &mut self.slab[id as usize];
        if !entry.holding {
            entry.holding = true;
            self.holding.push(id);
        }
    }
}

impl Entry {
    fn end(&self) -> Option<RxEnd> {
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

    fn wants_recv(&self) -> bool {
        !self.paused && self.rx_end.is_none() && self.rx_bytes <= RX_LOW
    }

    /// Starts the next send. True when the driver must not sleep on it: the
    /// kernel is silent about a quick send that succeeds, but chunks are left
    /// that it did not take, or the owner waits for its end.
    fn flush(&mut self, id: u32, sys: &mut Sys, spare: &mut Vec<Vec<u8>>) -> bool {
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
    fn take_quick(&mut self, spare: &mut Vec<Vec<u8>>) -> Outgoing {
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
    fn take_slow(&mut self) -> Outgoing {
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
    fn restore(&mut self, chunks: Outgoing, mut sent: usize, spare: &mut Vec<Vec<u8>>) -> bool {
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
    fn finish_close(&mut self, id: u32, sys: &mut Sys) -> bool {
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

fn recycle(chunk: Chunk, spare: &mut Vec<Vec<u8>>) {
    if let Chunk::Heap { mut bytes, .. } = chunk
        && bytes.capacity() <= 2 * COPY_MAX
        && spare.len() < SPARE_MAX
    {
        bytes.clear();
        spare.push(bytes);
    }
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

/// Above this many unread bytes the receive is ended; one turn's worth may
/// still come on top.
const RX_HIGH: usize = 64 * 1024;
/// The receive starts again below.
const RX_LOW: usize = 16 * 1024;
/// Output watermarks (design, section 9).
const TX_HIGH: usize = 256 * 1024;
const TX_LOW: usize = 64 * 1024;
/// Up to this much, several chunks are copied into one send: cheaper than
/// gathering (measured by `bench`).
const COPY_MAX: usize = 4096;
/// A piece up to this size joins the heap chunk before it.
const JOIN_MAX: usize = 512;
/// Parts of one gathered send.
const GATHER_MAX: usize = 64;
/// Bytes of one send: the kernel cuts off silently what is past 2 GiB less a
/// page (`MAX_RW_COUNT`).
const SEND_MAX: usize = 1 << 30;
/// Bytes of one patient send. The kernel hands a send that had to wait more
/// than a hundred times to a thread; this much never does.
const SLOW_MAX: usize = 64 * 1024;
/// Heap buffers kept for reuse.
const SPARE_MAX: usize = 256;
