//! Start, stop and the command line.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux, binary};
use tests::process::{PATIENCE, TempDir};
use tests::wire::{Conn, Endpoint, Message, Session, describe, frontend};
use tests::{canary, on_shards};

on_shards!(
    ready_line_names_addresses_and_shards,
    idle_clients_are_told_and_the_exit_is_clean,
    open_transactions_may_end_before_the_exit,
    running_query_delivers_its_rows_before_the_exit,
    no_new_client_is_taken_while_stopping,
    client_in_its_login_is_told_while_stopping,
    shutdown_timeout_ends_who_does_not_finish,
    second_signal_ends_at_once,
    waiting_client_is_told_when_stopping,
    servers_are_gone_after_the_exit,
);

const GOODBYE: &str = "ErrorResponse FATAL 57P01";

fn start(shards: usize, timeout: &str) -> (Pgmux, Direct) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .set("proxy.shutdown_timeout", timeout);
    (Pgmux::start(&config), Direct::open(cluster, &database))
}

fn ready_line_names_addresses_and_shards(shards: usize) {
    let (pgmux, _) = start(shards, "10s");
    let log = pgmux.log();
    let ready: Vec<&str> = log.lines().filter(|line| line.contains("ready")).collect();
    assert_eq!(ready.len(), 1, "{log}");
    assert!(
        ready[0].contains(&format!("127.0.0.1:{}", pgmux.port())),
        "{}",
        ready[0]
    );
    assert!(ready[0].contains(&shards.to_string()), "{}", ready[0]);
    pgmux.stop();
}

fn idle_clients_are_told_and_the_exit_is_clean(shards: usize) {
    for signal in [Signal::TERM, Signal::INT] {
        let (mut pgmux, _direct) = start(shards, "10s");
        let mut fresh = pgmux.client();
        let mut used: Vec<Session> = (0..5).map(|_| pgmux.client()).collect();
        for client in &mut used {
            canary::ask(client);
        }
        let started = Instant::now();
        pgmux.signal(signal);
        for client in used.iter_mut().chain([&mut fresh]) {
            expect_goodbye(client);
        }
        assert_eq!(pgmux.wait().code(), Some(0));
        assert!(
            started.elapsed() < Duration::from_secs(8),
            "waited for nothing: {:?}",
            started.elapsed()
        );
    }
}

fn open_transactions_may_end_before_the_exit(shards: usize) {
    let (mut pgmux, mut direct) = start(shards, "20s");
    direct.run("create table kept(a int); grant all on kept to app");
    let mut inside = pgmux.client();
    let mut idle = pgmux.client();
    inside.query("begin");
    pgmux.signal(Signal::TERM);
    expect_goodbye(&mut idle);
    inside.query("insert into kept values (1)");
    assert_eq!(
        inside.rows_extended("select $1::text", &["x"]),
        [[Some("x".to_string())]]
    );
    inside.query("commit");
    expect_goodbye(&mut inside);
    assert_eq!(pgmux.wait().code(), Some(0));
    assert_eq!(direct.number("select count(*) from kept"), 1);
}

fn running_query_delivers_its_rows_before_the_exit(shards: usize) {
    let (mut pgmux, mut direct) = start(shards, "20s");
    let mut client = pgmux.client();
    client.send(&frontend::query("select pg_sleep(0.8), 'done'"));
    direct.expect_sleeper();
    pgmux.signal(Signal::TERM);
    client.conn.recv().expect("a row description");
    let row = client.conn.recv().expect("the row").row();
    assert_eq!(row[1].as_deref(), Some("done"));
    client.replies();
    expect_goodbye(&mut client);
    assert_eq!(pgmux.wait().code(), Some(0));
}

fn no_new_client_is_taken_while_stopping(shards: usize) {
    let (mut pgmux, _direct) = start(shards, "20s");
    let mut inside = pgmux.client();
    let mut idle = pgmux.client();
    inside.query("begin");
    pgmux.signal(Signal::TERM);
    expect_goodbye(&mut idle);
    if let Ok(mut conn) = Conn::open(&pgmux.endpoint()) {
        let _ = conn.send(&frontend::startup(3, 0, &[("user", "app")]));
        // Another shard than the idle client's may hear of the end only now: it may still ask who comes, but lets nobody in.
        let asked = |message: &Message| message.tag == b'R' && message.body[..4] != [0; 4];
        let last = std::iter::from_fn(|| conn.recv().ok()).find(|message| !asked(message));
        assert!(
            last.is_none_or(|message| message.tag == b'E'),
            "a client was taken in"
        );
    }
    inside.query("commit");
    expect_goodbye(&mut inside);
    assert_eq!(pgmux.wait().code(), Some(0));
}

fn client_in_its_login_is_told_while_stopping(shards: usize) {
    let (mut pgmux, _direct) = start(shards, "20s");
    let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
    conn.send(&frontend::startup(3, 0, &[("user", "app")]))
        .expect("startup");
    conn.recv().expect("a request");
    pgmux.signal(Signal::TERM);
    let line = describe(&conn.recv().expect("a word before the end"));
    assert!(line.starts_with("ErrorResponse FATAL 57P0"), "{line}");
    assert_eq!(pgmux.wait().code(), Some(0));
}

fn shutdown_timeout_ends_who_does_not_finish(shards: usize) {
    let (mut pgmux, mut direct) = start(shards, "700ms");
    let mut inside = pgmux.client();
    let mut running = pgmux.client();
    inside.query("begin");
    running.send(&frontend::query("select pg_sleep(60)"));
    direct.expect_sleeper();
    let started = Instant::now();
    pgmux.signal(Signal::TERM);
    expect_goodbye(&mut inside);
    pgmux.wait();
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(600), "ended after {took:?}");
    assert!(took < Duration::from_secs(10), "ended after {took:?}");
}

fn second_signal_ends_at_once(shards: usize) {
    let (mut pgmux, _direct) = start(shards, "60s");
    let mut inside = pgmux.client();
    let mut idle = pgmux.client();
    inside.query("begin");
    let started = Instant::now();
    pgmux.signal(Signal::TERM);
    expect_goodbye(&mut idle);
    assert!(pgmux.is_running());
    pgmux.signal(Signal::TERM);
    pgmux.wait();
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "ended after {:?}",
        started.elapsed()
    );
}

fn waiting_client_is_told_when_stopping(shards: usize) {
    let cluster = Cluster::shared();
    let config = Config::new(cluster, &cluster.fresh_database())
        .shards(shards)
        .servers(1)
        .set("pool.connection_timeout", "60s")
        .set("proxy.shutdown_timeout", "3s");
    let mut pgmux = Pgmux::start(&config);
    let mut holder = pgmux.client();
    holder.query("begin");
    let mut waiter = pgmux.client();
    waiter.send(&frontend::query("select 1"));
    assert!(waiter.conn.is_quiet(Duration::from_millis(100)));
    pgmux.signal(Signal::TERM);
    // Served when the holder ends, or told: either way not left in the dark.
    holder.query("commit");
    let first = waiter.conn.recv().expect("a word");
    assert!(matches!(first.tag, b'T' | b'E'), "{}", describe(&first));
    pgmux.wait();
}

fn servers_are_gone_after_the_exit(shards: usize) {
    let (pgmux, mut direct) = start(shards, "10s");
    let mut clients: Vec<Session> = (0..3).map(|_| pgmux.client()).collect();
    for client in &mut clients {
        client.query("begin");
    }
    for client in &mut clients {
        client.query("commit");
    }
    assert_eq!(direct.servers().len(), 3);
    pgmux.stop();
    direct.expect_servers(0);
}

fn expect_goodbye(client: &mut Session) {
    client.conn.patience = PATIENCE;
    match client.farewell() {
        Ok(Some(message)) => {
            let line = describe(&message);
            assert!(line.starts_with(GOODBYE), "{line}");
        }
        other => panic!("no goodbye: {other:?}"),
    }
}

#[test]
fn check_accepts_a_good_file_and_names_the_place_of_each_fault() {
    let cluster = Cluster::shared();
    let good = Config::new(cluster, "postgres").set("proxy.listen", "'127.0.0.1:6432'");
    assert!(check(&good.to_yaml()).status.success());
    for (yaml, place) in [
        (
            good.clone().set("pool.max_conections", 3).to_yaml(),
            "max_connections",
        ),
        (
            good.clone().set("pool.max_connections", "many").to_yaml(),
            "max_connections",
        ),
        (
            good.clone().set("pool.mode", "transactional").to_yaml(),
            "transaction",
        ),
        (
            good.clone().set("pool.min_connections", 9).to_yaml(),
            "min_connections",
        ),
        (
            good.clone().set("proxy.listen", "nowhere").to_yaml(),
            "listen",
        ),
        (
            good.clone()
                .set("pool.idle_timeout", "'5 parsecs'")
                .to_yaml(),
            "idle_timeout",
        ),
        (good.clone().unset("databases").to_yaml(), "databases"),
        ("pool: [1, 2".into(), "pgmux.yaml"),
    ] {
        let output = check(&yaml);
        let said = text(&output);
        assert!(!output.status.success(), "accepted:\n{yaml}");
        assert!(
            said.contains(place) && said.contains("pgmux.yaml"),
            "{said}\nfor\n{yaml}"
        );
    }
}

#[test]
fn run_refuses_a_bad_file_as_check_does() {
    let cluster = Cluster::shared();
    let config = Config::new(cluster, "postgres").set("pool.max_conections", 3);
    let log = Pgmux::try_start(&config)
        .map(|_| ())
        .expect_err("a refusal");
    assert!(log.contains("max_connections"), "{log}");
}

#[test]
fn port_in_use_is_named() {
    let cluster = Cluster::shared();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let config = Config::new(cluster, "postgres").set("proxy.listen", format!("'{address}'"));
    let log = Pgmux::try_start(&config)
        .map(|_| ())
        .expect_err("a refusal");
    assert!(log.contains(&address.port().to_string()), "{log}");
}

#[test]
fn command_line_overrides_the_file() {
    let cluster = Cluster::shared();
    let port = tests::process::free_port();
    let config = Config::new(cluster, &cluster.fresh_database())
        .shards(1)
        .arg("--shards")
        .arg("3")
        .arg("--listen")
        .arg(&format!("127.0.0.1:{port}"));
    let pgmux = Pgmux::start(&config);
    canary::check(&Endpoint::local(port), &pgmux.login());
    let log = pgmux.log();
    let ready = log
        .lines()
        .find(|line| line.contains("ready"))
        .unwrap_or_default();
    assert!(
        ready.contains(&port.to_string()) && ready.contains('3'),
        "{ready}"
    );
    pgmux.stop();
}

#[test]
fn defaults_are_printed_with_every_key_and_version_is_told() {
    let output = pgmux(&["config", "--defaults"]);
    let defaults = text(&output);
    assert!(output.status.success(), "{defaults}");
    for key in [
        "listen",
        "shutdown_timeout",
        "max_connections",
        "max_prepared_statements",
        "reset_query",
        "shards",
    ] {
        assert!(defaults.contains(key), "{key} is missing in\n{defaults}");
    }
    let version = pgmux(&["--version"]);
    assert!(
        text(&version).contains(env!("CARGO_PKG_VERSION")),
        "{}",
        text(&version)
    );
}

#[test]
fn secrets_come_from_files_and_from_the_environment() {
    let cluster = Cluster::shared();
    let dir = TempDir::new("secret").expect("a directory");
    let file = dir.path().join("password");
    fs::write(&file, format!("{}\n", tests::cluster::PASSWORD)).expect("a secret");
    let config = Config::new(cluster, &cluster.fresh_database())
        .unset("backend.password")
        .set("backend.password_file", format!("'{}'", file.display()))
        .set("backend.user", "'${PGMUX_TEST_ROLE}'")
        .env("PGMUX_TEST_ROLE", "app");
    let pgmux = Pgmux::start(&config);
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn check(yaml: &str) -> Output {
    let dir = TempDir::new("check").expect("a directory");
    let file = dir.path().join("pgmux.yaml");
    fs::write(&file, yaml).expect("a file");
    pgmux(&["check", "-c", &file.to_string_lossy()])
}

fn pgmux(args: &[&str]) -> Output {
    Command::new(binary()).args(args).output().expect("pgmux")
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
