//! The configuration in force, as it may be shown: every key with its value,
//! and no secret.

use super::keys::{self, Kind, Shape};
use super::units::format_duration;
use serde_json::{Map, Value as Json};
use serde_yaml::Value;
use std::time::Duration;

/// What stands where a secret is.
const HIDDEN: &str = "********";

/// A checked file's values, as they would be written.
pub(super) fn shown(root: &Value) -> Json {
    section(root, "")
}

/// What stands at a place in the list of keys.
fn section(value: &Value, pattern: &str) -> Json {
    match keys::shape(pattern) {
        Shape::Leaf(key) => match key.kind {
            Kind::Like(section_name) => section(value, section_name),
            kind => leaf(value, kind),
        },
        Shape::Items => {
            let items = value.as_sequence().into_iter().flatten();
            items
                .map(|item| section(item, &format!("{pattern}[]")))
                .collect()
        }
        Shape::Names => entries(value, |_| format!("{pattern}.*")),
        Shape::Keys(_) if pattern.is_empty() => entries(value, str::to_owned),
        Shape::Keys(_) => entries(value, |name| format!("{pattern}.{name}")),
    }
}

fn entries(value: &Value, pattern: impl Fn(&str) -> String) -> Json {
    let mut map = Map::new();
    for (name, value) in value.as_mapping().into_iter().flatten() {
        if let Some(name) = name.as_str() {
            map.insert(name.to_owned(), section(value, &pattern(name)));
        }
    }
    Json::Object(map)
}

fn leaf(value: &Value, kind: Kind) -> Json {
    match kind {
        Kind::Secret => HIDDEN.into(),
        Kind::DurationOrOff if value.is_null() => "off".into(),
        Kind::WholeOrAuto(..) if value.is_null() => "auto".into(),
        Kind::Duration | Kind::DurationOrOff => {
            let duration: Option<Duration> = serde_yaml::from_value(value.clone()).ok();
            duration.map_or(Json::Null, |duration| format_duration(duration).into())
        }
        _ => serde_json::to_value(value).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use serde_json::json;

    #[test]
    fn every_key_is_shown_as_it_would_be_written_and_no_secret_is() {
        let text = "databases: {a: {writer: /tmp, pool: {max_connections: 3}, backend: {password: topsecret1}}}\n\
                    pool: {idle_timeout: off}\n\
                    auth: {users: [{username: u, password: topsecret2}]}\n\
                    backend: {password: topsecret3}\n\
                    admin: {auth: {enabled: true, api_keys: [{key: topsecret0123456, role: admin}]}}\n";
        let config = Config::parse(text, "x.yaml").unwrap_or_else(|errors| panic!("{errors}"));
        let shown = &*config.shown;
        assert!(!shown.to_string().contains("topsecret"), "{shown}");
        for (path, value) in [
            ("/backend/password", json!("********")),
            ("/databases/a/backend/password", json!("********")),
            ("/databases/a/pool/max_connections", json!(3)),
            ("/databases/a/writer/host", json!("/tmp")),
            ("/auth/users/0/username", json!("u")),
            ("/auth/users/0/password", json!("********")),
            ("/admin/auth/api_keys/0/key", json!("********")),
            ("/admin/auth/api_keys/0/role", json!("admin")),
            ("/pool/idle_timeout", json!("off")),
            ("/proxy/login_timeout", json!("30s")),
            ("/engine/shards", json!("auto")),
        ] {
            assert_eq!(shown.pointer(path), Some(&value), "{path}: {shown}");
        }
    }
}
