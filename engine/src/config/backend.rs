//! The `backend` section: as whom pgmux logs in to PostgreSQL, and by which methods.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::keepalive::Keepalive;
use super::keys::{Key, Kind, Unset};
use super::secret::Secret;
use super::tls::{ChannelBinding, SslMode};

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "backend.user",
        kind: Kind::Text,
        unset: Unset::Is("postgres"),
        about: "The PostgreSQL role that pgmux logs in as; passthrough: each client's own, with what its login has proved.",
    },
    Key {
        path: "backend.password",
        kind: Kind::Secret,
        unset: Unset::Nothing("${PGMUX_BACKEND_PASSWORD}"),
        about: "Its password; better from the environment or from password_file than written here.",
    },
    Key {
        path: "backend.password_file",
        kind: Kind::Text,
        unset: Unset::Nothing("/run/secrets/pgmux-backend"),
        about: "A file whose first line is the password; a relative path starts at this file's directory.",
    },
    Key {
        path: "backend.database",
        kind: Kind::Text,
        unset: Unset::Is("postgres"),
        about: "The database of a client that names none, if it is one of databases; else the alphabetically first is.",
    },
    Key {
        path: "backend.auth_methods",
        kind: Kind::Choices(ServerAuth::NAMES),
        unset: Unset::Is("[scram-sha-256, md5, trust]"),
        about: "How PostgreSQL may ask for the password; `password` (clear text on the wire) only if you add it.",
    },
    Key {
        path: "backend.server_sslmode",
        kind: Kind::Choice(SslMode::NAMES),
        unset: Unset::Is("disable"),
        about: "TLS to PostgreSQL, with libpq's meanings: allow, prefer, require, verify-ca, verify-full (the name too); never over a unix socket.",
    },
    Key {
        path: "backend.server_ca_file",
        kind: Kind::Text,
        unset: Unset::Nothing("/etc/pgmux/servers-ca.crt"),
        about: "The CAs that the server's certificate is judged by, as PEM; as in libpq, require with it is verify-ca.",
    },
    Key {
        path: "backend.server_cert_file",
        kind: Kind::Text,
        unset: Unset::Nothing("/etc/pgmux/client.crt"),
        about: "Our certificate for servers that ask for one, as PEM.",
    },
    Key {
        path: "backend.server_key_file",
        kind: Kind::Text,
        unset: Unset::Nothing("/etc/pgmux/client.key"),
        about: "Its key, as PEM without a passphrase.",
    },
    Key {
        path: "backend.server_channel_binding",
        kind: Kind::Choice(ChannelBinding::NAMES),
        unset: Unset::Is("prefer"),
        about: "Whether a SCRAM login is bound to the TLS connection (SCRAM-SHA-256-PLUS): disable, prefer, require.",
    },
    Key {
        path: "backend.tcp_keepalives_idle",
        kind: Kind::Duration,
        unset: Unset::Is("0"),
        about: "After so long without traffic the kernel asks a server whether it is there, in whole seconds (0: the system's default).",
    },
    Key {
        path: "backend.tcp_keepalives_interval",
        kind: Kind::Duration,
        unset: Unset::Is("0"),
        about: "How long until it is asked again when it does not answer, in whole seconds (0: the system's default).",
    },
    Key {
        path: "backend.tcp_keepalives_count",
        kind: Kind::Whole(0, 127),
        unset: Unset::Is("0"),
        about: "How often it is asked in vain before the connection is lost (0: the system's default).",
    },
    Key {
        path: "backend.tcp_user_timeout",
        kind: Kind::Duration,
        unset: Unset::Is("0"),
        about: "How long what was sent to a server may be unacknowledged before the connection is lost (0: the system's default).",
    },
];

/// How a server may have pgmux log in; the names are those of `pg_hba.conf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum ServerAuth {
    /// SCRAM-SHA-256.
    #[serde(rename = "scram-sha-256")]
    Scram,
    /// MD5 with a salt.
    #[serde(rename = "md5")]
    Md5,
    /// The password in clear text.
    #[serde(rename = "password")]
    Cleartext,
    /// Nothing is asked.
    #[serde(rename = "trust")]
    Trust,
}

impl ServerAuth {
    /// Every method, by the name that the configuration uses.
    pub const NAMES: &[&str] = &["scram-sha-256", "md5", "password", "trust"];
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    pub(super) user: String,
    pub(super) password: Option<Secret>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) database: String,
    pub(super) auth_methods: Vec<ServerAuth>,
    pub(super) server_sslmode: SslMode,
    pub(super) server_ca_file: Option<PathBuf>,
    pub(super) server_cert_file: Option<PathBuf>,
    pub(super) server_key_file: Option<PathBuf>,
    pub(super) server_channel_binding: ChannelBinding,
    pub(super) tcp_keepalives_idle: Duration,
    pub(super) tcp_keepalives_interval: Duration,
    pub(super) tcp_keepalives_count: u32,
    pub(super) tcp_user_timeout: Duration,
}

impl Section {
    pub(super) fn keepalive(&self) -> Keepalive {
        Keepalive {
            idle: self.tcp_keepalives_idle,
            interval: self.tcp_keepalives_interval,
            count: self.tcp_keepalives_count,
            user_timeout: self.tcp_user_timeout,
        }
    }
}
