//! DataRow: one row of a result.
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
