//! BackendKeyData: what a CancelRequest must show.
//!
//! ```text
//! K · length · u32 process · key: 4 bytes (3.0), up to 256 (3.2)
//! ```

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
