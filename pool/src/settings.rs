//! What the operator asks of a pool, as plain values.

use std::time::Duration;

use crate::config::PoolSettings;

/// The numbers that a [`Pool`](crate::Pool) decides by. `min_connections` and `max_connections` are those of the whole
/// process: the maximum is enforced by the shared [`Budget`](crate::Budget), the minimum is divided over the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Servers kept open when nobody asks for them. A wish, not a right: a shard whose clients starve comes first.
    pub min_connections: u32,
    /// Most servers open or logging in at any moment, over all shards.
    pub max_connections: u32,
    /// So many servers more may be open once a client has waited for `reserve_timeout`; they leave when they are idle.
    pub reserve_connections: u32,
    /// How long a client must have waited for that. `None`: they are not used.
    pub reserve_timeout: Option<Duration>,
    /// An idle server is closed after this time. `None` and zero switch it off.
    pub idle_timeout: Option<Duration>,
    /// A server is closed after this time, at the next moment that nobody leases it. `None` and zero switch it off.
    pub max_lifetime: Option<Duration>,
    /// How long a client may wait for a server. `None` is no limit. Zero is zero: a client that finds no idle server
    /// fails with the next [`expire`](crate::Pool::expire), but the login that it asked for still happens, so that the
    /// next client finds a server.
    pub connection_timeout: Option<Duration>,
    /// A server that has been idle for this long is looked at, and again after the same time. `None` and zero: never.
    pub check_interval: Option<Duration>,
    /// Most logins in flight in this pool of this shard.
    pub logins_max: u32,
    /// Pause after the first login that failed by this pool's own fault; for others see [`Target`](crate::Target).
    pub backoff_min: Duration,
    /// Longest pause after failed logins; the pause doubles with each failure in a row.
    pub backoff_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            min_connections: 2,
            max_connections: 10,
            reserve_connections: 0,
            reserve_timeout: Some(Duration::from_secs(5)),
            idle_timeout: Some(Duration::from_secs(600)),
            max_lifetime: Some(Duration::from_secs(3600)),
            connection_timeout: Some(Duration::from_secs(5)),
            check_interval: Some(Duration::from_secs(30)),
            logins_max: LOGINS_MAX,
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
        }
    }
}

impl From<&PoolSettings> for Settings {
    /// The configured section; what it has no keys for takes its default.
    fn from(section: &PoolSettings) -> Self {
        Settings {
            min_connections: section.min_connections.min(section.max_connections),
            max_connections: section.max_connections,
            reserve_connections: section.reserve_connections,
            reserve_timeout: section.reserve_timeout,
            idle_timeout: section.idle_timeout,
            max_lifetime: section.max_lifetime,
            connection_timeout: section.connection_timeout,
            check_interval: section.health_check_interval,
            ..Settings::default()
        }
    }
}

impl Settings {
    /// This shard's part of `min_connections`: the parts of all shards add up to it.
    pub(crate) fn min_share(&self, shard: usize, shards: usize) -> u32 {
        let shards = u32::try_from(shards).unwrap_or(u32::MAX).max(1);
        let shard = u32::try_from(shard).unwrap_or(u32::MAX);
        self.min_connections / shards + u32::from(shard < self.min_connections % shards)
    }

    /// How long a client must have waited before the reserve is used, if there is one.
    pub(crate) fn reserve_timeout(&self) -> Option<Duration> {
        self.reserve_timeout
            .filter(|_| self.reserve_connections > 0)
    }

    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout.filter(|limit| !limit.is_zero())
    }

    pub(crate) fn check_interval(&self) -> Option<Duration> {
        self.check_interval.filter(|interval| !interval.is_zero())
    }

    /// How often it is looked again whether the minimum can be reached.
    pub(crate) fn refill_interval(&self) -> Duration {
        let half = self.idle_timeout().map(|timeout| timeout / 2);
        half.map_or(REFILL_MAX, |half| half.clamp(REFILL_MIN, REFILL_MAX))
    }

    pub(crate) fn max_lifetime(&self) -> Option<Duration> {
        self.max_lifetime.filter(|limit| !limit.is_zero())
    }
}

/// Other pools or shards may have the permits that the minimum lacks; nobody tells when they do not need them any more.
const REFILL_MIN: Duration = Duration::from_millis(100);
const REFILL_MAX: Duration = Duration::from_secs(60);

/// Two logins in flight fill a pool quickly enough and do not stampede a server that has just come back.
pub const LOGINS_MAX: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_min_connections_add_up_to_it() {
        for min in 0..9 {
            for shards in 1..7 {
                let settings = Settings {
                    min_connections: min,
                    ..Settings::default()
                };
                let sum: u32 = (0..shards)
                    .map(|shard| settings.min_share(shard, shards))
                    .sum();
                assert_eq!(sum, min, "min {min} over {shards} shards");
            }
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_configuration() {
        assert_eq!(
            Settings::from(&PoolSettings::default()),
            Settings::default()
        );
    }

    #[test]
    fn a_zero_idle_timeout_or_lifetime_is_off() {
        let zero = Some(Duration::ZERO);
        let settings = Settings {
            idle_timeout: zero,
            max_lifetime: zero,
            ..Settings::default()
        };
        assert_eq!(
            (settings.idle_timeout(), settings.max_lifetime()),
            (None, None)
        );
    }
}
