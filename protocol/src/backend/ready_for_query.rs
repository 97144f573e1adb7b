//! ReadyForQuery: the server waits for the next query.
//!
//! Spec: protocol-message-formats, ReadyForQuery (B).
//!
//! ```text
//! Z · length · I, T or E
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::backend_tag;

/// The server waits for the next query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyForQuery {
    /// Where the session stands.
    pub status: TransactionStatus,
}

impl ReadyForQuery {
    /// Reads a body.
    pub fn decode(body: &[u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let status = TransactionStatus::from_byte(cursor.u8()?)?;
        cursor.finish()?;
        Ok(Self { status })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::READY_FOR_QUERY, |w| {
            w.u8(self.status.as_byte())
        })
    }
}

/// Where a session stands between two queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionStatus {
    /// Outside of any transaction.
    Idle,
    /// In a transaction block.
    InTransaction,
    /// In a transaction block that takes nothing but its end.
    Failed,
}

impl TransactionStatus {
    /// The status that a byte on the wire means.
    pub const fn from_byte(byte: u8) -> Result<Self, ParseError> {
        match byte {
            b'I' => Ok(Self::Idle),
            b'T' => Ok(Self::InTransaction),
            b'E' => Ok(Self::Failed),
            _ => Err(ParseError::UnknownStatus),
        }
    }

    /// The byte on the wire.
    pub const fn as_byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_wire};

    #[test]
    fn looks_like_this() {
        for (status, byte) in [
            (TransactionStatus::Idle, b'I'),
            (TransactionStatus::InTransaction, b'T'),
            (TransactionStatus::Failed, b'E'),
        ] {
            assert_wire!(
                ReadyForQuery,
                ReadyForQuery { status },
                &[b'Z', 0, 0, 0, 5, byte]
            );
        }
    }

    #[test]
    fn every_other_status_is_refused() {
        for byte in (0..=u8::MAX).filter(|byte| !b"ITE".contains(byte)) {
            assert_refused!(ReadyForQuery, &[byte], UnknownStatus);
        }
    }
}
