//! A connection that brings a cancel request: passed on to the shard or the
//! instance that its process id names. It ends when the request can hit
//! nothing any more: a client that waits for that, as libpq does, may then
//! safely ask its next question. It is told nothing, right or wrong.
//!
//! What another instance passes on has a trailer behind the key:
//!
//! ```text
//! key (4 or 32 bytes) · "pgmux hop" · how many instances it has come through
//! ```
//!
//! A client that writes one itself is passed on less far, and that is all.

use crate::config::{Keepalive, PeerAddress};
use crate::limits::{CANCEL, CANCEL_HOPS, CANCELS_HEARD, CANCELS_TO_PEER};
use crate::link::Link;
use crate::net;
use crate::shard::{CancelSecret, Capped, Mail, Owner, Shard, bump};
use protocol::startup::CancelRequest;
use socket2::SockAddr;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

/// A cancel request as it came.
pub(super) struct Asked {
    pub(super) pid: u32,
    pub(super) key: Box<[u8]>,
}

/// Passes it on and waits for its end, within a time that no server and no
/// peer can stretch.
pub(super) async fn pass_on(shard: &Rc<Shard>, socket: &Link, asked: Asked) {
    bump(&shard.counters.cancels);
    let Some(_place) = Capped::enter(&shard.cancels.heard, CANCELS_HEARD) else {
        bump(&shard.counters.cancels_dropped);
        return;
    };
    let (key, hops) = unwrap(&asked.key);
    // An instance that has given up has told its client so.
    if hops > 0 && socket.ended() {
        return;
    }
    let until = Instant::now() + CANCEL;
    let passing = async {
        let known = match shard.process_ids.owner(asked.pid) {
            Owner::Here { shard: to, slot } => within(shard, to, slot, key, until).await,
            Owner::Instance(id) => abroad(shard, id, asked.pid, key, hops).await,
            Owner::Nobody => false,
        };
        if !known {
            to_kin(shard, asked.pid, key, hops).await;
        }
    };
    // Late or not, the connection ends.
    let _ = shard.ring.until(Some(until), passing).await;
}

/// Whether there is such a client.
async fn within(shard: &Rc<Shard>, to: usize, slot: u32, key: &[u8], until: Instant) -> bool {
    let known = Arc::new(AtomicBool::new(false));
    let delivered = shard.until_dropped(|guard| {
        let key = key.into();
        let mail = Mail::Cancel {
            slot,
            key,
            guard,
            until,
            known: Arc::clone(&known),
        };
        shard.post_until(to, mail, until);
    });
    delivered.await;
    known.load(SeqCst)
}

/// To the processes that this one has taken over from, or that have taken over
/// from it: they listen, or have listened, at the same addresses.
async fn to_kin(shard: &Shard, pid: u32, key: &[u8], hops: u8) {
    if hops >= CANCEL_HOPS || !CancelSecret::may_be(key) {
        return;
    }
    for socket in shard.kin.to_ask(hops) {
        bump(&shard.counters.cancels_forwarded);
        let address = PeerAddress::Unix(socket.clone());
        if let Err(error) = forward(shard, &address, pid, &wrap(key, hops + 1)).await {
            tracing::debug!(%error, "the process before or after this one has gone");
            shard.kin.forget(&socket);
        }
    }
}

/// To the peer with this number. False: there is none.
async fn abroad(shard: &Shard, id: u32, pid: u32, key: &[u8], hops: u8) -> bool {
    let config = shard.config();
    let peers = &config.peers;
    let Some(at) = peers.iter().position(|peer| peer.id == id) else {
        return false;
    };
    let place = Capped::enter(&shard.cancels.forwarded[at], CANCELS_TO_PEER);
    let (Some(_place), true) = (place, hops < CANCEL_HOPS && CancelSecret::may_be(key)) else {
        bump(&shard.counters.cancels_dropped);
        return true;
    };
    bump(&shard.counters.cancels_forwarded);
    let peer = &peers[at];
    if let Err(error) = forward(shard, &peer.address, pid, &wrap(key, hops + 1)).await {
        tracing::warn!(peer = peer.id, address = %peer.address, %error, "a cancel request could not be passed on");
    }
    true
}

async fn forward(shard: &Shard, address: &PeerAddress, pid: u32, key: &[u8]) -> io::Result<()> {
    let mut request = Vec::new();
    CancelRequest { pid, key }
        .encode(&mut request)
        .map_err(|error| io::Error::other(error.text()))?;
    let socket = connect(shard, address).await?;
    socket.write(&request);
    socket.drained().await;
    Ok(())
}

async fn connect(shard: &Shard, address: &PeerAddress) -> io::Result<Link> {
    let addresses = match address {
        PeerAddress::Unix(path) => vec![SockAddr::unix(path)?],
        PeerAddress::Tcp { host, port } => shard.look_up_host(host, *port).await?,
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        let socket = net::outgoing(&address, &Keepalive::default())?;
        match shard.ring.connect(socket, address).await {
            Ok(socket) => return Ok(Link::plain(socket)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The key with the trailer.
fn wrap(key: &[u8], hops: u8) -> Vec<u8> {
    [key, TRAILER, &[hops]].concat()
}

/// The key without the trailer, and through how many instances it has come.
fn unwrap(shown: &[u8]) -> (&[u8], u8) {
    let trailed = shown.split_last().and_then(|(&hops, rest)| {
        let key = rest.strip_suffix(TRAILER)?;
        (hops > 0 && CancelSecret::may_be(key)).then_some((key, hops))
    });
    trailed.unwrap_or((shown, 0))
}

const TRAILER: &[u8] = b"pgmux hop";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_is_taken_off_again() {
        for key in [&[1; 4][..], &[7; 32]] {
            for hops in [1, 2, 3, u8::MAX] {
                assert_eq!(unwrap(&wrap(key, hops)), (key, hops));
            }
        }
    }

    #[test]
    fn what_is_not_quite_a_trailer_is_part_of_the_key() {
        let wrapped = wrap(&[1; 4], 1);
        for shown in [
            &[1; 4][..],
            &[1; 32],
            &wrapped[1..],
            &wrapped[..wrapped.len() - 1],
            &wrap(&[1; 4], 0),
            &wrap(&[1; 5], 1),
            &wrap(&[1; 31], 1),
            &wrap(&wrapped, 1),
            &[0; 256],
        ] {
            assert_eq!(unwrap(shown), (shown, 0));
        }
    }
}
