//! The `pool` section of the configuration: what one pool may hold, for how long, and how it is shared.
//!
//! The values arrive typed: `engine::config` reads the text of the file (durations such as `10m`, the word
//! `off`), fills the defaults in and reports mistakes with their place.

use std::time::Duration;

use serde::Deserialize;

/// When a server goes back to its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolMode {
    /// At the end of each transaction.
    #[default]
    Transaction,
    /// When the client leaves.
    Session,
    /// After each statement; transactions of more than one statement are refused.
    Statement,
}

impl PoolMode {
    /// Every mode, by the name that the configuration uses.
    pub const NAMES: &[&str] = &["transaction", "session", "statement"];

    /// The mode's name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transaction => "transaction",
            Self::Session => "session",
            Self::Statement => "statement",
        }
    }
}

/// The limits of one pool. A `None` duration is the word `off`: no limit. Zero means zero.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSettings {
    /// When a server goes back to its pool.
    pub mode: PoolMode,
    /// Servers that are kept open even when nobody uses them, over all shards.
    pub min_connections: u32,
    /// The most servers of this pool, over all shards.
    pub max_connections: u32,
    /// So many more, once a client has waited for `reserve_timeout`.
    pub reserve_connections: u32,
    /// How long a client must have waited for that; `None`: they are not used.
    pub reserve_timeout: Option<Duration>,
    /// Where each client's own role logs in: the roles that may have a pool at once.
    pub max_role_pools: u32,
    /// Where each client's own role logs in: the most servers of all roles; `None` is `max_connections` times ten.
    pub max_total_connections: Option<u32>,
    /// A server that was idle for this long is closed, down to `min_connections`; zero is off too.
    pub idle_timeout: Option<Duration>,
    /// A server older than this is closed when it is next idle; zero is off too.
    pub max_lifetime: Option<Duration>,
    /// How long a client waits for a server before it gets an error.
    pub connection_timeout: Option<Duration>,
    /// A server that has been idle for this long is asked something; zero is off too.
    pub health_check_interval: Option<Duration>,
    /// How long it may take to answer.
    pub health_check_timeout: Duration,
    /// How long a request may work on a server; zero is off too.
    pub query_timeout: Option<Duration>,
    /// The most that a text may ask for by a hint where that is longer than `query_timeout`; zero is off too.
    pub timeout_hint_max: Option<Duration>,
    /// How long a client may do nothing in a transaction; zero is off too.
    pub idle_transaction_timeout: Option<Duration>,
    /// How long a transaction may last; zero is off too.
    pub transaction_timeout: Option<Duration>,
    /// A client that has waited for a server for this long is told so; zero is off too.
    pub wait_notice_after: Option<Duration>,
    /// What cleans a server whose session was changed. Empty: such a server is closed instead.
    pub reset_query: String,
    /// The prepared statements that one server keeps, least recently used out first.
    pub max_prepared_statements: u32,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            mode: PoolMode::Transaction,
            min_connections: 2,
            max_connections: 10,
            reserve_connections: 0,
            reserve_timeout: Some(Duration::from_secs(5)),
            max_role_pools: 1000,
            max_total_connections: None,
            idle_timeout: Some(Duration::from_secs(600)),
            max_lifetime: Some(Duration::from_secs(3600)),
            connection_timeout: Some(Duration::from_secs(5)),
            health_check_interval: Some(Duration::from_secs(30)),
            health_check_timeout: Duration::from_secs(2),
            query_timeout: Some(Duration::ZERO),
            timeout_hint_max: Some(Duration::ZERO),
            idle_transaction_timeout: Some(Duration::ZERO),
            transaction_timeout: Some(Duration::ZERO),
            wait_notice_after: Some(Duration::ZERO),
            reset_query: "DISCARD ALL".to_owned(),
            max_prepared_statements: 200,
        }
    }
}

impl PoolSettings {
    /// The most servers of all roles.
    pub fn total(&self) -> u32 {
        self.max_total_connections
            .unwrap_or_else(|| self.max_connections.saturating_mul(10))
    }

    /// What does not fit together: the key at fault and a sentence about it.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        // The default gives way to a smaller maximum; another number was meant.
        let meant = self.min_connections != Self::default().min_connections;
        if meant && self.min_connections > self.max_connections {
            problems.push((
                "min_connections",
                format!(
                    "expected at most max_connections ({}), got {}",
                    self.max_connections, self.min_connections
                ),
            ));
        }
        if self.health_check_timeout.is_zero() {
            problems.push((
                "health_check_timeout",
                "expected more than no time at all; health_check_interval: off switches the check off"
                    .to_owned(),
            ));
        }
        if self.reset_query.contains('\0') {
            problems.push((
                "reset_query",
                "expected SQL text, got a NUL byte in it".to_owned(),
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_minimum_gives_way_to_a_maximum_of_one() {
        let settings = PoolSettings {
            max_connections: 1,
            ..PoolSettings::default()
        };
        assert_eq!(settings.problems(), []);
        assert_eq!(crate::Settings::from(&settings).min_connections, 1);
    }

    #[test]
    fn the_defaults_fit_together() {
        assert_eq!(PoolSettings::default().problems(), []);
    }

    #[test]
    fn a_pool_cannot_keep_more_servers_than_it_may_have() {
        let settings = PoolSettings {
            min_connections: 11,
            ..PoolSettings::default()
        };
        let problems = settings.problems();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].0, "min_connections");
        assert_eq!(
            problems[0].1,
            "expected at most max_connections (10), got 11"
        );
    }

    #[test]
    fn every_mode_has_the_name_it_is_read_by() {
        let modes = [
            PoolMode::Transaction,
            PoolMode::Session,
            PoolMode::Statement,
        ];
        assert_eq!(modes.map(PoolMode::name).as_slice(), PoolMode::NAMES);
    }
}
