//! Execute: runs a portal.
//!
//! Spec: protocol-message-formats, Execute (F).
//!
//! ```text
//! E · length · portal \0 · i32 rows
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::frontend_tag;

/// Runs a portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execute<'a> {
    /// Name of the portal; empty for the unnamed one.
    pub portal: &'a [u8],
    /// Rows after which the portal is suspended; zero, or below, for all of them.
    pub max_rows: i32,
}

impl<'a> Execute<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let portal = cursor.cstr()?;
        let max_rows = cursor.i32()?;
        cursor.finish()?;
        Ok(Self { portal, max_rows })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::EXECUTE, |w| {
            w.cstr(self.portal)?;
            w.i32(self.max_rows)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_wire;

    #[test]
    fn looks_like_this() {
        let value = Execute {
            portal: b"p",
            max_rows: 100,
        };
        assert_wire!(Execute, value, b"E\0\0\0\x0ap\0\0\0\0\x64");
        let all = Execute {
            portal: b"",
            max_rows: -1,
        };
        assert_wire!(Execute, all, b"E\0\0\0\x09\0\xff\xff\xff\xff");
    }
}
