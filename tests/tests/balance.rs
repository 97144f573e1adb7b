//! Clients are spread over the shards.

use std::collections::BTreeMap;

use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::wire::Session;
use tests::{canary, on_shards};

on_shards!(
    each_shard_has_as_many_clients_as_any_other,
    places_that_clients_have_left_are_filled_first,
    clients_that_come_at_once_are_spread_too,
);

fn start(shards: usize) -> (Pgmux, Direct) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    // That clients move later on is another matter, see `guests`.
    let config = Config::new(cluster, &database)
        .shards(shards)
        .set("engine.balance", "off");
    (Pgmux::start(&config), Direct::open(cluster, &database))
}

/// The shard of a client: the process id that it is told begins with that.
fn shard(client: &Session) -> i32 {
    client.key.as_ref().expect("a key to cancel with").0 >> 20
}

/// How many of these clients each shard has.
fn spread<'a>(clients: impl IntoIterator<Item = &'a Session>) -> Vec<usize> {
    let mut counts = BTreeMap::new();
    for client in clients {
        *counts.entry(shard(client)).or_default() += 1;
    }
    counts.into_values().collect()
}

fn each_shard_has_as_many_clients_as_any_other(shards: usize) {
    let (pgmux, _direct) = start(shards);
    let mut clients: Vec<Session> = (0..2 * shards).map(|_| pgmux.client()).collect();
    assert_eq!(spread(&clients), vec![2; shards]);
    clients.iter_mut().for_each(canary::ask);
    pgmux.stop();
}

fn places_that_clients_have_left_are_filled_first(shards: usize) {
    let (pgmux, mut direct) = start(shards);
    let mut clients: Vec<Session> = (0..3 * shards).map(|_| pgmux.client()).collect();
    // Those of one shard leave.
    let first = shard(&clients[0]);
    clients.retain(|client| shard(client) != first);
    assert_eq!(clients.len(), 3 * (shards - 1));
    pgmux.wait_for("clients", clients.len() as u64);
    clients.extend((0..3).map(|_| pgmux.client()));
    assert_eq!(spread(&clients), vec![3; shards]);
    direct.expect_idle();
    pgmux.stop();
}

fn clients_that_come_at_once_are_spread_too(shards: usize) {
    let (pgmux, _direct) = start(shards);
    let clients: Vec<Session> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8 * shards)
            .map(|_| scope.spawn(|| pgmux.client()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a client"))
            .collect()
    });
    assert_eq!(spread(&clients), vec![8; shards]);
    pgmux.stop();
}
