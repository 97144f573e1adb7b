//! Flush: asks for the replies so far.
//!
//! Spec: protocol-message-formats, Flush (F).

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::frontend_tag;

/// Asks for the replies so far, without a Sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush;

impl Flush {
    /// Reads a body: there is none.
    pub fn decode(body: &[u8]) -> Result<Self, ParseError> {
        Cursor::new(body).finish()?;
        Ok(Self)
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::FLUSH, |_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_wire};

    #[test]
    fn looks_like_this() {
        assert_wire!(Flush, Flush, b"H\0\0\0\x04");
    }

    #[test]
    fn a_body_is_refused() {
        assert_refused!(Flush, b"x", TrailingBytes);
    }
}
