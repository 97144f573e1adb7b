//! SASLInitialResponse: chooses a SASL mechanism.
//!
//! ```text
//! p · length · mechanism \0 · i32 length, or -1 for none · data
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::list::Item;
use crate::tag::frontend_tag;

/// Chooses a SASL mechanism.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SASLInitialResponse<'a> {
    /// The chosen mechanism.
    pub mechanism: &'a [u8],
    /// The mechanism's first message, if it comes with the choice.
    pub data: Option<&'a [u8]>,
}

impl<'a> SASLInitialResponse<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let mechanism = cursor.cstr()?;
        let data = Option::read(&mut cursor)?;
        cursor.finish()?;
        Ok(Self { mechanism, data })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::PASSWORD, |w| {
            w.cstr(self.mechanism)?;
            self.data.write(w)
        })
    }
}
