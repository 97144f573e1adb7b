//! The `databases` section: each group with its writer, and what it overrides.

use std::path::PathBuf;

use pool::Budget;
use pool::config::PoolSettings;
use serde::Deserialize;

use super::backend::ServerAuth;
use super::keepalive::Keepalive;
use super::keys::{Key, Kind, Unset};
use super::limits::CLIENTS_MAX;
use super::listen::UNIX_PATH_MAX;
use super::pool::CONNECTIONS_MAX;
use super::report::Report;
use super::secret::Secret;
use super::tls::ServerTls;

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "databases.*.writer",
        kind: Kind::Short("host"),
        unset: Unset::Required("127.0.0.1"),
        about: "The primary: host and port, or a unix socket directory alone (writer: /run/postgresql).",
    },
    Key {
        path: "databases.*.writer.host",
        kind: Kind::Text,
        unset: Unset::Required("127.0.0.1"),
        about: "A name, an IP address, or a unix socket directory that begins with /.",
    },
    Key {
        path: "databases.*.writer.port",
        kind: Kind::Whole(1, 65_535),
        unset: Unset::Is("5432"),
        about: "Its port; for a socket directory the number in the socket's name.",
    },
    Key {
        path: "databases.*.backend",
        kind: Kind::Like("backend"),
        unset: Unset::Nothing("{user: app}"),
        about: "What differs from backend; `database` is the name of the group unless it is written here.",
    },
    Key {
        path: "databases.*.pool",
        kind: Kind::Like("pool"),
        unset: Unset::Nothing("{max_connections: 20}"),
        about: "What differs from pool for this database.",
    },
    Key {
        path: "databases.*.max_connections",
        kind: Kind::Whole(0, CLIENTS_MAX),
        unset: Unset::Nothing("500"),
        about: "The most clients of this database, if connection_limits.enabled (0: no limit); connection_limits has the default.",
    },
    Key {
        path: "databases.*.max_server_connections",
        kind: Kind::Whole(1, CONNECTIONS_MAX),
        unset: Unset::Nothing("50"),
        about: "The most servers of this database, of all its pools and with their reserves; not counted: replication, and the one that asks auth.query.",
    },
];

/// Where a group's primary is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Over TCP.
    Tcp {
        /// A name or an IP address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// Over a unix socket.
    Unix {
        /// The directory of the socket.
        dir: PathBuf,
        /// The number in the socket's name.
        port: u16,
    },
}

impl Target {
    /// The path of the unix socket, `None` for TCP.
    pub fn socket_path(&self) -> Option<PathBuf> {
        match self {
            Self::Tcp { .. } => None,
            Self::Unix { dir, port } => Some(dir.join(format!(".s.PGSQL.{port}"))),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { dir, port } => write!(f, "unix:{}/.s.PGSQL.{port}", dir.display()),
        }
    }
}

/// A logical database: what clients name in their startup message, and what is behind it.
#[derive(Clone)]
pub struct Group {
    /// The name that clients use.
    pub name: String,
    /// The primary.
    pub target: Target,
    /// Each client's own role logs in.
    pub passthrough: bool,
    /// Else the PostgreSQL role that pgmux logs in as.
    pub user: String,
    /// Its password.
    pub password: Option<Secret>,
    /// The file that it was read from.
    pub password_file: Option<PathBuf>,
    /// The PostgreSQL database.
    pub database: String,
    /// How the server may have pgmux log in.
    pub auth_methods: Vec<ServerAuth>,
    /// How TCP notices that a server is gone.
    pub keepalive: Keepalive,
    /// TLS with its servers.
    pub tls: ServerTls,
    /// The limits of its pool: the `pool` section with this database's overrides.
    pub pool: PoolSettings,
    /// The most clients, if written here; zero is no limit.
    pub max_connections: Option<u32>,
    /// The most servers of all its pools.
    pub max_server_connections: Option<u32>,
}

impl Group {
    /// The permits for servers of its own user: the database's limit holds for them and their reserve together.
    pub fn budget(&self, shards: usize) -> Budget {
        let (max, reserve) = self.limits();
        Budget::new(max, shards).with_reserve(reserve)
    }

    /// The most of them, and their reserve.
    pub fn limits(&self) -> (u32, u32) {
        let cap = self.max_server_connections.unwrap_or(u32::MAX);
        let max = self.pool.max_connections.min(cap);
        (max, self.pool.reserve_connections.min(cap - max))
    }

    /// The most servers of all roles together.
    pub fn most_of_roles(&self) -> u32 {
        let cap = self.max_server_connections.unwrap_or(u32::MAX);
        self.pool.total().min(cap)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Writer {
    host: String,
    port: u16,
}

impl Writer {
    pub(super) fn resolve(self, key: &str, report: &mut Report) -> Option<Target> {
        let Self { host, port } = self;
        let problem = if host.is_empty() {
            "expected a host name, an IP address or a socket directory, got \"\"".to_owned()
        } else if host.starts_with('/') {
            let target = Target::Unix {
                dir: PathBuf::from(host),
                port,
            };
            if target
                .socket_path()
                .is_none_or(|path| path.as_os_str().len() <= UNIX_PATH_MAX)
            {
                return Some(target);
            }
            format!("expected a socket path of at most {UNIX_PATH_MAX} bytes, got {target}")
        } else {
            let bare = host
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
                .unwrap_or(&host);
            if is_host(bare) {
                return Some(Target::Tcp {
                    host: bare.to_owned(),
                    port,
                });
            }
            format!(
                "expected a host name, an IP address or a socket directory that begins with /, got {host:?}"
            )
        };
        report.at(&format!("{key}.host"), problem);
        None
    }
}

/// A name (letters, digits, `-`, `_`, `.`) or an IPv6 address.
pub(super) fn is_host(host: &str) -> bool {
    host.parse::<std::net::Ipv6Addr>().is_ok()
        || host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            && !host.is_empty()
}
