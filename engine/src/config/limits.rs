//! The `connection_limits` section: how many clients a user or a database may have.

use serde::Deserialize;

use super::keys::{Key, Kind, Unset};
use super::{Config, Group};

/// More clients than one machine can have.
pub(super) const CLIENTS_MAX: u32 = 10_000_000;

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "connection_limits.enabled",
        kind: Kind::Switch,
        unset: Unset::Is("false"),
        about: "Whether the clients of a user and of a database are limited: by these defaults, auth.users[].max_connections and databases.*.max_connections.",
    },
    Key {
        path: "connection_limits.default_max_connections_per_user",
        kind: Kind::Whole(0, CLIENTS_MAX),
        unset: Unset::Is("0"),
        about: "The most clients of each user that has no max_connections of its own (0: no limit).",
    },
    Key {
        path: "connection_limits.default_max_connections_per_database",
        kind: Kind::Whole(0, CLIENTS_MAX),
        unset: Unset::Is("0"),
        about: "The most clients of each database that has no max_connections of its own (0: no limit).",
    },
];

/// How many clients a user or a database may have; zero is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionLimits {
    /// False: they are not limited.
    pub enabled: bool,
    /// Of a user that has no limit of its own.
    pub default_max_connections_per_user: u32,
    /// Of a database that has no limit of its own.
    pub default_max_connections_per_database: u32,
}

impl Config {
    /// The most clients that name this user.
    pub fn most_of_user(&self, user: &[u8]) -> Option<u32> {
        let listed = std::str::from_utf8(user)
            .ok()
            .and_then(|name| self.auth.users.get(name));
        let own = listed.and_then(|user| user.max_connections);
        self.most(own, self.limits.default_max_connections_per_user)
    }

    /// The most clients of a group.
    pub fn most_of_database(&self, group: &Group) -> Option<u32> {
        self.most(
            group.max_connections,
            self.limits.default_max_connections_per_database,
        )
    }

    fn most(&self, own: Option<u32>, default: u32) -> Option<u32> {
        let most = own.unwrap_or(default);
        (self.limits.enabled && most > 0).then_some(most)
    }
}
