//! The `backend` section: as whom pgmux logs in to PostgreSQL, and by which methods.

use std::path::PathBuf;

use serde::Deserialize;

use super::keys::{Key, Kind, Unset};
use super::secret::Secret;

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "backend.user",
        kind: Kind::Text,
        unset: Unset::Is("postgres"),
        about: "The PostgreSQL role that pgmux logs in as.",
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
}
