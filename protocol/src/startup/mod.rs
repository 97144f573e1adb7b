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

#[cfg(test)]
mod tests {
    use super::*;

    fn packet_of(length: u32, rest: &[u8]) -> Vec<u8> {
        [&length.to_be_bytes()[..], rest].concat()
    }

    #[test]
    fn each_packet_is_known_by_its_code() {
        let ssl = b"\0\0\0\x08\x04\xd2\x16\x2f";
        assert_eq!(first_packet(ssl), Ok(Some((StartupPacket::Ssl, 8))));
        let gss = b"\0\0\0\x08\x04\xd2\x16\x30";
        assert_eq!(first_packet(gss), Ok(Some((StartupPacket::GssEnc, 8))));
        let cancel = StartupPacket::Cancel(CancelRequest {
            pid: 258,
            key: b"wxyz",
        });
        let input = b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\x01\x02wxyz";
        assert_eq!(first_packet(input), Ok(Some((cancel, 16))));
        let startup =
            StartupPacket::Startup(Startup::new(ProtocolVersion::V3_0, &[(b"user", b"a")]));
        let input = b"\0\0\0\x10\0\x03\0\0user\0a\0\0";
        assert_eq!(first_packet(input), Ok(Some((startup, 16))));
    }

    #[test]
    fn what_follows_the_packet_is_left_alone() {
        let input = b"\0\0\0\x08\x04\xd2\x16\x2fQ\0\0\0\x0dDROP ...\0";
        assert_eq!(first_packet(input), Ok(Some((StartupPacket::Ssl, 8))));
    }

    #[test]
    fn every_prefix_of_a_packet_needs_more_bytes() {
        let input = b"\0\0\0\x10\0\x03\0\0user\0a\0\0";
        for end in 0..input.len() {
            assert_eq!(first_packet(&input[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn a_length_out_of_bounds_is_refused_by_its_four_bytes_alone() {
        for length in [0, 3, 4, 7, 10_005, 0x7FFF_FFFF, 0x8000_0008, u32::MAX] {
            let refused = Err(StartupError::Length(length));
            assert_eq!(first_packet(&length.to_be_bytes()), refused);
        }
        assert!(matches!(
            first_packet(b"GET / HTTP/1.1\r\n"),
            Err(StartupError::Length(_))
        ));
    }

    #[test]
    fn a_packet_of_10_004_bytes_is_read_and_none_is_longer() {
        let value = vec![b'x'; 10_004 - 8 - 7 - 4];
        let rest = [b"\0\x03\0\0user\0a\0x\0", &value[..], b"\0\0"].concat();
        let input = packet_of(10_004, &rest);
        assert_eq!(input.len(), 10_004);
        let Ok(Some((StartupPacket::Startup(startup), 10_004))) = first_packet(&input) else {
            panic!("refused at the limit");
        };
        let mut out = Vec::new();
        startup.encode(&mut out).unwrap();
        assert_eq!(out, input);

        let longer = [&value[..], b"x"].concat();
        let parameters: [(&[u8], &[u8]); 2] = [(b"user", b"a"), (b"x", &longer)];
        let encoded = Startup::new(ProtocolVersion::V3_0, &parameters).encode(&mut out);
        assert_eq!(encoded, Err(crate::encode::EncodeError::TooLong));
    }

    #[test]
    fn requests_of_another_length_are_refused() {
        for input in [
            &b"\0\0\0\x09\x04\xd2\x16\x2fx"[..],
            b"\0\0\0\x09\x04\xd2\x16\x30x",
            b"\0\0\0\x0f\x04\xd2\x16\x2e\0\0\x01\x02wxy",
            b"\0\0\0\x08\x04\xd2\x16\x2e",
        ] {
            assert_eq!(first_packet(input), Err(StartupError::RequestLength));
        }
    }
}
