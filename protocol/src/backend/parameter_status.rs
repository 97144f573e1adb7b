//! ParameterStatus: a setting that clients watch has this value now.
//!
//! Spec: protocol-message-formats, ParameterStatus (B).
//!
//! ```text
//! S · length · name \0 · value \0
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::backend_tag;

/// A setting that clients watch has this value now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterStatus<'a> {
    /// The setting.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> ParameterStatus<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let name = cursor.cstr()?;
        let value = cursor.cstr()?;
        cursor.finish()?;
        Ok(Self { name, value })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::PARAMETER_STATUS, |w| {
            w.cstr(self.name)?;
            w.cstr(self.value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_wire;

    #[test]
    fn looks_like_this() {
        let value = ParameterStatus {
            name: b"TimeZone",
            value: b"UTC",
        };
        assert_wire!(ParameterStatus, value, b"S\0\0\0\x11TimeZone\0UTC\0");
    }
}
