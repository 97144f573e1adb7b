//! Query: runs SQL text by the simple protocol.
//!
//! Spec: protocol-message-formats, Query (F).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_unencodable, assert_wire};

    #[test]
    fn looks_like_this() {
        assert_wire!(Query, Query { text: b"SELECT 1" }, b"Q\0\0\0\x0dSELECT 1\0");
        assert_wire!(Query, Query { text: b"" }, b"Q\0\0\0\x05\0");
    }

    #[test]
    fn text_behind_the_first_nul_is_refused_and_not_hidden() {
        assert_refused!(Query, b"SELECT 1\0; DROP TABLE t\0", TrailingBytes);
        assert_refused!(Query, b"SELECT 1", Unterminated);
        assert_unencodable!(Query { text: b"a\0b" }, InnerNul);
    }
}
