//! The one module with `unsafe` code: the kernel's side of the ring.
//!
//! Everything that the kernel may read or write after a call has returned is
//! owned here, so that no caller can free it too early:
//!
//! * received bytes live in [`Buffers`], which outlives every [`Slice`] of it;
//! * bytes being sent are moved into [`Sys::flights`] and handed back by
//!   [`Event::Sent`];
//! * addresses, timespecs and the wake-up counter are boxed in [`Sys`];
//! * dropping [`Sys`] first takes back all that the kernel has: closing the
//!   ring's descriptor alone would leave that to some later moment.
//!
//! Two kinds of send exist. A *quick* send must finish inside
//! `io_uring_enter`: `MSG_DONTWAIT` keeps the kernel from parking it and
//! `IOSQE_CQE_SKIP_SUCCESS` keeps its success from waking the loop, so that a
//! relay needs one system call a hop, not two. What it could not send comes
//! back as a short result. A *patient* send waits in the kernel for room.
#![allow(unsafe_code)]

mod buffers;
mod memory;

pub use buffers::Slice;
pub use memory::return_free_memory;

use super::chunk::Chunk;
use buffers::Buffers;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use slab::Slab;
use socket2::SockAddr;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

/// What the kernel reports.
pub(super) enum Event {
    /// Bytes for a socket, its end, or an error number; `more` while the
    /// multishot receive stays armed.
    Recv {
        socket: u32,
        bytes: Result<Option<Slice>, i32>,
        more: bool,
    },
    /// A send is over: its chunks come back, with how many bytes went out and
    /// the error that stopped it.
    Sent {
        socket: u32,
        chunks: Outgoing,
        sent: usize,
        error: Option<i32>,
    },
    /// A connection, or why there is none; `more` while still armed.
    Accepted {
        listener: u32,
        fd: Result<OwnedFd, i32>,
        more: bool,
    },
    /// A one-shot operation ended.
    Done { op: u32, result: i32 },
    /// The earliest timer may be due.
    Tick,
    /// Another thread called.
    Woken,
}

/// The chunks of one send.
pub(super) enum Outgoing {
    One(Chunk),
    Many(Vec<Chunk>),
}

struct Flight {
    socket: u32,
    chunks: Outgoing,
    /// Kept for the kernel's sake: it may read the header until submission.
    gather: Option<Box<Gather>>,
    /// A quick send's failure, once reported.
    outcome: Option<i32>,
}

#[derive(Default)]
struct Gather {
    parts: Vec<libc::iovec>,
    header: Option<libc::msghdr>,
}

/// The ring and all that the kernel may touch.
pub(super) struct Sys {
    ring: IoUring,
    buffers: Rc<Buffers>,
    flights: Slab<Flight>,
    /// Quick sends not yet settled, with the number of their submission.
    quick: VecDeque<(u64, u32)>,
    /// How many submissions the kernel had taken when it was last entered.
    consumed: u64,
    pushed: u64,
    /// Operations whose last completion has not been seen.
    owed: u64,
    entered: u64,
    // Boxed, because the kernel has their addresses.
    #[allow(clippy::vec_box)]
    gathers: Vec<Box<Gather>>,
    #[allow(clippy::vec_box)]
    times: Vec<Box<types::Timespec>>,
    addresses: Slab<Box<SockAddr>>,
    wake_count: Box<u64>,
    wake_fd: RawFd,
}

impl Sys {
    pub(super) fn new(sizes: super::Sizes, wake_fd: RawFd) -> io::Result<Self> {
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_clamp()
            .setup_cqsize(sizes.completions)
            .build(sizes.submissions)?;
        let buffers = Buffers::new(sizes.buffers, sizes.buffer_bytes);
        // SAFETY: `buffers` has room for `count` entries, page-aligned, and
        // outlives all receives into it (see `Drop`).
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                buffers.ring_address(),
                buffers.count(),
                BUFFER_GROUP,
                0,
            )?;
        }
        let mut sys = Self {
            ring,
            buffers,
            flights: Slab::new(),
            quick: VecDeque::new(),
            consumed: 0,
            pushed: 0,
            owed: 0,
            entered: 0,
            gathers: Vec::new(),
            times: Vec::new(),
            addresses: Slab::new(),
            wake_count: Box::new(0),
            wake_fd,
        };
        sys.arm_wake();
        Ok(sys)
    }

    fn push(&mut self, entry: squeue::Entry) -> u64 {
        loop {
            // SAFETY: what the entry points to is owned by `self` until its
            // completion has been seen, or until submission where the kernel
            // copies (addresses, times, headers): so for each one that this
            // file pushes.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_ok() {
                break;
            }
            // Full: hand over what is there. An error here repeats at the
            // next `enter`, which reports it.
            self.entered += 1;
            let _ = self.ring.submit();
        }
        self.owed += u64::from(is_owed(entry.get_user_data()));
        self.pushed += 1;
        self.pushed
    }

    /// Arms a multishot receive for a socket.
    pub(super) fn recv(&mut self, socket: u32, fd: RawFd) {
        self.push(
            opcode::RecvMulti::new(types::Fd(fd), BUFFER_GROUP)
                .build()
                .user_data(data(RECV, socket)),
        );
    }

    /// Ends a socket's receive; [`Event::Recv`] with `more: false` follows.
    pub(super) fn cancel_recv(&mut self, socket: u32) {
        self.cancel(data(RECV, socket));
    }

    /// Arms a multishot accept.
    pub(super) fn accept(&mut self, listener: u32, fd: RawFd) {
        self.push(
            opcode::AcceptMulti::new(types::Fd(fd))
                .flags(libc::SOCK_CLOEXEC)
                .build()
                .user_data(data(ACCEPT, listener)),
        );
    }

    /// Ends a listener's accept.
    pub(super) fn cancel_accept(&mut self, listener: u32) {
        self.cancel(data(ACCEPT, listener));
    }

    /// Starts to connect; [`Event::Done`] follows.
    pub(super) fn connect(&mut self, op: u32, fd: RawFd, address: SockAddr) {
        let length = address.len();
        let slot = self.addresses.vacant_entry();
        let address = slot.insert(Box::new(address));
        let pointer = address.as_ptr().cast::<libc::sockaddr>();
        self.push(
            opcode::Connect::new(types::Fd(fd), pointer, length)
                .build()
                .user_data(data(OP, op)),
        );
    }

    /// Ends a one-shot operation; its [`Event::Done`] still follows.
    pub(super) fn cancel_op(&mut self, op: u32) {
        self.cancel(data(OP, op));
    }

    fn cancel(&mut self, target: u64) {
        self.push(
            opcode::AsyncCancel::new(target)
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(data(IGNORE, 0)),
        );
    }

    /// Closes a descriptor without a system call of its own.
    pub(super) fn close(&mut self, fd: OwnedFd) {
        self.push(
            opcode::Close::new(types::Fd(fd.into_raw_fd()))
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(data(IGNORE, 0)),
        );
    }

    /// Asks for a [`Event::Tick`] after `delay`. None may be outstanding.
    pub(super) fn tick_after(&mut self, delay: Duration) {
        let time = Box::new(types::Timespec::from(delay));
        self.push(
            opcode::Timeout::new(&raw const *time)
                .build()
                .user_data(data(TICK, 0)),
        );
        self.times.push(time);
    }

    /// Changes when the outstanding [`Event::Tick`] comes. If it has come
    /// already, the kernel finds nothing to change and the event is on its way.
    pub(super) fn move_tick(&mut self, delay: Duration) {
        let time = Box::new(types::Timespec::from(delay));
        self.push(
            opcode::TimeoutUpdate::new(data(TICK, 0), &raw const *time)
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(data(IGNORE, 0)),
        );
        self.times.push(time);
    }

    fn arm_wake(&mut self) {
        let fd = types::Fd(self.wake_fd);
        let into = (&raw mut *self.wake_count).cast::<u8>();
        self.push(
            opcode::Read::new(fd, into, 8)
                .build()
                .user_data(data(WAKE, 0)),
        );
    }

    /// Sends chunks in order; see the module's text for quick and patient.
    /// Returns the flight's number, for [`Sys::cancel_send`].
    pub(super) fn send(&mut self, socket: u32, fd: RawFd, chunks: Outgoing, quick: bool) -> u32 {
        let flags =
            libc::MSG_NOSIGNAL | libc::MSG_WAITALL | if quick { libc::MSG_DONTWAIT } else { 0 };
        let mut gather = None;
        let entry = match &chunks {
            Outgoing::One(chunk) => {
                let length = u32::try_from(chunk.len()).expect("chunks are smaller than 4 GiB");
                opcode::Send::new(types::Fd(fd), chunk.as_ptr(), length)
                    .flags(flags)
                    .build()
            }
            Outgoing::Many(many) => {
                let mut held = self.gathers.pop().unwrap_or_default();
                held.parts.clear();
                held.parts.extend(many.iter().map(|chunk| libc::iovec {
                    iov_base: chunk.as_ptr().cast_mut().cast(),
                    iov_len: chunk.len(),
                }));
                // SAFETY: an all-zero msghdr is a valid one without address,
                // parts or control data.
                let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
                header.msg_iov = held.parts.as_mut_ptr();
                header.msg_iovlen = held.parts.len() as _;
                let header = &raw const *held.header.insert(header);
                gather = Some(held);
                opcode::SendMsg::new(types::Fd(fd), header)
                    .flags(flags as u32)
                    .build()
            }
        };
        let flight = self.flights.insert(Flight {
            socket,
            chunks,
            gather,
            outcome: None,
        });
        let flight = u32::try_from(flight).expect("fewer than 2^32 sends in flight");
        if quick {
            let number = self.push(
                entry
                    .flags(squeue::Flags::SKIP_SUCCESS)
                    .user_data(data(QUICK, flight)),
            );
            self.quick.push_back((number, flight));
        } else {
            self.push(entry.user_data(data(PATIENT, flight)));
        }
        flight
    }

    /// Ends a patient send; a quick one ends by itself. [`Event::Sent`] follows.
    pub(super) fn cancel_send(&mut self, flight: u32) {
        self.cancel(data(PATIENT, flight));
    }

    /// Hands submissions over, runs the kernel's deferred work, and with
    /// `wait` sleeps until something happened.
    pub(super) fn enter(&mut self, wait: bool) -> io::Result<()> {
        self.entered += 1;
        let submissions = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        // SAFETY: no signal mask is passed (`None`), the rest are plain numbers.
        let result = unsafe {
            self.ring.submitter().enter::<libc::sigset_t>(
                submissions,
                u32::from(wait),
                ENTER_GETEVENTS,
                None,
            )
        };
        let entered = match result {
            Ok(_) => Ok(()),
            // A signal ends a sleep. A completion queue that is over-full
            // wants to be reaped first. Both are mended by the next turn.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        };
        let left = self.ring.submission().len();
        self.consumed = self.pushed - left as u64;
        if left == 0 {
            self.times.clear();
            self.addresses.clear();
        }
        entered
    }

    /// The next thing to know, after an [`enter`](Self::enter); `None` when
    /// that is all. Completions that found the queue full and wait in the
    /// kernel are fetched, too: a quick send's failure may be one of them.
    #[inline]
    pub(super) fn next_event(&mut self) -> io::Result<Option<Event>> {
        loop {
            while let Some(entry) = self.next_completion() {
                if let Some(event) = self.event(&entry) {
                    return Ok(Some(event));
                }
            }
            if !self.ring.submission().cq_overflow() {
                return Ok(self.settled());
            }
            self.enter(false)?;
        }
    }

    #[inline]
    fn next_completion(&mut self) -> Option<cqueue::Entry> {
        let entry = self.ring.completion().next()?;
        let last = !cqueue::more(entry.flags());
        self.owed -= u64::from(last && is_owed(entry.user_data()));
        Some(entry)
    }

    #[inline]
    fn event(&mut self, entry: &cqueue::Entry) -> Option<Event> {
        let result = entry.result();
        let more = cqueue::more(entry.flags());
        let id = entry.user_data() as u32;
        Some(match entry.user_data() >> KIND_SHIFT {
            RECV => Event::Recv {
                socket: id,
                bytes: self.received(entry),
                more,
            },
            PATIENT => {
                let flight = self.flights.remove(id as usize);
                sent(flight.socket, flight.chunks, result)
            }
            QUICK => {
                self.flights[id as usize].outcome = Some(result);
                return None;
            }
            ACCEPT => Event::Accepted {
                listener: id,
                fd: if result >= 0 {
                    // SAFETY: the kernel has just made this descriptor for us.
                    Ok(unsafe { OwnedFd::from_raw_fd(result) })
                } else {
                    Err(-result)
                },
                more,
            },
            OP => Event::Done { op: id, result },
            TICK => Event::Tick,
            WAKE => {
                self.arm_wake();
                Event::Woken
            }
            _ => return None,
        })
    }

    fn received(&mut self, entry: &cqueue::Entry) -> Result<Option<Slice>, i32> {
        let result = entry.result();
        match (u32::try_from(result), cqueue::buffer_select(entry.flags())) {
            (Ok(0), None) => Ok(None),
            (Ok(length), Some(id)) => {
                let slice = self.buffers.filled(id, length);
                Ok((length > 0).then_some(slice))
            }
            (Ok(_), None) => Err(libc::EIO),
            (Err(_), None) => Err(-result),
            (Err(_), Some(id)) => {
                // Unfilled, but out of the ring: dropping the slice returns it.
                drop(self.buffers.filled(id, 0));
                Err(-result)
            }
        }
    }

    /// Every quick send that the kernel has consumed and not reported by now
    /// has succeeded: it ran inside `enter`, and failures came before this.
    fn settled(&mut self) -> Option<Event> {
        let &(number, flight) = self.quick.front()?;
        if number > self.consumed {
            return None;
        }
        self.quick.pop_front();
        let Flight {
            socket,
            chunks,
            gather,
            outcome,
        } = self.flights.remove(flight as usize);
        self.gathers.extend(gather);
        Some(match outcome {
            None => Event::Sent {
                socket,
                sent: chunks.len(),
                chunks,
                error: None,
            },
            Some(result) => sent(socket, chunks, result),
        })
    }

    /// Receive buffers that the kernel has now.
    pub(super) fn free_buffers(&self) -> u32 {
        self.buffers.free()
    }

    /// Whether the kernel has at least half of the receive buffers.
    pub(super) fn has_plenty_of_buffers(&self) -> bool {
        2 * self.buffers.free() >= u32::from(self.buffers.count())
    }

    /// Receive buffers that the kernel has filled and not got back.
    pub(super) fn lent_buffers(&self) -> u32 {
        u32::from(self.buffers.count()) - self.buffers.free()
    }

    /// Whether quick sends hold chunks that the next turn gives back.
    pub(super) fn has_quick(&self) -> bool {
        !self.quick.is_empty()
    }

    /// Calls of `io_uring_enter` so far.
    pub(super) fn entered(&self) -> u64 {
        self.entered
    }

    /// Cancels all and waits until the kernel owes nothing. False when it
    /// still does after a second.
    fn take_back(&mut self) -> bool {
        let pause = types::Timespec::from(DRAIN_PAUSE);
        let pause = types::SubmitArgs::new().timespec(&pause);
        for _ in 0..DRAIN_TRIES {
            self.push(
                opcode::AsyncCancel2::new(types::CancelBuilder::any().all())
                    .build()
                    .flags(squeue::Flags::SKIP_SUCCESS)
                    .user_data(data(IGNORE, 0)),
            );
            let _ = self.ring.submitter().submit_with_args(1, &pause);
            while let Some(entry) = self.next_completion() {
                if entry.user_data() >> KIND_SHIFT == ACCEPT && entry.result() >= 0 {
                    // SAFETY: the kernel has just made this descriptor for us.
                    drop(unsafe { OwnedFd::from_raw_fd(entry.result()) });
                }
            }
            if self.owed == 0 && self.ring.submission().is_empty() {
                return true;
            }
        }
        false
    }
}

impl Drop for Sys {
    fn drop(&mut self) {
        if !self.take_back() {
            // What the kernel may still read or write is better lost than
            // used by two.
            std::mem::forget(Rc::clone(&self.buffers));
            std::mem::forget(std::mem::take(&mut self.flights));
            std::mem::forget(std::mem::take(&mut self.addresses));
            std::mem::forget(std::mem::take(&mut self.times));
            std::mem::forget(std::mem::take(&mut self.gathers));
            std::mem::forget(std::mem::take(&mut self.wake_count));
        }
    }
}

fn sent(socket: u32, chunks: Outgoing, result: i32) -> Event {
    match usize::try_from(result) {
        Ok(sent) => Event::Sent {
            socket,
            chunks,
            sent,
            error: None,
        },
        Err(_) => {
            let later = matches!(-result, libc::EAGAIN | libc::EINTR);
            let error = (!later).then_some(-result);
            Event::Sent {
                socket,
                chunks,
                sent: 0,
                error,
            }
        }
    }
}

impl Outgoing {
    fn len(&self) -> usize {
        match self {
            Outgoing::One(chunk) => chunk.len(),
            Outgoing::Many(many) => many.iter().map(|chunk| chunk.len()).sum(),
        }
    }
}

fn data(kind: u64, id: u32) -> u64 {
    kind << KIND_SHIFT | u64::from(id)
}

/// Whether the kernel completes such an operation some time, in any case. A
/// quick send is over when it is submitted, and so is what has `IGNORE`.
fn is_owed(user_data: u64) -> bool {
    !matches!(user_data >> KIND_SHIFT, QUICK | IGNORE)
}

const DRAIN_PAUSE: Duration = Duration::from_millis(50);
const DRAIN_TRIES: u32 = 20;
const BUFFER_GROUP: u16 = 0;
/// `IORING_ENTER_GETEVENTS`: with deferred task work nothing completes
/// without it.
const ENTER_GETEVENTS: u32 = 1;
const KIND_SHIFT: u32 = 32;
const RECV: u64 = 1;
const QUICK: u64 = 2;
const PATIENT: u64 = 3;
const ACCEPT: u64 = 4;
const OP: u64 = 5;
const TICK: u64 = 6;
const WAKE: u64 = 7;
const IGNORE: u64 = 8;
