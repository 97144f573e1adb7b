//! PostgreSQL's MD5 exchange.
//!
//! Spec: protocol-flow, AuthenticationMD5Password.
//!
//! ```text
//! stored   = "md5" hex(MD5(password user))
//! response = "md5" hex(MD5(hex(MD5(password user)) salt))
//! ```

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// What `pg_authid.rolpassword` holds for this user and password.
pub fn hash_password(user: &[u8], password: &[u8]) -> Zeroizing<String> {
    digest(&[password, user])
}

/// The answer to a request with this salt, from a hash as [`hash_password`] makes it; `None` when
/// `hash` is not one.
pub fn response(hash: &str, salt: [u8; 4]) -> Option<Zeroizing<String>> {
    is_hash(hash).then(|| {
        let (_, hex) = hash.split_at(PREFIX.len());
        digest(&[hex.as_bytes(), &salt])
    })
}

/// Whether `given` is the right answer, in time that tells nothing of where it is wrong.
pub fn verify(given: &[u8], hash: &str, salt: [u8; 4]) -> bool {
    response(hash, salt).is_some_and(|right| given.ct_eq(right.as_bytes()).into())
}

/// Whether text is such a hash: `md5` and 32 lower-case hex digits.
pub fn is_hash(text: &str) -> bool {
    text.strip_prefix(PREFIX).is_some_and(|hex| {
        hex.len() == HEX_LEN
            && hex
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn digest(parts: &[&[u8]]) -> Zeroizing<String> {
    let mut md5 = Md5::new();
    for part in parts {
        md5.update(part);
    }
    let mut text = Zeroizing::new(String::with_capacity(PREFIX.len().saturating_add(HEX_LEN)));
    text.push_str(PREFIX);
    for byte in md5.finalize() {
        text.push(hex_digit(byte >> 4));
        text.push(hex_digit(byte & 0x0F));
    }
    text
}

fn hex_digit(nibble: u8) -> char {
    char::from_digit(u32::from(nibble), 16).unwrap_or('0')
}

const PREFIX: &str = "md5";
const HEX_LEN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 stored for the role `pgmux_m`.
    const STORED: &str = "md5f1afdb7bfc82b6008c3ec3f0d087e949";

    #[test]
    fn hashes_like_postgresql() {
        assert_eq!(*hash_password(b"pgmux_m", b"pencil"), STORED);
    }

    #[test]
    fn the_response_hashes_the_hex_digits_with_the_salt() {
        let right = response(STORED, *b"salt").unwrap();
        assert_eq!(*right, *digest(&[b"f1afdb7bfc82b6008c3ec3f0d087e949salt"]));
        assert!(verify(right.as_bytes(), STORED, *b"salt"));
        assert!(!verify(right.as_bytes(), STORED, *b"tlas"));
        assert!(!verify(STORED.as_bytes(), STORED, *b"salt"));
        assert!(!verify(b"", STORED, *b"salt"));
    }

    #[test]
    fn what_is_no_hash_gives_no_response() {
        for text in [
            "",
            "md5",
            "md5F1AFDB7BFC82B6008C3EC3F0D087E949",
            "pencil",
            "md5f1afdb7bfc82b6008c3ec3f0d087e9499",
        ] {
            assert!(!is_hash(text));
            assert!(response(text, *b"salt").is_none());
            assert!(!verify(b"", text, *b"salt"));
        }
    }
}
