//! SASLResponse: the next message of a SASL exchange.
//!
//! Spec: protocol-message-formats, SASLResponse (F).
//!
//! ```text
//! p · length · data
//! ```

use std::fmt;

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::frontend_tag;

/// The next message of a SASL exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SASLResponse<'a> {
    /// The mechanism's message.
    pub data: &'a [u8],
}

impl<'a> SASLResponse<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let data = cursor.rest()?;
        Ok(Self { data })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::PASSWORD, |w| w.bytes(self.data))
    }
}

/// Without the data, which is a secret.
impl fmt::Debug for SASLResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SASLResponse").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_open_wire;

    #[test]
    fn looks_like_this() {
        assert_open_wire!(
            SASLResponse,
            SASLResponse { data: b"abc" },
            b"p\0\0\0\x07abc"
        );
        assert_open_wire!(SASLResponse, SASLResponse { data: b"" }, b"p\0\0\0\x04");
    }
}
