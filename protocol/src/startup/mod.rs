//! The packets before authentication, which have no tag.
//!
//! ```text
//! length (counts itself) · u32 code · (what the code brings)
//! ```
//!
//! The code of a startup message is the protocol version; the other packets have codes that no
//! version will ever have.

mod cancel_request;
mod error;
mod requests;
mod startup_message;
mod version;

pub use cancel_request::CancelRequest;
pub use cancel_request::{KEY_LEN_MAX, KEY_LEN_MIN};
pub(crate) use cancel_request::{check_encoded_key, check_key};
pub use error::{Refusal, StartupError};
pub use requests::{GssEncRequest, SslRequest};
pub use startup_message::Startup;
pub use version::ProtocolVersion;

use crate::cursor::Cursor;

/// What a client opens a connection with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupPacket<'a> {
    /// A session is wanted.
    Startup(Startup<'a>),
    /// TLS is wanted first.
    Ssl,
    /// GSSAPI encryption is wanted first.
    GssEnc,
    /// The query of another session is to be cancelled.
    Cancel(CancelRequest<'a>),
}

/// Reads the packet at the start of `input`, and says how many bytes it was; `None` when its end
/// has not come yet.
///
/// The length is judged as soon as its four bytes are there, so that the caller never gathers more
/// than [`PACKET_LEN_MAX`] bytes.
pub fn first_packet(input: &[u8]) -> Result<Option<(StartupPacket<'_>, usize)>, StartupError> {
    let mut cursor = Cursor::new(input);
    let Ok(length) = cursor.u32() else {
        return Ok(None);
    };
    let body_len = body_len(length)?;
    let Ok(body) = cursor.take(body_len) else {
        return Ok(None);
    };
    let consumed = input.len().saturating_sub(cursor.remaining());
    packet(body).map(|packet| Some((packet, consumed)))
}

fn body_len(length: u32) -> Result<usize, StartupError> {
    if !(PACKET_LEN_MIN..=PACKET_LEN_MAX).contains(&length) {
        return Err(StartupError::Length(length));
    }
    usize::try_from(length.saturating_sub(LENGTH_LEN)).map_err(|_| StartupError::Length(length))
}

fn packet(body: &[u8]) -> Result<StartupPacket<'_>, StartupError> {
    let mut cursor = Cursor::new(body);
    let code = cursor.u32().map_err(|_| StartupError::Layout)?;
    let rest = cursor.peek();
    match code {
        SSL_REQUEST_CODE if rest.is_empty() => Ok(StartupPacket::Ssl),
        GSSENC_REQUEST_CODE if rest.is_empty() => Ok(StartupPacket::GssEnc),
        SSL_REQUEST_CODE | GSSENC_REQUEST_CODE => Err(StartupError::RequestLength),
        CANCEL_REQUEST_CODE => CancelRequest::decode(rest)
            .map(StartupPacket::Cancel)
            .map_err(|_| StartupError::RequestLength),
        version => {
            Startup::decode(ProtocolVersion::from_u32(version), rest).map(StartupPacket::Startup)
        }
    }
}

const LENGTH_LEN: u32 = 4;

/// Length and code: nothing less says anything.
pub const PACKET_LEN_MIN: u32 = 8;

/// PostgreSQL's MAX_STARTUP_PACKET_LENGTH, which does not count the length word, with it.
pub const PACKET_LEN_MAX: u32 = 10_000 + LENGTH_LEN;

/// PostgreSQL's CANCEL_REQUEST_CODE: 1234, 5678.
pub const CANCEL_REQUEST_CODE: u32 = 0x04D2_162E;

/// PostgreSQL's NEGOTIATE_SSL_CODE: 1234, 5679.
pub const SSL_REQUEST_CODE: u32 = 0x04D2_162F;

/// PostgreSQL's NEGOTIATE_GSS_CODE: 1234, 5680.
pub const GSSENC_REQUEST_CODE: u32 = 0x04D2_1630;
