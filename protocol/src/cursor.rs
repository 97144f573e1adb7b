//! A bounded reader over bytes that a peer sent.

use std::fmt;

/// Reads big-endian protocol fields from a slice; every step is checked against what is left.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Starts at the beginning of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, ParseError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads an unsigned 16-bit integer.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads a signed 16-bit integer.
    #[inline]
    pub fn i16(&mut self) -> Result<i16, ParseError> {
        self.array().map(i16::from_be_bytes)
    }

    /// Reads an unsigned 32-bit integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a signed 32-bit integer.
    #[inline]
    pub fn i32(&mut self) -> Result<i32, ParseError> {
        self.array().map(i32::from_be_bytes)
    }

    /// Reads exactly `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(ParseError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    /// Takes the next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], ParseError> {
        let (head, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(ParseError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Takes a NUL-terminated string; the NUL is consumed and not part of the result.
    #[inline]
    pub fn cstr(&mut self) -> Result<&'a [u8], ParseError> {
        let end = self
            .rest
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(ParseError::Unterminated)?;
        let text = self.take(end)?;
        self.u8()?;
        Ok(text)
    }

    /// A cursor over the next `len` bytes only, so that what is nested cannot read past its end.
    #[inline]
    pub fn sub(&mut self, len: usize) -> Result<Cursor<'a>, ParseError> {
        self.take(len).map(Cursor::new)
    }

    /// How many bytes are left.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes all that is left. Never fails: the `Result` only makes it chain with the others.
    #[inline]
    pub fn rest(&mut self) -> Result<&'a [u8], ParseError> {
        Ok(std::mem::take(&mut self.rest))
    }

    /// The bytes ahead, without consuming them.
    #[inline]
    pub const fn peek(&self) -> &'a [u8] {
        self.rest
    }

    /// The body must end here.
    #[inline]
    pub const fn finish(self) -> Result<(), ParseError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(ParseError::TrailingBytes)
        }
    }
}

/// Why a message body could not be read. Always the sender's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// A field goes on past the end of the body.
    Truncated,
    /// A string has no NUL before the end of the body.
    Unterminated,
    /// Bytes follow where the body should have ended.
    TrailingBytes,
    /// A length below -1; only -1 means NULL.
    NegativeLength,
    /// A count below zero.
    NegativeCount,
    /// Format codes are neither absent, nor one for all, nor one for each value.
    FormatCount,
    /// Describe or Close of something that is neither a statement nor a portal.
    UnknownTarget,
    /// An authentication request that this protocol version does not know.
    UnknownAuthentication,
    /// ReadyForQuery with a status other than `I`, `T`, `E`.
    UnknownStatus,
    /// COPY with an overall format other than text (0) or binary (1).
    UnknownCopyFormat,
    /// A cancel key that is not 4 to 256 bytes long.
    KeyLength,
    /// A tag that opens no message of this direction.
    UnknownTag,
}

impl ParseError {
    /// A sentence for logs and for the message of an ErrorResponse.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Truncated => "insufficient data left in message",
            Self::Unterminated => "invalid string in message",
            Self::TrailingBytes => "invalid message format",
            Self::NegativeLength => "invalid value length in message",
            Self::NegativeCount => "invalid count in message",
            Self::FormatCount => "number of format codes does not match number of values",
            Self::UnknownTarget => "neither a statement nor a portal",
            Self::UnknownAuthentication => "unknown authentication request",
            Self::UnknownStatus => "unknown transaction status",
            Self::UnknownCopyFormat => "unknown COPY format",
            Self::KeyLength => "cancel key is not 4 to 256 bytes long",
            Self::UnknownTag => "unknown message type",
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_kind_of_field_in_order() {
        let mut cursor =
            Cursor::new(b"\x01\xff\xfe\xff\xfe\xff\xff\xff\xfe\xff\xff\xff\xfename\0rest");
        assert_eq!(cursor.u8(), Ok(1));
        assert_eq!(cursor.u16(), Ok(0xFFFE));
        assert_eq!(cursor.i16(), Ok(-2));
        assert_eq!(cursor.u32(), Ok(0xFFFF_FFFE));
        assert_eq!(cursor.i32(), Ok(-2));
        assert_eq!(cursor.cstr(), Ok(&b"name"[..]));
        assert_eq!(cursor.finish(), Err(ParseError::TrailingBytes));
        assert_eq!(cursor.rest(), Ok(&b"rest"[..]));
        assert_eq!(cursor.finish(), Ok(()));
    }

    #[test]
    fn a_field_that_does_not_fit_is_refused_and_consumes_nothing() {
        let mut cursor = Cursor::new(b"\x01");
        assert_eq!(cursor.u16(), Err(ParseError::Truncated));
        assert_eq!(cursor.i16(), Err(ParseError::Truncated));
        assert_eq!(cursor.u32(), Err(ParseError::Truncated));
        assert_eq!(cursor.i32(), Err(ParseError::Truncated));
        assert_eq!(cursor.take(2), Err(ParseError::Truncated));
        assert_eq!(cursor.take(usize::MAX), Err(ParseError::Truncated));
        assert_eq!(cursor.cstr(), Err(ParseError::Unterminated));
        assert_eq!(cursor.remaining(), 1);
        assert_eq!(cursor.u8(), Ok(1));
        assert_eq!(cursor.u8(), Err(ParseError::Truncated));
    }

    #[test]
    fn a_nested_cursor_cannot_read_past_its_end() {
        let mut cursor = Cursor::new(b"abcd\0");
        let mut nested = cursor.sub(2).unwrap();
        assert_eq!(nested.cstr(), Err(ParseError::Unterminated));
        assert_eq!(nested.take(3), Err(ParseError::Truncated));
        assert_eq!(cursor.cstr(), Ok(&b"cd"[..]));
        assert!(cursor.sub(1).is_err());
    }
}
