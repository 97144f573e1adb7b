//! Accepting clients.

use super::{Mail, Room, Shard, bump};
use crate::client;
use crate::net;
use crate::ring::{Listener, task};
use crossbeam_channel::Sender;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Accepts until no shard has clients any more: whoever comes while the process
/// stops may bring a cancel request. Where others listen, until another process
/// does so in our place.
pub(super) async fn accept(shard: Rc<Shard>, listener: Listener, is_own: bool) {
    let _listening = Listening::begin(&shard, is_own);
    let mut quiet_until = Instant::now();
    loop {
        let next = futures_lite::future::or(async { Some(listener.accept().await) }, async {
            match is_own {
                true => shard.deaf.wait().await,
                false => shard.end_of_listening().await,
            }
            None
        });
        match next.await {
            None => {
                for fd in listener.finish().await {
                    place(&shard, fd);
                }
                return;
            }
            Some(Ok(fd)) => place(&shard, fd),
            // One line a second says enough about a process that is out of
            // descriptors.
            Some(Err(error)) if Instant::now() >= quiet_until => {
                tracing::error!(%error, "cannot accept clients; raise the limit of open files (ulimit -n)");
                quiet_until = Instant::now() + Duration::from_secs(1);
            }
            Some(Err(_)) => {}
        }
    }
}

/// Counts a listener where others listen too.
struct Listening(Option<Rc<Shard>>);

impl Listening {
    fn begin(shard: &Rc<Shard>, is_own: bool) -> Self {
        if is_own {
            return Self(None);
        }
        shard.listening.set(shard.listening.get() + 1);
        Self(Some(Rc::clone(shard)))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(shard) = &self.0 {
            shard.listening.set(shard.listening.get() - 1);
        }
    }
}

/// Another process accepts in our place: says so when we do not any more.
pub(super) async fn leave_to_another(shard: Rc<Shard>, reply: Sender<usize>) {
    shard.taken_over.give();
    while shard.listening.get() > 0 {
        shard.ring.sleep(LOOK).await;
    }
    // Who has asked may have lost patience.
    let _ = reply.try_send(shard.id);
}

const LOOK: Duration = Duration::from_millis(1);

impl Shard {
    async fn end_of_listening(&self) {
        futures_lite::future::or(self.deaf.wait(), self.taken_over.wait()).await;
    }
}

/// Has the shard with the fewest clients serve this one, before anything is
/// read of it.
fn place(shard: &Rc<Shard>, fd: OwnedFd) {
    let there = shard.loads.place(shard.id);
    if there == shard.id {
        return welcome(shard, fd);
    }
    match shard.try_post(there, Mail::Client(fd)) {
        Ok(()) => bump(&shard.counters.passed_on),
        Err(mail) => {
            shard.loads.keep(there, shard.id);
            if let Mail::Client(fd) = mail {
                welcome(shard, fd);
            }
        }
    }
}

/// Serves a client that is counted here.
pub(super) fn welcome(shard: &Rc<Shard>, fd: OwnedFd) {
    let counted = Counted(Some(Rc::clone(shard)));
    bump(&shard.counters.connections);
    let tuned =
        net::tune_incoming(&fd, &shard.config().proxy.keepalive).and_then(|()| net::source(&fd));
    let Ok(source) = tuned else {
        // The client has left already.
        return;
    };
    let config = shard.config();
    let proxy = &config.proxy;
    let room = Room {
        all: proxy.max_unauthenticated as usize,
        of_a_place: proxy.max_unauthenticated_per_source as usize,
    };
    match shard.door.enter(source, room, Instant::now()) {
        Some(guest) => task::spawn(client::serve(counted, fd, source, guest)),
        None => client::turn_away(shard, fd),
    }
}

/// A client that counts for its shard until it leaves, or moves.
pub struct Counted(Option<Rc<Shard>>);

impl Counted {
    /// A client that has come from another shard, which has counted it here.
    pub fn arrived(shard: &Rc<Shard>) -> Self {
        shard.loads.arrived(shard.id);
        bump(&shard.counters.clients_moved);
        Self(Some(Rc::clone(shard)))
    }

    /// The shard that serves it.
    pub fn shard(&self) -> Option<Rc<Shard>> {
        self.0.clone()
    }

    /// It has gone to another shard, and counts there.
    pub fn moved(mut self) {
        self.0 = None;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(shard) = self.0.take() {
            shard.after_departure();
        }
    }
}
