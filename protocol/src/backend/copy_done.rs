//! CopyDone: the COPY stream is complete.

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::backend_tag;

/// The COPY stream is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyDone;

impl CopyDone {
    /// Reads a body: there is none.
    pub fn decode(body: &[u8]) -> Result<Self, ParseError> {
        Cursor::new(body).finish()?;
        Ok(Self)
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::COPY_DONE, |_| Ok(()))
    }
}
