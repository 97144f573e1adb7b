//! Bind: makes a portal out of a statement and its parameters.
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

    /// Reads the two names only, which is all that a change of the header needs.
    pub fn split(body: &'a [u8]) -> Result<BindHead<'a>, ParseError> {
        let mut cursor = Cursor::new(body);
        Ok(BindHead {
            portal: cursor.cstr()?,
            statement: cursor.cstr()?,
            rest: cursor.rest()?,
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
