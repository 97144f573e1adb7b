//! Query: runs SQL text by the simple protocol.
//!
//! ```text
//! Q · length · text \0
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::frontend_tag;

/// Runs SQL text by the simple protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// One or more statements.
    pub text: &'a [u8],
}

impl<'a> Query<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let text = cursor.cstr()?;
        cursor.finish()?;
        Ok(Self { text })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::QUERY, |w| w.cstr(self.text))
    }
}
