//! Errors of our own when there is no server to raise them: one
//! `ErrorResponse`, then what PostgreSQL does after an error.

use super::Session;
use super::requests::READY_IDLE;
use crate::shard::Refusal;
use protocol::backend::ErrorResponse;
use protocol::error::{ErrorFields, SqlState};
use protocol::ledger::Kind;

impl Session {
    /// Answers a message with an error. A query is over with that; a batch is
    /// dropped up to its `Sync`.
    pub(super) fn refuse(&mut self, kind: Kind, refusal: &Refusal) {
        self.socket.write(&error(refusal.code, &refusal.message));
        match kind {
            Kind::Query | Kind::FunctionCall | Kind::Sync => self.socket.write(READY_IDLE),
            _ => self.skipping = true,
        }
    }
}

/// An ERROR `ErrorResponse`.
pub(super) fn error(code: SqlState, message: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let message = message.replace('\0', "?");
    // Our own texts are short and, now, without NUL: they fit.
    let _ = ErrorFields::error(code, &message).encode(&mut out);
    out
}

/// Whether an error ends the connection.
pub(super) fn is_fatal(body: &[u8]) -> bool {
    let severity = ErrorResponse::decode(body)
        .ok()
        .and_then(|error| error.severity());
    severity.is_some_and(|severity| severity != b"ERROR")
}

/// The server's error with the client's name of a statement where it has
/// ours; `None` where it names none.
pub(super) fn renamed(body: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let at = body
        .windows(QUOTED.len())
        .position(|window| window == QUOTED)?;
    let end = body[at + 1..].iter().position(|&byte| byte == b'"')? + at + 1;
    let length = u32::try_from(at + 1 + name.len() + body.len() - end + 4).ok()?;
    let mut out = vec![b'E'];
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&body[..=at]);
    out.extend_from_slice(name);
    out.extend_from_slice(&body[end..]);
    Some(out)
}

/// How a message of PostgreSQL quotes one of our names.
const QUOTED: &[u8] = b"\"pgmux:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_name_is_replaced_and_the_length_follows() {
        let body = b"SERROR\0Mprepared statement \"pgmux:1f\" already exists\0\0";
        let renamed = renamed(body, b"s").expect("names one of ours");
        assert_eq!(
            &renamed[5..],
            b"SERROR\0Mprepared statement \"s\" already exists\0\0"
        );
        assert_eq!(
            u32::from_be_bytes([renamed[1], renamed[2], renamed[3], renamed[4]]) as usize,
            renamed.len() - 1
        );
    }

    #[test]
    fn an_error_without_our_name_stays_as_it_is() {
        assert_eq!(renamed(b"SERROR\0Mdivision by zero\0\0", b"s"), None);
    }
}
