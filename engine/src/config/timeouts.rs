//! How long what may take: what holds for one client, out of what is written for all, for its database and for it.

use std::time::Duration;

use super::{Config, Group};

/// What a user has of its own, instead of what holds for all; zero is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserTimeouts {
    /// Instead of `proxy.client_idle_timeout`.
    pub client_idle: Option<Duration>,
    /// Instead of `pool.query_timeout`.
    pub query: Option<Duration>,
    /// Instead of `pool.idle_transaction_timeout`.
    pub idle_transaction: Option<Duration>,
    /// Instead of `pool.transaction_timeout`.
    pub transaction: Option<Duration>,
}

/// What holds for a client, in microseconds; [`OFF`] is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    /// How long it may do nothing outside a transaction.
    pub client_idle: u64,
    /// How long a request of its may work.
    pub query: u64,
    /// The most that a text may ask for where that is more.
    pub hint_max: u64,
    /// How long it may do nothing in a transaction.
    pub idle_transaction: u64,
    /// How long its transaction may last.
    pub transaction: u64,
    /// How long it waits for a server before it is told so.
    pub wait_notice: u64,
}

/// No limit.
pub const OFF: u64 = u64::MAX;

impl TimeLimits {
    /// Nothing is limited.
    pub const NONE: Self = Self {
        client_idle: OFF,
        query: OFF,
        hint_max: 0,
        idle_transaction: OFF,
        transaction: OFF,
        wait_notice: OFF,
    };

    /// Whether no time is ever to be looked at.
    pub fn are_off(&self) -> bool {
        let limits = [
            self.client_idle,
            self.query,
            self.idle_transaction,
            self.transaction,
            self.wait_notice,
        ];
        limits.iter().all(|limit| *limit == OFF)
    }

    /// How long a request may work whose text asks for so much: less is always granted, more up to `hint_max`.
    pub fn hinted(&self, asked: u64) -> u64 {
        asked.min(self.query.max(self.hint_max))
    }
}

impl Config {
    /// What holds for a client of this database; `user`: whom it has proved to be.
    pub fn time_limits(&self, group: &Group, user: Option<&[u8]>) -> TimeLimits {
        let listed = user.and_then(|user| std::str::from_utf8(user).ok());
        let listed = listed.and_then(|name| self.auth.users.get(name));
        let own = listed.map(|user| user.timeouts).unwrap_or_default();
        let pool = &group.pool;
        TimeLimits {
            client_idle: micros(own.client_idle.or(self.proxy.client_idle_timeout)),
            query: micros(own.query.or(pool.query_timeout)),
            hint_max: match micros(pool.timeout_hint_max) {
                OFF => 0,
                most => most,
            },
            idle_transaction: micros(own.idle_transaction.or(pool.idle_transaction_timeout)),
            transaction: micros(own.transaction.or(pool.transaction_timeout)),
            wait_notice: micros(pool.wait_notice_after),
        }
    }
}

/// Less than a microsecond is one: zero is no limit.
fn micros(limit: Option<Duration>) -> u64 {
    match limit {
        None | Some(Duration::ZERO) => OFF,
        Some(limit) => u64::try_from(limit.as_micros()).unwrap_or(OFF - 1).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let text = format!(
            "{text}\nauth: {{users: [{{username: app, password: x}}, \
             {{username: batch, password: x, query_timeout: 0, transaction_timeout: 7ms, client_idle_timeout: 8ms, idle_transaction_timeout: 9ms}}]}}"
        );
        Config::parse(&text, "pgmux.yaml").unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn nothing_is_limited_unless_it_is_written() {
        let config = config("databases: {a: {writer: /run}}");
        let limits = config.time_limits(&config.groups[0], Some(b"app"));
        assert!(limits.are_off());
        assert_eq!(limits, TimeLimits::NONE);
    }

    #[test]
    fn a_database_overrides_all_and_a_user_overrides_its_database() {
        let config = config(
            "proxy: {client_idle_timeout: 1ms}\n\
             pool: {query_timeout: 2ms, idle_transaction_timeout: 3ms, wait_notice_after: 4ms}\n\
             databases: {a: {writer: /run, pool: {query_timeout: 5ms, wait_notice_after: 0, timeout_hint_max: 6ms}}, b: {writer: /run}}",
        );
        let limits = |group: usize, user: &[u8]| {
            let limits = config.time_limits(&config.groups[group], Some(user));
            let TimeLimits {
                client_idle,
                query,
                hint_max,
                idle_transaction,
                transaction,
                wait_notice,
            } = limits;
            [
                client_idle,
                query,
                hint_max,
                idle_transaction,
                transaction,
                wait_notice,
            ]
        };
        assert_eq!(limits(0, b"app"), [1000, 5000, 6000, 3000, OFF, OFF]);
        assert_eq!(limits(1, b"app"), [1000, 2000, 0, 3000, OFF, 4000]);
        assert_eq!(limits(1, b"stranger"), [1000, 2000, 0, 3000, OFF, 4000]);
        assert_eq!(limits(0, b"batch"), [8000, OFF, 6000, 9000, 7000, OFF]);
    }

    #[test]
    fn a_hint_shortens_freely_and_lengthens_to_its_maximum() {
        let limits = |query, hint_max| TimeLimits {
            query,
            hint_max,
            ..TimeLimits::NONE
        };
        assert_eq!(limits(5, 0).hinted(3), 3);
        assert_eq!(limits(5, 0).hinted(8), 5);
        assert_eq!(limits(5, 7).hinted(8), 7);
        assert_eq!(limits(5, 7).hinted(6), 6);
        assert_eq!(limits(5, 3).hinted(8), 5);
        assert_eq!(limits(OFF, 0).hinted(8), 8);
    }
}
