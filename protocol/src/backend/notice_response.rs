//! NoticeResponse: a message that changes nothing.
//!
//! Spec: protocol-message-formats, NoticeResponse (B).
//!
//! ```text
//! N · length · (u8 field · text \0) each · \0
//! ```
//!
//! Decoding accepts any body: servers that fail also fail to write whole errors, and theirs is the
//! one that an operator needs most.

use crate::cursor::ParseError;
use crate::encode::{self, EncodeError};
use crate::error::{Fields, SqlState};
use crate::tag::backend_tag;

/// A message that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoticeResponse<'a> {
    /// What it says.
    pub fields: Fields<'a>,
}

impl<'a> NoticeResponse<'a> {
    /// Reads a body. Never fails: what cannot be read is absent.
    pub const fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        Ok(Self {
            fields: Fields::new(body),
        })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::NOTICE_RESPONSE, |w| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_open_wire;

    #[test]
    fn looks_like_this() {
        let value = NoticeResponse {
            fields: Fields::new(b"SERROR\0C42601\0Mboom\0\0"),
        };
        assert_open_wire!(
            NoticeResponse,
            value,
            b"N\0\0\0\x19SERROR\0C42601\0Mboom\0\0"
        );
        assert_eq!(value.severity(), Some(&b"ERROR"[..]));
        assert_eq!(value.code(), Some(SqlState::SYNTAX_ERROR));
        assert_eq!(value.message(), Some(&b"boom"[..]));
    }

    #[test]
    fn broken_ones_are_read_as_far_as_they_go() {
        for body in [&b""[..], b"\0", b"S", b"SERROR", b"\0Mboom\0"] {
            let value = NoticeResponse::decode(body).unwrap();
            assert_eq!(
                (value.severity(), value.code(), value.message()),
                (None, None, None)
            );
        }
        let without_code = NoticeResponse::decode(b"SERROR\0Mboom\0").unwrap();
        assert_eq!(without_code.message(), Some(&b"boom"[..]));
        assert_eq!(without_code.code(), None);
    }
}
