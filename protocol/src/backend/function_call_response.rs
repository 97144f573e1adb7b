//! FunctionCallResponse: the result of a FunctionCall.
//!
//! Spec: protocol-message-formats, FunctionCallResponse (B).
//!
//! ```text
//! V · length · i32 length, or -1 for NULL · value
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::list::Item;
use crate::tag::backend_tag;

/// The result of a FunctionCall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionCallResponse<'a> {
    /// The result; `None` is NULL.
    pub value: Option<&'a [u8]>,
}

impl<'a> FunctionCallResponse<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let value = Option::read(&mut cursor)?;
        cursor.finish()?;
        Ok(Self { value })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::FUNCTION_CALL_RESPONSE, |w| {
            self.value.write(w)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_wire};

    #[test]
    fn looks_like_this() {
        assert_wire!(
            FunctionCallResponse,
            FunctionCallResponse { value: Some(b"42") },
            b"V\0\0\0\x0a\0\0\0\x0242"
        );
        assert_wire!(
            FunctionCallResponse,
            FunctionCallResponse { value: None },
            b"V\0\0\0\x08\xff\xff\xff\xff"
        );
    }

    #[test]
    fn only_minus_one_is_null() {
        assert_refused!(FunctionCallResponse, b"\xff\xff\xff\xfe", NegativeLength);
    }
}
