//! NegotiateProtocolVersion: the server speaks less than the client asked for.
//!
//! Spec: protocol-message-formats, NegotiateProtocolVersion (B).
//!
//! ```text
//! v · length · u32 newest version · i32 count · option \0 each
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::list::List;
use crate::startup::ProtocolVersion;
use crate::tag::backend_tag;

/// The server speaks less than the client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiateProtocolVersion<'a> {
    /// The newest version of the asked-for major that the server speaks.
    pub newest: ProtocolVersion,
    /// The `_pq_.` options that it does not know.
    pub options: List<'a, &'a [u8]>,
}

impl<'a> NegotiateProtocolVersion<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let newest = ProtocolVersion::from_u32(cursor.u32()?);
        let options = List::read_counted_i32(&mut cursor)?;
        cursor.finish()?;
        Ok(Self { newest, options })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::NEGOTIATE_PROTOCOL_VERSION, |w| {
            w.u32(self.newest.as_u32())?;
            self.options.write_counted_i32(w)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_wire};

    #[test]
    fn looks_like_this() {
        let value = NegotiateProtocolVersion {
            newest: ProtocolVersion::V3_2,
            options: List::new(&[b"_pq_.x"]),
        };
        assert_wire!(
            NegotiateProtocolVersion,
            value,
            b"v\0\0\0\x13\0\x03\0\x02\0\0\0\x01_pq_.x\0"
        );
    }

    #[test]
    fn counts_that_lie_are_refused() {
        assert_refused!(
            NegotiateProtocolVersion,
            b"\0\x03\0\0\xff\xff\xff\xff",
            NegativeCount
        );
        assert_refused!(
            NegotiateProtocolVersion,
            b"\0\x03\0\0\x7f\xff\xff\xff",
            Unterminated
        );
    }
}
