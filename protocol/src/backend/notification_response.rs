//! NotificationResponse: a NOTIFY of some session.
//!
//! Spec: protocol-message-formats, NotificationResponse (B).
//!
//! ```text
//! A · length · u32 process · channel \0 · payload \0
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::backend_tag;

/// A NOTIFY of some session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotificationResponse<'a> {
    /// The process that notified.
    pub pid: u32,
    /// The channel.
    pub channel: &'a [u8],
    /// The payload; may be empty.
    pub payload: &'a [u8],
}

impl<'a> NotificationResponse<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let pid = cursor.u32()?;
        let channel = cursor.cstr()?;
        let payload = cursor.cstr()?;
        cursor.finish()?;
        Ok(Self {
            pid,
            channel,
            payload,
        })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::NOTIFICATION_RESPONSE, |w| {
            w.u32(self.pid)?;
            w.cstr(self.channel)?;
            w.cstr(self.payload)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_wire;

    #[test]
    fn looks_like_this() {
        let value = NotificationResponse {
            pid: 258,
            channel: b"c",
            payload: b"hi",
        };
        assert_wire!(
            NotificationResponse,
            value,
            b"A\0\0\0\x0d\0\0\x01\x02c\0hi\0"
        );
    }
}
