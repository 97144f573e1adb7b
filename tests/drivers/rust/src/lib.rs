//! What the three programs share: the lists of types and errors, and the environment.

use std::path::Path;

/// How many clients share a few servers.
pub const CLIENTS: i32 = 50;

/// Counts the queries that are there to be cancelled.
pub const SLEEPERS: &str = "select count(*) from pg_stat_activity \
                            where datname = current_database() and wait_event = 'PgSleep'";

/// A variable of the environment.
pub fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Pairs of a type and a value of it as text.
pub fn types() -> Vec<(String, String)> {
    let split = |line: String| {
        line.split_once('\t')
            .map(|(name, value)| (name.into(), value.into()))
    };
    lines("types.txt").into_iter().filter_map(split).collect()
}

/// Statements that fail.
pub fn errors() -> Vec<String> {
    lines("errors.txt")
}

/// The value as an expression.
pub fn literal(name: &str, value: &str) -> String {
    format!("'{}'::{name}", value.replace('\'', "''"))
}

fn lines(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(&env("DRIVERS_SHARED")).join(name));
    text.expect("a list").lines().map(String::from).collect()
}
