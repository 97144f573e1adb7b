//! A link that leaves its ring for the ring of another shard.

use super::Link;
use super::channel::{Channel, PackedChannel};
use crate::ring::{Detached, Ring};
use std::rc::Rc;

/// A link between two rings. Dropping it closes the connection, with TLS too
/// without a word.
pub struct DetachedLink {
    socket: Detached,
    tls: Option<PackedChannel>,
}

impl Link {
    /// Takes the link off its ring, with all that was received and not taken,
    /// decrypted or not. The link itself comes back where it is not at rest,
    /// or did not stay so until the kernel had let go of it: something is to
    /// be sent, or the peer is gone. Its waker and [`Link::set_idle`] are
    /// taken in any case. Dropping the future closes the connection.
    pub async fn detach(mut self) -> Result<DetachedLink, Self> {
        self.take_off().await.ok_or(self)
    }

    /// The same in place: where it succeeds, what is left of the link is of no
    /// use but to be replaced or dropped.
    pub async fn take_off(&mut self) -> Option<DetachedLink> {
        if self.ended() {
            return None;
        }
        let socket = self.socket.detach().await?;
        // A channel that has more owners is on the ring's list for the end of
        // the turn, and then its socket does not leave.
        let tls = self.tls.take().and_then(Rc::into_inner);
        Some(DetachedLink {
            socket,
            tls: tls.map(Channel::pack),
        })
    }

    /// Takes over a link that has left another ring, and receives.
    pub fn attach(ring: &Ring, detached: DetachedLink) -> Self {
        Self {
            socket: ring.attach(detached.socket),
            tls: detached.tls.map(Channel::unpack),
        }
    }
}
