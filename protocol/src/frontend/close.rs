//! Close: forgets a statement or a portal.
//!
//! Spec: protocol-message-formats, Close (F).
//!
//! ```text
//! C · length · S or P · name \0
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::frontend::Target;
use crate::tag::frontend_tag;

/// Forgets a statement or a portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close<'a> {
    /// What the name belongs to.
    pub kind: Target,
    /// The name; empty for the unnamed one.
    pub name: &'a [u8],
}

impl<'a> Close<'a> {
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
        encode::frontend_message(out, frontend_tag::CLOSE, |w| {
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
        let value = Close {
            kind: Target::Statement,
            name: b"s1",
        };
        assert_wire!(Close, value, b"C\0\0\0\x08Ss1\0");
    }

    #[test]
    fn other_targets_are_refused() {
        assert_refused!(Close, b"Xs1\0", UnknownTarget);
        assert_refused!(Close, b"ss1\0", UnknownTarget);
    }

    #[test]
    fn a_name_up_to_the_cap_of_control_messages_fits() {
        let name = vec![b'n'; 9_995];
        let value = |name| Close {
            kind: Target::Portal,
            name,
        };
        assert_unencodable!(value(&name), TooLong);
        let mut out = Vec::new();
        value(&name[1..]).encode(&mut out).unwrap();
        assert_eq!(out.len(), 10_001);
    }
}
