//! What cannot change while the process runs.

use super::report::Pending;
use crate::config::{Config, Difference};

/// Keys by how they begin, and why they take a restart.
const FIXED: &[(&str, &str)] = &[
    (
        "proxy.listen",
        "the addresses are bound when the process starts",
    ),
    (
        "control.socket",
        "the socket is bound when the process starts",
    ),
    (
        "engine.memory_max",
        "whoever looks after the memory is started with the process",
    ),
    (
        "engine.",
        "shards, and what numbers their clients, are made when the process starts",
    ),
    (
        "metrics.",
        "the admin thread is made when the process starts",
    ),
    (
        "admin.enabled",
        "the admin thread is made when the process starts",
    ),
    (
        "admin.listen",
        "the addresses are bound when the process starts",
    ),
    (
        "peers[",
        "cancel keys that clients hold lead to the peers of the start",
    ),
];

/// Why a change of `backend.user` from or to `passthrough` takes one.
const PASSTHROUGH: &str =
    "clients that are logged in have servers as backend.user, or each as its own role";

/// Leaves in `fresh` what cannot change as it is in `now`, and says what that is.
pub(super) fn keep(now: &Config, fresh: &mut Config) -> Vec<Pending> {
    let mut pending = Vec::new();
    for difference in now.facts.differences(&fresh.facts) {
        let fixed = FIXED.iter().find(|(key, _)| {
            let Difference { key: changed, .. } = &difference;
            changed.strip_prefix(key).is_some_and(|rest| {
                key.ends_with(['.', '[']) || rest.is_empty() || rest.starts_with(['.', '['])
            })
        });
        if let Some((_, reason)) = fixed {
            fresh.facts.keep(&now.facts, &difference.key);
            pending.push(Pending {
                key: difference.key,
                reason: (*reason).to_owned(),
            });
        }
    }
    fresh.proxy.listen.clone_from(&now.proxy.listen);
    fresh.engine.clone_from(&now.engine);
    fresh.peers.clone_from(&now.peers);
    (fresh.admin.metrics, fresh.admin.api) = (now.admin.metrics, now.admin.api);
    fresh.control.clone_from(&now.control);
    for group in &mut fresh.groups {
        let Some(place) = now.group(&group.name) else {
            continue;
        };
        let before = &now.groups[place];
        if before.passthrough != group.passthrough {
            group.passthrough = before.passthrough;
            group.user.clone_from(&before.user);
            group.password.clone_from(&before.password);
            pending.push(Pending {
                key: format!("databases.{}.backend.user", group.name),
                reason: PASSTHROUGH.to_owned(),
            });
        }
    }
    pending
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> Config {
        let text = format!(
            "databases: {{a: {{writer: /tmp}}}}\nauth: {{users: [{{username: x, password: y}}]}}\n{more}"
        );
        Config::parse(&text, "x").unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn what_takes_a_restart_is_told_each_time_and_stays() {
        let now = config("proxy: {listen: '127.0.0.1:1'}\nengine: {shards: 2}");
        for _ in 0..2 {
            let mut fresh = config("proxy: {listen: '127.0.0.1:2'}\nengine: {shards: 3}");
            let keys: Vec<_> = keep(&now, &mut fresh).into_iter().map(|p| p.key).collect();
            assert_eq!(keys, ["engine.shards", "proxy.listen"]);
            assert_eq!(fresh.engine.shards, Some(2));
            assert_eq!(fresh.proxy.listen, now.proxy.listen);
            assert!(now.facts.differences(&fresh.facts).is_empty());
        }
    }

    #[test]
    fn whose_servers_clients_use_stays_and_is_told() {
        let now = config("backend: {user: app}");
        let mut fresh = config("backend: {user: passthrough}");
        let pending = keep(&now, &mut fresh);
        assert_eq!(pending.len(), 1, "{pending:?}");
        assert_eq!(pending[0].key, "databases.a.backend.user");
        assert!(!fresh.groups[0].passthrough && fresh.groups[0].user == "app");
    }

    #[test]
    fn what_can_change_does() {
        let now = config("");
        let mut fresh = config("proxy: {login_timeout: 3s}\npool: {max_connections: 3}");
        assert_eq!(keep(&now, &mut fresh), []);
        assert_eq!(fresh.groups[0].pool.max_connections, 3);
    }
}
