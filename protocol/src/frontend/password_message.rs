//! PasswordMessage: the answer to a cleartext or MD5 request.
//!
//! ```text
//! p · length · password \0
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::frontend_tag;

/// The answer to a cleartext or MD5 request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PasswordMessage<'a> {
    /// The password or its hash.
    pub password: &'a [u8],
}

impl<'a> PasswordMessage<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let password = cursor.cstr()?;
        cursor.finish()?;
        Ok(Self { password })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::PASSWORD, |w| w.cstr(self.password))
    }
}
