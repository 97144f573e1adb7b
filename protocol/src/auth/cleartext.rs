//! The password itself, for a connection that is safe by other means.

use subtle::ConstantTimeEq;

/// Compares the password that came with the one that is right, in time that tells nothing of
/// where they differ.
pub fn verify(given: &[u8], right: &[u8]) -> bool {
    given.ct_eq(right).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_password_is_right() {
        assert!(verify(b"secret", b"secret"));
        for given in [&b""[..], b"secre", b"secret\0", b"secretsecret", b"Secret"] {
            assert!(!verify(given, b"secret"));
        }
    }
}
