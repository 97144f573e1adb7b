//! The keys of the `pool` section; its struct and its rules are [`pool::config`]'s.

use pool::config::PoolMode;

use super::keys::{Key, Kind, Unset};

/// A million connections are more than any server has; it keeps sums over pools in range.
pub(super) const CONNECTIONS_MAX: u32 = 1_000_000;

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "pool.mode",
        kind: Kind::Choice(PoolMode::NAMES),
        unset: Unset::Is("transaction"),
        about: "When a server goes back to its pool: after a transaction, a session or a statement.",
    },
    Key {
        path: "pool.min_connections",
        kind: Kind::Whole(0, CONNECTIONS_MAX),
        unset: Unset::Is("2"),
        about: "Servers that are kept open even when nobody uses them, over all shards (0: none; with backend.user: passthrough none, for there is nothing to log in with before a role has).",
    },
    Key {
        path: "pool.max_connections",
        kind: Kind::Whole(1, CONNECTIONS_MAX),
        unset: Unset::Is("10"),
        about: "The most servers of a database, over all shards.",
    },
    Key {
        path: "pool.reserve_connections",
        kind: Kind::Whole(0, CONNECTIONS_MAX),
        unset: Unset::Is("0"),
        about: "So many servers more may be opened once a client has waited for reserve_timeout; they leave when they are idle.",
    },
    Key {
        path: "pool.reserve_timeout",
        kind: Kind::DurationOrOff,
        unset: Unset::Is("5s"),
        about: "How long a client must have waited before reserve_connections are used (0: not at all; off: they are not used).",
    },
    Key {
        path: "pool.max_role_pools",
        kind: Kind::Whole(1, CONNECTIONS_MAX),
        unset: Unset::Is("1000"),
        about: "With backend.user: passthrough, the most roles of a database that have servers or clients at once.",
    },
    Key {
        path: "pool.max_total_connections",
        kind: Kind::WholeOrAuto(1, CONNECTIONS_MAX),
        unset: Unset::Is("auto"),
        about: "With backend.user: passthrough, the most servers of all roles together; auto: ten times max_connections, which is each role's own.",
    },
    Key {
        path: "pool.idle_timeout",
        kind: Kind::DurationOrOff,
        unset: Unset::Is("10m"),
        about: "A server that was idle for this long is closed, down to min_connections (0 or off: never).",
    },
    Key {
        path: "pool.max_lifetime",
        kind: Kind::DurationOrOff,
        unset: Unset::Is("1h"),
        about: "A server older than this is closed when it is next idle (0 or off: never).",
    },
    Key {
        path: "pool.connection_timeout",
        kind: Kind::DurationOrOff,
        unset: Unset::Is("5s"),
        about: "How long a client waits for a server before it gets an error (0: not at all; off: for ever).",
    },
    Key {
        path: "pool.health_check_interval",
        kind: Kind::DurationOrOff,
        unset: Unset::Is("30s"),
        about: "A server that was idle for this long is asked whether it is alive (SELECT 1), and again after the same time (0 or off: never).",
    },
    Key {
        path: "pool.health_check_timeout",
        kind: Kind::Duration,
        unset: Unset::Is("2s"),
        about: "How long it may take to answer that before it is replaced.",
    },
    Key {
        path: "pool.query_timeout",
        kind: Kind::DurationOrOff,
        unset: Unset::Is("0"),
        about: "How long a statement may work on its server before it is cancelled, ERROR 57014 (0 or off: no limit); the text itself may ask for less by /* timeout:5s */.",
    },
    Key {
        path: "pool.timeout_hint_max",
        kind: Kind::DurationOrOff,
        unset: Unset::Is("0"),
        about: "The most that a text may get by /* timeout:5s */ where that is more than query_timeout (0 or off: no more than query_timeout).",
    },
    Key {
        path: "pool.idle_transaction_timeout",
        kind: Kind::DurationOrOff,
        unset: Unset::Is("0"),
        about: "A client that does nothing for so long in a transaction is disconnected, FATAL 25P03 (0 or off: no limit).",
    },
    Key {
        path: "pool.transaction_timeout",
        kind: Kind::DurationOrOff,
        unset: Unset::Is("0"),
        about: "A client whose transaction has lasted for so long is disconnected, FATAL 25P04 (0 or off: no limit).",
    },
    Key {
        path: "pool.wait_notice_after",
        kind: Kind::DurationOrOff,
        unset: Unset::Is("0"),
        about: "A client that has waited for a server for so long gets a NOTICE (0 or off: none).",
    },
    Key {
        path: "pool.reset_query",
        kind: Kind::Text,
        unset: Unset::Is("DISCARD ALL"),
        about: "What cleans a server whose session was changed; \"\": such a server is closed instead.",
    },
    Key {
        path: "pool.max_prepared_statements",
        kind: Kind::Whole(1, 1_000_000),
        unset: Unset::Is("200"),
        about: "Prepared statements that one server keeps, least recently used out first.",
    },
];
