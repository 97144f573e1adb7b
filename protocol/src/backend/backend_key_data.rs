//! BackendKeyData: what a CancelRequest must show.
//!
//! Spec: protocol-message-formats, BackendKeyData (B).
//!
//! ```text
//! K · length · u32 process · key: 4 bytes (3.0), up to 256 (3.2)
//! ```

use std::fmt;

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::startup::{check_encoded_key, check_key};
use crate::tag::backend_tag;

/// What a CancelRequest must show.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BackendKeyData<'a> {
    /// The process, or what stands for it.
    pub pid: u32,
    /// The secret.
    pub key: &'a [u8],
}

impl<'a> BackendKeyData<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let pid = cursor.u32()?;
        let key = check_key(cursor.rest()?)?;
        Ok(Self { pid, key })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::BACKEND_KEY_DATA, |w| {
            w.u32(self.pid)?;
            w.bytes(check_encoded_key(self.key)?)
        })
    }
}

/// Without the key, which is a secret.
impl fmt::Debug for BackendKeyData<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendKeyData")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_open_wire, assert_refused};

    #[test]
    fn looks_like_this() {
        let value = BackendKeyData {
            pid: 4711,
            key: b"\x01\x02\x03\x04",
        };
        assert_open_wire!(
            BackendKeyData,
            value,
            b"K\0\0\0\x0c\0\0\x12\x67\x01\x02\x03\x04"
        );
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
            let decoded = BackendKeyData::decode(&body[..4 + len]);
            assert_eq!(decoded.is_ok(), good, "{len}");
            let value = BackendKeyData {
                pid: 1,
                key: &body[..len],
            };
            assert_eq!(value.encode(&mut Vec::new()).is_ok(), good, "{len}");
        }
        assert_refused!(BackendKeyData, &body, KeyLength);
        assert_refused!(BackendKeyData, b"\0\0", Truncated);
    }

    #[test]
    fn the_key_is_never_printed() {
        let value = BackendKeyData {
            pid: 1,
            key: b"wxyz",
        };
        assert_eq!(format!("{value:?}"), "BackendKeyData { pid: 1, .. }");
    }
}
