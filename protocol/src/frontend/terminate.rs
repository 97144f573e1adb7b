//! Terminate: the client leaves.

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::frontend_tag;

/// The client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate;

impl Terminate {
    /// Reads a body: there is none.
    pub fn decode(body: &[u8]) -> Result<Self, ParseError> {
        Cursor::new(body).finish()?;
        Ok(Self)
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::TERMINATE, |_| Ok(()))
    }
}
