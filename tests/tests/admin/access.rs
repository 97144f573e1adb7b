//! Who may ask what.

use tests::http::Answer;
use tests::on_shards;
use tests::pgmux::Config;

use crate::support::{Stand, stand};

on_shards!(
    keys_have_roles_and_what_is_wrong_is_told_as_json,
    addresses_count_before_keys_and_proxies_are_believed_only_if_trusted,
    pages_of_browsers_are_refused,
);

const VIEWER: &str = "viewer-0123456789";
const ADMIN: &str = "admin-0123456789";

fn guarded(config: Config) -> Config {
    config.set("admin.auth.enabled", true).set(
        "admin.auth.api_keys",
        format!("[{{key: {VIEWER}, role: viewer}}, {{key: {ADMIN}, role: admin}}]"),
    )
}

fn ask(
    stand: &Stand,
    method: &str,
    path: &str,
    key: Option<&str>,
    more: &[(&str, &str)],
) -> Answer {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let bearer = bearer.as_deref().map(|bearer| ("authorization", bearer));
    let headers: Vec<_> = bearer.into_iter().chain(more.iter().copied()).collect();
    let answer = stand.api.ask(method, path, &headers);
    if answer.status >= 400 {
        assert!(answer.json()["error"].is_string(), "{answer:?}");
    }
    answer
}

fn keys_have_roles_and_what_is_wrong_is_told_as_json(shards: usize) {
    let stand = stand(shards, guarded);
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(ask(&stand, "GET", path, None, &[]).status, 200, "{path}");
    }
    let orders = [
        ("POST", "/admin/reload"),
        ("POST", "/admin/maintenance"),
        ("DELETE", "/admin/maintenance"),
        ("POST", "/admin/sessions/1/cancel"),
    ];
    let looks = [
        "health",
        "stats",
        "config",
        "connections",
        "sessions",
        "maintenance",
    ];
    let looks: Vec<_> = looks.map(|page| format!("/admin/{page}")).into();
    let all = orders.iter().map(|(method, path)| (*method, *path));
    let all = all.chain(looks.iter().map(|path| ("GET", path.as_str())));
    for (method, path) in all.clone() {
        let answer = ask(&stand, method, path, None, &[]);
        assert_eq!(
            (answer.status, answer.header("www-authenticate")),
            (401, Some("Bearer")),
            "{path}"
        );
        assert_eq!(answer.json()["error"], "authentication required");
        for wrong in [
            "x",
            "viewer-012345678",
            "viewer-01234567890",
            "VIEWER-0123456789",
        ] {
            let answer = ask(&stand, method, path, Some(wrong), &[]);
            assert_eq!(answer.status, 401, "{path} by {wrong}");
            assert_eq!(answer.json()["error"], "invalid api key");
        }
    }
    for (method, path) in orders {
        let answer = ask(&stand, method, path, Some(VIEWER), &[]);
        assert_eq!(answer.status, 403, "{path}");
        assert_eq!(answer.json()["error"], "admin role required");
    }
    for (method, path) in all {
        let key = if method == "GET" { VIEWER } else { ADMIN };
        let status = ask(&stand, method, path, Some(key), &[]).status;
        let expected = if path.ends_with("cancel") { 404 } else { 200 };
        assert_eq!(status, expected, "{method} {path}");
    }
    let log = stand.pgmux.log();
    assert!(!log.contains(VIEWER) && !log.contains(ADMIN), "{log}");
    stand.end();
}

fn addresses_count_before_keys_and_proxies_are_believed_only_if_trusted(shards: usize) {
    let allowed = |config: Config| guarded(config).set("admin.auth.ip_allowlist", "[10.0.0.0/8]");
    let strict = stand(shards, allowed);
    for forwarded in [None, Some("10.0.0.1")] {
        let more: Vec<_> = forwarded
            .map(|address| ("x-forwarded-for", address))
            .into_iter()
            .collect();
        let answer = ask(&strict, "GET", "/admin/stats", Some(ADMIN), &more);
        assert_eq!(answer.status, 403, "{forwarded:?}");
        assert_eq!(answer.json()["error"], "ip not allowed");
    }
    strict.end();
    let trusting = stand(shards, |config| {
        allowed(config).set("admin.auth.trusted_proxies", "127.0.0.1")
    });
    for (forwarded, status) in [
        ("10.0.0.1", 200),
        ("9.9.9.9", 403),
        ("10.0.0.1, 9.9.9.9", 403),
        ("9.9.9.9, 10.0.0.1", 200),
        ("nonsense", 403),
    ] {
        let more = [("x-forwarded-for", forwarded)];
        let answer = ask(&trusting, "GET", "/admin/stats", Some(VIEWER), &more);
        assert_eq!(answer.status, status, "{forwarded}");
    }
    let more = [("x-forwarded-for", "10.0.0.1")];
    assert_eq!(
        ask(&trusting, "GET", "/admin/stats", None, &more).status,
        401
    );
    trusting.end();
}

fn pages_of_browsers_are_refused(shards: usize) {
    let stand = stand(shards, |config| config);
    let origin = [("origin", "http://evil.example")];
    assert_eq!(
        ask(&stand, "POST", "/admin/maintenance", None, &origin).status,
        403
    );
    assert_eq!(stand.api.json("/admin/maintenance")["enabled"], false);
    assert_eq!(ask(&stand, "GET", "/healthz", None, &origin).status, 200);
    stand.end();
}
