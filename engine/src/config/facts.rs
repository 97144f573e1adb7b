//! What a configuration says, key by key, so that two of them can be compared, and what may be shown of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_yaml::Value;
use sha2::{Digest, Sha256};

use super::keys::{self, Kind};

/// Every key with its value, those too that are not written; and the contents of the files that it names.
#[derive(Clone, Default)]
pub struct Facts {
    values: BTreeMap<String, Fact>,
    files: Vec<PathBuf>,
}

#[derive(Clone, PartialEq, Eq)]
struct Fact {
    /// `None`: it is a secret.
    shown: Option<String>,
    digest: [u8; 32],
}

/// A key that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its path, or that of a file.
    pub key: String,
    /// What it was; `None`: it was not there. Secrets are not shown.
    pub before: Option<String>,
    /// What it is.
    pub after: Option<String>,
}

impl Facts {
    /// Of the checked tree, and the files that were read for it.
    pub(super) fn new(tree: &Value, files: Vec<PathBuf>) -> Self {
        let mut values = BTreeMap::new();
        flatten(tree, "", &mut values);
        let mut facts = Self { values, files };
        facts.files.sort();
        facts.files.dedup();
        for file in &facts.files {
            facts.values.insert(
                file.display().to_string(),
                Fact {
                    shown: None,
                    digest: contents(file),
                },
            );
        }
        facts
    }

    /// The files that the configuration names.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Has a key be what it is in `other`.
    pub fn keep(&mut self, other: &Self, key: &str) {
        match other.values.get(key) {
            Some(fact) => self.values.insert(key.to_owned(), fact.clone()),
            None => self.values.remove(key),
        };
    }

    /// Every key that differs, in the order of the keys.
    pub fn differences(&self, after: &Self) -> Vec<Difference> {
        let all: std::collections::BTreeSet<_> =
            self.values.keys().chain(after.values.keys()).collect();
        let show = |fact: Option<&Fact>| {
            fact.map(|fact| fact.shown.clone().unwrap_or_else(|| HIDDEN.to_owned()))
        };
        all.into_iter()
            .filter_map(|key| {
                let (old, new) = (self.values.get(key), after.values.get(key));
                (old != new).then(|| Difference {
                    key: key.clone(),
                    before: show(old),
                    after: show(new),
                })
            })
            .collect()
    }
}

/// A digest that says whether a file is what it was; one that cannot be read is nothing.
pub fn contents(file: &Path) -> [u8; 32] {
    std::fs::read(file)
        .map(|bytes| Sha256::digest(zeroize::Zeroizing::new(bytes).as_slice()).into())
        .unwrap_or_default()
}

fn flatten(value: &Value, path: &str, values: &mut BTreeMap<String, Fact>) {
    match value {
        Value::Mapping(map) if duration(map).is_none() => {
            for (name, value) in map {
                let name = plain(name);
                let inner = match path {
                    "" => name,
                    path => format!("{path}.{name}"),
                };
                flatten(value, &inner, values);
            }
        }
        Value::Sequence(items) if items.iter().any(Value::is_mapping) => {
            for (place, item) in items.iter().enumerate() {
                flatten(item, &format!("{path}[{}]", label(item, place)), values);
            }
        }
        Value::Null => {}
        value => {
            let text = plain(value);
            let digest = Sha256::digest(text.as_bytes()).into();
            let shown = (!is_secret(path)).then_some(text);
            values.insert(path.to_owned(), Fact { shown, digest });
        }
    }
}

/// An item of a list goes by its name, if it has one: so a new one does not change those behind it.
fn label(item: &Value, place: usize) -> String {
    let name = ["username", "name", "id"]
        .iter()
        .find_map(|key| item.get(*key));
    name.map_or_else(|| place.to_string(), plain)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Mapping(map) if duration(map).is_some() => duration(map).unwrap_or_default(),
        value => serde_yaml::to_string(value)
            .unwrap_or_default()
            .trim_end()
            .replace('\n', " "),
    }
}

/// Serde's form of a duration.
fn duration(map: &serde_yaml::Mapping) -> Option<String> {
    let part = |name: &str| map.get(name).and_then(Value::as_u64);
    let (seconds, nanos) = (part("secs")?, part("nanos")?);
    let nanos = u32::try_from(nanos).ok()?;
    Some(super::format_duration(std::time::Duration::new(
        seconds, nanos,
    )))
}

fn is_secret(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or(path);
    keys::all().any(|key| key.kind == Kind::Secret && key.path.rsplit('.').next() == Some(name))
}

/// Stands for a value that nobody is shown.
const HIDDEN: &str = "********";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn facts(more: &str) -> Facts {
        let text = format!(
            "databases: {{a: {{writer: /tmp}}}}\nauth: {{users: [{{username: x, password: one}}]}}\n{more}"
        );
        let config = Config::parse(&text, "x").unwrap_or_else(|errors| panic!("{errors}"));
        config.facts
    }

    #[test]
    fn a_changed_key_is_told_with_both_values_and_nothing_else_is() {
        let (before, after) = (facts(""), facts("pool: {connection_timeout: 7s}"));
        let differences = before.differences(&after);
        assert_eq!(differences.len(), 1, "{differences:?}");
        assert_eq!(differences[0].key, "pool.connection_timeout");
        assert_eq!(differences[0].before.as_deref(), Some("5s"));
        assert_eq!(differences[0].after.as_deref(), Some("7s"));
        assert!(before.differences(&before).is_empty());
    }

    #[test]
    fn a_secret_that_has_changed_is_named_and_not_shown() {
        let text = |password: &str| {
            let text = format!(
                "databases: {{a: {{writer: /tmp}}}}\nauth: {{users: [{{username: b, password: z}}, {{username: x, password: {password}}}]}}\n"
            );
            let config = Config::parse(&text, "x").unwrap_or_else(|errors| panic!("{errors}"));
            config.facts
        };
        let differences = text("one").differences(&text("two"));
        assert_eq!(differences.len(), 1, "{differences:?}");
        assert_eq!(differences[0].key, "auth.users[x].password");
        assert_eq!(differences[0].before.as_deref(), Some(HIDDEN));
        assert_eq!(differences[0].after.as_deref(), Some(HIDDEN));
    }

    #[test]
    fn a_user_in_front_of_another_does_not_change_it() {
        let (before, after) = (
            facts(""),
            Config::parse(
                "databases: {a: {writer: /tmp}}\nauth: {users: [{username: a, password: q}, {username: x, password: one}]}\n",
                "x",
            )
            .unwrap_or_else(|errors| panic!("{errors}"))
            .facts,
        );
        let keys: Vec<_> = before
            .differences(&after)
            .into_iter()
            .map(|d| d.key)
            .collect();
        assert_eq!(keys, ["auth.users[a].password", "auth.users[a].username"]);
    }
}
