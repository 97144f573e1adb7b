//! Parse: makes a prepared statement out of SQL text.
//!
//! Spec: protocol-message-formats, Parse (F).
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

    /// Reads the name only, which is all that a change of the header needs.
    pub fn split(body: &'a [u8]) -> Result<ParseHead<'a>, ParseError> {
        let mut cursor = Cursor::new(body);
        Ok(ParseHead {
            name: cursor.cstr()?,
            rest: cursor.rest()?,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_wire};

    #[test]
    fn looks_like_this() {
        let value = Parse {
            name: b"s1",
            query: b"SELECT $1",
            param_types: List::new(&[23, 0]),
        };
        assert_wire!(
            Parse,
            value,
            b"P\0\0\0\x1bs1\0SELECT $1\0\0\x02\0\0\0\x17\0\0\0\0"
        );
    }

    #[test]
    fn the_types_are_there_as_they_came() {
        let parse = Parse::decode(b"\0\0\0\x01\0\0\0\x17").unwrap();
        assert_eq!(parse.param_types.wire_bytes(), Some(&b"\0\0\0\x17"[..]));
        assert_eq!(parse.param_types.iter().collect::<Vec<_>>(), [23]);
    }

    #[test]
    fn a_count_is_checked_against_the_bytes_present() {
        assert_refused!(Parse, b"\0\0\xff\xff", Truncated);
        assert_refused!(Parse, b"\0\0\0\x01\0\0\0", Truncated);
        assert_refused!(Parse, b"\0SELECT 1", Unterminated);
    }

    #[test]
    fn split_reads_the_name_and_leaves_the_rest() {
        let head = Parse::split(b"s1\0SELECT 1\0\0\0").unwrap();
        assert_eq!(head.name, b"s1");
        assert_eq!(head.rest, b"SELECT 1\0\0\0");
        assert_eq!(Parse::split(b"s1"), Err(ParseError::Unterminated));
    }

    #[test]
    fn a_renamed_head_is_a_whole_message() {
        let head = ParseHead {
            name: b"_7",
            rest: b"SELECT 1\0\0\0",
        };
        let mut out = Vec::new();
        head.encode(&mut out).unwrap();
        assert_eq!(out, b"P\0\0\0\x12_7\0SELECT 1\0\0\0");
        assert_eq!(head.body_len() + 5, out.len());
    }
}
