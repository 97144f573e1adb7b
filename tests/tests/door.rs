//! Whom the door lets wait when there are too many that have not logged in.

use std::net::{Ipv4Addr, SocketAddr};

use tests::canary;
use tests::cluster::Cluster;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually};
use tests::wire::{Conn, Endpoint, Session};

/// One shard: the bounds are a shard's.
fn pgmux(bounds: [(&str, u32); 2]) -> Pgmux {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database).shards(1);
    let config = bounds
        .iter()
        .fold(config, |config, (key, value)| config.set(key, value));
    Pgmux::start(&config.set("proxy.login_timeout", "10m"))
}

fn address(pgmux: &Pgmux) -> SocketAddr {
    match pgmux.endpoint() {
        Endpoint::Tcp(address) => address,
        other => panic!("{other:?} is not TCP"),
    }
}

/// Connections that say nothing.
fn silent(pgmux: &Pgmux, source: Ipv4Addr, count: usize) -> Vec<Conn> {
    let open = |_| Conn::open_from(source, address(pgmux)).expect("a connection");
    (0..count).map(open).collect()
}

fn log_in_from(pgmux: &Pgmux, source: Ipv4Addr) -> Result<Session, String> {
    let conn = Conn::open_from(source, address(pgmux)).map_err(|error| error.to_string())?;
    Session::log_in(conn, &pgmux.login())
}

#[test]
fn a_crowd_from_few_addresses_makes_room_for_a_client_from_another_at_once() {
    let pgmux = pgmux([
        ("proxy.max_unauthenticated", 20),
        ("proxy.max_unauthenticated_per_source", 10),
    ]);
    let crowd: Vec<Vec<Conn>> = [2, 3]
        .map(|last| silent(&pgmux, Ipv4Addr::new(127, 0, 0, last), 10))
        .into();
    pgmux.wait_for("logging_in", 20);
    for last in 10..15 {
        // The crowd comes back for what it has lost.
        let mut client = log_in_from(&pgmux, Ipv4Addr::new(127, 0, 0, last)).expect("let in");
        canary::ask(&mut client);
        let _more = silent(&pgmux, Ipv4Addr::new(127, 0, 0, 2), 1);
    }
    let figures = pgmux.figures();
    assert!(figures["logins_ousted"] >= 1, "{figures:?}");
    drop(crowd);
    pgmux.wait_for("logging_in", 0);
    pgmux.stop();
}

#[test]
fn who_stands_still_makes_room_for_a_client_from_the_same_address() {
    let pgmux = pgmux([
        ("proxy.max_unauthenticated", 20),
        ("proxy.max_unauthenticated_per_source", 5),
    ]);
    let source = Ipv4Addr::new(127, 0, 0, 2);
    let mut crowd = silent(&pgmux, source, 5);
    pgmux.wait_for("logging_in", 5);
    let client = eventually(PATIENCE, || log_in_from(&pgmux, source).ok());
    canary::ask(&mut client.expect("let in"));
    let first = crowd[0].recv_byte();
    assert!(
        first.is_err(),
        "the first was closed without a word: {first:?}"
    );
    pgmux.stop();
}
