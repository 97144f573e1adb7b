//! The overall format that the three Copy*Response messages begin with.

use crate::cursor::{Cursor, ParseError};

/// Reads 0 (text) or 1 (binary).
pub(super) fn read_copy_format(cursor: &mut Cursor<'_>) -> Result<bool, ParseError> {
    match cursor.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(ParseError::UnknownCopyFormat),
    }
}
