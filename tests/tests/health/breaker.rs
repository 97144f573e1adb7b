//! `circuit_breaker`.

use std::time::{Duration, Instant};

use tests::cluster::{Cluster, Options};
use tests::on_shards;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually};
use tests::wire::frontend;

on_shards!(
    an_open_breaker_refuses_at_once_tries_nothing_and_closes_when_the_server_is_back,
    faults_of_clients_do_not_count,
    a_reload_switches_breakers_on_and_off,
);

fn with_breaker(config: Config) -> Config {
    config
        .set("circuit_breaker.enabled", true)
        .set("circuit_breaker.window_size", 4)
        .set("circuit_breaker.half_open_max", 2)
        .set("circuit_breaker.open_duration", "3s")
}

fn an_open_breaker_refuses_at_once_tries_nothing_and_closes_when_the_server_is_back(shards: usize) {
    let mut cluster = Cluster::start(&Options::default());
    let database = cluster.fresh_database();
    let config = with_breaker(Config::new(&cluster, &database).shards(shards));
    let pgmux = Pgmux::start(&config);
    let mut client = pgmux.client();
    cluster.crash();
    pgmux.wait_for("servers", 0);
    let opened = eventually(PATIENCE, || {
        client.sqlstate("select 1");
        (pgmux.figure("breakers_open") == 1).then_some(())
    });
    assert!(opened.is_some(), "{:?}", pgmux.figures());
    // It may be half-open for a moment by now.
    let refused = eventually(PATIENCE, || {
        let failures = pgmux.figure("server_login_failures");
        let asked = Instant::now();
        let answer = client.trace("select 1").join("\n");
        let took = asked.elapsed();
        let is_refusal = answer.contains("circuit_breaker") && answer.contains("08006");
        let same = pgmux.figure("server_login_failures") == failures;
        (is_refusal && same && took < Duration::from_secs(1)).then_some(())
    });
    assert!(refused.is_some(), "{:?}", client.trace("select 1"));
    assert!(pgmux.figure("breaker_refusals") >= 1);
    cluster.resume();
    let served = eventually(PATIENCE, || {
        client.trace("select 1")[0]
            .starts_with("RowDescription")
            .then_some(())
    });
    assert!(served.is_some(), "{:?}", client.trace("select 1"));
    // One server is all there is; what it serves, and its checks, are successes too.
    pgmux.wait_for("breakers_half_open", 0);
    assert_eq!(pgmux.figure("breakers_open"), 0);
    assert!(pgmux.figure("breaker_opens") >= 1);
    pgmux.stop();
}

fn a_reload_switches_breakers_on_and_off(shards: usize) {
    let mut cluster = Cluster::start(&Options::default());
    let database = cluster.fresh_database();
    let without = Config::new(&cluster, &database).shards(shards);
    let pgmux = Pgmux::start(&without);
    let mut client = pgmux.client();
    cluster.crash();
    pgmux.wait_for("servers", 0);
    client.sqlstate("select 1");
    assert!(pgmux.reload(&with_breaker(without.clone())));
    let opened = eventually(PATIENCE, || {
        client.sqlstate("select 1");
        (pgmux.figure("breaker_opens") > 0).then_some(())
    });
    assert!(opened.is_some(), "{:?}", pgmux.figures());
    assert!(pgmux.reload(&without));
    let figures = pgmux.figures();
    assert_eq!(
        (figures["breakers_open"], figures["breakers_half_open"]),
        (0, 0)
    );
    assert!(
        !client
            .trace("select 1")
            .join("\n")
            .contains("circuit_breaker")
    );
    pgmux.stop();
}

fn faults_of_clients_do_not_count(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = with_breaker(Config::new(cluster, &database).shards(shards));
    let pgmux = Pgmux::start(&config);
    for _ in 0..6 {
        let mut client = pgmux.client();
        client.send(&frontend::query(
            "select pg_terminate_backend(pg_backend_pid())",
        ));
        let _ = client.farewell();
        let mut client = pgmux.client();
        assert_eq!(client.sqlstate("select nope"), "42703");
        client.query("begin");
        client.send(&frontend::query(
            "select repeat('x', 1000) from generate_series(1, 100000)",
        ));
        drop(client);
        let mut client = pgmux.client();
        client.query("set idle_in_transaction_session_timeout = 50");
        client.query("begin");
        let _ = client.farewell();
    }
    pgmux.client().query("select 1");
    let figures = pgmux.figures();
    assert_eq!(figures["breaker_opens"], 0, "{figures:?}");
    assert_eq!(figures["servers_died"], 0, "{figures:?}");
    assert_eq!(figures["targets_unwell"], 0, "{figures:?}");
    pgmux.stop();
}
