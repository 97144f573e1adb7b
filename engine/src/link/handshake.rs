//! From the first byte of TLS to the first of the application.

use super::gate::Handshakes;
use super::records::{Over, Records};
use super::{Emptied, Secured, Security};
use crate::limits::HANDSHAKE_BYTES;
use crate::ring::Socket;
use crate::tls::PeerCertificate;
use std::fmt;

/// Why there is no TLS.
#[derive(Debug)]
pub enum Failed {
    /// The other end has gone.
    Closed,
    /// It sends and sends.
    TooLong,
    /// What rustls says.
    Tls(rustls::Error),
    /// It has proved to own a certificate that cannot be read.
    Certificate,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Closed => f.write_str("the connection was closed during the TLS handshake"),
            Failed::TooLong => f.write_str("the TLS handshake is too long"),
            Failed::Tls(error) => write!(f, "the TLS handshake failed: {error}"),
            Failed::Certificate => f.write_str("the certificate cannot be read"),
        }
    }
}

/// Shakes hands. `first`: bytes of TLS that were read already. Dropping the
/// future loses bytes: the connection is of no use then.
pub async fn handshake(
    socket: &Socket,
    _proof: Emptied,
    mut records: Records,
    first: &[u8],
    handshakes: &Handshakes,
) -> Result<Secured, Failed> {
    records.add(first);
    let mut taken = first.len();
    let mut work = records.has_record() || records.speaks_first();
    loop {
        if work {
            let _permit = handshakes.enter(socket.ring()).await;
            records.open(&mut |bytes| socket.write(bytes));
        }
        match records.over() {
            Some(Over::Broken(error)) => {
                let error = error.clone();
                records.last_words(&mut |bytes| socket.write(bytes));
                socket.linger();
                return Err(Failed::Tls(error));
            }
            // Who asks for one thing, as that a query be cancelled, may say all of
            // it and goodbye in the flight that ends the handshake.
            _ if !records.is_handshaking() => break,
            Some(Over::Closed) => return Err(Failed::Closed),
            None => {}
        }
        let Some(chunk) = socket.take() else {
            if socket.end().is_some() {
                return Err(Failed::Closed);
            }
            work = false;
            socket.readable().await;
            continue;
        };
        taken += chunk.len();
        if taken > HANDSHAKE_BYTES {
            return Err(Failed::TooLong);
        }
        records.add(&chunk);
        work = records.has_record();
    }
    let state = records.state();
    let peer = match state.and_then(|state| state.peer_certificates()) {
        Some([first, ..]) => {
            let peer = PeerCertificate::read(first);
            // A client may be known by its names, a server is not.
            if peer.is_none() && !records.speaks_first() {
                return Err(Failed::Certificate);
            }
            peer
        }
        _ => None,
    };
    let security = Security {
        peer,
        binding: None,
        alpn: state.is_some_and(|state| state.alpn_protocol().is_some()),
    };
    Ok(Secured { records, security })
}

impl Secured {
    /// What is known of the other end.
    pub fn security(&self) -> &Security {
        &self.security
    }

    /// Binds the link to a certificate's hash.
    #[must_use]
    pub fn bound_to(mut self, binding: Option<std::sync::Arc<[u8]>>) -> Self {
        self.security.binding = binding;
        self
    }

    /// The certificate that the other end has shown, as it is.
    pub fn certificate(&self) -> Option<&[u8]> {
        let first = self.records.state()?.peer_certificates()?.first()?;
        Some(first)
    }
}
