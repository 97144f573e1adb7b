//! Writing messages with lengths that cannot wrap.
//!
//! A message whose length wrapped at 4 GiB would let its tail be read as messages of their own
//! (CVE-2024-27304 and its family). So a [`Writer`] starts with the room that the tag's cap allows
//! and gives it away as bytes are appended: a body past the cap is refused before it is copied,
//! and the length on the wire is what was taken from the room.

use std::fmt;

use crate::frame::{self, Side};

/// Why a message could not be written. Always our own fault, or that of a value we were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The message would be longer than its tag allows.
    TooLong,
    /// More items than the count field can say.
    TooMany,
    /// A NUL inside a string that a NUL terminates.
    InnerNul,
    /// An empty name where an empty name ends the list.
    EmptyName,
    /// A cancel key that is not 4 to 256 bytes long.
    KeyLength,
}

impl EncodeError {
    /// A sentence for logs.
    pub const fn text(self) -> &'static str {
        match self {
            Self::TooLong => "message is longer than the protocol allows",
            Self::TooMany => "message has more items than its count can say",
            Self::InnerNul => "string contains a NUL byte",
            Self::EmptyName => "list contains an empty name",
            Self::KeyLength => "cancel key is not 4 to 256 bytes long",
        }
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for EncodeError {}

/// Appends the fields of one message body.
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    /// What may still be written before the message is past its cap.
    room: u32,
}

impl Writer<'_> {
    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> Result<(), EncodeError> {
        self.bytes(&[value])
    }

    /// Appends an unsigned 16-bit integer.
    pub fn u16(&mut self, value: u16) -> Result<(), EncodeError> {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a signed 16-bit integer.
    pub fn i16(&mut self, value: i16) -> Result<(), EncodeError> {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends an unsigned 32-bit integer.
    pub fn u32(&mut self, value: u32) -> Result<(), EncodeError> {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a signed 32-bit integer.
    pub fn i32(&mut self, value: i32) -> Result<(), EncodeError> {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends a string and its NUL.
    pub fn cstr(&mut self, text: &[u8]) -> Result<(), EncodeError> {
        if text.contains(&0) {
            return Err(EncodeError::InnerNul);
        }
        self.bytes(text)?;
        self.u8(0)
    }

    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.claim(bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn claim(&mut self, len: usize) -> Result<(), EncodeError> {
        let len = u32::try_from(len).map_err(|_| EncodeError::TooLong)?;
        self.room = self.room.checked_sub(len).ok_or(EncodeError::TooLong)?;
        Ok(())
    }
}

/// Appends a whole frontend message; on error `out` is left as it was.
pub fn frontend_message(
    out: &mut Vec<u8>,
    tag: u8,
    body: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    packet(out, &[tag], frame::length_max(Side::Frontend, tag), body)
}

/// Appends a whole backend message; on error `out` is left as it was.
pub fn backend_message(
    out: &mut Vec<u8>,
    tag: u8,
    body: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    packet(out, &[tag], frame::length_max(Side::Backend, tag), body)
}

/// Appends `prefix`, a length that counts itself and is at most `length_max`, and a body.
pub(crate) fn packet(
    out: &mut Vec<u8>,
    prefix: &[u8],
    length_max: u32,
    body: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    let written = write_packet(out, prefix, length_max, body);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write_packet(
    out: &mut Vec<u8>,
    prefix: &[u8],
    length_max: u32,
    body: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    out.extend_from_slice(prefix);
    let length_at = out.len();
    let mut writer = Writer {
        out,
        room: length_max,
    };
    writer.u32(0)?;
    body(&mut writer)?;
    let length = length_max.saturating_sub(writer.room);
    if let Some(slot) = out
        .get_mut(length_at..)
        .and_then(|tail| tail.first_chunk_mut())
    {
        *slot = length.to_be_bytes();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_past_32_bits_is_refused_before_anything_is_copied() {
        let mut out = Vec::new();
        let mut writer = Writer {
            out: &mut out,
            room: u32::MAX,
        };
        assert_eq!(writer.claim(0x1_0000_0005), Err(EncodeError::TooLong));
        assert_eq!(writer.claim(usize::MAX), Err(EncodeError::TooLong));
        assert_eq!(writer.room, u32::MAX);
        assert_eq!(writer.claim(0xFFFF_FFFF), Ok(()));
        assert_eq!(writer.u8(0), Err(EncodeError::TooLong));
        assert!(out.is_empty());
    }

    #[test]
    fn a_message_is_at_most_as_long_as_its_cap() {
        let mut out = Vec::new();
        assert_eq!(packet(&mut out, b"x", 8, |w| w.bytes(b"1234")), Ok(()));
        assert_eq!(out, b"x\0\0\0\x081234");
        assert_eq!(
            packet(&mut out, b"x", 8, |w| w.bytes(b"12345")),
            Err(EncodeError::TooLong)
        );
        assert_eq!(out, b"x\0\0\0\x081234");
    }

    #[test]
    fn fields_count_together() {
        let mut out = Vec::new();
        let fits = packet(&mut out, b"", 20, |w| {
            w.u8(1)?;
            w.u16(2)?;
            w.i16(-2)?;
            w.u32(3)?;
            w.i32(-3)?;
            w.cstr(b"ab")
        });
        assert_eq!(fits, Ok(()));
        assert_eq!(
            out,
            b"\0\0\0\x14\x01\0\x02\xff\xfe\0\0\0\x03\xff\xff\xff\xfdab\0"
        );
        for room in 0..20 {
            let written = packet(&mut out, b"", room, |w| {
                w.bytes(&[0; 13])?;
                w.cstr(b"ab")
            });
            assert_eq!(written, Err(EncodeError::TooLong), "{room}");
        }
        assert_eq!(out.len(), 20);
    }

    #[test]
    fn every_tag_is_capped_like_the_reader_caps_it() {
        let mut out = Vec::new();
        let body = vec![0; 9_996];
        let sync = |out: &mut Vec<u8>, body: &[u8]| {
            frontend_message(out, crate::tag::frontend_tag::SYNC, |w| w.bytes(body))
        };
        assert_eq!(sync(&mut out, &body), Ok(()));
        assert_eq!(sync(&mut out, &[0; 9_997]), Err(EncodeError::TooLong));
        let unknown = frontend_message(&mut out, b'?', |_| Ok(()));
        assert_eq!(unknown, Err(EncodeError::TooLong));
        assert_eq!(out.len(), 10_001);
    }
}
