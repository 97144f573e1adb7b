//! ParameterDescription: the parameters that a statement takes.
//!
//! Spec: protocol-message-formats, ParameterDescription (B).
//!
//! ```text
//! t · length · i16 count · u32 type each
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::list::List;
use crate::tag::backend_tag;

/// The parameters that a statement takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterDescription<'a> {
    /// The type OID of each parameter.
    pub types: List<'a, u32>,
}

impl<'a> ParameterDescription<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let types = List::read_counted(&mut cursor)?;
        cursor.finish()?;
        Ok(Self { types })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::PARAMETER_DESCRIPTION, |w| {
            self.types.write_counted(w)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_wire};

    #[test]
    fn looks_like_this() {
        let value = ParameterDescription {
            types: List::new(&[23, 25]),
        };
        assert_wire!(
            ParameterDescription,
            value,
            b"t\0\0\0\x0e\0\x02\0\0\0\x17\0\0\0\x19"
        );
    }

    #[test]
    fn a_count_that_lies_is_refused() {
        assert_refused!(ParameterDescription, b"\x7f\xff", Truncated);
    }
}
