//! DataRow: one row of a result.
//!
//! Spec: protocol-message-formats, DataRow (B).
//!
//! ```text
//! D · length · i16 count · (i32 length, or -1 for NULL · value) each
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::list::List;
use crate::tag::backend_tag;

/// One row of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRow<'a> {
    /// The values; `None` is NULL.
    pub columns: List<'a, Option<&'a [u8]>>,
}

impl<'a> DataRow<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let columns = List::read_counted(&mut cursor)?;
        cursor.finish()?;
        Ok(Self { columns })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::DATA_ROW, |w| {
            self.columns.write_counted(w)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_refused, assert_wire};

    #[test]
    fn looks_like_this() {
        let value = DataRow {
            columns: List::new(&[Some(b"1"), None, Some(b"")]),
        };
        assert_wire!(
            DataRow,
            value,
            b"D\0\0\0\x13\0\x03\0\0\0\x011\xff\xff\xff\xff\0\0\0\0"
        );
        assert_wire!(
            DataRow,
            DataRow {
                columns: List::empty()
            },
            b"D\0\0\0\x06\0\0"
        );
    }

    #[test]
    fn lengths_and_counts_that_lie_are_refused() {
        assert_refused!(DataRow, b"\0\x01\xff\xff\xff\xfe", NegativeLength);
        assert_refused!(DataRow, b"\0\x01\x7f\xff\xff\xff", Truncated);
        assert_refused!(DataRow, b"\xff\xff", Truncated);
    }

    #[test]
    fn as_many_columns_as_the_count_can_say_are_read() {
        let mut body = vec![0xFF; 2 + 65_535 * 4];
        assert_eq!(
            DataRow::decode(&body).unwrap().columns.iter().count(),
            65_535
        );
        body.pop();
        assert_refused!(DataRow, &body, Truncated);
    }
}
