//! Session state where one script is not enough: many clients that set, reset and hold things on few servers.

use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::on_shards;
use tests::pgmux::{Config, Pgmux};
use tests::wire::Session;

on_shards!(
    housekeeping_of_fifty_drivers_keeps_no_server,
    settings_of_twenty_clients_stay_apart_on_two_servers,
    prepared_transaction_of_one_client_is_committed_by_another,
);

/// What drivers send on their own: at connect, between uses and when a connection goes back to their pool.
const HOUSEKEEPING: [&[&str]; 5] = [
    // asyncpg
    &["select pg_advisory_unlock_all(); close all; unlisten *; reset all;"],
    // Npgsql
    &["discard all"],
    // psycopg
    &["begin", "select 1", "rollback", "deallocate all"],
    // psqlODBC
    &[
        "set DateStyle to 'ISO'",
        "set extra_float_digits to 2",
        "show transaction_isolation",
    ],
    // JDBC
    &[
        "SET extra_float_digits = 3",
        "SET application_name = 'PostgreSQL JDBC Driver'",
        "reset all",
    ],
];

fn stand(shards: usize) -> (Pgmux, Direct) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .servers(2)
        .set("pool.connection_timeout", "20s");
    (Pgmux::start(&config), Direct::open(cluster, &database))
}

/// BR-075: were one server kept, a pool of two would not serve fifty clients that stay.
fn housekeeping_of_fifty_drivers_keeps_no_server(shards: usize) {
    let (pgmux, mut direct) = stand(shards);
    let mut clients: Vec<Session> = (0..50).map(|_| pgmux.client()).collect();
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            let expected = format!("{number}/{round}");
            assert_eq!(client.value(&format!("select '{expected}'")), expected);
            for text in HOUSEKEEPING[(number + round) % HOUSEKEEPING.len()] {
                client.query(text);
            }
        }
    }
    direct.expect_idle();
    drop(clients);
    pgmux.stop();
}

fn settings_of_twenty_clients_stay_apart_on_two_servers(shards: usize) {
    let (pgmux, mut direct) = stand(shards);
    std::thread::scope(|scope| {
        for number in 0..20 {
            let pgmux = &pgmux;
            scope.spawn(move || {
                let mut client = pgmux.client();
                for round in 0..5 {
                    let mine = format!("{number}.{round}");
                    client.query(&format!("set app.mine = '{mine}'"));
                    client.query("begin");
                    client.query("set app.mine = 'undone'");
                    client.query("rollback");
                    let seen = client.value("select current_setting('app.mine')");
                    assert_eq!(seen, mine);
                    client.query(&format!("set work_mem = '{}MB'", 5 + number));
                    let seen = client.value("show work_mem");
                    assert_eq!(seen, format!("{}MB", 5 + number));
                    client.query("reset work_mem");
                    assert_eq!(client.value("show work_mem"), "4MB");
                }
            });
        }
    });
    direct.expect_idle();
    pgmux.stop();
}

/// Not a script: its name is the whole cluster's, and scripts play in several databases at once.
fn prepared_transaction_of_one_client_is_committed_by_another(shards: usize) {
    let (pgmux, mut direct) = stand(shards);
    let name = pgmux.login().database;
    let (mut one, mut other) = (pgmux.client(), pgmux.client());
    one.query("create table t (a int)");
    one.query("begin");
    one.query("insert into t values (1)");
    let trace = one.trace(&format!("prepare transaction '{name}'"));
    assert_eq!(
        trace,
        ["CommandComplete \"PREPARE TRANSACTION\"", "ReadyForQuery I"]
    );
    assert_eq!(other.value("select count(*) from t"), "0");
    other.query(&format!("commit prepared '{name}'"));
    assert_eq!(one.value("select count(*) from t"), "1");
    direct.expect_idle();
    pgmux.stop();
}
