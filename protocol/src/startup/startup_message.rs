//! The startup message.
//!
//! Spec: protocol-message-formats, StartupMessage (F).

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::list::{Iter, List};
use crate::startup::{PACKET_LEN_MAX, ProtocolVersion, StartupError};

/// Opens a session.
///
/// ```text
/// length · u32 version · (name \0 · value \0) each · \0
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Startup<'a> {
    /// The version that the client would like to speak; its major is 3.
    pub version: ProtocolVersion,
    parameters: Parameters<'a>,
}

impl<'a> Startup<'a> {
    /// A message to be sent.
    pub const fn new(version: ProtocolVersion, parameters: &'a [(&'a [u8], &'a [u8])]) -> Self {
        Self {
            version,
            parameters: List::new(parameters),
        }
    }

    /// Reads what follows the version, and refuses what PostgreSQL refuses.
    ///
    /// It also refuses names that come twice where the second would change who the session is:
    /// PostgreSQL lets the last one win, and a proxy that looked at the first would let one user
    /// in as another.
    pub fn decode(version: ProtocolVersion, rest: &'a [u8]) -> Result<Self, StartupError> {
        if version.major != ProtocolVersion::V3_0.major {
            return Err(StartupError::Version(version));
        }
        let parameters = read_parameters(rest).map_err(|_| StartupError::Layout)?;
        let startup = Self {
            version,
            parameters,
        };
        for name in UNIQUE {
            if startup.values(name.as_bytes()).nth(1).is_some() {
                return Err(StartupError::Duplicate(name));
            }
        }
        if startup.user().is_empty() {
            return Err(StartupError::NoUser);
        }
        Ok(startup)
    }

    /// Appends the packet; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::packet(out, &[], PACKET_LEN_MAX, |w| {
            w.u32(self.version.as_u32())?;
            self.parameters.write_terminated(w)
        })
    }

    /// Every parameter, in the order of the message.
    pub fn parameters(&self) -> Iter<'a, (&'a [u8], &'a [u8])> {
        self.parameters.iter()
    }

    /// The value of a parameter; of several the last, as PostgreSQL has it.
    pub fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.values(name).last()
    }

    /// Who the client says it is. Never empty in a message that was decoded.
    pub fn user(&self) -> &'a [u8] {
        self.get(b"user").unwrap_or_default()
    }

    /// The database that it wants: by default the one named like the user.
    pub fn database(&self) -> &'a [u8] {
        self.get(b"database")
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| self.user())
    }

    /// The `replication` parameter, if a replication connection may be wanted.
    pub fn replication(&self) -> Option<&'a [u8]> {
        self.get(b"replication")
    }

    /// Command-line switches for the server process.
    pub fn options(&self) -> Option<&'a [u8]> {
        self.get(b"options")
    }

    /// Names of the protocol options, all of which begin with `_pq_.`.
    pub fn protocol_options(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.parameters()
            .map(|(name, _)| name)
            .filter(|name| name.starts_with(PROTOCOL_OPTION_PREFIX))
    }

    /// Whether the answer must begin with NegotiateProtocolVersion: the client asks for a newer
    /// minor than `newest`, or for options (none of which this crate knows).
    pub fn needs_negotiation(&self, newest: ProtocolVersion) -> bool {
        self.version > newest || self.protocol_options().next().is_some()
    }

    fn values(&self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        self.parameters()
            .filter(move |(found, _)| *found == name)
            .map(|(_, value)| value)
    }
}

type Parameters<'a> = List<'a, (&'a [u8], &'a [u8])>;

fn read_parameters(rest: &[u8]) -> Result<Parameters<'_>, ParseError> {
    let mut cursor = Cursor::new(rest);
    let parameters = List::read_terminated(&mut cursor)?;
    cursor.finish()?;
    Ok(parameters)
}

/// Parameters that say who the session is.
const UNIQUE: [&str; 4] = ["user", "database", "replication", "options"];

const PROTOCOL_OPTION_PREFIX: &[u8] = b"_pq_.";

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(rest: &[u8]) -> Result<Startup<'_>, StartupError> {
        Startup::decode(ProtocolVersion::V3_0, rest)
    }

    #[test]
    fn looks_like_this() {
        let startup = Startup::new(
            ProtocolVersion::V3_2,
            &[(b"user", b"alice"), (b"database", b"shop")],
        );
        let mut out = Vec::new();
        startup.encode(&mut out).unwrap();
        assert_eq!(
            out,
            b"\0\0\0\x22\0\x03\0\x02user\0alice\0database\0shop\0\0"
        );
        assert_eq!(
            Startup::decode(ProtocolVersion::V3_2, &out[8..]),
            Ok(startup)
        );
    }

    #[test]
    fn parameters_are_found_by_name_and_the_last_one_wins() {
        let startup =
            decode(b"user\0a\0application_name\0x\0options\0-c x=1\0application_name\0y\0\0")
                .unwrap();
        assert_eq!(startup.user(), b"a");
        assert_eq!(startup.get(b"application_name"), Some(&b"y"[..]));
        assert_eq!(startup.get(b"Application_Name"), None);
        assert_eq!(startup.options(), Some(&b"-c x=1"[..]));
        assert_eq!(startup.replication(), None);
        assert_eq!(startup.parameters().count(), 4);
    }

    #[test]
    fn the_database_is_by_default_the_one_named_like_the_user() {
        assert_eq!(decode(b"user\0a\0\0").unwrap().database(), b"a");
        assert_eq!(decode(b"user\0a\0database\0\0\0").unwrap().database(), b"a");
        assert_eq!(
            decode(b"user\0a\0database\0d\0\0").unwrap().database(),
            b"d"
        );
    }

    #[test]
    fn without_user_nobody_gets_in() {
        for rest in [
            &b"\0"[..],
            b"USER\0a\0\0",
            b"user\0\0\0",
            b"database\0d\0\0",
        ] {
            assert_eq!(decode(rest), Err(StartupError::NoUser));
        }
    }

    #[test]
    fn what_says_who_the_session_is_comes_once() {
        for name in ["user", "database", "replication", "options"] {
            let rest = format!("user\0a\0{name}\0a\0{name}\0b\0\0");
            assert_eq!(decode(rest.as_bytes()), Err(StartupError::Duplicate(name)));
        }
    }

    #[test]
    fn the_terminator_is_the_last_byte() {
        for rest in [
            &b""[..],
            b"user\0a\0",
            b"user\0a",
            b"user\0",
            b"user",
            b"user\0a\0\0\0",
            b"\0user\0a\0\0",
        ] {
            assert_eq!(
                decode(rest),
                Err(StartupError::Layout),
                "{}",
                rest.escape_ascii()
            );
        }
    }

    #[test]
    fn other_majors_are_refused_before_their_parameters_are_read() {
        for major in [0, 1, 2, 4, 1234] {
            let version = ProtocolVersion { major, minor: 0 };
            assert_eq!(
                Startup::decode(version, b""),
                Err(StartupError::Version(version))
            );
        }
    }

    #[test]
    fn newer_minors_and_protocol_options_are_negotiated() {
        let plain = decode(b"user\0a\0\0").unwrap();
        assert!(!plain.needs_negotiation(ProtocolVersion::V3_0));
        let newer =
            Startup::decode(ProtocolVersion { major: 3, minor: 9 }, b"user\0a\0\0").unwrap();
        assert!(newer.needs_negotiation(ProtocolVersion::V3_2));
        let options = decode(b"user\0a\0_pq_.x\0on\0pq_.y\0on\0\0").unwrap();
        assert!(options.needs_negotiation(ProtocolVersion::V3_2));
        assert_eq!(options.protocol_options().collect::<Vec<_>>(), [b"_pq_.x"]);
    }

    #[test]
    fn a_name_that_would_end_the_list_cannot_be_encoded() {
        let startup = Startup::new(ProtocolVersion::V3_0, &[(b"", b"x"), (b"user", b"a")]);
        let mut out = Vec::new();
        assert_eq!(startup.encode(&mut out), Err(EncodeError::EmptyName));
        let startup = Startup::new(ProtocolVersion::V3_0, &[(b"user", b"a\0database\0b")]);
        assert_eq!(startup.encode(&mut out), Err(EncodeError::InnerNul));
        assert!(out.is_empty());
    }
}
