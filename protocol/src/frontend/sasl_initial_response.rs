//! SASLInitialResponse: chooses a SASL mechanism.
//!
//! Spec: protocol-message-formats, SASLInitialResponse (F).
//!
//! ```text
//! p · length · mechanism \0 · i32 length, or -1 for none · data
//! ```

use std::fmt;

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

/// Without the data, which is a secret.
impl fmt::Debug for SASLInitialResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SASLInitialResponse")
            .field("mechanism", &self.mechanism.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_wire};

    #[test]
    fn looks_like_this() {
        let value = SASLInitialResponse {
            mechanism: b"SCRAM-SHA-256",
            data: Some(b"n,,n=,r=x"),
        };
        assert_wire!(
            SASLInitialResponse,
            value,
            b"p\0\0\0\x1fSCRAM-SHA-256\0\0\0\0\x09n,,n=,r=x"
        );
        let without = SASLInitialResponse {
            mechanism: b"X",
            data: None,
        };
        assert_wire!(
            SASLInitialResponse,
            without,
            b"p\0\0\0\x0aX\0\xff\xff\xff\xff"
        );
    }

    #[test]
    fn a_length_that_lies_is_refused() {
        assert_refused!(
            SASLInitialResponse,
            b"SCRAM-SHA-256\0\x7f\xff\xff\xff",
            Truncated
        );
        assert_refused!(
            SASLInitialResponse,
            b"SCRAM-SHA-256\0\xff\xff\xff\xfe",
            NegativeLength
        );
        assert_refused!(SASLInitialResponse, b"SCRAM-SHA-256", Unterminated);
    }

    #[test]
    fn the_data_are_never_printed() {
        let value = SASLInitialResponse {
            mechanism: b"SCRAM",
            data: Some(b"secret"),
        };
        let text = format!("{value:?}");
        assert!(text.contains("SCRAM") && !text.contains("secret"));
    }
}
