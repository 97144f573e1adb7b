//! Reading what a client sends before it is logged in.

use super::Refused;
use crate::limits::PASSWORD_BYTES;
use crate::link::Link;
use protocol::error::SqlState;
use protocol::startup::{PACKET_LEN_MAX, StartupError, StartupPacket, first_packet};
use zeroize::Zeroize;

/// Bytes that have come and are not read yet: never more than one packet and
/// what came behind it in the same segment.
pub(super) struct Packets<'a> {
    socket: &'a Link,
    bytes: Vec<u8>,
}

impl<'a> Packets<'a> {
    /// `bytes`: what was read before and is still to be looked at.
    pub(super) fn new(socket: &'a Link, bytes: Vec<u8>) -> Self {
        Self { socket, bytes }
    }

    /// What has been read and not looked at.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The first byte of all, which tells TLS from a startup packet.
    pub(super) async fn first_byte(&mut self) -> Result<u8, Refused> {
        loop {
            if let Some(&first) = self.bytes.first() {
                return Ok(first);
            }
            self.more(PACKET_LEN_MAX as usize).await?;
        }
    }

    /// The next packet of the startup phase, through `read`, which must not
    /// keep it.
    pub(super) async fn startup<T>(
        &mut self,
        read: impl Fn(StartupPacket<'_>) -> T,
    ) -> Result<T, Refused> {
        loop {
            match first_packet(&self.bytes) {
                Ok(Some((packet, consumed))) => {
                    let result = read(packet);
                    self.bytes.drain(..consumed);
                    return Ok(result);
                }
                Ok(None) => self.more(PACKET_LEN_MAX as usize).await?,
                Err(error) => return Err(refuse(error)),
            }
        }
    }

    /// The body of the next `p` message (password, SASL), at most `limit` long.
    pub(super) async fn password(&mut self, limit: usize) -> Result<Vec<u8>, Refused> {
        loop {
            if let Some((&[tag, a, b, c, d], rest)) = self.bytes.split_first_chunk::<5>() {
                let length = u32::from_be_bytes([a, b, c, d]) as usize;
                if tag != b'p' {
                    let text = format!("expected password response, got message type {tag}");
                    return Err(Refused::fatal(SqlState::PROTOCOL_VIOLATION, &text));
                }
                if length < 4 || length - 4 > limit {
                    return Err(Refused::fatal(
                        SqlState::PROTOCOL_VIOLATION,
                        "invalid password packet size",
                    ));
                }
                if rest.len() >= length - 4 {
                    let body = rest[..length - 4].to_vec();
                    // It may be a password.
                    self.bytes[..length + 1].zeroize();
                    self.bytes.drain(..length + 1);
                    return Ok(body);
                }
            }
            self.more(limit.max(PASSWORD_BYTES) + 5).await?;
        }
    }

    /// Waits for more bytes; never gathers more than `limit` before they have
    /// been looked at.
    async fn more(&mut self, limit: usize) -> Result<(), Refused> {
        loop {
            if let Some(mut chunk) = self.socket.take() {
                let room = limit.saturating_sub(self.bytes.len()).min(chunk.len());
                if room == 0 {
                    return Err(Refused::Silently);
                }
                self.bytes.extend_from_slice(&chunk[..room]);
                chunk.advance(room);
                self.socket.put_back(chunk);
                return Ok(());
            }
            // A cancel request's sender closes at once, so that the ticket that
            // TLS has for it cannot be delivered.
            if self.socket.is_read_out() {
                return Err(Refused::Silently);
            }
            self.socket.readable().await;
        }
    }

    /// What the client has sent behind its login goes back to the socket.
    pub(super) fn finish(self) {
        if !self.bytes.is_empty() {
            self.socket.put_back(crate::ring::Chunk::heap(self.bytes));
        }
    }
}

fn refuse(error: StartupError) -> Refused {
    let mut words = Vec::new();
    match error.encode(&mut words) {
        Ok(()) if !words.is_empty() => Refused::Saying(words),
        _ => Refused::Silently,
    }
}
