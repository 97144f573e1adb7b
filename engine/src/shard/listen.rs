//! Accepting clients.

use super::{Shard, bump};
use crate::auth::Source;
use crate::client;
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
    let tuned = net::tune_incoming(&fd).and_then(|()| net::source(&fd));
    let Ok(source) = tuned else {
        // The client has left already.
        return;
    };
    if is_crowded(shard, source) {
        client::turn_away(shard, fd);
        return;
    }
    task::spawn(client::serve(Rc::clone(shard), fd, source));
}

/// Too many have not logged in, here or from the same address.
fn is_crowded(shard: &Shard, source: Source) -> bool {
    let proxy = &shard.config.proxy;
    let from_there = match source {
        Source::Local => 0,
        Source::Host(address) => {
            let sources = shard.sources.borrow();
            sources.get(&address).copied().unwrap_or_default()
        }
    };
    shard.unauthenticated.get() >= proxy.max_unauthenticated as usize
        || from_there >= proxy.max_unauthenticated_per_source
}
