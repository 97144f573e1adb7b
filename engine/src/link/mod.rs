//! A connection as clients and servers use it: a socket, in clear or with TLS
//! over it.
//!
//! ```text
//!   write ─▶ gathered ─▶ [seal, once a turn] ─▶ socket ─▶ kernel
//!   take  ◀─ decrypted ◀─ [open, when asked] ◀─ socket ◀─ kernel
//! ```
//!
//! Invariants
//! * a link in clear costs one branch;
//! * decrypted bytes are there for whoever asks: [`Link::has_bytes`],
//!   [`Link::take`] and [`Link::is_over`] open the records that have come;
//! * a record is opened only when nothing decrypted is left, and no more than
//!   one record's worth waits to be sealed, so that the socket's watermarks
//!   bound the memory of a link with TLS too;
//! * nothing that came in clear is left when TLS begins: whoever calls
//!   [`Link::secure`] proves it by [`Emptied`].

mod buffers;
mod channel;
mod gate;
mod handshake;
mod moving;
mod records;

pub use gate::Handshakes;
pub use handshake::{Failed, handshake};
pub use moving::DetachedLink;
pub use records::Records;

use crate::ring::{Chunk, Ring, Socket};
use crate::tls::PeerCertificate;
use channel::Channel;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// See the module's text.
pub struct Link {
    socket: Socket,
    tls: Option<Rc<Channel>>,
}

/// What is known of a link's other end, and what the link can be bound to.
#[derive(Default)]
pub struct Security {
    /// The certificate that it proved to own. Of a client it has been
    /// verified; of a server as far as `server_sslmode` says.
    pub peer: Option<PeerCertificate>,
    /// The hash of the server's certificate, ours or the other end's, for
    /// `tls-server-end-point` (RFC 5929 section 4).
    pub binding: Option<Arc<[u8]>>,
    /// `postgresql` was agreed on by ALPN.
    pub alpn: bool,
}

/// A handshake that is over, for [`Link::secure`].
pub struct Secured {
    records: Records,
    security: Security,
}

/// Nothing has come in clear that was not taken.
pub struct Emptied(());

impl Emptied {
    /// Nothing has ever come in clear: TLS was the first that came.
    pub fn from_the_start(first: &[u8]) -> Option<Self> {
        (first.first() == Some(&records::HANDSHAKE)).then_some(Self(()))
    }
}

impl Link {
    /// A link in clear.
    pub fn plain(socket: Socket) -> Self {
        Self { socket, tls: None }
    }

    /// The socket, for a handshake. Only while the link is in clear.
    pub fn raw(&self) -> &Socket {
        debug_assert!(self.tls.is_none());
        &self.socket
    }

    /// Proof for the handshake that all has been taken.
    pub fn emptied(&self) -> Option<Emptied> {
        (self.tls.is_none() && !self.socket.has_bytes()).then_some(Emptied(()))
    }

    /// From here on all is encrypted.
    pub fn secure(&mut self, secured: Secured) {
        self.tls = Some(Channel::new(secured));
    }

    /// What TLS knows; `None` in clear.
    pub fn security(&self) -> Option<&Security> {
        self.tls.as_deref().map(Channel::security)
    }

    /// The next received chunk.
    #[inline]
    pub fn take(&self) -> Option<Chunk> {
        match &self.tls {
            None => self.socket.take(),
            Some(tls) => tls.take(&self.socket),
        }
    }

    /// Puts the rest of a taken chunk back in front.
    #[inline]
    pub fn put_back(&self, chunk: Chunk) {
        match &self.tls {
            None => self.socket.put_back(chunk),
            Some(tls) => tls.put_back(chunk),
        }
    }

    /// Looks at the next chunk without taking it.
    #[inline]
    pub fn front<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        match &self.tls {
            None => self.socket.front(look),
            Some(tls) => tls.front(&self.socket, look),
        }
    }

    /// Whether received bytes wait to be taken.
    #[inline]
    pub fn has_bytes(&self) -> bool {
        match &self.tls {
            None => self.socket.has_bytes(),
            Some(tls) => tls.has_bytes(&self.socket),
        }
    }

    /// Whether the peer is known to be gone, even if bytes still wait.
    #[inline]
    pub fn ended(&self) -> bool {
        self.socket.ended() || self.tls.as_ref().is_some_and(|tls| tls.ended())
    }

    /// Whether nothing more will come. That sending has failed does not say so:
    /// what the peer said before it closed may still be on its way.
    pub fn is_read_out(&self) -> bool {
        self.socket.end().is_some() || self.tls.as_ref().is_some_and(|tls| tls.ended())
    }

    /// Whether the connection is over for its owner: it broke, or it ended and
    /// all that came was taken.
    #[inline]
    pub fn is_over(&self) -> bool {
        match &self.tls {
            None => self.socket.is_over(),
            Some(tls) => tls.is_over(&self.socket),
        }
    }

    /// Whether the connection broke, as opposed to a peer that has only closed
    /// its side and may still read.
    #[inline]
    pub fn is_broken(&self) -> bool {
        self.socket.is_broken() || self.tls.as_ref().is_some_and(|tls| tls.is_broken())
    }

    /// Nothing has come that was not taken, nothing is queued, and the peer
    /// is there.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        match &self.tls {
            None => self.socket.is_quiet(),
            Some(tls) => tls.is_quiet(&self.socket),
        }
    }

    /// Who is woken when bytes, the end, room to send, or an error comes.
    #[inline]
    pub fn set_waker(&self, waker: &Waker) {
        self.socket.set_waker(waker);
    }

    /// Nobody is woken any more.
    pub fn clear_waker(&self) {
        self.socket.clear_waker();
    }

    /// Nobody uses the link for now; see [`Ring::idle_news`].
    pub fn set_idle(&self, idle: bool) {
        self.socket.set_idle(idle);
    }

    /// Queues bytes.
    #[inline]
    pub fn send(&self, chunk: Chunk) {
        match &self.tls {
            None => self.socket.send(chunk),
            Some(tls) => tls.write(&self.socket, &chunk),
        }
    }

    /// Queues a copy of `bytes`.
    #[inline]
    pub fn write(&self, bytes: &[u8]) {
        match &self.tls {
            None => self.socket.write(bytes),
            Some(tls) => tls.write(&self.socket, bytes),
        }
    }

    /// Whether more should wait: the queue is past its high watermark. The
    /// owner is woken when it has drained to the low one.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.socket.is_full()
    }

    /// Waits until all that is queued has been handed to the kernel. Takes
    /// the link's waker. Dropping the future loses nothing.
    pub async fn flushed(&self) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            tls.seal(&self.socket);
        }
        self.socket.flushed().await
    }

    /// Waits until the peer has closed, whatever it says before. Takes the
    /// link's waker.
    pub async fn drained(&self) {
        while !self.ended() {
            while self.take().is_some() {}
            if !self.ended() {
                self.readable().await;
            }
        }
    }

    /// Waits until bytes have come or the end has. Takes the link's waker.
    /// Dropping the future loses nothing.
    pub async fn readable(&self) {
        let Some(tls) = &self.tls else {
            return self.socket.readable().await;
        };
        std::future::poll_fn(|cx: &mut Context<'_>| {
            self.socket.set_waker(cx.waker());
            let over = tls.ended() || self.socket.end().is_some();
            if tls.has_bytes(&self.socket) || over || tls.ended() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// When dropped, the link offers what is queued to the kernel once: for
    /// last words that are small and not vital.
    pub fn linger(&self) {
        self.socket.linger();
    }

    /// The ring that the link lives on.
    pub fn ring(&self) -> &Ring {
        self.socket.ring()
    }
}

impl Drop for Link {
    /// TLS ends with a word of its own, or the other end must take it for cut
    /// off (RFC 8446 section 6.1).
    fn drop(&mut self) {
        if let Some(tls) = &self.tls
            && !self.socket.ended()
        {
            tls.close(&self.socket);
            self.socket.linger();
        }
    }
}

#[cfg(test)]
mod tests;
