//! The `tls` section: TLS with clients. TLS with servers is a matter of
//! `backend`, for each database may have its own; its types are here too.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::backend;
use super::databases::Target;
use super::keys::{Key, Kind, Unset};
use super::report::Report;
use crate::tls::{Acceptor, Connector, Problem, Which};

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "tls.enabled",
        kind: Kind::Switch,
        unset: Unset::Is("false"),
        about: "Whether clients can connect by TLS; connections by a unix socket are never encrypted.",
    },
    Key {
        path: "tls.cert_file",
        kind: Kind::Text,
        unset: Unset::Nothing("/etc/pgmux/server.crt"),
        about: "Our certificate and what leads from it to a CA, as PEM; read again at SIGHUP, like all files of TLS.",
    },
    Key {
        path: "tls.key_file",
        kind: Kind::Text,
        unset: Unset::Nothing("/etc/pgmux/server.key"),
        about: "Its key, as PEM without a passphrase.",
    },
    Key {
        path: "tls.ca_file",
        kind: Kind::Text,
        unset: Unset::Nothing("/etc/pgmux/clients-ca.crt"),
        about: "The CAs of the clients' certificates: a client is asked for one, and one that it shows must be valid.",
    },
    Key {
        path: "tls.client_sslmode",
        kind: Kind::Choice(SslMode::NAMES),
        unset: Unset::Is("prefer"),
        about: "allow and prefer leave it to the client, require demands TLS, verify-ca a certificate too, verify-full one whose CN is the user.",
    },
    Key {
        path: "tls.min_version",
        kind: Kind::Choice(TlsVersion::NAMES),
        unset: Unset::Is("TLSv1.2"),
        about: "The oldest version of TLS that clients may speak.",
    },
];

/// How much TLS is wanted, by libpq's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// None.
    #[default]
    Disable,
    /// If the other end insists.
    Allow,
    /// If the other end can.
    Prefer,
    /// Always.
    Require,
    /// Always, and the other end's certificate is signed by a CA of ours.
    VerifyCa,
    /// That, and it has the right name.
    VerifyFull,
}

impl SslMode {
    /// Every mode, by the name that the configuration uses.
    pub const NAMES: &[&str] = &[
        "disable",
        "allow",
        "prefer",
        "require",
        "verify-ca",
        "verify-full",
    ];

    /// The name that the configuration uses.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// A version of TLS, by PostgreSQL's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "TLSv1.2")]
    V12,
    /// TLS 1.3.
    #[serde(rename = "TLSv1.3")]
    V13,
}

impl TlsVersion {
    /// Every version, by the name that the configuration uses.
    pub const NAMES: &[&str] = &["TLSv1.2", "TLSv1.3"];
}

/// Whether a login at a server is bound to the TLS connection, by libpq's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// If the server can.
    #[default]
    Prefer,
    /// Always.
    Require,
}

impl ChannelBinding {
    /// Every choice, by the name that the configuration uses.
    pub const NAMES: &[&str] = &["disable", "prefer", "require"];
}

/// TLS with clients. That it is there says that it is on.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// What is demanded of clients.
    pub mode: SslMode,
    /// Our certificate with its chain.
    pub cert_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
    /// The CAs of the clients' certificates.
    pub ca_file: Option<PathBuf>,
    /// The oldest version.
    pub min_version: TlsVersion,
}

/// TLS with a group's servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTls {
    /// What is demanded of servers.
    pub mode: SslMode,
    /// The CAs of the servers' certificates.
    pub ca_file: Option<PathBuf>,
    /// Our certificate for servers that ask for one, and its key.
    pub cert: Option<(PathBuf, PathBuf)>,
    /// Whether logins are bound to the connection.
    pub channel_binding: ChannelBinding,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    enabled: bool,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    client_sslmode: SslMode,
    min_version: TlsVersion,
}

impl Section {
    /// `Some(None)`: TLS is off.
    pub(super) fn resolve(self, report: &mut Report) -> Option<Option<ClientTls>> {
        if !self.enabled || self.client_sslmode == SslMode::Disable {
            return Some(None);
        }
        let given = |file: Option<PathBuf>, key: &str, report: &mut Report| {
            if file.is_none() {
                report.at(key, "expected this key: TLS is enabled");
            }
            file.map(|file| report.beside(&file))
        };
        let cert_file = given(self.cert_file, "tls.cert_file", report);
        let key_file = given(self.key_file, "tls.key_file", report);
        let ca_file = self.ca_file.map(|file| report.beside(&file));
        if self.client_sslmode >= SslMode::VerifyCa && ca_file.is_none() {
            let text = format!(
                "expected this key: client_sslmode {} is judged by it",
                self.client_sslmode.name()
            );
            report.at("tls.ca_file", text);
            return None;
        }
        let tls = ClientTls {
            mode: self.client_sslmode,
            cert_file: cert_file?,
            key_file: key_file?,
            ca_file,
            min_version: self.min_version,
        };
        if let Err(problem) = Acceptor::load(&tls) {
            let name = file_key("", problem.which);
            report.at(&format!("tls.{name}"), problem.text);
            return None;
        }
        Some(Some(tls))
    }
}

/// The servers' TLS of one database. `key` is where its `backend` stands.
pub(super) fn of_servers(
    backend: &backend::Section,
    target: &Target,
    key: &str,
    report: &mut Report,
) -> Option<ServerTls> {
    let beside = |file: &Option<PathBuf>, report: &Report| {
        file.as_deref().map(|file: &Path| report.beside(file))
    };
    let mode = backend.server_sslmode;
    let ca_file = beside(&backend.server_ca_file, report);
    let cert_file = beside(&backend.server_cert_file, report);
    let key_file = beside(&backend.server_key_file, report);
    if mode >= SslMode::VerifyCa && ca_file.is_none() {
        let text = format!(
            "expected this key: server_sslmode {} is judged by it",
            mode.name()
        );
        report.once(&format!("{key}.server_ca_file"), &text);
        return None;
    }
    if backend.server_channel_binding == ChannelBinding::Require && mode < SslMode::Require {
        let text = "require needs TLS: expected server_sslmode require, verify-ca or verify-full";
        report.once(&format!("{key}.server_channel_binding"), text);
        return None;
    }
    let cert = match (cert_file, key_file) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => {
            report.once(
                &format!("{key}.server_key_file"),
                "expected this key beside server_cert_file",
            );
            return None;
        }
        (None, Some(_)) => {
            report.once(
                &format!("{key}.server_cert_file"),
                "expected this key beside server_key_file",
            );
            return None;
        }
    };
    let tls = ServerTls {
        mode,
        ca_file,
        cert,
        channel_binding: backend.server_channel_binding,
    };
    if let Err(Problem { which, text }) = Connector::load(&tls, target) {
        report.once(&format!("{key}.{}", file_key("server_", which)), &text);
        return None;
    }
    Some(tls)
}

fn file_key(prefix: &str, which: Which) -> String {
    let name = match which {
        Which::Cert => "cert_file",
        Which::Key => "key_file",
        Which::Ca => "ca_file",
    };
    format!("{prefix}{name}")
}
