//! CommandComplete: a statement has run.
//!
//! Spec: protocol-message-formats, CommandComplete (B).
//!
//! ```text
//! C · length · tag \0
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::backend_tag;

/// A statement has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandComplete<'a> {
    /// The command tag, like `SELECT 1`.
    pub tag: &'a [u8],
}

impl<'a> CommandComplete<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let tag = cursor.cstr()?;
        cursor.finish()?;
        Ok(Self { tag })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::COMMAND_COMPLETE, |w| w.cstr(self.tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_wire;

    #[test]
    fn looks_like_this() {
        assert_wire!(
            CommandComplete,
            CommandComplete { tag: b"SELECT 1" },
            b"C\0\0\0\x0dSELECT 1\0"
        );
    }
}
