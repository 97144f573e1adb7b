//! CopyBothResponse: a stream in both directions (replication).
//!
//! Spec: protocol-message-formats, CopyBothResponse (B).
//!
//! ```text
//! W · length · i8 format (0 text, 1 binary) · i16 count · i16 format each
//! ```

use crate::backend::copy_format::read_copy_format;
use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::list::List;
use crate::tag::backend_tag;

/// A stream in both directions (replication).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyBothResponse<'a> {
    /// Whether the stream is in the binary format.
    pub binary: bool,
    /// The format of each column.
    pub formats: List<'a, i16>,
}

impl<'a> CopyBothResponse<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let binary = read_copy_format(&mut cursor)?;
        let formats = List::read_counted(&mut cursor)?;
        cursor.finish()?;
        Ok(Self { binary, formats })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::COPY_BOTH_RESPONSE, |w| {
            w.u8(u8::from(self.binary))?;
            self.formats.write_counted(w)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_wire};

    #[test]
    fn looks_like_this() {
        let value = CopyBothResponse {
            binary: true,
            formats: List::new(&[1, 1]),
        };
        assert_wire!(
            CopyBothResponse,
            value,
            b"W\0\0\0\x0b\x01\0\x02\0\x01\0\x01"
        );
    }

    #[test]
    fn other_formats_and_counts_that_lie_are_refused() {
        assert_refused!(CopyBothResponse, b"\x02\0\0", UnknownCopyFormat);
        assert_refused!(CopyBothResponse, b"\0\x7f\xff\0\0", Truncated);
    }
}
