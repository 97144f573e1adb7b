//! The grammar of the four messages: attributes `x=value` with commas between.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::auth::scram::{MESSAGE_LEN_MAX, NONCE_LEN_MAX, SaslError};

/// Text of a message that is not too long.
pub(super) fn text(message: &[u8]) -> Result<&str, SaslError> {
    if message.len() > MESSAGE_LEN_MAX {
        return Err(SaslError::TooLong);
    }
    std::str::from_utf8(message).map_err(|_| SaslError::Malformed)
}

/// Walks the attributes of a message in their fixed order.
pub(super) struct Attributes<'a> {
    rest: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { rest: Some(text) }
    }

    /// The value of the next attribute, which must have this name.
    pub(super) fn expect(&mut self, name: char) -> Result<&'a str, SaslError> {
        let (found, value) = self.next()?.ok_or(SaslError::Malformed)?;
        match found {
            _ if found == name => Ok(value),
            MANDATORY_EXTENSION => Err(SaslError::Extension),
            _ => Err(SaslError::Malformed),
        }
    }

    /// Whatever follows is optional extensions, which are to be ignored, but they must be
    /// attributes.
    pub(super) fn ignore_extensions(mut self) -> Result<(), SaslError> {
        while self.next()?.is_some() {}
        Ok(())
    }

    fn next(&mut self) -> Result<Option<(char, &'a str)>, SaslError> {
        let Some(rest) = self.rest else {
            return Ok(None);
        };
        let (attribute, rest) = match rest.split_once(',') {
            Some((attribute, rest)) => (attribute, Some(rest)),
            None => (rest, None),
        };
        self.rest = rest;
        let (name, value) = attribute.split_once('=').ok_or(SaslError::Malformed)?;
        let mut chars = name.chars();
        match (chars.next(), chars.next()) {
            (Some(name), None) if name.is_ascii_alphabetic() => Ok(Some((name, value))),
            _ => Err(SaslError::Malformed),
        }
    }
}

/// A nonce: printable ASCII but the comma, not empty, not endless.
pub(super) fn check_nonce(nonce: &str) -> Result<&str, SaslError> {
    let printable = nonce
        .bytes()
        .all(|byte| matches!(byte, 0x21..=0x2B | 0x2D..=0x7E));
    if nonce.is_empty() || nonce.len() > NONCE_LEN_MAX || !printable {
        return Err(SaslError::Nonce);
    }
    Ok(nonce)
}

/// A positive decimal number without sign or leading zero.
pub(super) fn iterations(text: &str) -> Result<u32, SaslError> {
    if text.starts_with('0') || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SaslError::Iterations);
    }
    text.parse().map_err(|_| SaslError::Iterations)
}

pub(super) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Base64 of exactly one key, proof or signature.
pub(super) fn from_base64_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    from_base64(text)?.try_into().ok()
}

const MANDATORY_EXTENSION: char = 'm';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_at_most_1024_bytes_of_utf_8() {
        let long = [b'a'; 1025];
        assert_eq!(text(&long), Err(SaslError::TooLong));
        assert!(text(&long[1..]).is_ok());
        assert_eq!(text(b"\xff"), Err(SaslError::Malformed));
    }

    #[test]
    fn attributes_come_in_order_and_extensions_behind_them() {
        let mut attributes = Attributes::new("r=a=b,s=,x=1,y=");
        assert_eq!(attributes.expect('r'), Ok("a=b"));
        assert_eq!(attributes.expect('s'), Ok(""));
        assert_eq!(attributes.ignore_extensions(), Ok(()));
        assert_eq!(
            Attributes::new("s=,r=a").expect('r'),
            Err(SaslError::Malformed)
        );
        assert_eq!(
            Attributes::new("m=x,r=a").expect('r'),
            Err(SaslError::Extension)
        );
        assert_eq!(Attributes::new("").expect('r'), Err(SaslError::Malformed));
    }

    #[test]
    fn what_is_no_attribute_is_refused() {
        for bad in ["r", "=x", "rr=x", "1=x", "\u{e4}=x", ",", "r=a,"] {
            assert_eq!(
                Attributes::new(bad).ignore_extensions(),
                Err(SaslError::Malformed),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_nonce_is_1_to_256_printable_characters() {
        assert!(check_nonce(&"a".repeat(256)).is_ok());
        for bad in ["", "a,b", "a b", "a\n", "\u{e4}", &"a".repeat(257)] {
            assert_eq!(check_nonce(bad), Err(SaslError::Nonce));
        }
    }

    #[test]
    fn iterations_are_a_plain_positive_number() {
        assert_eq!(iterations("1"), Ok(1));
        assert_eq!(iterations("4294967295"), Ok(u32::MAX));
        for bad in [
            "",
            "0",
            "01",
            "-1",
            "+1",
            " 1",
            "1e3",
            "4294967296",
            "99999999999999999999",
        ] {
            assert_eq!(iterations(bad), Err(SaslError::Iterations), "{bad}");
        }
    }

    #[test]
    fn base64_has_one_form_for_each_value() {
        assert_eq!(from_base64("YQ=="), Some(b"a".to_vec()));
        for bad in ["YQ", "YR==", "YQ==\n", "Y Q==", "YQ==YQ=="] {
            assert_eq!(from_base64(bad), None, "{bad}");
        }
        assert_eq!(from_base64_array::<2>("YQ=="), None);
    }
}
