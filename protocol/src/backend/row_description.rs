//! RowDescription: the columns of a result.
//!
//! Spec: protocol-message-formats, RowDescription (B).
//!
//! ```text
//! T · length · i16 count
//!   · (name \0 · u32 table · i16 column · u32 type · i16 size · i32 modifier · i16 format) each
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError, Writer};
use crate::list::{Item, List};
use crate::tag::backend_tag;

/// The columns of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowDescription<'a> {
    /// The columns.
    pub fields: List<'a, Field<'a>>,
}

impl<'a> RowDescription<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let fields = List::read_counted(&mut cursor)?;
        cursor.finish()?;
        Ok(Self { fields })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::ROW_DESCRIPTION, |w| {
            self.fields.write_counted(w)
        })
    }
}

/// One column of a [`RowDescription`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The column's name.
    pub name: &'a [u8],
    /// OID of the table that it comes from, or 0.
    pub table_oid: u32,
    /// Its number in that table, or 0.
    pub column: i16,
    /// OID of its type.
    pub type_oid: u32,
    /// Size of the type; below zero for a variable one.
    pub type_size: i16,
    /// The type's modifier, or -1.
    pub type_modifier: i32,
    /// Its format; 0 while that is not known.
    pub format: i16,
}

impl<'a> Item<'a> for Field<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, ParseError> {
        Ok(Self {
            name: cursor.cstr()?,
            table_oid: cursor.u32()?,
            column: cursor.i16()?,
            type_oid: cursor.u32()?,
            type_size: cursor.i16()?,
            type_modifier: cursor.i32()?,
            format: cursor.i16()?,
        })
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        w.cstr(self.name)?;
        w.u32(self.table_oid)?;
        w.i16(self.column)?;
        w.u32(self.type_oid)?;
        w.i16(self.type_size)?;
        w.i32(self.type_modifier)?;
        w.i16(self.format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_wire};

    #[test]
    fn looks_like_this() {
        let field = Field {
            name: b"id",
            table_oid: 16_384,
            column: 1,
            type_oid: 23,
            type_size: 4,
            type_modifier: -1,
            format: 0,
        };
        let fields = [field];
        let value = RowDescription {
            fields: List::new(&fields),
        };
        assert_wire!(
            RowDescription,
            value,
            b"T\0\0\0\x1b\0\x01id\0\0\0\x40\0\0\x01\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0"
        );
    }

    #[test]
    fn a_count_that_lies_is_refused() {
        assert_refused!(RowDescription, b"\xff\xff", Unterminated);
        assert_refused!(RowDescription, b"\0\x01id\0\0\0", Truncated);
    }
}
