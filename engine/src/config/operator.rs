//! The `metrics` and `admin` sections: where operators ask, and who may.

use std::net::SocketAddr;
use std::sync::Arc;

use admin::access::{Access, Key as ApiKey, Network, Role};
use serde::Deserialize;

use super::keys::{Key, Kind, Unset};
use super::report::Report;
use super::secret::Secret;

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "metrics.enabled",
        kind: Kind::Switch,
        unset: Unset::Is("false"),
        about: "Whether /metrics is served, for Prometheus; with /healthz and /readyz. None of them needs a key.",
    },
    Key {
        path: "metrics.listen",
        kind: Kind::Text,
        unset: Unset::Is("127.0.0.1:9090"),
        about: "Where: an IP address with a port. It may be the same as admin.listen.",
    },
    Key {
        path: "admin.enabled",
        kind: Kind::Switch,
        unset: Unset::Is("false"),
        about: "Whether the admin API is served, which `pgmux status` and its kin ask: everything under /admin, with /healthz and /readyz.",
    },
    Key {
        path: "admin.listen",
        kind: Kind::Text,
        unset: Unset::Is("127.0.0.1:9091"),
        about: "Where: an IP address with a port; other than loopback only with admin.auth.enabled.",
    },
    Key {
        path: "admin.auth.enabled",
        kind: Kind::Switch,
        unset: Unset::Is("false"),
        about: "Whether requests under /admin need a key (Authorization: Bearer); read again at SIGHUP, as are the keys below.",
    },
    Key {
        path: "admin.auth.api_keys[].key",
        kind: Kind::Secret,
        unset: Unset::Nothing("change-me"),
        about: "A key, of at least 16 characters.",
    },
    Key {
        path: "admin.auth.api_keys[].role",
        kind: Kind::Choice(&["admin", "viewer"]),
        unset: Unset::Nothing("viewer"),
        about: "What it may do: viewer looks, admin also reloads, cancels and begins maintenance.",
    },
    Key {
        path: "admin.auth.ip_allowlist",
        kind: Kind::Texts,
        unset: Unset::Nothing("[127.0.0.1, 10.0.0.0/8]"),
        about: "From where requests under /admin may come, addresses or networks; unset: from anywhere.",
    },
    Key {
        path: "admin.auth.trusted_proxies",
        kind: Kind::Texts,
        unset: Unset::Nothing("[10.0.0.1]"),
        about: "Proxies that are believed in X-Forwarded-For where a request comes from: the last address there that is not of one of them counts.",
    },
];

/// Where operators ask, and who may.
#[derive(Clone)]
pub struct Admin {
    /// Where `/metrics` is served, if it is.
    pub metrics: Option<SocketAddr>,
    /// Where `/admin` is served, if it is.
    pub api: Option<SocketAddr>,
    /// Who may ask.
    pub access: Arc<Access>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metrics {
    enabled: bool,
    listen: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    enabled: bool,
    listen: String,
    auth: Auth,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Auth {
    enabled: bool,
    api_keys: Option<Vec<Item>>,
    ip_allowlist: Option<Vec<String>>,
    trusted_proxies: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Item {
    key: Option<Secret>,
    role: Option<String>,
}

/// Both sections, which share an address if they like.
pub(super) fn resolve(metrics: Metrics, section: Section, report: &mut Report) -> Option<Admin> {
    let before = report.count();
    let at = address("metrics.listen", &metrics.listen, report);
    let api = address("admin.listen", &section.listen, report);
    let access = access(section.auth, report);
    if let Some(api) = api
        && section.enabled
        && !api.ip().to_canonical().is_loopback()
        && !access.enabled
    {
        report.at(
            "admin.listen",
            format!("expected admin.auth.enabled: true beside it, for everybody who reaches {api} could stop the service; or a loopback address (127.0.0.1:9091)"),
        );
    }
    (report.count() == before).then_some(Admin {
        metrics: at.filter(|_| metrics.enabled),
        api: api.filter(|_| section.enabled),
        access: Arc::new(access),
    })
}

fn address(key: &str, text: &str, report: &mut Report) -> Option<SocketAddr> {
    let address = text.parse().ok().filter(|at: &SocketAddr| at.port() != 0);
    if address.is_none() {
        report.at(
            key,
            format!("expected an IP address with a port (127.0.0.1:9091, [::1]:9091, 0.0.0.0:9091 for all), got {text:?}"),
        );
    }
    address
}

fn access(auth: Auth, report: &mut Report) -> Access {
    let mut keys: Vec<ApiKey> = Vec::new();
    for (index, item) in auth.api_keys.unwrap_or_default().into_iter().enumerate() {
        let path = format!("admin.auth.api_keys[{index}]");
        let mut wrong = |name: &str, text: String| report.at(&format!("{path}.{name}"), text);
        let (Some(key), Some(role)) = (&item.key, &item.role) else {
            if item.key.is_none() {
                wrong(
                    "key",
                    "expected this key, for example key: ${PGMUX_ADMIN_KEY}".to_owned(),
                );
            }
            if item.role.is_none() {
                wrong(
                    "role",
                    "expected this key, for example role: viewer".to_owned(),
                );
            }
            continue;
        };
        let key = key.expose();
        let printable = key.bytes().all(|byte| byte.is_ascii_graphic());
        if key.len() < KEY_BYTES || !printable {
            wrong(
                "key",
                format!("expected at least {KEY_BYTES} printable ASCII characters without blanks"),
            );
        } else if keys.iter().any(|known| known.key == *key) {
            wrong("key", "this key is listed twice".to_owned());
        }
        keys.push(ApiKey {
            key: key.to_owned(),
            role: if role == "admin" {
                Role::Admin
            } else {
                Role::Viewer
            },
        });
    }
    let mut networks = |name: &str, texts: Option<Vec<String>>| {
        let mut networks = Vec::new();
        for (index, text) in texts.unwrap_or_default().into_iter().enumerate() {
            match Network::parse(&text) {
                Some(network) => networks.push(network),
                None => report.at(
                    &format!("admin.auth.{name}[{index}]"),
                    format!("expected an IP address or a network such as 10.0.0.0/8, got {text:?}"),
                ),
            }
        }
        networks
    };
    let allowed = networks("ip_allowlist", auth.ip_allowlist);
    let trusted = networks("trusted_proxies", auth.trusted_proxies);
    match auth.enabled {
        true if keys.is_empty() => report.at(
            "admin.auth.enabled",
            "expected at least one of admin.auth.api_keys beside it",
        ),
        false if !(keys.is_empty() && allowed.is_empty() && trusted.is_empty()) => report.at(
            "admin.auth.enabled",
            "expected true beside admin.auth's keys and addresses, which nothing heeds otherwise",
        ),
        _ => {}
    }
    Access {
        enabled: auth.enabled,
        keys,
        allowed,
        trusted,
    }
}

/// Long enough that nobody guesses it.
const KEY_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use crate::config::Config;

    const FRONT: &str = "databases: {a: {writer: /tmp}}\nauth: {enabled: false, method: trust}\n";

    fn read(text: &str) -> Result<Config, String> {
        let text = format!("{FRONT}{text}\n");
        Config::parse(&text, "x.yaml").map_err(|errors| errors.to_string())
    }

    #[test]
    fn nothing_is_served_unless_it_is_asked_for_and_then_on_loopback() {
        let config = read("").expect("right");
        assert_eq!((config.admin.metrics, config.admin.api), (None, None));
        let config = read("metrics: {enabled: true}\nadmin: {enabled: true}").expect("right");
        let told = |at: Option<std::net::SocketAddr>| at.map(|at| at.to_string());
        assert_eq!(
            told(config.admin.metrics).as_deref(),
            Some("127.0.0.1:9090")
        );
        assert_eq!(told(config.admin.api).as_deref(), Some("127.0.0.1:9091"));
        let both = "metrics: {enabled: true, listen: '0.0.0.0:1'}\nadmin: {enabled: true, listen: '127.0.0.1:1'}";
        assert!(read(both).is_ok(), "the same port is nobody's fault here");
    }

    #[test]
    fn what_makes_no_sense_is_refused_at_its_key() {
        let key = "{key: 0123456789abcdef, role: admin}";
        for (text, complaint) in [
            ("admin: {listen: nowhere}", "admin.listen: expected an IP"),
            (
                "metrics: {listen: '127.0.0.1:0'}",
                "metrics.listen: expected an IP",
            ),
            (
                "admin: {enabled: true, listen: '0.0.0.0:9091'}",
                "admin.listen: expected admin.auth.enabled",
            ),
            (
                "admin: {auth: {enabled: true}}",
                "admin.auth.enabled: expected at least one",
            ),
            (
                &format!("admin: {{auth: {{api_keys: [{key}]}}}}"),
                "admin.auth.enabled: expected true",
            ),
            (
                &format!("admin: {{auth: {{enabled: true, api_keys: [{key}, {key}]}}}}"),
                "api_keys[1].key: this key is listed twice",
            ),
            (
                "admin: {auth: {enabled: true, api_keys: [{key: short, role: admin}]}}",
                "api_keys[0].key: expected at least",
            ),
            (
                "admin: {auth: {enabled: true, api_keys: [{key: 0123456789abcdef}]}}",
                "api_keys[0].role: expected this key",
            ),
            (
                "admin: {auth: {enabled: true, api_keys: [{key: 0123456789abcdef, role: root}]}}",
                "role: expected admin or viewer",
            ),
            (
                &format!(
                    "admin: {{auth: {{enabled: true, api_keys: [{key}], ip_allowlist: 10.0.0.0/40}}}}"
                ),
                "ip_allowlist[0]: expected an IP",
            ),
        ] {
            let Err(errors) = read(text) else {
                panic!("{text} is accepted")
            };
            assert!(errors.contains(complaint), "{text}: {errors}");
            assert!(!errors.contains("0123456789abcdef"), "{errors}");
        }
    }
}
