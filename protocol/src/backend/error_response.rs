//! ErrorResponse: a statement, or the session, has failed.
//!
//! ```text
//! E · length · (u8 field · text \0) each · \0
//! ```
//!
//! Decoding accepts any body: servers that fail also fail to write whole errors, and theirs is the
//! one that an operator needs most.

use crate::cursor::ParseError;
use crate::encode::{self, EncodeError};
use crate::error::{Fields, SqlState};
use crate::tag::backend_tag;

/// A statement, or the session, has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorResponse<'a> {
    /// What it says.
    pub fields: Fields<'a>,
}

impl<'a> ErrorResponse<'a> {
    /// Reads a body. Never fails: what cannot be read is absent.
    pub const fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        Ok(Self {
            fields: Fields::new(body),
        })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::ERROR_RESPONSE, |w| {
            w.bytes(self.fields.as_bytes())
        })
    }

    /// Severity, in English when the server is of this century.
    pub fn severity(&self) -> Option<&'a [u8]> {
        self.fields.severity()
    }

    /// SQLSTATE, if it is one.
    pub fn code(&self) -> Option<SqlState> {
        self.fields.code()
    }

    /// The message itself.
    pub fn message(&self) -> Option<&'a [u8]> {
        self.fields.message()
    }
}
