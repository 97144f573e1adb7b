//! CopyFail: the COPY stream is to be thrown away.
//!
//! Spec: protocol-message-formats, CopyFail (F).
//!
//! ```text
//! f · length · reason \0
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::frontend_tag;

/// The COPY stream is to be thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFail<'a> {
    /// The cause, for the server's error message.
    pub reason: &'a [u8],
}

impl<'a> CopyFail<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let reason = cursor.cstr()?;
        cursor.finish()?;
        Ok(Self { reason })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::COPY_FAIL, |w| w.cstr(self.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_unencodable, assert_wire};

    #[test]
    fn looks_like_this() {
        assert_wire!(CopyFail, CopyFail { reason: b"no" }, b"f\0\0\0\x07no\0");
    }

    #[test]
    fn a_reason_with_a_nul_is_refused() {
        assert_refused!(CopyFail, b"no\0no\0", TrailingBytes);
        assert_unencodable!(CopyFail { reason: b"\0" }, InnerNul);
    }
}
