//! The `auth` section: who may connect, and how a client proves it.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::keys::{Key, Kind, Unset};
use super::report::Report;
use super::secret::{Secret, read_password};

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "auth.enabled",
        kind: Kind::Switch,
        unset: Unset::Is("true"),
        about: "false lets everybody in under any name, and is accepted only together with method: trust.",
    },
    Key {
        path: "auth.method",
        kind: Kind::Choice(AuthMethod::NAMES),
        unset: Unset::Is("scram-sha-256"),
        about: "How clients log in: scram-sha-256, md5, or trust (a listed user needs no password).",
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
    /// The users by name; empty exactly when `enabled` is false.
    pub users: HashMap<String, User>,
}

/// One user of `auth.users`.
#[derive(Clone)]
pub struct User {
    /// The name that a client logs in with.
    pub name: String,
    /// What is known of the password; `None` only with [`AuthMethod::Trust`].
    pub secret: Option<UserSecret>,
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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SectionUser {
    username: String,
    password: Option<Secret>,
    password_file: Option<PathBuf>,
}

impl Section {
    pub(super) fn resolve(self, report: &mut Report) -> Option<Auth> {
        let Self {
            enabled,
            method,
            users,
        } = self;
        match (enabled, users.is_empty()) {
            (false, _) if method != AuthMethod::Trust => report.at(
                "auth.enabled",
                "false would let everybody in: list auth.users, or write method: trust beside it if that is meant",
            ),
            (false, false) => {
                report.at("auth.users", "these users would never be asked for: remove them or write enabled: true")
            }
            (true, true) => report.at(
                "auth.users",
                "expected at least one user: nobody could log in (enabled: false with method: trust lets everybody in)",
            ),
            _ => {}
        }
        let mut known = HashMap::new();
        for (index, user) in users.into_iter().enumerate() {
            let key = format!("auth.users[{index}]");
            let Some(user) = user.resolve(&key, method, report) else {
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
        Some(Auth {
            enabled,
            method,
            users: known,
        })
    }
}

impl SectionUser {
    fn resolve(self, key: &str, method: AuthMethod, report: &mut Report) -> Option<User> {
        if self.username.is_empty() {
            report.at(&format!("{key}.username"), "expected a name, got \"\"");
        }
        let given = self.password.is_some() || self.password_file.is_some();
        let password = read_password(self.password, self.password_file, key, report);
        let secret = password.map(classify);
        let misfit = match (&secret, method) {
            (None, AuthMethod::Trust) => None,
            (None, _) if given => None,
            (None, _) => Some("expected a password or a password_file: this user could not log in"),
            (Some(UserSecret::Md5(_)), AuthMethod::ScramSha256) => Some(
                "an md5 hash cannot answer scram-sha-256: expected a clear text or a SCRAM-SHA-256$... verifier",
            ),
            (Some(UserSecret::Scram(_)), AuthMethod::Md5) => {
                Some("a SCRAM verifier cannot answer md5: expected a clear text or an md5... hash")
            }
            (Some(UserSecret::Scram(secret)), _) if !is_scram(secret.expose()) => Some(
                "expected SCRAM-SHA-256$iterations:salt$stored-key:server-key as PostgreSQL stores it",
            ),
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
        })
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
