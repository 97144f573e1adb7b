//! How shards and the rest of the process talk to a shard: a bounded channel,
//! woken through the ring. Never on the path of a query.
//!
//! A shard never waits for room in a mailbox: two that wait for each other would
//! wait for ever, and one whose own is full for itself. What finds no room
//!
//! - goes back to its sender ([`Postbox::try_post`]), if it owns something: a
//!   client, a server, a key;
//! - is tried again for a while ([`Shard::post_until`]): cancels, look-ups;
//! - is dropped, and the shard looks for itself ([`Mailbox::take_missed`]): hints;
//! - or has a queue without bound: answers to what a shard has asked, of which
//!   there are as many as it has questions, and the few words of the process.

use super::{Arriving, Guard, Home, PoolId, Question, Shard, bump};
use crate::ring::{Ring, WakeHandle, task};
use crate::session::Guest;
use crate::snapshot::Snapshot;
use admin::stats::ShardStats;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};
use std::any::Any;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A message to a shard.
pub enum Mail {
    /// A client that another shard has accepted.
    Client(OwnedFd),
    /// No new clients; the idle ones leave.
    Drain,
    /// Another process accepts clients in our place.
    TakenOver {
        /// Which shard accepts no more.
        reply: Sender<usize>,
    },
    /// Another process does not accept in our place any more.
    AcceptAnew,
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
    /// Something has changed about the health or the addresses of a target.
    Target {
        /// Its number.
        id: usize,
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
        /// Set if there is such a client.
        known: Arc<AtomicBool>,
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
    /// The operator wants to know something, or has something done.
    Ask(Question),
    /// A thread has finished a job of this shard.
    Done {
        /// The job.
        id: usize,
        /// What came of it.
        result: Box<dyn Any + Send>,
    },
}

impl Mail {
    /// It must arrive, and there is never much of it.
    fn is_certain(&self) -> bool {
        matches!(
            self,
            Mail::Done { .. }
                | Mail::Drain
                | Mail::TakenOver { .. }
                | Mail::AcceptAnew
                | Mail::Stop
                | Mail::Commit { .. }
                | Mail::Follow { .. }
                | Mail::EndClients { .. }
                | Mail::Target { .. }
                | Mail::Stats(_)
        )
    }
}

/// The receiving end.
pub struct Mailbox {
    receiver: Receiver<Mail>,
    certain: Receiver<Mail>,
    postbox: Postbox,
}

/// The sending end; any thread may hold one.
#[derive(Clone)]
pub struct Postbox {
    sender: Sender<Mail>,
    certain: Sender<Mail>,
    /// A hint found no room.
    missed: Arc<AtomicBool>,
    wake: WakeHandle,
}

impl Mailbox {
    /// A mailbox of the shard that owns `ring`, with room for so much.
    pub fn new(ring: &Ring, room: usize) -> Self {
        let (sender, receiver) = bounded(room);
        let (certain, certain_receiver) = unbounded();
        Self {
            receiver,
            certain: certain_receiver,
            postbox: Postbox {
                sender,
                certain,
                missed: Arc::default(),
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
        let certain = self.certain.try_recv();
        certain.or_else(|_| self.receiver.try_recv()).ok()
    }

    /// Whether hints have been dropped since it was last asked. To be asked when
    /// the mailbox has been emptied.
    pub fn take_missed(&self) -> bool {
        self.postbox.missed.load(SeqCst) && self.postbox.missed.swap(false, SeqCst)
    }
}

impl Postbox {
    /// Sends a hint, or what always has room, without waiting. False if a hint
    /// found none.
    pub fn post(&self, mail: Mail) -> bool {
        let sent = if mail.is_certain() {
            // A shard that has ended takes no mail.
            let _ = self.certain.send(mail);
            true
        } else {
            let full = matches!(self.sender.try_send(mail), Err(TrySendError::Full(_)));
            if full {
                self.missed.store(true, SeqCst);
            }
            !full
        };
        self.wake.wake();
        sent
    }

    /// Sends without waiting, or gives back what cannot be sent: the mailbox is
    /// full, or the shard has ended.
    pub fn try_post(&self, mail: Mail) -> Result<(), TrySendError<Mail>> {
        self.sender.try_send(mail)?;
        self.wake.wake();
        Ok(())
    }
}

impl Shard {
    /// Sends to another shard what must not be lost: it comes back when it
    /// cannot be taken now.
    pub fn try_post(&self, shard: usize, mail: Mail) -> Result<(), Mail> {
        self.deliver(shard, mail).map_err(TrySendError::into_inner)
    }

    /// Sends a hint to another shard, or to this one.
    pub fn post(&self, shard: usize, mail: Mail) {
        if let Some(postbox) = self.peers.get(shard)
            && !postbox.post(mail)
        {
            bump(&self.counters.mail_refused);
        }
    }

    /// Sends to another shard, or to this one, as soon as there is room, and not
    /// at all when that takes too long.
    pub fn post_until(self: &Rc<Self>, to: usize, mail: Mail, until: Instant) {
        let Err(TrySendError::Full(mut mail)) = self.deliver(to, mail) else {
            return;
        };
        let shard = Rc::clone(self);
        task::spawn(async move {
            while Instant::now() < until {
                shard.ring.sleep(FULL_POLL).await;
                match shard.deliver(to, mail) {
                    Err(TrySendError::Full(back)) => mail = back,
                    Err(TrySendError::Disconnected(_)) | Ok(()) => return,
                }
            }
        });
    }

    fn deliver(&self, shard: usize, mail: Mail) -> Result<(), TrySendError<Mail>> {
        let Some(postbox) = self.peers.get(shard) else {
            return Err(TrySendError::Disconnected(mail));
        };
        let delivered = postbox.try_post(mail);
        if matches!(delivered, Err(TrySendError::Full(_))) {
            bump(&self.counters.mail_refused);
        }
        delivered
    }
}

/// Before a full mailbox is tried again: its shard empties it each turn.
const FULL_POLL: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Sizes;

    fn mailbox() -> Mailbox {
        let ring = Ring::new(Sizes::default()).expect("a ring");
        Mailbox::new(&ring, 1)
    }

    #[test]
    fn what_must_not_be_lost_comes_back_and_a_hint_is_remembered_once() {
        let mailbox = mailbox();
        let postbox = mailbox.postbox();
        assert!(postbox.post(Mail::Balance));
        assert!(!mailbox.take_missed());
        let back = postbox.try_post(Mail::Left { slot: 7 });
        assert!(matches!(
            back,
            Err(TrySendError::Full(Mail::Left { slot: 7 }))
        ));
        assert!(!mailbox.take_missed(), "it was no hint");
        assert!(!postbox.post(Mail::Balance));
        assert!(matches!(mailbox.take(), Some(Mail::Balance)));
        assert!(mailbox.take().is_none());
        assert!(mailbox.take_missed() && !mailbox.take_missed());
    }

    /// On the only thread: it would wait for ever.
    #[test]
    fn answers_and_the_words_of_the_process_never_wait_for_room() {
        let mailbox = mailbox();
        let postbox = mailbox.postbox();
        postbox.post(Mail::Balance);
        for id in 0..1000 {
            let result = Box::new(());
            assert!(postbox.post(Mail::Done { id, result }));
        }
        assert!(postbox.post(Mail::Stop));
        for expected in 0..1000 {
            assert!(matches!(mailbox.take(), Some(Mail::Done { id, .. }) if id == expected));
        }
        assert!(matches!(mailbox.take(), Some(Mail::Stop)));
        assert!(matches!(mailbox.take(), Some(Mail::Balance)));
    }
}
