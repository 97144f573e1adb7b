//! CancelRequest, and the keys that it shows.
//!
//! Spec: protocol-message-formats, CancelRequest (F).

use std::fmt;

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::startup::{CANCEL_REQUEST_CODE, PACKET_LEN_MAX};

/// Asks to cancel what another session runs. Nothing is ever answered.
///
/// ```text
/// length · 04D2162E · u32 process · key: 4 bytes (3.0), up to 256 (3.2)
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CancelRequest<'a> {
    /// The process that BackendKeyData named.
    pub pid: u32,
    /// The secret that came with it.
    pub key: &'a [u8],
}

impl<'a> CancelRequest<'a> {
    /// Reads what follows the code.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        Ok(Self {
            pid: cursor.u32()?,
            key: check_key(cursor.rest()?)?,
        })
    }

    /// Appends the packet; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::packet(out, &[], PACKET_LEN_MAX, |w| {
            w.u32(CANCEL_REQUEST_CODE)?;
            w.u32(self.pid)?;
            w.bytes(check_encoded_key(self.key)?)
        })
    }
}

/// Without the key, which is a secret.
impl fmt::Debug for CancelRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelRequest")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<&[u8], ParseError> {
    if (KEY_LEN_MIN..=KEY_LEN_MAX).contains(&key.len()) {
        Ok(key)
    } else {
        Err(ParseError::KeyLength)
    }
}

pub(crate) fn check_encoded_key(key: &[u8]) -> Result<&[u8], EncodeError> {
    check_key(key).map_err(|_| EncodeError::KeyLength)
}

/// The length of every key before protocol 3.2.
pub const KEY_LEN_MIN: usize = 4;

/// The longest key of protocol 3.2.
pub const KEY_LEN_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_like_this() {
        let cancel = CancelRequest {
            pid: 0x0102,
            key: b"wxyz",
        };
        let mut out = Vec::new();
        cancel.encode(&mut out).unwrap();
        assert_eq!(out, b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\x01\x02wxyz");
        assert_eq!(CancelRequest::decode(&out[8..]), Ok(cancel));
    }

    #[test]
    fn a_key_is_4_to_256_bytes_long() {
        let body = [7; 4 + 257];
        for (len, good) in [
            (0, false),
            (3, false),
            (4, true),
            (32, true),
            (256, true),
            (257, false),
        ] {
            assert_eq!(
                CancelRequest::decode(&body[..4 + len]).is_ok(),
                good,
                "{len}"
            );
            let cancel = CancelRequest {
                pid: 1,
                key: &body[..len],
            };
            assert_eq!(cancel.encode(&mut Vec::new()).is_ok(), good, "{len}");
        }
    }

    #[test]
    fn the_key_is_never_printed() {
        let cancel = CancelRequest {
            pid: 1,
            key: b"wxyz",
        };
        assert_eq!(format!("{cancel:?}"), "CancelRequest { pid: 1, .. }");
    }
}
