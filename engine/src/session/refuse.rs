//! Errors of our own when there is no server to raise them: one
//! `ErrorResponse`, then what PostgreSQL does after an error.

use super::Session;
use super::requests::READY_IDLE;
use crate::server::PREFIX;
use crate::shard::Refusal;
use protocol::backend::ErrorResponse;
use protocol::error::{ErrorFields, SqlState};
use protocol::ledger::Kind;

impl Session {
    /// Answers a message with an error. A query is over with that; a batch is
    /// dropped up to its `Sync`.
    pub(super) fn refuse(&mut self, kind: Kind, refusal: &Refusal) {
        let words = error(refusal.code, &refusal.message);
        self.shard.faults.note_own(&words);
        self.socket.write(&words);
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

/// A notice with the client's names wherever it has ours, quoted or not;
/// `None` where it has none. `name_of` knows which numbers are of our names: a
/// text of the client's may have the prefix too.
pub(super) fn renamed_all<'a>(
    body: &[u8],
    name_of: impl Fn(u64) -> Option<&'a [u8]>,
) -> Option<Vec<u8>> {
    let prefix = PREFIX.as_bytes();
    let mut out = vec![b'N', 0, 0, 0, 0];
    let (mut rest, mut found) = (body, false);
    while let Some(at) = rest
        .windows(prefix.len())
        .position(|window| window == prefix)
    {
        let digits = &rest[at + prefix.len()..];
        let is_digit = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let end = digits.iter().take_while(is_digit).count();
        let number = std::str::from_utf8(&digits[..end]).ok();
        let number = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        match number.and_then(&name_of) {
            Some(name) => {
                out.extend_from_slice(&rest[..at]);
                out.extend_from_slice(name);
                found = true;
            }
            None => out.extend_from_slice(&rest[..at + prefix.len() + end]),
        }
        rest = &digits[end..];
    }
    if !found {
        return None;
    }
    out.extend_from_slice(rest);
    let length = u32::try_from(out.len() - 1).ok()?;
    out[1..5].copy_from_slice(&length.to_be_bytes());
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
    fn a_notice_has_the_clients_names_and_keeps_what_only_looks_like_ours() {
        let name_of = |number| (number == 0x1f).then_some(&b"s"[..]);
        let body = b"SLOG\0Mexecute pgmux:1f/p: select 'pgmux:2f', \"pgmux:1f\", pgmux:\0\0";
        let renamed = renamed_all(body, name_of).expect("names one of ours");
        assert_eq!(
            &renamed[5..],
            b"SLOG\0Mexecute s/p: select 'pgmux:2f', \"s\", pgmux:\0\0"
        );
        assert_eq!(
            renamed[1..5],
            u32::try_from(renamed.len() - 1)
                .expect("short")
                .to_be_bytes()
        );
        assert_eq!(renamed_all(b"SLOG\0Mpgmux:2f\0\0", name_of), None);
    }

    #[test]
    fn an_error_without_our_name_stays_as_it_is() {
        assert_eq!(renamed(b"SERROR\0Mdivision by zero\0\0", b"s"), None);
    }
}
