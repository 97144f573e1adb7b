//! The `proxy` section: where clients connect, and how long pgmux waits for them.

use std::time::Duration;

use serde::Deserialize;

use super::keepalive::Keepalive;
use super::keys::{Key, Kind, Unset};
use super::limits::CLIENTS_MAX;
use super::listen::{self, ListenAddr};
use super::report::Report;

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "proxy.listen",
        kind: Kind::Texts,
        unset: Unset::Is("0.0.0.0:5432"),
        about: "Where clients connect, one or a list: 1.2.3.4:5432, [::1]:5432, /dir (the socket /dir/.s.PGSQL.<port>) or unix:/path.",
    },
    Key {
        path: "proxy.shutdown_timeout",
        kind: Kind::Duration,
        unset: Unset::Is("30s"),
        about: "How long running transactions may take to end after SIGTERM.",
    },
    Key {
        path: "proxy.login_timeout",
        kind: Kind::Duration,
        unset: Unset::Is("30s"),
        about: "How long a client may take from connecting to being logged in (0: for ever).",
    },
    Key {
        path: "proxy.client_idle_timeout",
        kind: Kind::DurationOrOff,
        unset: Unset::Is("0"),
        about: "A client that does nothing for so long outside a transaction is disconnected, FATAL 57P01 (0 or off: no limit).",
    },
    Key {
        path: "proxy.tcp_keepalives_idle",
        kind: Kind::Duration,
        unset: Unset::Is("0"),
        about: "After so long without traffic the kernel asks a client whether it is there, in whole seconds (0: the system's default).",
    },
    Key {
        path: "proxy.tcp_keepalives_interval",
        kind: Kind::Duration,
        unset: Unset::Is("0"),
        about: "How long until it is asked again when it does not answer, in whole seconds (0: the system's default).",
    },
    Key {
        path: "proxy.tcp_keepalives_count",
        kind: Kind::Whole(0, 127),
        unset: Unset::Is("0"),
        about: "How often it is asked in vain before the connection is lost (0: the system's default).",
    },
    Key {
        path: "proxy.tcp_user_timeout",
        kind: Kind::Duration,
        unset: Unset::Is("0"),
        about: "How long what was sent to a client may be unacknowledged before the connection is lost (0: the system's default).",
    },
    Key {
        path: "proxy.allow_replication",
        kind: Kind::Switch,
        unset: Unset::Is("false"),
        about: "Whether replication connections are passed through: every user who may log in replicates as backend.user (passthrough: as itself).",
    },
    Key {
        path: "proxy.max_replication_connections",
        kind: Kind::Whole(1, 10_000),
        unset: Unset::Is("10"),
        about: "The most replication connections at a time; they are not counted by pool.max_connections.",
    },
    Key {
        path: "proxy.max_clients",
        kind: Kind::Whole(0, CLIENTS_MAX),
        unset: Unset::Is("0"),
        about: "The most clients that are logged in, over all shards (0: no limit); more are refused once they have proved who they are.",
    },
    Key {
        path: "proxy.max_unauthenticated",
        kind: Kind::Whole(1, 1_000_000),
        unset: Unset::Is("1024"),
        about: "The most clients of one shard that have not logged in yet; one more takes the place of one from the address that has the most, or is turned away.",
    },
    Key {
        path: "proxy.max_unauthenticated_per_source",
        kind: Kind::Whole(1, 1_000_000),
        unset: Unset::Is("512"),
        about: "The most of them that may come from one address (of IPv6: one /64); one more takes the place of one that has done nothing for a second, or is turned away.",
    },
];

/// Where clients connect, and how long pgmux waits for them.
#[derive(Clone)]
pub struct Proxy {
    /// The addresses, never empty.
    pub listen: Vec<ListenAddr>,
    /// How long running transactions may take to end after a stop signal; zero ends them at once.
    pub shutdown_timeout: Duration,
    /// How long a client may take from connecting to being logged in; zero is for ever.
    pub login_timeout: Duration,
    /// How long a client may do nothing outside a transaction; zero is off too.
    pub client_idle_timeout: Option<Duration>,
    /// How TCP notices that a client is gone.
    pub keepalive: Keepalive,
    /// Whether replication connections are passed through.
    pub allow_replication: bool,
    /// The most of them, over all shards.
    pub max_replication_connections: u32,
    /// The most clients that are logged in, over all shards; zero is no limit.
    pub max_clients: u32,
    /// Clients of a shard that have not logged in.
    pub max_unauthenticated: u32,
    /// Those of them from one address.
    pub max_unauthenticated_per_source: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    listen: Vec<String>,
    shutdown_timeout: Duration,
    login_timeout: Duration,
    client_idle_timeout: Option<Duration>,
    tcp_keepalives_idle: Duration,
    tcp_keepalives_interval: Duration,
    tcp_keepalives_count: u32,
    tcp_user_timeout: Duration,
    allow_replication: bool,
    max_replication_connections: u32,
    max_clients: u32,
    max_unauthenticated: u32,
    max_unauthenticated_per_source: u32,
}

impl Section {
    pub(super) fn resolve(self, report: &mut Report) -> Option<Proxy> {
        let keepalive = Keepalive {
            idle: self.tcp_keepalives_idle,
            interval: self.tcp_keepalives_interval,
            count: self.tcp_keepalives_count,
            user_timeout: self.tcp_user_timeout,
        };
        keepalive.check("proxy", report);
        match listen::parse_all(&self.listen) {
            Ok(listen) => Some(Proxy {
                listen,
                shutdown_timeout: self.shutdown_timeout,
                login_timeout: self.login_timeout,
                client_idle_timeout: self.client_idle_timeout,
                keepalive,
                allow_replication: self.allow_replication,
                max_replication_connections: self.max_replication_connections,
                max_clients: self.max_clients,
                max_unauthenticated: self.max_unauthenticated,
                max_unauthenticated_per_source: self.max_unauthenticated_per_source,
            }),
            Err(problems) => {
                for (index, text) in problems {
                    let item = format!("proxy.listen[{index}]");
                    report.at(&item, text);
                }
                None
            }
        }
    }
}
