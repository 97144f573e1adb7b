//! The `circuit_breaker` section: when a PostgreSQL that fails is left alone.

use std::time::Duration;

use ::pool::BreakerSettings;
use serde::Deserialize;

use super::keys::{Key, Kind, Unset};

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "circuit_breaker.enabled",
        kind: Kind::Switch,
        unset: Unset::Is("false"),
        about: "Whether clients are refused at once (08006) while a PostgreSQL keeps failing by its own fault: nobody gets in, servers die in use or do not pass their check.",
    },
    Key {
        path: "circuit_breaker.error_threshold",
        kind: Kind::Share,
        unset: Unset::Is("0.5"),
        about: "The part of failures among the last outcomes at which the breaker opens, above 0 and at most 1.",
    },
    Key {
        path: "circuit_breaker.open_duration",
        kind: Kind::Duration,
        unset: Unset::Is("10s"),
        about: "How long it is open before a few logins are tried.",
    },
    Key {
        path: "circuit_breaker.half_open_max",
        kind: Kind::Whole(1, OUTCOMES_MAX),
        unset: Unset::Is("3"),
        about: "How many logins are tried at once then, and how many successes close it; one failure opens it again.",
    },
    Key {
        path: "circuit_breaker.window_size",
        kind: Kind::Whole(1, OUTCOMES_MAX),
        unset: Unset::Is("10"),
        about: "How many of the last outcomes are looked at; with fewer it stays closed. Transactions count as successes.",
    },
];

/// More outcomes than this say nothing about now.
const OUTCOMES_MAX: u32 = 100_000;

/// When a PostgreSQL that fails is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CircuitBreaker {
    /// False: never.
    pub enabled: bool,
    /// The part of failures at which it opens.
    pub error_threshold: f64,
    /// How long it is open.
    pub open_duration: Duration,
    /// How many logins are tried at once then, and how many successes close it.
    pub half_open_max: u32,
    /// How many outcomes are looked at.
    pub window_size: u32,
}

impl CircuitBreaker {
    /// What each target's breaker goes by; `None`: they have none.
    pub fn settings(&self) -> Option<BreakerSettings> {
        self.enabled.then_some(BreakerSettings {
            error_threshold: self.error_threshold,
            open_duration: self.open_duration,
            half_open_max: self.half_open_max,
            window_size: self.window_size,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use ::pool::BreakerSettings;

    fn parse(section: &str) -> Result<Config, String> {
        let text = format!(
            "databases: {{a: {{writer: /tmp}}}}\n{section}\nauth: {{enabled: false, method: trust}}\n"
        );
        Config::parse(&text, "x").map_err(|errors| errors.to_string())
    }

    fn settings(section: &str) -> Option<BreakerSettings> {
        let config = parse(section).unwrap_or_else(|errors| panic!("{errors}"));
        config.breaker.settings()
    }

    #[test]
    fn it_is_off_unless_enabled_and_has_the_defaults_of_the_pool() {
        assert_eq!(settings(""), None);
        assert_eq!(settings("circuit_breaker: {half_open_max: 1}"), None);
        assert_eq!(
            settings("circuit_breaker: {enabled: true}"),
            Some(BreakerSettings::default())
        );
    }

    #[test]
    fn a_threshold_is_a_part_of_one() {
        for (text, share) in [("0.25", 0.25), ("1", 1.0), ("1e-1", 0.1), (".5", 0.5)] {
            let section = format!("circuit_breaker: {{enabled: true, error_threshold: {text}}}");
            let settings = settings(&section).map(|settings| settings.error_threshold);
            assert_eq!(settings, Some(share), "{text}");
        }
        for text in ["0", "-0.5", "1.01", "50", "50%", "nan", "inf", "half", ""] {
            let section = format!("circuit_breaker:\n  error_threshold: {text}");
            let errors = parse(&section).err().unwrap_or_default();
            let place =
                "x:3: circuit_breaker.error_threshold: expected a number above 0 and at most 1";
            assert!(errors.contains(place), "{text}: {errors}");
        }
    }
}
