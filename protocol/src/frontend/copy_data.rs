//! CopyData: a piece of a COPY stream.
//!
//! Spec: protocol-message-formats, CopyData (F & B).
//!
//! ```text
//! d · length · bytes
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::frontend_tag;

/// A piece of a COPY stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyData<'a> {
    /// The piece; its borders mean nothing when a frontend sends it.
    pub data: &'a [u8],
}

impl<'a> CopyData<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let data = cursor.rest()?;
        Ok(Self { data })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::COPY_DATA, |w| w.bytes(self.data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_open_wire;

    #[test]
    fn looks_like_this() {
        assert_open_wire!(CopyData, CopyData { data: b"1\t2\n" }, b"d\0\0\0\x081\t2\n");
        assert_open_wire!(CopyData, CopyData { data: b"" }, b"d\0\0\0\x04");
    }
}
