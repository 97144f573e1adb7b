//! FunctionCall: calls a function by its OID.
//!
//! Spec: protocol-message-formats, FunctionCall (F).
//!
//! ```text
//! F · length · u32 function
//!   · i16 count · i16 format each
//!   · i16 count · (i32 length, or -1 for NULL · value) each
//!   · i16 result format
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::list::List;
use crate::tag::frontend_tag;

/// Calls a function by its OID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionCall<'a> {
    /// OID of the function.
    pub function: u32,
    /// Formats of the arguments: none for text, one for all, or one for each.
    pub arg_formats: List<'a, i16>,
    /// The arguments; `None` is NULL.
    pub args: List<'a, Option<&'a [u8]>>,
    /// Format of the result.
    pub result_format: i16,
}

impl<'a> FunctionCall<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let function = cursor.u32()?;
        let arg_formats = List::read_counted(&mut cursor)?;
        let args = List::read_counted(&mut cursor)?;
        let result_format = cursor.i16()?;
        cursor.finish()?;
        if arg_formats.len() > 1 && arg_formats.len() != args.len() {
            return Err(ParseError::FormatCount);
        }
        Ok(Self {
            function,
            arg_formats,
            args,
            result_format,
        })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::FUNCTION_CALL, |w| {
            w.u32(self.function)?;
            self.arg_formats.write_counted(w)?;
            self.args.write_counted(w)?;
            w.i16(self.result_format)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_wire};

    #[test]
    fn looks_like_this() {
        let value = FunctionCall {
            function: 1598,
            arg_formats: List::new(&[0, 1]),
            args: List::new(&[Some(b"7"), None]),
            result_format: 1,
        };
        assert_wire!(
            FunctionCall,
            value,
            b"F\0\0\0\x1b\0\0\x06\x3e\0\x02\0\0\0\x01\0\x02\0\0\0\x017\xff\xff\xff\xff\0\x01"
        );
    }

    #[test]
    fn lengths_and_counts_that_lie_are_refused() {
        assert_refused!(FunctionCall, b"\0", Truncated);
        assert_refused!(FunctionCall, b"\0\0\0\x01\x7f\xff", Truncated);
        assert_refused!(
            FunctionCall,
            b"\0\0\0\x01\0\0\0\x01\xff\xff\xff\xfe\0\0",
            NegativeLength
        );
        assert_refused!(
            FunctionCall,
            b"\0\0\0\x01\0\x02\0\0\0\0\0\x00\0\0",
            FormatCount
        );
    }
}
