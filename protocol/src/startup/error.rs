//! What is wrong with a startup packet, and how PostgreSQL answers it.

use std::fmt;

use crate::encode::EncodeError;
use crate::error::{ErrorFields, SqlState};
use crate::startup::ProtocolVersion;

/// Why a startup packet is refused. The connection is closed in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupError {
    /// The length is out of bounds; most likely this is another protocol.
    Length(u32),
    /// An SSLRequest, GSSENCRequest or CancelRequest that is too long or too short.
    RequestLength,
    /// A protocol version that is not 3.
    Version(ProtocolVersion),
    /// The parameters do not end with a terminator at the end of the packet.
    Layout,
    /// A parameter that says who the session is comes twice.
    Duplicate(&'static str),
    /// No `user` parameter, or an empty one.
    NoUser,
}

/// What to send before the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing.
    Silent,
    /// A FATAL ErrorResponse with this code.
    Fatal(SqlState),
    /// An error as protocol 2 has it: `E`, text, newline, NUL; nothing else would be understood.
    OldStyle(SqlState),
}

impl StartupError {
    /// How PostgreSQL answers it.
    pub const fn refusal(self) -> Refusal {
        match self {
            Self::Length(_) | Self::RequestLength => Refusal::Silent,
            // PostgreSQL takes 0.0 for "not known yet" and answers it like a new version.
            Self::Version(version)
                if version.major < ProtocolVersion::V3_0.major && version.as_u32() != 0 =>
            {
                Refusal::OldStyle(SqlState::FEATURE_NOT_SUPPORTED)
            }
            Self::Version(_) => Refusal::Fatal(SqlState::FEATURE_NOT_SUPPORTED),
            Self::Layout | Self::Duplicate(_) => Refusal::Fatal(SqlState::PROTOCOL_VIOLATION),
            Self::NoUser => Refusal::Fatal(SqlState::INVALID_AUTHORIZATION_SPECIFICATION),
        }
    }

    /// Appends what to send before the connection is closed; possibly nothing.
    pub fn encode(self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let text = self.to_string();
        match self.refusal() {
            Refusal::Silent => Ok(()),
            Refusal::Fatal(code) => ErrorFields::fatal(code, &text).encode(out),
            Refusal::OldStyle(_) => {
                out.push(b'E');
                out.extend_from_slice(b"FATAL:  ");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\n\0");
                Ok(())
            }
        }
    }
}

impl fmt::Display for StartupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "invalid length of startup packet: {length}"),
            Self::RequestLength => f.write_str("invalid length of request packet"),
            Self::Version(version) => write!(
                f,
                "unsupported frontend protocol {version}: server supports {} to {}",
                ProtocolVersion::V3_0,
                ProtocolVersion::V3_2
            ),
            Self::Layout => {
                f.write_str("invalid startup packet layout: expected terminator as last byte")
            }
            Self::Duplicate(name) => {
                write!(f, "startup packet has more than one \"{name}\" parameter")
            }
            Self::NoUser => f.write_str("no PostgreSQL user name specified in startup packet"),
        }
    }
}

impl std::error::Error for StartupError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(error: StartupError) -> Vec<u8> {
        let mut out = Vec::new();
        error.encode(&mut out).unwrap();
        out
    }

    #[test]
    fn each_is_answered_like_postgresql_answers_it() {
        let version = |major| StartupError::Version(ProtocolVersion { major, minor: 0 });
        let violation = Refusal::Fatal(SqlState::PROTOCOL_VIOLATION);
        let unsupported = SqlState::FEATURE_NOT_SUPPORTED;
        for (error, refusal) in [
            (StartupError::Length(0), Refusal::Silent),
            (StartupError::RequestLength, Refusal::Silent),
            (version(2), Refusal::OldStyle(unsupported)),
            (version(1), Refusal::OldStyle(unsupported)),
            (version(0), Refusal::Fatal(unsupported)),
            (version(4), Refusal::Fatal(unsupported)),
            (StartupError::Layout, violation),
            (StartupError::Duplicate("user"), violation),
            (
                StartupError::NoUser,
                Refusal::Fatal(SqlState::INVALID_AUTHORIZATION_SPECIFICATION),
            ),
        ] {
            assert_eq!(error.refusal(), refusal);
        }
    }

    #[test]
    fn silence_is_no_bytes_at_all() {
        assert!(encoded(StartupError::Length(3)).is_empty());
        assert!(encoded(StartupError::RequestLength).is_empty());
    }

    #[test]
    fn a_client_of_protocol_2_gets_an_error_that_it_can_read() {
        let version = ProtocolVersion { major: 2, minor: 0 };
        assert_eq!(
            encoded(StartupError::Version(version)),
            b"EFATAL:  unsupported frontend protocol 2.0: server supports 3.0 to 3.2\n\0"
        );
    }

    #[test]
    fn the_others_get_a_fatal_error() {
        let out = encoded(StartupError::NoUser);
        assert!(out.starts_with(b"E\0\0\0"));
        assert!(out.ends_with(
            b"SFATAL\0VFATAL\0C28000\0Mno PostgreSQL user name specified in startup packet\0\0"
        ));
    }
}
