//! Bind: makes a portal out of a statement and its parameters.
//!
//! Spec: protocol-message-formats, Bind (F).
//!
//! ```text
//! B · length · portal \0 · statement \0
//!   · i16 count · i16 format each
//!   · i16 count · (i32 length, or -1 for NULL · value) each
//!   · i16 count · i16 result format each
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::list::List;
use crate::tag::frontend_tag;

/// Makes a portal out of a statement and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    /// Name of the portal; empty for the unnamed one.
    pub portal: &'a [u8],
    /// Name of the statement; empty for the unnamed one.
    pub statement: &'a [u8],
    /// Formats of the parameters: none for text, one for all, or one for each.
    pub param_formats: List<'a, i16>,
    /// The parameters; `None` is NULL.
    pub params: List<'a, Option<&'a [u8]>>,
    /// Formats of the result columns.
    pub result_formats: List<'a, i16>,
}

impl<'a> Bind<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let portal = cursor.cstr()?;
        let statement = cursor.cstr()?;
        let param_formats = List::read_counted(&mut cursor)?;
        let params = List::read_counted(&mut cursor)?;
        let result_formats = List::read_counted(&mut cursor)?;
        cursor.finish()?;
        if param_formats.len() > 1 && param_formats.len() != params.len() {
            return Err(ParseError::FormatCount);
        }
        Ok(Self {
            portal,
            statement,
            param_formats,
            params,
            result_formats,
        })
    }

    /// Reads the two names only, which is all that a change of the header needs.
    pub fn split(body: &'a [u8]) -> Result<BindHead<'a>, ParseError> {
        let mut cursor = Cursor::new(body);
        Ok(BindHead {
            portal: cursor.cstr()?,
            statement: cursor.cstr()?,
            rest: cursor.rest()?,
        })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::BIND, |w| {
            w.cstr(self.portal)?;
            w.cstr(self.statement)?;
            self.param_formats.write_counted(w)?;
            self.params.write_counted(w)?;
            self.result_formats.write_counted(w)
        })
    }
}

/// The names of a [`Bind`], and what follows them unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindHead<'a> {
    /// Name of the portal.
    pub portal: &'a [u8],
    /// Name of the statement.
    pub statement: &'a [u8],
    /// Formats, parameters and result formats, as they came.
    pub rest: &'a [u8],
}

impl BindHead<'_> {
    /// Appends the whole message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::BIND, |w| {
            w.cstr(self.portal)?;
            w.cstr(self.statement)?;
            w.bytes(self.rest)
        })
    }

    /// Length of the message's body, when the rest is sent from where it lies.
    pub const fn body_len(&self) -> usize {
        self.portal
            .len()
            .saturating_add(self.statement.len())
            .saturating_add(2)
            .saturating_add(self.rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_unencodable, assert_wire};

    #[test]
    fn looks_like_this() {
        let value = Bind {
            portal: b"p",
            statement: b"s1",
            param_formats: List::new(&[1]),
            params: List::new(&[Some(b"abc"), None, Some(b"")]),
            result_formats: List::new(&[0, 1]),
        };
        assert_wire!(
            Bind,
            value,
            b"B\0\0\0\x24p\0s1\0\
              \0\x01\0\x01\
              \0\x03\0\0\0\x03abc\xff\xff\xff\xff\0\0\0\0\
              \0\x02\0\0\0\x01"
        );
    }

    #[test]
    fn only_minus_one_is_null() {
        assert_refused!(Bind, b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0", NegativeLength);
        assert_refused!(Bind, b"\0\0\0\0\0\x01\x80\0\0\0\0\0", NegativeLength);
        assert_refused!(Bind, b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0", Truncated);
    }

    #[test]
    fn a_count_is_checked_against_the_bytes_present() {
        assert_refused!(Bind, b"\0\0\0\0\x7f\xff\0\0", Truncated);
        assert_refused!(Bind, b"\0\0\0\0\xff\xff\0\0", Truncated);
        assert_refused!(Bind, b"\0\0\xff\xff\0\0\0\0", Truncated);
    }

    #[test]
    fn formats_are_none_one_or_one_for_each() {
        assert_refused!(
            Bind,
            b"\0\0\0\x02\0\0\0\0\0\x01\xff\xff\xff\xff\0\0",
            FormatCount
        );
        let one_for_none = b"\0\0\0\x01\0\0\0\0\0\0";
        assert!(Bind::decode(one_for_none).is_ok());
    }

    #[test]
    fn split_reads_the_names_and_leaves_the_rest() {
        let head = Bind::split(b"p\0s1\0what is no body").unwrap();
        assert_eq!(head.portal, b"p");
        assert_eq!(head.statement, b"s1");
        assert_eq!(head.rest, b"what is no body");
        assert_eq!(Bind::split(b"p\0s1"), Err(ParseError::Unterminated));
        assert_eq!(Bind::split(b""), Err(ParseError::Unterminated));
    }

    #[test]
    fn a_renamed_head_is_a_whole_message() {
        let head = BindHead {
            statement: b"longer",
            ..Bind::split(b"p\0s1\0\0\0\0\0\0\0").unwrap()
        };
        let mut out = Vec::new();
        head.encode(&mut out).unwrap();
        assert_eq!(out, b"B\0\0\0\x13p\0longer\0\0\0\0\0\0\0");
        assert_eq!(head.body_len() + 5, out.len());
    }

    #[test]
    fn more_parameters_than_the_count_can_say_are_refused() {
        let params = vec![None; 65_536];
        let value = |params| Bind {
            portal: b"",
            statement: b"",
            param_formats: List::empty(),
            params: List::new(params),
            result_formats: List::empty(),
        };
        assert_unencodable!(value(&params), TooMany);
        let mut out = Vec::new();
        value(&params[1..]).encode(&mut out).unwrap();
        assert_eq!(Bind::decode(&out[5..]).unwrap().params.len(), 65_535);
    }
}
