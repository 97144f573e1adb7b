//! GSSResponse: the next message of a GSSAPI or SSPI exchange.
//!
//! ```text
//! p · length · data
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::frontend_tag;

/// The next message of a GSSAPI or SSPI exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct GSSResponse<'a> {
    /// The mechanism's message.
    pub data: &'a [u8],
}

impl<'a> GSSResponse<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let data = cursor.rest()?;
        Ok(Self { data })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::PASSWORD, |w| w.bytes(self.data))
    }
}
