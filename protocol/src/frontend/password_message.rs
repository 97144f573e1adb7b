//! PasswordMessage: the answer to a cleartext or MD5 request.
//!
//! Spec: protocol-message-formats, PasswordMessage (F).
//!
//! ```text
//! p · length · password \0
//! ```

use std::fmt;

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::tag::frontend_tag;

/// The answer to a cleartext or MD5 request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PasswordMessage<'a> {
    /// The password or its hash.
    pub password: &'a [u8],
}

impl<'a> PasswordMessage<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let password = cursor.cstr()?;
        cursor.finish()?;
        Ok(Self { password })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::frontend_message(out, frontend_tag::PASSWORD, |w| w.cstr(self.password))
    }
}

/// Without the password, which is a secret.
impl fmt::Debug for PasswordMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordMessage").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_unencodable, assert_wire};

    #[test]
    fn looks_like_this() {
        let value = PasswordMessage {
            password: b"secret",
        };
        assert_wire!(PasswordMessage, value, b"p\0\0\0\x0bsecret\0");
    }

    #[test]
    fn is_never_printed() {
        let value = PasswordMessage {
            password: b"secret",
        };
        assert!(!format!("{value:?}").contains("secret"));
    }

    #[test]
    fn up_to_the_cap_of_login_messages_fits() {
        let password = vec![b'x'; 65_531];
        let value = |password| PasswordMessage { password };
        assert_unencodable!(value(&password), TooLong);
        assert_eq!(value(&password[1..]).encode(&mut Vec::new()), Ok(()));
    }
}
