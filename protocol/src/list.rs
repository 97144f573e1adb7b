//! Lists inside messages, read lazily.
//!
//! A list either stays as the bytes that a peer sent, whose items were all read once when the
//! message was decoded, or is a slice that our own code wants to send. Neither form ever allocates
//! by a count that came from the wire.

use std::fmt;

use crate::cursor::{Cursor, ParseError};
use crate::encode::{EncodeError, Writer};

/// One item of a list on the wire. Every item is at least one byte long, so that a count that lies
/// ends at the end of the body.
pub trait Item<'a>: Copy {
    /// Reads one item.
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, ParseError>;
    /// Writes one item.
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError>;
}

/// A list of items: checked wire bytes, or values to be sent.
#[derive(Clone, Copy)]
pub struct List<'a, T> {
    repr: Repr<'a, T>,
}

#[derive(Clone, Copy)]
enum Repr<'a, T> {
    /// Invariant: `bytes` is exactly `count` items, each of which `Item::read` accepts.
    Wire {
        count: usize,
        bytes: &'a [u8],
    },
    Values(&'a [T]),
}

impl<'a, T: Item<'a>> List<'a, T> {
    /// A list without items.
    pub const fn empty() -> Self {
        Self {
            repr: Repr::Values(&[]),
        }
    }

    /// The values to be sent.
    pub const fn new(values: &'a [T]) -> Self {
        Self {
            repr: Repr::Values(values),
        }
    }

    /// Reads a 16-bit count and as many items.
    pub fn read_counted(cursor: &mut Cursor<'a>) -> Result<Self, ParseError> {
        let count = usize::from(cursor.u16()?);
        Self::read_items(cursor, count)
    }

    /// Reads a signed 32-bit count and as many items.
    pub fn read_counted_i32(cursor: &mut Cursor<'a>) -> Result<Self, ParseError> {
        let count = usize::try_from(cursor.i32()?).map_err(|_| ParseError::NegativeCount)?;
        Self::read_items(cursor, count)
    }

    /// Reads items up to the zero byte that stands where the next item would begin.
    pub fn read_terminated(cursor: &mut Cursor<'a>) -> Result<Self, ParseError> {
        let start = cursor.peek();
        let mut count = 0_usize;
        while *cursor.peek().first().ok_or(ParseError::Unterminated)? != 0 {
            T::read(cursor)?;
            count = count.saturating_add(1);
        }
        let bytes = consumed(start, cursor);
        cursor.u8()?;
        Ok(Self {
            repr: Repr::Wire { count, bytes },
        })
    }

    fn read_items(cursor: &mut Cursor<'a>, count: usize) -> Result<Self, ParseError> {
        let start = cursor.peek();
        for _ in 0..count {
            T::read(cursor)?;
        }
        let bytes = consumed(start, cursor);
        Ok(Self {
            repr: Repr::Wire { count, bytes },
        })
    }

    /// Writes a 16-bit count and the items.
    pub fn write_counted(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u16(u16::try_from(self.len()).map_err(|_| EncodeError::TooMany)?)?;
        self.write_items(writer)
    }

    /// Writes a signed 32-bit count and the items.
    pub fn write_counted_i32(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.i32(i32::try_from(self.len()).map_err(|_| EncodeError::TooMany)?)?;
        self.write_items(writer)
    }

    /// Writes the items without a count.
    pub fn write_items(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        match self.repr {
            Repr::Wire { bytes, .. } => writer.bytes(bytes),
            Repr::Values(values) => values.iter().try_for_each(|item| item.write(writer)),
        }
    }

    /// How many items there are.
    pub const fn len(&self) -> usize {
        match self.repr {
            Repr::Wire { count, .. } => count,
            Repr::Values(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items as they were on the wire, without count or terminator; `None` for values to be sent.
    pub const fn wire_bytes(&self) -> Option<&'a [u8]> {
        match self.repr {
            Repr::Wire { bytes, .. } => Some(bytes),
            Repr::Values(_) => None,
        }
    }

    /// Walks the items.
    pub fn iter(&self) -> Iter<'a, T> {
        match self.repr {
            Repr::Wire { count, bytes } => Iter {
                wire: Cursor::new(bytes),
                left: count,
                values: [].iter(),
            },
            Repr::Values(values) => Iter {
                wire: Cursor::new(&[]),
                left: 0,
                values: values.iter(),
            },
        }
    }
}

/// What `cursor` has consumed since it stood at `start`.
fn consumed<'a>(start: &'a [u8], cursor: &Cursor<'a>) -> &'a [u8] {
    let len = start.len().saturating_sub(cursor.remaining());
    start.get(..len).unwrap_or_default()
}

impl<'a, T: Item<'a>> Default for List<'a, T> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<'a, T: Item<'a>> From<&'a [T]> for List<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Self::new(values)
    }
}

impl<'a, T: Item<'a>, const N: usize> From<&'a [T; N]> for List<'a, T> {
    fn from(values: &'a [T; N]) -> Self {
        Self::new(values)
    }
}

impl<'a, T: Item<'a> + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Item<'a> + Eq> Eq for List<'a, T> {}

impl<'a, T: Item<'a> + fmt::Debug> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Item<'a>> IntoIterator for List<'a, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Walks a [`List`].
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    wire: Cursor<'a>,
    left: usize,
    values: std::slice::Iter<'a, T>,
}

impl<'a, T: Item<'a>> Iterator for Iter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.left == 0 {
            return self.values.next().copied();
        }
        self.left = self.left.saturating_sub(1);
        T::read(&mut self.wire).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.left.max(self.values.len());
        (len, Some(len))
    }
}

impl<'a, T: Item<'a>> ExactSizeIterator for Iter<'a, T> {}

/// A format code or another 16-bit number.
impl<'a> Item<'a> for i16 {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, ParseError> {
        cursor.i16()
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.i16(*self)
    }
}

/// A type OID.
impl<'a> Item<'a> for u32 {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, ParseError> {
        cursor.u32()
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.u32(*self)
    }
}

/// A value with a 32-bit length, where -1, and nothing else below zero, means NULL.
impl<'a> Item<'a> for Option<&'a [u8]> {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, ParseError> {
        match cursor.i32()? {
            -1 => Ok(None),
            len => {
                let len = usize::try_from(len).map_err(|_| ParseError::NegativeLength)?;
                cursor.take(len).map(Some)
            }
        }
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let Some(value) = self else {
            return writer.i32(-1);
        };
        writer.i32(i32::try_from(value.len()).map_err(|_| EncodeError::TooLong)?)?;
        writer.bytes(value)
    }
}

/// A NUL-terminated name.
impl<'a> Item<'a> for &'a [u8] {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, ParseError> {
        cursor.cstr()
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.cstr(self)
    }
}

/// A NUL-terminated name with a NUL-terminated value.
impl<'a> Item<'a> for (&'a [u8], &'a [u8]) {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, ParseError> {
        Ok((cursor.cstr()?, cursor.cstr()?))
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.cstr(self.0)?;
        writer.cstr(self.1)
    }
}

/// Writes names up to their end with the zero byte behind: an empty name would end the list early.
impl<'a> List<'a, &'a [u8]> {
    pub(crate) fn write_terminated(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        if self.iter().any(<[u8]>::is_empty) {
            return Err(EncodeError::EmptyName);
        }
        self.write_items(writer)?;
        writer.u8(0)
    }
}

/// Writes pairs with the zero byte behind: an empty name would end the list early.
impl<'a> List<'a, (&'a [u8], &'a [u8])> {
    pub(crate) fn write_terminated(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        if self.iter().any(|(name, _)| name.is_empty()) {
            return Err(EncodeError::EmptyName);
        }
        self.write_items(writer)?;
        writer.u8(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Values<'a> = List<'a, Option<&'a [u8]>>;

    #[test]
    fn wire_and_values_are_the_same_list() {
        let mut cursor = Cursor::new(b"\0\x02\0\0\0\x01a\xff\xff\xff\xffrest");
        let wire = Values::read_counted(&mut cursor).unwrap();
        assert_eq!(cursor.peek(), b"rest");
        assert_eq!(wire, Values::new(&[Some(b"a"), None]));
        assert_ne!(wire, Values::new(&[Some(b"a")]));
        assert_ne!(wire, Values::new(&[Some(b"a"), Some(b"")]));
        assert_eq!(wire.wire_bytes(), Some(&b"\0\0\0\x01a\xff\xff\xff\xff"[..]));
        assert_eq!(format!("{wire:?}"), "[Some([97]), None]");
    }

    #[test]
    fn both_forms_know_their_length() {
        let mut cursor = Cursor::new(b"\0\x02\0\x07\0\x08");
        let wire = List::<i16>::read_counted(&mut cursor).unwrap();
        for list in [wire, List::from(&[7, 8])] {
            assert_eq!(list.len(), 2);
            assert!(!list.is_empty());
            let mut items = list.iter();
            assert_eq!(items.len(), 2);
            assert_eq!(items.next(), Some(7));
            assert_eq!(items.len(), 1);
            assert_eq!(items.next(), Some(8));
            assert_eq!((items.len(), items.next()), (0, None));
        }
        assert!(List::<u32>::default().is_empty());
    }

    #[test]
    fn a_terminated_list_ends_at_its_zero_byte() {
        let mut cursor = Cursor::new(b"a\0b\0\0c\0");
        let names = List::<&[u8]>::read_terminated(&mut cursor).unwrap();
        assert_eq!(names, List::<&[u8]>::new(&[b"a", b"b"]));
        assert_eq!(cursor.peek(), b"c\0");
        for cut in [&b""[..], b"a", b"a\0", b"a\0b"] {
            let read = List::<&[u8]>::read_terminated(&mut Cursor::new(cut));
            assert_eq!(read, Err(ParseError::Unterminated));
        }
    }

    #[test]
    fn a_count_of_two_billion_costs_no_more_than_the_bytes_present() {
        let mut cursor = Cursor::new(b"\x7f\xff\xff\xff\0\0\0");
        let read = List::<&[u8]>::read_counted_i32(&mut cursor);
        assert_eq!(read, Err(ParseError::Unterminated));
        let mut cursor = Cursor::new(b"\x80\0\0\0\0\0\0");
        let read = List::<&[u8]>::read_counted_i32(&mut cursor);
        assert_eq!(read, Err(ParseError::NegativeCount));
    }
}
