//! `pool.min_connections`.

use rustix::process::Signal;
use tests::cluster::{Cluster, Options};
use tests::direct::Direct;
use tests::on_1_2_and_4_shards;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually};

on_1_2_and_4_shards!(
    the_minimum_is_open_without_any_client_and_lost_ones_are_replaced,
    zero_is_lazy,
    a_dead_target_delays_no_start_and_is_warm_when_it_is_there,
    servers_grow_old_and_are_replaced_without_a_client,
    a_minimum_that_a_reload_raises_is_reached_in_kept_and_new_pools,
    nothing_is_warmed_while_the_process_ends,
);

const TERMINATE: &str = "select pg_terminate_backend(pid) from pg_stat_activity \
     where datname = current_database() and usename = 'app' and state = 'idle'";

fn the_minimum_is_open_without_any_client_and_lost_ones_are_replaced(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .servers(7)
        .set("pool.min_connections", 5);
    let pgmux = Pgmux::start(&config);
    let mut direct = Direct::open(cluster, &database);
    direct.expect_servers(5);
    pgmux.wait_for("pool_warm_connections", 5);
    assert_eq!(pgmux.figure("pool_warm_errors"), 0);
    let before = direct.servers();
    direct.run(TERMINATE);
    let replaced = eventually(PATIENCE, || {
        let now = direct.servers();
        let is_new = now.len() == 5 && !now.iter().any(|pid| before.contains(pid));
        is_new.then_some(())
    });
    assert!(replaced.is_some(), "{:?}", direct.servers());
    // For clients more are opened, and no login of theirs counts as warm.
    let mut clients: Vec<_> = (0..7).map(|_| pgmux.client()).collect();
    clients.iter_mut().for_each(|client| {
        client.query("begin");
    });
    direct.expect_servers(7);
    assert!(pgmux.figure("servers") <= 7);
    pgmux.stop();
}

fn zero_is_lazy(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database).shards(shards);
    let pgmux = Pgmux::start(&config);
    let mut direct = Direct::open(cluster, &database);
    assert_eq!(pgmux.figure("servers_opened"), 0);
    assert_eq!(direct.servers(), [] as [i32; 0]);
    pgmux.client().query("select 1");
    assert_eq!(pgmux.figure("pool_warm_connections"), 0);
    pgmux.stop();
}

fn a_dead_target_delays_no_start_and_is_warm_when_it_is_there(shards: usize) {
    let mut cluster = Cluster::start(&Options::default());
    let database = cluster.fresh_database();
    cluster.crash();
    let config = Config::new(&cluster, &database)
        .shards(shards)
        .set("pool.min_connections", 3);
    let pgmux = Pgmux::start(&config);
    super::at_least(&pgmux, "pool_warm_errors", 3);
    pgmux.wait_for("targets_unwell", 1);
    cluster.resume();
    Direct::open(&cluster, &database).expect_servers(3);
    pgmux.wait_for("pool_warm_connections", 3);
    assert_eq!(pgmux.figure("targets_unwell"), 0);
    pgmux.stop();
}

fn servers_grow_old_and_are_replaced_without_a_client(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .set("pool.min_connections", 2)
        .set("pool.max_lifetime", "1s");
    let pgmux = Pgmux::start(&config);
    super::at_least(&pgmux, "pool_warm_connections", 6);
    assert!(pgmux.figure("servers") <= 4);
    pgmux.stop();
}

fn a_minimum_that_a_reload_raises_is_reached_in_kept_and_new_pools(shards: usize) {
    let cluster = Cluster::shared();
    let (kept, new) = (cluster.fresh_database(), cluster.fresh_database());
    let config = Config::new(cluster, &kept)
        .shards(shards)
        .set("pool.min_connections", 1);
    let pgmux = Pgmux::start(&config);
    Direct::open(cluster, &kept).expect_servers(1);
    let config = config
        .database(&new, cluster.port())
        .set("pool.min_connections", 4);
    assert!(pgmux.reload(&config));
    Direct::open(cluster, &kept).expect_servers(4);
    Direct::open(cluster, &new).expect_servers(4);
    pgmux.stop();
}

fn nothing_is_warmed_while_the_process_ends(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .set("pool.min_connections", 3);
    let mut pgmux = Pgmux::start(&config);
    let mut direct = Direct::open(cluster, &database);
    direct.expect_servers(3);
    let mut client = pgmux.client();
    client.query("begin");
    let opened = pgmux.figure("servers_opened");
    pgmux.signal(Signal::TERM);
    let told = eventually(PATIENCE, || pgmux.log().contains("stopping").then_some(()));
    assert!(told.is_some());
    // Each shard hears of the end before it is asked for its figures.
    pgmux.figures();
    direct.run(TERMINATE);
    direct.expect_servers(1);
    pgmux.wait_for("servers", 1);
    assert_eq!(pgmux.figure("servers_opened"), opened);
    client.query("commit");
    assert!(pgmux.wait().success());
}
