//! Parse: makes a prepared statement out of SQL text.
//!
//! ```text
//! P · length · name \0 · query \0 · i16 count · u32 type each
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::list::List;
use crate::tag::frontend_tag;

/// Makes a prepared statement out of SQL text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parse<'a> {
    /// Name of the statement; empty for the unnamed one.
    pub name: &'a [u8],
    /// The SQL text.
    pub query: &'a [u8],
    /// Type OIDs of the first parameters; 0 leaves one to the server.
    pub param_types: List<'a, u32>,
}

impl<'a> Parse<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let name = cursor.cstr()?;
        let query = cursor.cstr()?;
        let param_types = List::read_counted(&mut cursor)?;
        cursor.finish()?;
        Ok(Self {
            name,
            query,
            param_types,
        })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::PARSE, |w| {
            w.cstr(self.name)?;
            w.cstr(self.query)?;
            self.param_types.write_counted(w)
        })
    }

    /// Reads the name only, which is all that a change of the header needs.
    pub fn split(body: &'a [u8]) -> Result<ParseHead<'a>, ParseError> {
        let mut cursor = Cursor::new(body);
        Ok(ParseHead {
            name: cursor.cstr()?,
            rest: cursor.rest()?,
        })
    }
}

/// The name of a [`Parse`], and what follows it unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseHead<'a> {
    /// Name of the statement.
    pub name: &'a [u8],
    /// Query, its NUL, and the parameter types, as they came.
    pub rest: &'a [u8],
}

impl ParseHead<'_> {
    /// Appends the whole message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::PARSE, |w| {
            w.cstr(self.name)?;
            w.bytes(self.rest)
        })
    }

    /// Length of the message's body, when the rest is sent from where it lies.
    pub const fn body_len(&self) -> usize {
        self.name
            .len()
            .saturating_add(1)
            .saturating_add(self.rest.len())
    }
}
