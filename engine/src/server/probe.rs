//! Asking a server what its session holds.
//!
//! Which texts may have changed a session is guessed from their words
//! ([`router::effects`]); what has changed is never guessed. One query tells
//! the settings made in this session, and everything that cannot move to
//! another server. It is right after ROLLBACK, savepoints, errors in the
//! middle of a text, `set_config` and functions alike.

use super::dialog::{Answer, Broken};
use super::{FoundStatement, Server};
use crate::limits::OWN_ROWS;
use crate::settings::{Entries, Setting};

/// What a session holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Settings made in it.
    pub settings: Entries,
    /// Its prepared statements, if they were asked for.
    pub statements: Vec<FoundStatement>,
    /// The one setting that was asked for by name.
    pub only: Option<Setting>,
    /// What cannot be moved, in words for an operator; empty when nothing.
    pub pins: Vec<&'static str>,
    /// Notifications that came while asking, as messages.
    pub notifications: Vec<u8>,
}

impl Server {
    /// Asks. `user` is the pool's role: another session user is a setting.
    /// `custom`: settings that the server does not list, to be asked for by
    /// name; the names are words joined by dots. A native server is asked for
    /// its statements too.
    pub async fn probe<'a>(
        &mut self,
        user: &str,
        custom: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Found, Broken> {
        let query = question(custom, self.native.is_some());
        let answer = self.query(&query).await?;
        self.judge(user, &query, &answer).await
    }

    /// The same when the question, or [one about a setting](question_for), is
    /// the only thing that the server owes.
    pub async fn probe_asked<'a>(
        &mut self,
        user: &str,
        custom: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Found, Broken> {
        let answer = self.settle().await?;
        let query = question(custom, self.native.is_some());
        self.judge(user, &query, &answer).await
    }

    async fn judge(&mut self, user: &str, query: &[u8], answer: &Answer) -> Result<Found, Broken> {
        if answer.error.is_none() {
            return found(answer, user.as_bytes()).ok_or(Broken::Unexpected(b'D'));
        }
        self.probe_unhurried(user, query).await
    }

    /// The session may have a `statement_timeout` that the question exceeds:
    /// it is asked again in a transaction without one. The value seen before
    /// is what the session has.
    async fn probe_unhurried(&mut self, user: &str, query: &[u8]) -> Result<Found, Broken> {
        for _ in 0..TRIES {
            let before = self.query(UNHURRIED).await?;
            if before.error.is_some() {
                self.query(b"ROLLBACK").await?;
                continue;
            }
            let timeout = before
                .rows
                .first()
                .and_then(|row| row.first().cloned().flatten());
            let answer = self.query(query).await?;
            let ended = self.query(b"COMMIT").await?;
            if answer.error.is_some() || ended.error.is_some() {
                break;
            }
            let mut found = found(&answer, user.as_bytes()).ok_or(Broken::Unexpected(b'D'))?;
            found.settings.retain(|(name, _)| **name != *TIMEOUT);
            found
                .settings
                .extend(timeout.map(|value| (TIMEOUT.into(), value)));
            return Ok(found);
        }
        Err(Broken::Unexpected(b'E'))
    }
}

/// The question what the session holds.
pub fn question<'a>(custom: impl IntoIterator<Item = &'a [u8]>, native: bool) -> Vec<u8> {
    let mut query = QUERY.to_vec();
    if native {
        query.extend_from_slice(STATEMENTS);
    }
    for name in custom {
        debug_assert!(!name.contains(&b'\''));
        for part in [
            &b" UNION ALL SELECT 'custom', '"[..],
            name,
            b"', pg_catalog.current_setting('",
            name,
            b"', true)",
        ] {
            query.extend_from_slice(part);
        }
    }
    query
}

/// The question for one setting, whose name is words joined by dots.
pub fn question_for(name: &[u8]) -> Vec<u8> {
    let parts = [
        &b"SELECT 'only', '"[..],
        name,
        b"', pg_catalog.current_setting('",
        name,
        b"')",
    ];
    parts.concat()
}

fn found(answer: &Answer, user: &[u8]) -> Option<Found> {
    let mut found = Found {
        notifications: answer.notifications.clone(),
        ..Found::default()
    };
    // What came beyond that has not been read.
    if answer.rows.len() >= OWN_ROWS {
        return None;
    }
    for row in &answer.rows {
        let [Some(kind), Some(name), value] = row.as_slice() else {
            return None;
        };
        if &**kind == b"custom" {
            found
                .settings
                .extend(value.clone().map(|value| (name.clone(), value)));
            continue;
        }
        if &**kind == b"only" {
            found.only = Some((name.clone(), value.clone()?));
            continue;
        }
        let value = value.as_deref().unwrap_or_default();
        if &**kind == b"statement" {
            let (name, from_sql) = (name.clone(), value == b"true");
            found.statements.push(FoundStatement { name, from_sql });
            continue;
        }
        match (&**kind, &**name) {
            (b"setting", b"session_authorization") if value == user => {}
            (b"setting", b"role") if value == b"none" => {}
            (b"setting", IDLE_TIMEOUT) => {
                found.settings.push((name.clone(), value.into()));
                if value != b"0" {
                    found.pins.push("idle_session_timeout");
                }
            }
            // Startup packets spell DateStyle and TimeZone as they like.
            (b"setting", _) => {
                let name = name.to_ascii_lowercase().into();
                found.settings.push((name, value.into()));
            }
            (b"pin", _) if value == b"0" => {}
            (b"pin", name) => found
                .pins
                .push(*PINS.iter().find(|pin| pin.as_bytes() == name)?),
            _ => return None,
        }
    }
    Some(found)
}

/// PostgreSQL ends an idle session after this time: the client's, not one that
/// waits in the pool.
pub const IDLE_TIMEOUT: &[u8] = b"idle_session_timeout";
const TIMEOUT: &[u8] = b"statement_timeout";
/// The first statement has to be quicker than the timeout, which the second
/// then lifts.
const UNHURRIED: &[u8] =
    b"BEGIN; SELECT pg_catalog.current_setting('statement_timeout'); SET LOCAL statement_timeout = 0";
/// A timeout of a millisecond may be missed a few times on a busy machine.
const TRIES: u32 = 20;
/// The pin of what SQL's PREPARE has made.
pub const STATEMENT_PIN: &str = "prepared statement";
const PINS: &[&str] = &[
    "listen",
    STATEMENT_PIN,
    "held cursor",
    "advisory lock",
    TEMPORARY,
];
/// A table, view, function or other object that ends with the session.
pub const TEMPORARY: &str = "temporary object";

/// Everything is qualified, operators too: the session's search_path must
/// not be able to put something else in their place. Excluded settings belong
/// to a transaction, or cannot be set to what they show (`seed`).
const QUERY: &[u8] = b"\
SELECT 'setting', name, setting FROM pg_catalog.pg_settings \
WHERE source OPERATOR(pg_catalog.=) 'session' \
AND name OPERATOR(pg_catalog.<>) ALL (ARRAY['transaction_isolation','transaction_read_only','transaction_deferrable','seed']) \
UNION ALL SELECT 'setting', 'role', pg_catalog.current_setting('role') \
UNION ALL SELECT 'setting', 'session_authorization', session_user::pg_catalog.text \
UNION ALL SELECT 'pin', 'listen', pg_catalog.count(*)::pg_catalog.text FROM pg_catalog.pg_listening_channels() \
UNION ALL SELECT 'pin', 'prepared statement', pg_catalog.count(*)::pg_catalog.text FROM pg_catalog.pg_prepared_statements WHERE from_sql \
UNION ALL SELECT 'pin', 'held cursor', pg_catalog.count(*)::pg_catalog.text FROM pg_catalog.pg_cursors WHERE is_holdable \
UNION ALL SELECT 'pin', 'advisory lock', pg_catalog.count(*)::pg_catalog.text FROM pg_catalog.pg_locks \
WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() \
UNION ALL SELECT 'pin', 'temporary object', ((SELECT pg_catalog.count(*) FROM pg_catalog.pg_class \
WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) OPERATOR(pg_catalog.+) \
(SELECT pg_catalog.count(*) FROM pg_catalog.pg_depend \
WHERE refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass \
AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()))::pg_catalog.text";

/// Added for a native server.
const STATEMENTS: &[u8] = b" UNION ALL SELECT 'statement', name, from_sql::pg_catalog.text \
FROM pg_catalog.pg_prepared_statements";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: [&str; 3]) -> Vec<Option<Box<[u8]>>> {
        columns
            .iter()
            .map(|column| Some(column.as_bytes().into()))
            .collect()
    }

    #[test]
    fn the_pools_own_identity_is_no_setting() {
        let rows = vec![
            row(["setting", "session_authorization", "app"]),
            row(["setting", "role", "none"]),
            row(["pin", "listen", "0"]),
        ];
        assert_eq!(
            found(
                &Answer {
                    rows,
                    ..Answer::default()
                },
                b"app"
            ),
            Some(Found::default())
        );
    }

    #[test]
    fn a_changed_identity_a_setting_and_a_pin_are_found() {
        let rows = vec![
            row(["setting", "role", "r1"]),
            row(["setting", "work_mem", "9216"]),
            row(["pin", "advisory lock", "2"]),
        ];
        let found = found(
            &Answer {
                rows,
                ..Answer::default()
            },
            b"app",
        )
        .expect("well formed");
        assert_eq!(found.settings.len(), 2);
        assert_eq!(found.pins, ["advisory lock"]);
    }

    #[test]
    fn names_are_folded_and_custom_settings_that_are_not_set_left_out() {
        let mut unset = row(["custom", "a.b", ""]);
        unset[2] = None;
        let rows = vec![
            row(["setting", "DateStyle", "German"]),
            row(["custom", "x.y", "z"]),
            unset,
        ];
        let found = found(
            &Answer {
                rows,
                ..Answer::default()
            },
            b"app",
        )
        .expect("well formed");
        let names: Vec<_> = found.settings.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, [&b"datestyle"[..], b"x.y"]);
    }

    #[test]
    fn a_row_of_another_shape_is_refused() {
        let rows = vec![row(["else", "x", "y"])];
        assert_eq!(
            found(
                &Answer {
                    rows,
                    ..Answer::default()
                },
                b"app"
            ),
            None
        );
    }
}
