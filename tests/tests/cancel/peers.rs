//! Several instances behind one address: a cancel request comes to any of them and ends on the right one.

use super::support::{
    Key, ask_to_cancel, cancel, cancel_at, end_of, error_in, expect_cancelled, key_of,
};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};
use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux, yaml_string};
use tests::process::{TempDir, free_port};
use tests::wire::{Conn, Endpoint, Session, frontend};
use tests::{canary, on_1_2_and_4_shards};

on_1_2_and_4_shards!(
    a_query_is_ended_through_another_instance,
    a_client_that_waits_is_reached_through_another_instance,
    an_idle_client_is_not_hit_through_another_instance,
);

/// An instance with this number and these peers.
fn instance(database: &str, shards: usize, id: u32, port: u16, peers: &[(u32, String)]) -> Pgmux {
    let items: Vec<_> = peers
        .iter()
        .map(|(id, address)| format!("{{id: {id}, address: {}}}", yaml_string(address)))
        .collect();
    let config = Config::new(Cluster::shared(), database)
        .shards(shards)
        .servers(1)
        .set("engine.instance_id", id)
        .set("peers", format!("[{}]", items.join(", ")))
        .port(port);
    Pgmux::start(&config)
}

fn local(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Two that know each other.
fn pair(database: &str, shards: usize) -> [Pgmux; 2] {
    let ports = [free_port(), free_port()];
    let peers = [(1, local(ports[0])), (255, local(ports[1]))];
    [(1, ports[0]), (255, ports[1])].map(|(id, port)| instance(database, shards, id, port, &peers))
}

fn a_query_is_ended_through_another_instance(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let mut direct = Direct::open(cluster, &database);
    let pair = pair(&database, shards);
    for minor in [0, 2] {
        for (own, other) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            let mut client = Session::open(&own.endpoint(), &own.login().minor(minor));
            let key = key_of(&client);
            assert_eq!(key.1.len(), if minor == 0 { 4 } else { 32 });
            assert!(key.0 > 0);
            for _ in 0..6 {
                client.send(&frontend::query("select pg_sleep(60)"));
                direct.expect_sleeper();
                cancel(other, &key);
                expect_cancelled(&mut client);
                canary::ask(&mut client);
                // It answers to its own instance as well.
                client.send(&frontend::query("select pg_sleep(60)"));
                direct.expect_sleeper();
                cancel(own, &key);
                expect_cancelled(&mut client);
            }
        }
    }
    for pgmux in pair {
        assert_eq!(pgmux.figures()["cancels_forwarded"], 12);
        assert_eq!(pgmux.figures()["cancels_under_way"], 0);
        pgmux.stop();
    }
}

fn a_client_that_waits_is_reached_through_another_instance(shards: usize) {
    let database = Cluster::shared().fresh_database();
    let [one, two] = pair(&database, shards);
    let mut holder = one.client();
    let mut waiter = one.client();
    holder.query("begin");
    for _ in 0..4 {
        waiter.send(&frontend::query("select 1"));
        cancel(&two, &key_of(&waiter));
        expect_cancelled(&mut waiter);
    }
    holder.query("commit");
    canary::ask(&mut waiter);
    drop((holder, waiter));
    one.stop();
    two.stop();
}

fn an_idle_client_is_not_hit_through_another_instance(shards: usize) {
    let database = Cluster::shared().fresh_database();
    let [one, two] = pair(&database, shards);
    let mut client = one.client();
    let key = key_of(&client);
    for round in 0..100 {
        cancel(&two, &key);
        let replies = client.query("select pg_sleep(0.002)");
        assert_eq!(error_in(&replies), None, "round {round}");
    }
    assert_eq!(one.figures()["cancels_sent"], 0);
    drop(client);
    one.stop();
    two.stop();
}

/// Each says that the next one has what is not its own.
#[test]
fn a_request_comes_through_three_instances_and_no_more() {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let mut direct = Direct::open(cluster, &database);
    let ports: Vec<u16> = (0..5).map(|_| free_port()).collect();
    let chain: Vec<Pgmux> = (0..5)
        .map(|at: usize| {
            let next = local(ports[(at + 1) % 5]);
            instance(
                &database,
                1,
                at as u32 + 1,
                ports[at],
                &[(4, next.clone()), (5, next)],
            )
        })
        .collect();
    let mut far = chain[3].client();
    far.send(&frontend::query("select pg_sleep(60)"));
    direct.expect_sleeper();
    cancel(&chain[0], &key_of(&far));
    expect_cancelled(&mut far);
    let mut too_far = chain[4].client();
    too_far.send(&frontend::query("select pg_sleep(60)"));
    direct.expect_sleeper();
    cancel(&chain[0], &key_of(&too_far));
    assert_eq!(chain[3].figures()["cancels_dropped"], 1);
    assert_eq!(chain[4].figures()["cancels"], 0);
    cancel(&chain[1], &key_of(&too_far));
    expect_cancelled(&mut too_far);
    drop((far, too_far));
    chain.into_iter().for_each(Pgmux::stop);
}

/// A's peers say that B has the id 3, and B's that A has it.
#[test]
fn loops_die() {
    let database = Cluster::shared().fresh_database();
    let ports = [free_port(), free_port()];
    let one = instance(&database, 1, 1, ports[0], &[(3, local(ports[1]))]);
    let two = instance(&database, 1, 2, ports[1], &[(3, local(ports[0]))]);
    const REQUESTS: u64 = 20;
    for round in 0..REQUESTS as i32 {
        cancel(&one, &(3 << 23 | round, vec![1; 4]));
    }
    let sum = |name: &str| one.figures()[name] + two.figures()[name];
    assert_eq!(sum("cancels_forwarded"), 3 * REQUESTS);
    assert_eq!(sum("cancels_dropped"), REQUESTS);
    assert_eq!(sum("cancels_under_way"), 0);
    one.stop();
    two.stop();
}

#[test]
fn a_forged_trailer_gains_nothing() {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let mut direct = Direct::open(cluster, &database);
    let [one, two] = pair(&database, 1);
    let mut client = one.client();
    let (pid, key) = key_of(&client);
    let forged = |key: &[u8], hops: u8| (pid, [key, b"pgmux hop", &[hops]].concat());
    client.send(&frontend::query("select pg_sleep(60)"));
    direct.expect_sleeper();
    let wrong = [key[0] ^ 1, key[1], key[2], key[3]];
    for hops in [0, 1, 2, 3, 4, 255] {
        for pgmux in [&one, &two] {
            cancel(pgmux, &forged(&wrong, hops));
        }
    }
    // Passed on less far than without it.
    for hops in [3, 4, 255] {
        cancel(&two, &forged(&key, hops));
    }
    assert_eq!(one.figures()["cancels_sent"], 0);
    cancel(&two, &forged(&key, 2));
    expect_cancelled(&mut client);
    drop(client);
    one.stop();
    two.stop();
}

#[test]
fn peers_that_are_down_or_silent_cost_little() {
    let database = Cluster::shared().fresh_database();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("its port").port();
    let dir = TempDir::new("peer").expect("a directory");
    let absent = dir.path().join("nobody");
    let peers = [
        (2, local(port)),
        (3, local(free_port())),
        (4, format!("unix:{}", absent.display())),
        (5, "nowhere.invalid:5432".to_string()),
    ];
    let pgmux = instance(&database, 1, 1, free_port(), &peers);
    let key = |id: i32| -> Key { (id << 23, vec![1; 4]) };
    let started = Instant::now();
    for id in [3, 4] {
        cancel(&pgmux, &key(id));
    }
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "nobody was there"
    );
    const REQUESTS: usize = 300;
    let open = || Conn::open(&pgmux.endpoint()).expect("a connection");
    let held: Vec<_> = (0..REQUESTS)
        .map(|_| ask_to_cancel(open(), &key(2)))
        .collect();
    let nowhere = ask_to_cancel(open(), &key(5));
    canary::check(&pgmux.endpoint(), &pgmux.login());
    held.into_iter().for_each(end_of);
    end_of(nowhere);
    silent.set_nonblocking(true).expect("a listener that ends");
    let reached = std::iter::from_fn(|| silent.accept().ok()).count();
    assert!((1..=128).contains(&reached), "{reached} connections");
    let figures = pgmux.figures();
    assert_eq!(figures["cancels_dropped"], (REQUESTS - reached) as u64);
    assert_eq!(figures["cancels_under_way"], 0);
    pgmux.stop();
}

/// X-5, beside peers: those of no instance, and of places that nobody has.
#[test]
fn keys_of_nobody_go_nowhere() {
    let database = Cluster::shared().fresh_database();
    let [one, two] = pair(&database, 1);
    for pid in [0, 1, -1, i32::MIN, 7 << 23, 1 << 23 | 0x7F_FFFF, 1 << 23] {
        cancel(&one, &(pid, vec![0; 4]));
    }
    assert_eq!(one.figures()["cancels_forwarded"], 0);
    assert_eq!(two.figures()["cancels"], 0);
    one.stop();
    two.stop();
}

#[test]
fn a_peer_is_reached_by_its_unix_socket() {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let dir = TempDir::new("peers").expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let of = |path: &Path| format!("unix:{}", path.display());
    let peers = [(1, of(&path("one"))), (2, of(&path("two")))];
    let [one, two] = [(1, "one"), (2, "two")].map(|(id, name)| {
        let items: Vec<_> = peers
            .iter()
            .map(|(id, address)| format!("{{id: {id}, address: '{address}'}}"))
            .collect();
        let config = Config::new(cluster, &database)
            .set("engine.instance_id", id)
            .set("peers", format!("[{}]", items.join(", ")))
            .set("proxy.listen", yaml_string(&of(&path(name))));
        Pgmux::start(&config)
    });
    let mut client = Session::open(&Endpoint::Unix(path("one")), &one.login());
    client.send(&frontend::query("select pg_sleep(60)"));
    Direct::open(cluster, &database).expect_sleeper();
    cancel_at(&Endpoint::Unix(path("two")), &key_of(&client));
    expect_cancelled(&mut client);
    drop(client);
    one.stop();
    two.stop();
}
