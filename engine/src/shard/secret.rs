//! By what a client's cancel requests are known.

use crate::random;
use subtle::ConstantTimeEq;

/// What a client was given to cancel its queries with; see `BackendKeyData`.
/// Compared in constant time, never printed.
#[derive(Clone)]
pub struct CancelSecret {
    bytes: [u8; LONG],
    len: u8,
}

impl CancelSecret {
    /// Four bytes, which is all that clients of protocol 3.0 can take.
    pub fn short() -> Self {
        Self::of(SHORT)
    }

    /// As long as PostgreSQL 18 makes them for clients of protocol 3.2.
    pub fn long() -> Self {
        Self::of(LONG)
    }

    fn of(len: usize) -> Self {
        let mut bytes = [0; LONG];
        random::fill(&mut bytes[..len]);
        let len = u8::try_from(len).expect("at most 32");
        Self { bytes, len }
    }

    /// The bytes, for the client.
    pub fn expose(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether a key has the length of one of these.
    pub fn may_be(key: &[u8]) -> bool {
        matches!(key.len(), SHORT | LONG)
    }

    /// Whether a cancel request shows this secret. The time that it takes says
    /// nothing about the bytes.
    pub fn is(&self, shown: &[u8]) -> bool {
        self.expose().ct_eq(shown).into()
    }
}

const SHORT: usize = 4;
/// PostgreSQL 18's `MAX_CANCEL_KEY_LENGTH`, which is what its servers give.
const LONG: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_shown_whole_or_not_at_all() {
        for (secret, len) in [(CancelSecret::short(), 4), (CancelSecret::long(), 32)] {
            let mut shown = secret.expose().to_vec();
            assert_eq!(shown.len(), len);
            assert!(secret.is(&shown));
            assert!(!secret.is(&shown[..len - 1]));
            shown.push(0);
            assert!(!secret.is(&shown));
            shown.pop();
            shown[len - 1] ^= 1;
            assert!(!secret.is(&shown));
            assert!(!secret.is(&[]));
        }
    }

    #[test]
    fn no_two_are_alike() {
        assert!(!CancelSecret::long().is(CancelSecret::long().expose()));
    }
}
