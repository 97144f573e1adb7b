//! SASLprep (RFC 4013) as PostgreSQL uses it.

use std::borrow::Cow;

/// Normalizes a password. Where SASLprep refuses it, or it is not UTF-8, the bytes stay as they
/// are: that is what PostgreSQL does on both sides, so that every password works.
pub fn saslprep(password: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(password) else {
        return Cow::Borrowed(password);
    };
    match stringprep::saslprep(text) {
        Ok(Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
        Ok(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        Err(_) => Cow::Borrowed(password),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_normalizes_is_normalized() {
        assert_eq!(saslprep("I\u{AD}X".as_bytes()), &b"IX"[..]);
        assert_eq!(saslprep("\u{AA}\u{2168}".as_bytes()), &b"aIX"[..]);
        assert_eq!(saslprep(b"plain"), &b"plain"[..]);
    }

    #[test]
    fn what_it_refuses_stays_as_it_is() {
        for password in [&b"a\x07b"[..], b"\xff\xfe", "\u{627}1".as_bytes(), b""] {
            assert_eq!(saslprep(password), password);
        }
    }
}
