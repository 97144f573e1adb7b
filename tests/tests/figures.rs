//! What pgmux counts and measures, as operators see it.

use tests::cluster::Cluster;
use tests::on_shards;
use tests::pgmux::{Config, Pgmux};
use tests::wire::{Session, frontend};

on_shards!(
    times_of_waits_leases_and_logins_are_told,
    collecting_costs_the_same_whatever_the_number_of_clients,
);

fn start(shards: usize, configure: impl FnOnce(Config) -> Config) -> Pgmux {
    let cluster = Cluster::shared();
    let config = Config::new(cluster, &cluster.fresh_database()).shards(shards);
    Pgmux::start(&configure(config))
}

fn times_of_waits_leases_and_logins_are_told(shards: usize) {
    let pgmux = start(shards, |config| config.servers(1));
    let mut holder = pgmux.client();
    let mut waiter = pgmux.client();
    let before = pgmux.figures();
    assert_eq!(before["client_login_count"], before["logins"]);
    assert_eq!(before["server_login_count"], before["servers_opened"]);
    assert!(before["client_login_max_us"] > 0 && before["server_login_max_us"] > 0);
    holder.query("begin");
    waiter.send(&frontend::query("select 1"));
    pgmux.wait_for("waiting", 1);
    holder.query("select pg_sleep(0.5)");
    holder.query("commit");
    waiter.replies();
    pgmux.wait_for("lease_count", before["lease_count"] + 2);
    let after = pgmux.figures();
    assert_eq!(after["lease_count"], after["transactions"]);
    assert_eq!(after["wait_count"], after["waits"]);
    for name in ["lease_max_us", "wait_max_us"] {
        let took = after[name];
        assert!((500_000..60_000_000).contains(&took), "{name} is {took}");
    }
    let grown = after["lease_sum_us"] - before["lease_sum_us"];
    assert!((500_000..60_000_000).contains(&grown), "{grown}");
    assert!(after["lease_p50_us"] <= after["lease_p95_us"]);
    assert!(after["lease_p95_us"] <= after["lease_max_us"]);
    pgmux.stop();
}

fn collecting_costs_the_same_whatever_the_number_of_clients(shards: usize) {
    let pgmux = start(shards, |config| config);
    // The best of many: a shard may lose its CPU in the midst of it.
    let best = || {
        let collections = (0..30).map(|_| pgmux.figure("collecting_ns"));
        collections.min().expect("a collection")
    };
    let without = best();
    let clients: Vec<Session> = (0..1000).map(|_| pgmux.client()).collect();
    pgmux.wait_for("clients", 1000);
    let with = best();
    // To look at a client takes some nanoseconds at least, in a build for debugging more.
    assert!(
        with < without * 3 + 20_000,
        "{with} ns with a thousand clients, {without} ns without"
    );
    drop(clients);
    pgmux.stop();
}
