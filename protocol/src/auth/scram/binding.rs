//! Channel binding: what ties an exchange to the TLS connection that it runs over.

use std::fmt;

/// The binding that this end of the connection can vouch for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding<'a> {
    /// Not over TLS, or by a certificate that gives none: only the plain mechanism is offered.
    Unavailable,
    /// There is one, but the plain mechanism was chosen. A client says so when it was not offered
    /// the -PLUS one; a server says so when it did offer it.
    Unused,
    /// The -PLUS mechanism was chosen: `tls-server-end-point`, with this hash of the server's
    /// certificate.
    TlsServerEndPoint(&'a [u8]),
}

impl ChannelBinding<'_> {
    pub(super) const fn is_chosen(self) -> bool {
        matches!(self, Self::TlsServerEndPoint(_))
    }
}

impl fmt::Debug for ChannelBinding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "Unavailable",
            Self::Unused => "Unused",
            Self::TlsServerEndPoint(_) => "TlsServerEndPoint",
        })
    }
}

/// GS2 header of a client that cannot bind, or does not want to.
pub(super) const GS2_NOT_SUPPORTED: &str = "n,,";

/// GS2 header of a client that could bind, but was not offered to.
pub(super) const GS2_NOT_OFFERED: &str = "y,,";

/// GS2 header of a client that binds, by the only type that PostgreSQL knows.
pub(super) const GS2_BOUND: &str = "p=tls-server-end-point,,";
