//! Accepting clients.

use super::{Shard, bump};
use crate::client;
use crate::limits::UNAUTHENTICATED;
use crate::net;
use crate::ring::{Listener, task};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Accepts until the shard drains.
pub(super) async fn accept(shard: Rc<Shard>, listener: Listener) {
    let mut quiet_until = Instant::now();
    loop {
        let next = futures_lite::future::or(async { Some(listener.accept().await) }, async {
            shard.drain.wait().await;
            None
        });
        match next.await {
            None => return,
            Some(Ok(fd)) => welcome(&shard, fd),
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

fn welcome(shard: &Rc<Shard>, fd: OwnedFd) {
    bump(&shard.counters.connections);
    if net::tune_incoming(&fd).is_err() {
        // The client has left already.
        return;
    }
    if shard.unauthenticated.get() >= UNAUTHENTICATED {
        client::turn_away(shard, fd);
        return;
    }
    task::spawn(client::serve(Rc::clone(shard), fd));
}
