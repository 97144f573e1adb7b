//! CancelRequest, and the keys that it shows.

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
