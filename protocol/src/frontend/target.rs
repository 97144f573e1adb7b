//! What Describe and Close speak of.

use crate::cursor::ParseError;

/// Whether a name is that of a statement or of a portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A prepared statement.
    Statement,
    /// A portal.
    Portal,
}

impl Target {
    /// The target that a byte on the wire means.
    pub const fn from_byte(byte: u8) -> Result<Self, ParseError> {
        match byte {
            b'S' => Ok(Self::Statement),
            b'P' => Ok(Self::Portal),
            _ => Err(ParseError::UnknownTarget),
        }
    }

    /// The byte on the wire.
    pub const fn as_byte(self) -> u8 {
        match self {
            Self::Statement => b'S',
            Self::Portal => b'P',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_but_two_is_refused() {
        for byte in 0..=u8::MAX {
            match Target::from_byte(byte) {
                Ok(target) => assert_eq!(target.as_byte(), byte),
                Err(error) => {
                    assert!(byte != b'S' && byte != b'P');
                    assert_eq!(error, ParseError::UnknownTarget);
                }
            }
        }
    }
}
