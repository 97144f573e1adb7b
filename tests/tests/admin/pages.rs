//! The other pages: readiness, health, the configuration, connections, reload, and the end of the process.

use rustix::process::Signal;
use tests::cluster::{Cluster, PASSWORD};
use tests::on_shards;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually, free_port};
use tests::wire::{Login, Session, frontend};

use crate::support::{stand, with_api};

on_shards!(
    probes_and_health_tell_that_all_is_well,
    the_configuration_is_told_without_secrets,
    connections_are_told_with_their_limits,
    a_reload_says_what_it_did_or_why_not,
    a_process_that_stops_is_not_ready_while_it_drains,
);

fn probes_and_health_tell_that_all_is_well(shards: usize) {
    let stand = stand(shards, |config| config);
    assert_eq!(stand.api.json("/healthz")["status"], "ok");
    assert_eq!(stand.api.json("/readyz")["status"], "ready");
    let own = format!("/readyz?database={}", stand.database);
    assert_eq!(stand.api.json(&own)["status"], "ready");
    assert_eq!(stand.api.get("/readyz?database=nowhere").status, 404);
    let health = stand.api.json("/admin/health");
    let writer = &health["databases"][&stand.database]["writer"];
    let address = format!("127.0.0.1:{}", Cluster::shared().port());
    assert_eq!(
        (&writer["addr"], &writer["healthy"]),
        (&address.into(), &true.into())
    );
    assert_eq!(
        health["databases"][&stand.database]["readers"],
        serde_json::json!([])
    );
    stand.end();
}

fn the_configuration_is_told_without_secrets(shards: usize) {
    let key = "a-key-that-nobody-must-see";
    let stand = stand(shards, |config| {
        config.set("admin.auth.enabled", true).set(
            "admin.auth.api_keys",
            format!("[{{key: {key}, role: viewer}}]"),
        )
    });
    let bearer = format!("Bearer {key}");
    let answer = stand
        .api
        .ask("GET", "/admin/config", &[("authorization", &bearer)]);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(
        !answer.body.contains(PASSWORD) && !answer.body.contains(key),
        "{}",
        answer.body
    );
    let config = answer.json();
    assert_eq!(config["backend"]["password"], "********");
    assert_eq!(config["auth"]["users"][0]["password"], "********");
    assert_eq!(config["admin"]["auth"]["api_keys"][0]["key"], "********");
    assert_eq!(config["engine"]["shards"], shards);
    assert_eq!(config["pool"]["connection_timeout"], "20s");
    let listen = format!("127.0.0.1:{}", stand.pgmux.port());
    assert_eq!(config["proxy"]["listen"][0], listen.as_str());
    stand.end();
}

fn connections_are_told_with_their_limits(shards: usize) {
    let stand = stand(shards, |config| {
        config
            .set("connection_limits.enabled", true)
            .set("connection_limits.default_max_connections_per_user", 3)
    });
    let clients: Vec<Session> = (0..3).map(|_| stand.pgmux.client()).collect();
    assert!(Session::try_open(&stand.pgmux.endpoint(), &stand.pgmux.login()).is_err());
    let told = stand.api.json("/admin/connections");
    assert_eq!(
        told["by_user"]["app"],
        serde_json::json!({"active": 3, "limit": 3})
    );
    assert_eq!(
        told["by_database"][&stand.database],
        serde_json::json!({"active": 3, "limit": 0})
    );
    assert_eq!(
        told["defaults"],
        serde_json::json!({"per_user": 3, "per_database": 0})
    );
    assert_eq!(told["limits_enabled"], true);
    assert_eq!(stand.series("pgmux_connection_limit_rejected_total"), 1.0);
    drop(clients);
    let gone =
        || (stand.api.json("/admin/connections")["by_user"] == serde_json::json!({})).then_some(());
    assert!(eventually(PATIENCE, gone).is_some());
    stand.end();
}

fn a_reload_says_what_it_did_or_why_not(shards: usize) {
    let dir = tests::process::TempDir::new("reload").expect("a directory");
    let list = dir.path().join("users");
    let other = Login::new("other", PASSWORD, "");
    std::fs::write(&list, "").expect("a file");
    let stand = stand(shards, |config| config.set("auth.file", list.display()));
    let login = Login {
        database: stand.database.clone(),
        ..other
    };
    assert!(Session::try_open(&stand.pgmux.endpoint(), &login).is_err());
    std::fs::write(&list, format!("\"other\" \"{PASSWORD}\"\n")).expect("a file");
    let answer = stand.api.post("/admin/reload");
    assert_eq!(
        (answer.status, answer.json()["status"].as_str()),
        (200, Some("reloaded")),
        "{answer:?}"
    );
    let report = answer.json()["report"].clone();
    let changed = report["changed"].as_array().expect("a list");
    assert!(
        changed
            .iter()
            .any(|change| change["key"] == list.display().to_string()),
        "{report}"
    );
    drop(Session::open(&stand.pgmux.endpoint(), &login));
    std::fs::write(&list, "nonsense").expect("a file");
    let answer = stand.api.post("/admin/reload");
    assert_eq!(
        (answer.status, answer.json()["status"].as_str()),
        (500, Some("error")),
        "{answer:?}"
    );
    assert!(
        answer.body.contains("users"),
        "it names the file: {answer:?}"
    );
    assert!(!answer.body.contains(PASSWORD), "{answer:?}");
    drop(Session::open(&stand.pgmux.endpoint(), &login));
    stand.end();
}

fn a_process_that_stops_is_not_ready_while_it_drains(shards: usize) {
    let cluster = Cluster::shared();
    let port = free_port();
    let config = with_api(
        Config::new(cluster, &cluster.fresh_database()).shards(shards),
        port,
    );
    let mut pgmux = Pgmux::start(&config);
    let api = tests::http::Http { port };
    let mut client = pgmux.client();
    client.query("begin");
    pgmux.signal(Signal::TERM);
    let drains = || (api.get("/readyz").status == 503).then_some(());
    assert!(eventually(PATIENCE, drains).is_some());
    let ready = api.get("/readyz");
    assert!(ready.body.contains("shutting down"), "{ready:?}");
    assert_eq!(api.get("/healthz").status, 200);
    assert_eq!(api.get("/metrics").status, 200);
    assert_eq!(api.post("/admin/reload").status, 503);
    assert_eq!(client.value("select 1"), "1");
    client.send(&frontend::query("commit"));
    client.farewell().expect("an end in order");
    assert!(pgmux.wait().success(), "{}", pgmux.log());
}

#[test]
fn pages_at_two_addresses_are_apart() {
    let cluster = Cluster::shared();
    let (metrics, admin) = (free_port(), free_port());
    let config = with_api(Config::new(cluster, &cluster.fresh_database()), admin)
        .set("metrics.listen", format!("'127.0.0.1:{metrics}'"));
    let pgmux = Pgmux::start(&config);
    let [metrics, admin] = [metrics, admin].map(|port| tests::http::Http { port });
    for (path, at_metrics, at_admin) in [
        ("/metrics", 200, 404),
        ("/admin/stats", 404, 200),
        ("/healthz", 200, 200),
        ("/readyz", 200, 200),
    ] {
        let statuses = [metrics, admin].map(|api| api.get(path).status);
        assert_eq!(statuses, [at_metrics, at_admin], "{path}");
    }
    pgmux.stop();
}

#[test]
fn nothing_listens_unless_it_is_asked_for_and_a_taken_address_is_named() {
    let cluster = Cluster::shared();
    let port = free_port();
    let taken = std::net::TcpListener::bind(("127.0.0.1", port)).expect("a port");
    let config = Config::new(cluster, &cluster.fresh_database());
    let off = config
        .clone()
        .set("admin.listen", format!("'127.0.0.1:{port}'"));
    Pgmux::start(&off).stop();
    let log = Pgmux::try_start(&with_api(config, port)).expect_err("the address is taken");
    assert!(
        log.contains("admin.listen") && log.contains(&port.to_string()),
        "{log}"
    );
    drop(taken);
}

/// Keys follow a reload at once, those of requests on open connections too; addresses wait for a restart.
#[test]
fn keys_are_those_of_the_last_reload() {
    let keys = |key: &str| format!("[{{key: {key}, role: admin}}]");
    let stand = stand(2, |config| {
        config
            .set("admin.auth.enabled", true)
            .set("admin.auth.api_keys", keys("old-0123456789abc"))
    });
    let ask = |method: &str, path: &str, key: &str| {
        let bearer = format!("Bearer {key}");
        stand.api.ask(method, path, &[("authorization", &bearer)])
    };
    let file = stand.pgmux.file();
    let text = std::fs::read_to_string(&file).expect("the configuration file");
    let text = text.replace("old-0123456789abc", "new-0123456789abc");
    let other = format!("127.0.0.1:{}", free_port());
    let text = text.replace(&format!("127.0.0.1:{}", stand.api.port), &other);
    std::fs::write(&file, text).expect("the configuration file");
    let answer = ask("POST", "/admin/reload", "old-0123456789abc");
    assert_eq!(answer.status, 200, "{answer:?}");
    let report = answer.json()["report"].clone();
    let restart = report["restart"].as_array().expect("a list");
    let keys: Vec<_> = restart.iter().map(|pending| &pending["key"]).collect();
    assert_eq!(keys, ["admin.listen", "metrics.listen"], "{report}");
    assert!(!report.to_string().contains("0123456789abc"), "{report}");
    assert_eq!(ask("GET", "/admin/stats", "old-0123456789abc").status, 401);
    assert_eq!(ask("GET", "/admin/stats", "new-0123456789abc").status, 200);
    stand.end();
}
