//! The `auth` section: who may connect, and how a client proves it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::keys::{Key, Kind, Unset};
use super::limits::CLIENTS_MAX;
use super::report::Report;
use super::secret::{Secret, read_password};
use super::timeouts::UserTimeouts;
use crate::auth::address::Interfaces;
use crate::auth::{Fault, Method, Rules, userlist};
use zeroize::Zeroizing;

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "auth.enabled",
        kind: Kind::Switch,
        unset: Unset::Is("true"),
        about: "false asks nobody for anything: whoever names the role of backend.user is let in. Only together with method: trust.",
    },
    Key {
        path: "auth.method",
        kind: Kind::Choice(AuthMethod::NAMES),
        unset: Unset::Is("scram-sha-256"),
        about: "How clients log in: scram-sha-256, md5, or trust (a listed user needs no password).",
    },
    Key {
        path: "auth.hba_file",
        kind: Kind::Text,
        unset: Unset::Nothing("pg_hba.conf"),
        about: "Rules in PostgreSQL's format, which then decide instead of method; relative to this file's directory. Read again at SIGHUP, as are all files of auth.",
    },
    Key {
        path: "auth.ident_file",
        kind: Kind::Text,
        unset: Unset::Nothing("pg_ident.conf"),
        about: "The maps that the rules name by map=, in PostgreSQL's format.",
    },
    Key {
        path: "auth.file",
        kind: Kind::Text,
        unset: Unset::Nothing("userlist.txt"),
        about: "More users, in PgBouncer's format: \"user\" \"secret\" on each line.",
    },
    Key {
        path: "auth.query",
        kind: Kind::Text,
        unset: Unset::Is("\"off\""),
        about: "Asks PostgreSQL for users that are listed nowhere: on (pg_shadow), or a query of $1 for name, secret and, if you like, the seconds that the secret is valid for.",
    },
    Key {
        path: "auth.query_user",
        kind: Kind::Text,
        unset: Unset::Nothing("pgmux_auth"),
        about: "The role that asks; backend.user unless it is written here.",
    },
    Key {
        path: "auth.query_password",
        kind: Kind::Secret,
        unset: Unset::Nothing("${PGMUX_AUTH_PASSWORD}"),
        about: "Its password.",
    },
    Key {
        path: "auth.query_password_file",
        kind: Kind::Text,
        unset: Unset::Nothing("/run/secrets/pgmux-auth"),
        about: "A file whose first line is the password; a relative path starts at this file's directory.",
    },
    Key {
        path: "auth.query_database",
        kind: Kind::Text,
        unset: Unset::Nothing("postgres"),
        about: "Where it asks; the client's own database unless it is written here.",
    },
    Key {
        path: "auth.query_cache",
        kind: Kind::Duration,
        unset: Unset::Is("1m"),
        about: "How long an answer holds; that there is no such user holds for 5s at most.",
    },
    Key {
        path: "auth.users[].username",
        kind: Kind::Text,
        unset: Unset::Required("app"),
        about: "The name that a client logs in with.",
    },
    Key {
        path: "auth.users[].password",
        kind: Kind::Secret,
        unset: Unset::Usual("change-me"),
        about: "Clear text, an md5... hash (method md5) or a SCRAM-SHA-256$... verifier (method scram-sha-256).",
    },
    Key {
        path: "auth.users[].password_file",
        kind: Kind::Text,
        unset: Unset::Nothing("/run/secrets/pgmux-app"),
        about: "A file whose first line is the password; a relative path starts at this file's directory.",
    },
    Key {
        path: "auth.users[].max_connections",
        kind: Kind::Whole(0, CLIENTS_MAX),
        unset: Unset::Nothing("100"),
        about: "The most clients of this user, if connection_limits.enabled (0: no limit); connection_limits has the default.",
    },
    Key {
        path: "auth.users[].client_idle_timeout",
        kind: Kind::Duration,
        unset: Unset::Nothing("10m"),
        about: "This user's own, instead of proxy.client_idle_timeout (0: no limit).",
    },
    Key {
        path: "auth.users[].query_timeout",
        kind: Kind::Duration,
        unset: Unset::Nothing("30s"),
        about: "This user's own, instead of pool.query_timeout (0: no limit).",
    },
    Key {
        path: "auth.users[].idle_transaction_timeout",
        kind: Kind::Duration,
        unset: Unset::Nothing("1m"),
        about: "This user's own, instead of pool.idle_transaction_timeout (0: no limit).",
    },
    Key {
        path: "auth.users[].transaction_timeout",
        kind: Kind::Duration,
        unset: Unset::Nothing("10m"),
        about: "This user's own, instead of pool.transaction_timeout (0: no limit).",
    },
];

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum AuthMethod {
    /// SCRAM-SHA-256.
    #[default]
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// MD5 with a salt.
    #[serde(rename = "md5")]
    Md5,
    /// Nothing is asked.
    #[serde(rename = "trust")]
    Trust,
}

impl AuthMethod {
    /// Every method, by the name that the configuration uses.
    pub const NAMES: &[&str] = &["scram-sha-256", "md5", "trust"];
}

/// Who may connect.
#[derive(Clone)]
pub struct Auth {
    /// False: every name is let in without a password. True: only `users` are.
    pub enabled: bool,
    /// How clients prove who they are; always `Trust` when `enabled` is false.
    pub method: AuthMethod,
    /// The users by name, of `auth.users` and `auth.file`.
    pub users: HashMap<String, User>,
    /// Rules, which decide instead of `method`.
    pub rules: Option<Arc<Rules>>,
    /// How PostgreSQL is asked for users that are not listed.
    pub query: Option<AuthQuery>,
    /// The files with secrets in them.
    pub secret_files: Vec<PathBuf>,
}

impl Auth {
    /// Whether users were listed in `before` who may not come any more.
    pub fn misses_some_of(&self, before: &Self) -> bool {
        let all_known = || {
            before
                .users
                .keys()
                .all(|user| self.users.contains_key(user))
        };
        before.enabled && self.enabled && self.query.is_none() && !all_known()
    }

    /// Whether this user may come, whatever it must prove.
    pub fn lists(&self, user: &[u8]) -> bool {
        let listed = |user| self.users.contains_key(user);
        !self.enabled || self.query.is_some() || std::str::from_utf8(user).is_ok_and(listed)
    }
}

/// How PostgreSQL is asked for users.
#[derive(Clone)]
pub struct AuthQuery {
    /// The query.
    pub text: String,
    /// Who asks, and its password, if that is not the group's own user.
    pub user: Option<(String, Option<Secret>)>,
    /// Where, if not in the group's own database.
    pub database: Option<String>,
    /// How long an answer holds.
    pub cache: Duration,
}

/// What `auth.query: on` stands for. No operator is taken from anywhere but
/// pg_catalog, whatever the search_path; a secret that is valid no more is
/// none, and one that will not be for ever says for how many seconds.
pub const AUTH_QUERY: &str = "SELECT usename, passwd, \
    CASE WHEN pg_catalog.isfinite(valuntil) THEN pg_catalog.date_part('epoch', valuntil OPERATOR(pg_catalog.-) pg_catalog.now()) END \
    FROM pg_catalog.pg_shadow WHERE usename OPERATOR(pg_catalog.=) $1 \
    AND (valuntil IS NULL OR valuntil OPERATOR(pg_catalog.>) pg_catalog.now())";

/// One user of `auth.users`.
#[derive(Clone)]
pub struct User {
    /// The name that a client logs in with.
    pub name: String,
    /// What is known of the password; `None` only with [`AuthMethod::Trust`].
    pub secret: Option<UserSecret>,
    /// The most clients, if written here; zero is no limit.
    pub max_connections: Option<u32>,
    /// How long what may take, where that is written here.
    pub timeouts: UserTimeouts,
}

/// What is known of a user's password.
#[derive(Clone)]
pub enum UserSecret {
    /// The password itself.
    Cleartext(Secret),
    /// `md5` and 32 hex digits, as PostgreSQL stores it.
    Md5(Secret),
    /// `SCRAM-SHA-256$iterations:salt$stored:server`, as PostgreSQL stores it.
    Scram(Secret),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    enabled: bool,
    method: AuthMethod,
    #[serde(default)]
    users: Vec<SectionUser>,
    hba_file: Option<PathBuf>,
    ident_file: Option<PathBuf>,
    file: Option<PathBuf>,
    query: String,
    query_user: Option<String>,
    query_password: Option<Secret>,
    query_password_file: Option<PathBuf>,
    query_database: Option<String>,
    query_cache: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SectionUser {
    username: String,
    password: Option<Secret>,
    password_file: Option<PathBuf>,
    max_connections: Option<u32>,
    client_idle_timeout: Option<Duration>,
    query_timeout: Option<Duration>,
    idle_transaction_timeout: Option<Duration>,
    transaction_timeout: Option<Duration>,
}

impl Section {
    pub(super) fn resolve(mut self, report: &mut Report) -> Option<Auth> {
        let of_users = self.users.iter().map(|user| &user.password_file);
        let mut secret_files: Vec<_> = of_users
            .chain([&self.query_password_file])
            .filter_map(|file| file.as_deref())
            .map(|file| report.beside(file))
            .collect();
        let query = self.query(report);
        let rules = self.rules(report);
        let listed = self.file.take().map(|file| report.beside(&file));
        let elsewhere = listed.is_some() || query.is_some();
        let Self {
            enabled,
            method,
            users,
            ..
        } = self;
        match (enabled, users.is_empty() && !elsewhere) {
            (false, _) if method != AuthMethod::Trust => report.at(
                "auth.enabled",
                "false asks nobody for a password: list auth.users, or write method: trust beside it if that is meant",
            ),
            (false, false) => {
                report.at("auth.users", "these users would never be asked for: remove them or write enabled: true")
            }
            (false, _) if rules.is_some() => {
                report.at("auth.hba_file", "these rules would never be asked: remove them or write enabled: true")
            }
            (true, true) => report.at(
                "auth.users",
                "expected at least one user, or auth.file or auth.query: nobody could log in",
            ),
            _ => {}
        }
        // Which secret fits is decided by the rule that a client comes by.
        let needed = rules.is_none().then_some(method);
        let mut known = HashMap::new();
        for (index, user) in users.into_iter().enumerate() {
            let key = format!("auth.users[{index}]");
            let Some(user) = user.resolve(&key, needed, report) else {
                continue;
            };
            if known.contains_key(&user.name) {
                report.at(
                    &format!("{key}.username"),
                    format!("the user {:?} is listed twice", user.name),
                );
            }
            known.insert(user.name.clone(), user);
        }
        if let Some(path) = listed {
            read_list(&path, &mut known, report);
            secret_files.push(path);
        }
        Some(Auth {
            enabled,
            method,
            users: known,
            rules,
            query,
            secret_files,
        })
    }

    fn rules(&mut self, report: &mut Report) -> Option<Arc<Rules>> {
        let ident = self.ident_file.take();
        let Some(file) = self.hba_file.take() else {
            if ident.is_some() {
                report.at(
                    "auth.ident_file",
                    "expected auth.hba_file beside it: only rules use maps",
                );
            }
            return None;
        };
        let ident = ident.map(|file| report.beside(&file));
        let path = report.beside(&file);
        let read = |path: &Path| std::fs::read_to_string(path);
        match Rules::read(&path, ident.as_deref(), Interfaces::here(), &read) {
            Ok(rules) => Some(Arc::new(rules)),
            Err(faults) => {
                report_faults(faults, "auth.hba_file", report);
                None
            }
        }
    }

    fn query(&mut self, report: &mut Report) -> Option<AuthQuery> {
        let password = read_password(
            self.query_password.take(),
            self.query_password_file.take(),
            "auth.query",
            report,
        );
        let user = self.query_user.take().map(|user| (user, password.clone()));
        let text = match self.query.as_str() {
            "off" => {
                if user.is_some() || password.is_some() {
                    report.at(
                        "auth.query",
                        "expected on or a query: without one there is no use for its user",
                    );
                }
                return None;
            }
            "on" => AUTH_QUERY.to_owned(),
            text if text.contains("$1") && !text.contains('\0') => text.to_owned(),
            text => {
                report.at(
                    "auth.query",
                    format!(
                        "expected on, off, or a query with $1 for the user's name, got {text:?}"
                    ),
                );
                return None;
            }
        };
        if user.is_none() && password.is_some() {
            report.at("auth.query_password", "expected auth.query_user beside it");
        }
        Some(AuthQuery {
            text,
            user,
            database: self.query_database.take(),
            cache: self.query_cache,
        })
    }
}

/// Faults of another file, with their place there.
fn report_faults(faults: Vec<Fault>, key: &str, report: &mut Report) {
    for fault in faults {
        if fault.line == 0 {
            report.at(key, format!("{}: {}", fault.file, fault.text));
        } else {
            report.elsewhere(fault.file, fault.line, fault.text);
        }
    }
}

fn read_list(path: &Path, known: &mut HashMap<String, User>, report: &mut Report) {
    let file = path.display().to_string();
    let text = match std::fs::read_to_string(path).map(Zeroizing::new) {
        Ok(text) => text,
        Err(error) => return report.at("auth.file", format!("cannot read {file}: {error}")),
    };
    let listed = match userlist::read(&text, &file) {
        Ok(listed) => listed,
        Err(faults) => return report_faults(faults, "auth.file", report),
    };
    for mut user in listed {
        let name = user.user;
        let secret = user
            .secret
            .as_mut()
            .map(|secret| classify(Secret::new(std::mem::take(&mut **secret))));
        if let Some(UserSecret::Scram(secret)) = &secret
            && !is_scram(secret.expose())
        {
            report.elsewhere(file.clone(), user.line, NO_VERIFIER.to_owned());
        }
        if known.contains_key(&name) {
            let text = format!("the user {name:?} is listed twice, here or in auth.users");
            report.elsewhere(file.clone(), user.line, text);
        }
        let max_connections = None;
        known.insert(
            name.clone(),
            User {
                name,
                secret,
                max_connections,
                timeouts: UserTimeouts::default(),
            },
        );
    }
}

const NO_VERIFIER: &str =
    "expected SCRAM-SHA-256$iterations:salt$stored-key:server-key as PostgreSQL stores it";

impl Auth {
    /// Whether a client can come in without showing that it is who it says.
    pub fn trusts(&self) -> bool {
        match &self.rules {
            Some(rules) => rules.all().iter().any(|rule| rule.method == Method::Trust),
            None => self.method == AuthMethod::Trust,
        }
    }
}

impl SectionUser {
    /// `method`: the one that all clients log in by, if there is one.
    fn resolve(self, key: &str, method: Option<AuthMethod>, report: &mut Report) -> Option<User> {
        if self.username.is_empty() {
            report.at(&format!("{key}.username"), "expected a name, got \"\"");
        }
        let given = self.password.is_some() || self.password_file.is_some();
        let password = read_password(self.password, self.password_file, key, report);
        let secret = password.map(classify);
        let misfit = match (&secret, method) {
            (None, None | Some(AuthMethod::Trust)) => None,
            (None, _) if given => None,
            (None, _) => Some("expected a password or a password_file: this user could not log in"),
            (Some(UserSecret::Md5(_)), Some(AuthMethod::ScramSha256)) => Some(
                "an md5 hash cannot answer scram-sha-256: expected a clear text or a SCRAM-SHA-256$... verifier",
            ),
            (Some(UserSecret::Scram(_)), Some(AuthMethod::Md5)) => {
                Some("a SCRAM verifier cannot answer md5: expected a clear text or an md5... hash")
            }
            (Some(UserSecret::Scram(secret)), _) if !is_scram(secret.expose()) => Some(NO_VERIFIER),
            (Some(UserSecret::Cleartext(secret)), _) if secret.expose().is_empty() => {
                Some("expected a password, got \"\"")
            }
            _ => None,
        };
        if let Some(text) = misfit {
            report.at(&format!("{key}.password"), text);
        }
        Some(User {
            name: self.username,
            secret,
            max_connections: self.max_connections,
            timeouts: UserTimeouts {
                client_idle: self.client_idle_timeout,
                query: self.query_timeout,
                idle_transaction: self.idle_transaction_timeout,
                transaction: self.transaction_timeout,
            },
        })
    }
}

impl UserSecret {
    /// Of a text that PostgreSQL has given.
    pub fn stored(secret: Secret) -> Self {
        classify(secret)
    }
}

/// PostgreSQL's own rule (`get_password_type`): what does not look like a hash is a password.
fn classify(secret: Secret) -> UserSecret {
    let text = secret.expose();
    if text.starts_with("SCRAM-SHA-256$") {
        UserSecret::Scram(secret)
    } else if text.len() == 35
        && text.starts_with("md5")
        && text[3..].bytes().all(|b| b.is_ascii_hexdigit())
    {
        UserSecret::Md5(secret)
    } else {
        UserSecret::Cleartext(secret)
    }
}

/// Iterations from 1, a base64 salt, and two keys of 32 bytes (44 base64 digits).
fn is_scram(text: &str) -> bool {
    let parts = || {
        let (head, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        Some((iterations.parse::<u32>().ok()?, salt, stored, server))
    };
    let is_base64 = |text: &str| {
        let digits = text.trim_end_matches('=');
        !digits.is_empty()
            && text.len().is_multiple_of(4)
            && text.len() - digits.len() <= 2
            && digits
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
    };
    parts().is_some_and(|(iterations, salt, stored, server)| {
        iterations > 0
            && is_base64(salt)
            && [stored, server]
                .iter()
                .all(|key| key.len() == 44 && key.ends_with('=') && is_base64(key))
    })
}
