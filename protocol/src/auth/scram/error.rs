//! Why an exchange failed.

use std::fmt;

use crate::error::SqlState;

/// What the other end did wrong, or what it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslError {
    /// A message longer than 1,024 bytes.
    TooLong,
    /// A message that is not SCRAM.
    Malformed,
    /// A mandatory extension (`m=`) that nobody knows.
    Extension,
    /// An authorization identity, which PostgreSQL does not have.
    AuthorizationIdentity,
    /// A nonce that is empty, too long, unprintable, or does not continue ours.
    Nonce,
    /// A salt that is empty, too long or not base64.
    Salt,
    /// No iterations, or more than we are willing to do.
    Iterations,
    /// The channel binding that came is not that of this connection.
    ChannelBinding,
    /// The client says that we offered no channel binding, but we did: somebody took it away.
    Downgrade,
    /// The client wants a kind of channel binding that this connection does not have.
    BindingUnsupported,
    /// The proof is wrong: the client does not know the password.
    Proof,
    /// The signature is wrong: the server does not know the password either.
    ServerSignature,
    /// The server says that the exchange failed.
    ServerRefused,
    /// A verifier that is not in PostgreSQL's format.
    Verifier,
}

impl SaslError {
    /// A sentence for logs and for the message of an ErrorResponse.
    pub const fn text(self) -> &'static str {
        match self {
            Self::TooLong => "SASL message is too long",
            Self::Malformed => "malformed SCRAM message",
            Self::Extension => "client requires an unsupported SCRAM extension",
            Self::AuthorizationIdentity => {
                "client uses authorization identity, but it is not supported"
            }
            Self::Nonce => "invalid SCRAM nonce",
            Self::Salt => "invalid SCRAM salt",
            Self::Iterations => "invalid SCRAM iteration count",
            Self::ChannelBinding => "SCRAM channel binding check failed",
            Self::Downgrade => "SCRAM channel binding negotiation error",
            Self::BindingUnsupported => "unsupported SCRAM channel-binding type",
            Self::Proof => "password authentication failed",
            Self::ServerSignature => "incorrect server signature",
            Self::ServerRefused => "server refused the SCRAM exchange",
            Self::Verifier => "invalid SCRAM verifier",
        }
    }

    /// The code for a client whose exchange failed.
    pub const fn sqlstate(self) -> SqlState {
        match self {
            Self::Proof => SqlState::INVALID_PASSWORD,
            Self::ChannelBinding | Self::Downgrade => SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            Self::AuthorizationIdentity | Self::Extension => SqlState::FEATURE_NOT_SUPPORTED,
            _ => SqlState::PROTOCOL_VIOLATION,
        }
    }
}

impl fmt::Display for SaslError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for SaslError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_password_has_its_own_code() {
        assert_eq!(SaslError::Proof.sqlstate(), SqlState::INVALID_PASSWORD);
        assert_eq!(
            SaslError::Malformed.sqlstate(),
            SqlState::PROTOCOL_VIOLATION
        );
        assert_eq!(
            SaslError::AuthorizationIdentity.sqlstate(),
            SqlState::FEATURE_NOT_SUPPORTED
        );
        assert_eq!(SaslError::TooLong.to_string(), "SASL message is too long");
    }
}
