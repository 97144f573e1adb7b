//! Describe: asks what a statement takes and what it or a portal returns.
//!
//! Spec: protocol-message-formats, Describe (F).
//!
//! ```text
//! D · length · S or P · name \0
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::frontend::Target;
use crate::tag::frontend_tag;

/// Asks what a statement takes and what it or a portal returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Describe<'a> {
    /// What the name belongs to.
    pub kind: Target,
    /// The name; empty for the unnamed one.
    pub name: &'a [u8],
}

impl<'a> Describe<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let kind = Target::from_byte(cursor.u8()?)?;
        let name = cursor.cstr()?;
        cursor.finish()?;
        Ok(Self { kind, name })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::DESCRIBE, |w| {
            w.u8(self.kind.as_byte())?;
            w.cstr(self.name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_unencodable, assert_wire};

    #[test]
    fn looks_like_this() {
        let value = Describe {
            kind: Target::Portal,
            name: b"",
        };
        assert_wire!(Describe, value, b"D\0\0\0\x06P\0");
    }

    #[test]
    fn other_targets_are_refused() {
        assert_refused!(Describe, b"\0s1\0", UnknownTarget);
    }

    #[test]
    fn a_name_with_a_nul_is_refused_in_both_directions() {
        assert_refused!(Describe, b"Sa\0b\0", TrailingBytes);
        let value = Describe {
            kind: Target::Statement,
            name: b"a\0b",
        };
        assert_unencodable!(value, InnerNul);
    }
}
