//! How shards and the rest of the process talk to a shard: a bounded channel,
//! woken through the ring. Never on the path of a query.

use super::{Arriving, Guard, Home, PoolId};
use crate::ring::{Ring, WakeHandle};
use crate::session::Guest;
use crate::snapshot::Snapshot;
use admin::stats::ShardStats;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// A message to a shard.
pub enum Mail {
    /// A client that another shard has accepted.
    Client(OwnedFd),
    /// No new clients; the idle ones leave.
    Drain,
    /// The time is over: all clients leave now.
    Stop,
    /// A server that another shard has given away.
    Server(Box<Arriving>),
    /// Clients of another shard wait for a server of this pool, or a permit
    /// has been given.
    Budget {
        /// The pool.
        pool: PoolId,
    },
    /// A role of the group gets no server because of the group's total: what
    /// can be spared?
    Offer {
        /// The group.
        group: usize,
    },
    /// An idle server of such a role is to be closed.
    Evict {
        /// The group.
        group: usize,
    },
    /// A shard wants to know of a user that is listed nowhere.
    LookUp {
        /// In which group's PostgreSQL.
        group: usize,
        /// The user.
        user: Box<[u8]>,
        /// Dropped when the answer is there.
        guard: Guard,
    },
    /// A client wants its query cancelled.
    Cancel {
        /// Its place in the shard.
        slot: u32,
        /// What proves that it is the client.
        key: Box<[u8]>,
        /// Dropped when the request can hit nothing any more.
        guard: Guard,
        /// When whoever asked does not wait for that any more.
        until: Instant,
    },
    /// The same for a client that has moved to this shard.
    CancelGuest {
        /// Which client, and where it is.
        home: Arc<Home>,
        /// As above.
        guard: Guard,
        /// As above.
        until: Instant,
    },
    /// A client that moves to this shard.
    Guest(Box<Guest>),
    /// A client that was at home here has left, on another shard.
    Left {
        /// Its place here.
        slot: u32,
    },
    /// This shard has more clients than others: it is to give some away.
    Balance,
    /// Prepare for another snapshot, and say whether that can be.
    Stage {
        /// What all shards will serve by.
        snapshot: Arc<Snapshot>,
        /// Which shard it is, and why it cannot.
        reply: Sender<(usize, Result<(), String>)>,
    },
    /// All shards have prepared: serve by it; `None`: not all have, forget it.
    Commit {
        /// Its number.
        number: Option<u64>,
        /// Which shard has done so.
        reply: Sender<usize>,
    },
    /// A database's switches have been turned ([`crate::snapshot::Shared`]).
    Follow {
        /// Which shard has followed.
        reply: Sender<usize>,
    },
    /// The clients of a database leave now.
    EndClients {
        /// The database's number.
        group: usize,
    },
    /// Memory is short: some idle clients are to leave.
    Shed,
    /// Somebody wants to see the counters.
    Stats(Sender<ShardStats>),
    /// A thread has finished a job of this shard.
    Done {
        /// The job.
        id: usize,
        /// What came of it.
        result: Box<dyn Any + Send>,
    },
}

/// The receiving end.
pub struct Mailbox {
    receiver: Receiver<Mail>,
    postbox: Postbox,
}

/// The sending end; any thread may hold one.
#[derive(Clone)]
pub struct Postbox {
    sender: Sender<Mail>,
    wake: WakeHandle,
}

impl Mailbox {
    /// A mailbox of the shard that owns `ring`.
    pub fn new(ring: &Ring) -> Self {
        let (sender, receiver) = bounded(CAPACITY);
        Self {
            receiver,
            postbox: Postbox {
                sender,
                wake: ring.wake_handle(),
            },
        }
    }

    /// An end to send with.
    pub fn postbox(&self) -> Postbox {
        self.postbox.clone()
    }

    /// The next message, if one is there.
    pub fn take(&self) -> Option<Mail> {
        self.receiver.try_recv().ok()
    }
}

impl Postbox {
    /// Sends without waiting. A full mailbox drops what can be dropped
    /// (hints and cancels, which the sender repeats or PostgreSQL does not
    /// promise) and waits for the rest, which comes from threads that may.
    pub fn post(&self, mail: Mail) {
        match self.sender.try_send(mail) {
            Err(TrySendError::Full(
                mail @ (Mail::Done { .. }
                | Mail::Drain
                | Mail::Stop
                | Mail::Commit { .. }
                | Mail::Follow { .. }
                | Mail::EndClients { .. }
                | Mail::Stats(_)),
            )) => {
                // A shard that has ended takes no mail.
                let _ = self.sender.send(mail);
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) | Ok(()) => {}
        }
        self.wake.wake();
    }

    /// Sends without waiting, or gives back what cannot be sent: the mailbox is
    /// full, or the shard has ended.
    pub fn try_post(&self, mail: Mail) -> Result<(), Mail> {
        self.sender
            .try_send(mail)
            .map_err(TrySendError::into_inner)?;
        self.wake.wake();
        Ok(())
    }
}

/// Messages that may wait: far more than a shard gets between two turns.
const CAPACITY: usize = 4096;
