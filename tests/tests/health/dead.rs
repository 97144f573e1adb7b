//! A PostgreSQL that lets nobody in: few logins, clear errors in time, and service soon after it is back.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tests::cluster::{Cluster, Options};
use tests::hostile::FakeServer;
use tests::on_shards;
use tests::pgmux::{Config, Pgmux};
use tests::process::signal_pid;
use tests::wire::{Session, frontend};

on_shards!(
    hundreds_of_clients_of_a_dead_server_are_few_logins_and_all_hear_why,
    a_server_that_is_stopped_is_an_error_in_connection_timeout,
    a_server_that_starts_up_says_so_to_the_client,
);

/// The SQLSTATE of the error that answers a query.
fn state_of(client: &mut Session) -> Option<String> {
    let replies = client.replies();
    let error = replies.iter().find(|message| message.tag == b'E')?;
    let mut fields = error.body.split(|byte| *byte == 0);
    let code = fields.find(|field| field.first() == Some(&b'C'))?;
    Some(String::from_utf8_lossy(&code[1..]).into_owned())
}

fn hundreds_of_clients_of_a_dead_server_are_few_logins_and_all_hear_why(shards: usize) {
    let mut cluster = Cluster::start(&Options::default());
    let database = cluster.fresh_database();
    let config = Config::new(&cluster, &database)
        .shards(shards)
        .servers(100)
        .set("pool.connection_timeout", "5s");
    let pgmux = Pgmux::start(&config);
    let mut clients: Vec<Session> = (0..400).map(|_| pgmux.client()).collect();
    assert_eq!(pgmux.figure("server_login_failures"), 0);
    cluster.crash();
    pgmux.wait_for("servers", 0);
    let started = Instant::now();
    for round in 0..2 {
        for client in &mut clients {
            client.send(&frontend::query("select 1"));
        }
        for client in &mut clients {
            let state = state_of(client);
            let right = matches!(state.as_deref(), Some("08006" | "57P03"));
            assert!(right, "round {round}: {state:?}");
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let failures = pgmux.figure("server_login_failures");
    // Two of each shard at first, then ever more slowly down to one a second, in all.
    let most = 2.0 * shards as f64 + 6.0 + 1.5 * seconds;
    assert!((failures as f64) < most, "{failures} in {seconds} s");
    assert_eq!(pgmux.figure("waiting"), 0);

    cluster.resume();
    let back = Instant::now();
    for client in &mut clients {
        while !client.trace("select 1")[0].starts_with("RowDescription") {
            // The shard has not tried again.
            assert!(back.elapsed() < Duration::from_secs(10), "not back");
        }
    }
    pgmux.wait_for("targets_unwell", 0);
    pgmux.stop();
}

fn a_server_that_is_stopped_is_an_error_in_connection_timeout(shards: usize) {
    let cluster = Cluster::start(&Options::default());
    let database = cluster.fresh_database();
    let config = Config::new(&cluster, &database)
        .shards(shards)
        .set("pool.idle_timeout", "100ms")
        .set("pool.connection_timeout", "1s");
    let pgmux = Pgmux::start(&config);
    let mut client = pgmux.client();
    pgmux.wait_for("servers", 0);
    signal_pid(cluster.pid(), Signal::STOP);
    let state = client.sqlstate("select 1");
    signal_pid(cluster.pid(), Signal::CONT);
    assert_eq!(state, "08006", "its own code, not that of a full pool");
    let back = Instant::now();
    while !client.trace("select 1")[0].starts_with("RowDescription") {
        assert!(back.elapsed() < Duration::from_secs(10), "not back");
    }
    pgmux.stop();
}

fn a_server_that_starts_up_says_so_to_the_client(shards: usize) {
    let server = FakeServer::start(|peer, nth| {
        if nth == 0 {
            peer.log_in()?;
            return Ok(());
        }
        peer.read_startup()?;
        peer.error("FATAL", "57P03", "the database system is starting up")
    });
    let pgmux = Pgmux::start(&Config::fake(server.port()).shards(shards));
    let mut client = pgmux.client();
    pgmux.wait_for("servers", 0);
    assert_eq!(client.sqlstate("select 1"), "57P03");
    assert_eq!(client.sqlstate("select 1"), "57P03", "it stays connected");
    assert_eq!(pgmux.figure("targets_unwell"), 1);
    pgmux.stop();
}
