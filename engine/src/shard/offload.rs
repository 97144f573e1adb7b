//! Work that would block a shard, done by a thread beside it.
//!
//! Only what happens once per server login: name look-ups and PBKDF2. A
//! thread a job is therefore enough; their number is bounded by the logins in
//! flight.

use super::{Mail, Postbox, Shard};
use slab::Slab;
use socket2::SockAddr;
use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Poll, Waker};

#[derive(Default)]
pub(super) struct Offload {
    jobs: RefCell<Slab<Job>>,
}

#[derive(Default)]
struct Job {
    result: Option<Box<dyn Any + Send>>,
    waker: Option<Waker>,
    abandoned: bool,
}

struct Pending<'a> {
    offload: &'a Offload,
    id: usize,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let mut jobs = self.offload.jobs.borrow_mut();
        if jobs[self.id].result.is_some() {
            jobs.remove(self.id);
        } else {
            jobs[self.id].abandoned = true;
        }
    }
}

/// Tells its shard when it is dropped, wherever that is.
pub struct Guard {
    postbox: Postbox,
    id: usize,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let result = Box::new(());
        self.postbox.post(Mail::Done {
            id: self.id,
            result,
        });
    }
}

impl Shard {
    /// Runs `work` on a thread and waits for it. Dropping the future leaves
    /// the thread to end by itself.
    pub async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let pending = self.pending();
        let id = pending.id;
        let postbox = self.mailbox.postbox();
        std::thread::spawn(move || {
            postbox.post(Mail::Done {
                id,
                result: Box::new(work()),
            })
        });
        self.job(id).await;
        let result = self.offload.jobs.borrow_mut()[id].result.take();
        self.offload.jobs.borrow_mut()[id].result = Some(Box::new(()));
        drop(pending);
        let result = result.and_then(|result| result.downcast::<T>().ok());
        *result.expect("a job's result has the job's type")
    }

    /// The addresses of a host. getaddrinfo blocks, so it runs beside the
    /// shard.
    pub async fn look_up_host(&self, host: &str, port: u16) -> io::Result<Vec<SockAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port).into()]);
        }
        let name = (host.to_owned(), port);
        let resolver = self.targets.resolver().clone();
        let found = self
            .offload(move || resolver.addresses(&name.0, name.1))
            .await?;
        Ok(found.into_iter().map(SockAddr::from).collect())
    }

    /// Hands a guard out and waits until it has been dropped.
    pub async fn until_dropped(&self, hand_out: impl FnOnce(Guard)) {
        let pending = self.pending();
        hand_out(Guard {
            postbox: self.mailbox.postbox(),
            id: pending.id,
        });
        self.job(pending.id).await;
    }

    fn pending(&self) -> Pending<'_> {
        Pending {
            offload: &self.offload,
            id: self.offload.jobs.borrow_mut().insert(Job::default()),
        }
    }

    async fn job(&self, id: usize) {
        std::future::poll_fn(|cx| {
            let mut jobs = self.offload.jobs.borrow_mut();
            if jobs[id].result.is_some() {
                return Poll::Ready(());
            }
            jobs[id].waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    pub(super) fn job_done(&self, id: usize, result: Box<dyn Any + Send>) {
        let mut jobs = self.offload.jobs.borrow_mut();
        if jobs[id].abandoned {
            jobs.remove(id);
            return;
        }
        jobs[id].result = Some(result);
        if let Some(waker) = jobs[id].waker.take() {
            waker.wake();
        }
    }
}
