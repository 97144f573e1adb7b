//! One-shot operations: so far, connecting.

use super::{Ring, Socket};
use slab::Slab;
use socket2::SockAddr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll, Waker};

pub(super) type Ops = Slab<Op>;

#[derive(Default)]
pub(super) struct Op {
    result: Option<i32>,
    waker: Option<Waker>,
    /// What the kernel works on, once nobody waits any more.
    orphan: Option<OwnedFd>,
}

/// Tells the kernel to stop when the caller stops waiting.
struct Pending<'a> {
    ring: &'a Ring,
    op: u32,
    fd: Option<OwnedFd>,
}

impl Ring {
    /// Connects a new socket. Dropping the future gives the attempt up; the
    /// descriptor closes when the kernel has let go of it.
    pub async fn connect(&self, fd: OwnedFd, address: SockAddr) -> io::Result<Socket> {
        let op = u32::try_from(self.0.ops.borrow_mut().insert(Op::default()))
            .expect("fewer than 2^32 operations");
        self.0.sys.borrow_mut().connect(op, fd.as_raw_fd(), address);
        let mut pending = Pending {
            ring: self,
            op,
            fd: Some(fd),
        };
        let result = std::future::poll_fn(|cx: &mut Context<'_>| {
            let mut ops = self.0.ops.borrow_mut();
            let entry = &mut ops[op as usize];
            match entry.result {
                Some(result) => Poll::Ready(result),
                None => {
                    entry.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        self.0.ops.borrow_mut().remove(op as usize);
        match pending.fd.take() {
            Some(fd) if result >= 0 => Ok(self.socket(fd)),
            _ => Err(io::Error::from_raw_os_error(-result)),
        }
    }

    pub(super) fn on_done(&self, op: u32, result: i32) {
        let mut ops = self.0.ops.borrow_mut();
        let entry = &mut ops[op as usize];
        if entry.orphan.is_some() {
            ops.remove(op as usize);
            return;
        }
        entry.result = Some(result);
        if let Some(waker) = entry.waker.take() {
            waker.wake();
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        let mut ops = self.ring.0.ops.borrow_mut();
        let Some(entry) = ops.get_mut(self.op as usize) else {
            return;
        };
        if entry.result.is_some() {
            ops.remove(self.op as usize);
        } else {
            entry.waker = None;
            entry.orphan = Some(fd);
            self.ring.0.sys.borrow_mut().cancel_op(self.op);
        }
    }
}
