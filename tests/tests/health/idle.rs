//! Idle servers: they are asked whether they are alive, and grow old all the same.

use std::time::Duration;

use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::hostile::{FakeServer, HONEST, honest_reply};
use tests::on_shards;
use tests::pgmux::{Config, Pgmux};

on_shards!(
    a_server_that_has_fallen_silent_is_replaced_before_a_client_gets_it,
    checks_keep_no_server_from_its_idle_timeout,
    servers_in_use_are_not_asked,
);

fn a_server_that_has_fallen_silent_is_replaced_before_a_client_gets_it(shards: usize) {
    // The first connection answers one client, and then nothing any more.
    let server = FakeServer::start(|peer, nth| {
        peer.log_in()?;
        if nth == 0 {
            loop {
                let request = peer.read_request()?;
                if request[0].body.starts_with(b"SELECT 1\0") {
                    return peer.drain();
                }
                peer.send(&honest_reply(&request, "fake"))?;
            }
        }
        peer.serve("fake")
    });
    let config = Config::fake(server.port())
        .shards(shards)
        .set("pool.health_check_interval", "300ms")
        .set("pool.health_check_timeout", "500ms");
    let pgmux = Pgmux::start(&config);
    let mut client = pgmux.client();
    assert_eq!(client.trace("select 'fake'"), HONEST);
    super::at_least(&pgmux, "health_checks", 1);
    pgmux.wait_for("health_check_failures", 1);
    pgmux.wait_for("servers", 0);
    assert_eq!(client.trace("select 'fake'"), HONEST);
    assert_eq!(server.accepted(), 2);
    pgmux.stop();
}

fn checks_keep_no_server_from_its_idle_timeout(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .set("pool.idle_timeout", "2s")
        .set("pool.health_check_interval", "100ms");
    let pgmux = Pgmux::start(&config);
    pgmux.client().query("select 1");
    super::at_least(&pgmux, "health_checks", 3);
    Direct::open(cluster, &database).expect_servers(0);
    pgmux.wait_for("servers", 0);
    assert_eq!(pgmux.figure("health_check_failures"), 0);
    pgmux.stop();
}

fn servers_in_use_are_not_asked(shards: usize) {
    let cluster = Cluster::shared();
    let config = Config::new(cluster, &cluster.fresh_database())
        .shards(shards)
        .servers(1)
        .set("pool.health_check_interval", "200ms")
        .set("pool.health_check_timeout", "100ms");
    let pgmux = Pgmux::start(&config);
    let mut client = pgmux.client();
    let before = pgmux.figure("health_checks");
    client.query("begin");
    // Longer than an interval: what is in use shows by itself whether it works.
    client.query("select pg_sleep(1)");
    std::thread::sleep(Duration::from_secs(1));
    client.query("commit");
    let after = pgmux.figure("health_checks");
    assert!(after <= before + 2, "{before} before, {after} after");
    assert_eq!(pgmux.figure("health_check_failures"), 0);
    pgmux.stop();
}
