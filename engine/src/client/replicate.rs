//! The `replication` startup parameter: who may have such a connection, and
//! the login at a server of its own.
//!
//! PROTOCOL: "Streaming Replication Protocol".

use super::Refused;
use crate::replication::{self, Logged};
use crate::server::login::login_with;
use crate::settings::Entries;
use crate::shard::{Refusal, Shard, ShardPool};
use protocol::error::{ErrorFields, SqlState};
use std::rc::Rc;

/// What the parameter asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A session as any other.
    None,
    /// A walsender for the whole cluster.
    Physical,
    /// A walsender for one database, which takes SQL too.
    Database,
}

impl Kind {
    /// As PostgreSQL reads it: `database`, or a boolean (`parse_bool`), of
    /// which any beginning that is one's alone will do.
    pub(super) fn read(value: Option<&[u8]>) -> Result<Self, Refused> {
        let Some(value) = value else {
            return Ok(Kind::None);
        };
        if value == b"database" {
            return Ok(Kind::Database);
        }
        let word = value.to_ascii_lowercase();
        let begins = |whole: &[u8], least: usize| word.len() >= least && whole.starts_with(&word);
        if begins(b"true", 1) || begins(b"yes", 1) || word == b"on" || word == b"1" {
            return Ok(Kind::Physical);
        }
        if begins(b"false", 1) || begins(b"no", 1) || begins(b"off", 2) || word == b"0" {
            return Ok(Kind::None);
        }
        Err(invalid(value))
    }

    /// The parameter's value for the server, if there is to be one.
    pub(super) fn value(self) -> Option<&'static [u8]> {
        match self {
            Kind::None => None,
            Kind::Physical => Some(b"true"),
            Kind::Database => Some(b"database"),
        }
    }
}

fn invalid(value: &[u8]) -> Refused {
    let value = String::from_utf8_lossy(value);
    let text = format!("invalid value for parameter \"replication\": \"{value}\"");
    let mut fields = ErrorFields::fatal(SqlState::INVALID_PARAMETER_VALUE, &text);
    fields.hint = Some("Valid values are: \"false\", 0, \"true\", 1, \"database\".");
    let mut out = Vec::new();
    // It comes out of a startup packet, so it is short and has no NUL.
    let _ = fields.encode(&mut out);
    Refused::Saying(out)
}

/// Whether such connections are passed through at all.
pub(super) fn permit(shard: &Shard, kind: Kind) -> Result<(), Refused> {
    if kind == Kind::None || shard.config().proxy.allow_replication {
        return Ok(());
    }
    Err(Refused::fatal(
        SqlState::FEATURE_NOT_SUPPORTED,
        "replication connections do not go through pgmux",
    ))
}

/// Logs in to a server that is this client's alone.
pub(super) async fn begin(
    pool: &Rc<ShardPool>,
    value: &[u8],
    settings: &Entries,
) -> Result<Logged, Refused> {
    // The server would take the last one: a client could choose who it is.
    if let Some((name, _)) = settings.iter().find(|(name, _)| decides_who(name)) {
        let name = String::from_utf8_lossy(name);
        let text = format!("unrecognized configuration parameter \"{name}\"");
        return Err(Refused::fatal(SqlState::UNDEFINED_OBJECT, &text));
    }
    let permit = replication::Permit::take(&pool.shard).ok_or_else(|| {
        Refused::fatal(
            SqlState::TOO_MANY_CONNECTIONS,
            "sorry, too many replication connections already",
        )
    })?;
    let mut extra = vec![(&b"replication"[..], value)];
    extra.extend(settings.iter().map(|(name, value)| (&**name, &**value)));
    let server = login_with(pool, &extra).await.map_err(|error| {
        let name = pool.group().name.clone();
        tracing::warn!(database = %name, %error, "no server for a replication connection");
        let refusal = Refusal::of(&name, &error);
        Refused::fatal(refusal.code, &refusal.message)
    })?;
    Ok(Logged::new(Rc::clone(pool), server, permit))
}

/// Names that a startup packet has for other things than settings.
fn decides_who(name: &[u8]) -> bool {
    matches!(
        name,
        b"" | b"user" | b"database" | b"options" | b"replication"
    ) || name.starts_with(b"_pq_.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_read_as_postgresql_reads_it() {
        for (value, kind) in [
            ("true", Some(Kind::Physical)),
            ("T", Some(Kind::Physical)),
            ("yes", Some(Kind::Physical)),
            ("on", Some(Kind::Physical)),
            ("1", Some(Kind::Physical)),
            ("database", Some(Kind::Database)),
            ("Database", None),
            ("false", Some(Kind::None)),
            ("n", Some(Kind::None)),
            ("of", Some(Kind::None)),
            ("0", Some(Kind::None)),
            ("o", None),
            ("", None),
            ("2", None),
            ("truely", None),
        ] {
            assert_eq!(Kind::read(Some(value.as_bytes())).ok(), kind, "{value}");
        }
        assert_eq!(Kind::read(None).ok(), Some(Kind::None));
    }

    #[test]
    fn no_setting_says_who_the_client_is() {
        for name in ["user", "database", "options", "replication", "_pq_.x", ""] {
            assert!(decides_who(name.as_bytes()), "{name}");
        }
        assert!(!decides_who(b"datestyle"));
    }
}
