//! BindComplete: the portal is there.
//!
//! Spec: protocol-message-formats, BindComplete (B).

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::backend_tag;

/// The portal is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindComplete;

impl BindComplete {
    /// Reads a body: there is none.
    pub fn decode(body: &[u8]) -> Result<Self, ParseError> {
        Cursor::new(body).finish()?;
        Ok(Self)
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::BIND_COMPLETE, |_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_wire};

    #[test]
    fn looks_like_this() {
        assert_wire!(BindComplete, BindComplete, b"2\0\0\0\x04");
    }

    #[test]
    fn a_body_is_refused() {
        assert_refused!(BindComplete, b"x", TrailingBytes);
    }
}
