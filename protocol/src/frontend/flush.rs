//! Flush: asks for the replies so far.

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::frontend_tag;

/// Asks for the replies so far, without a Sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush;

impl Flush {
    /// Reads a body: there is none.
    pub fn decode(body: &[u8]) -> Result<Self, ParseError> {
        Cursor::new(body).finish()?;
        Ok(Self)
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::FLUSH, |_| Ok(()))
    }
}
