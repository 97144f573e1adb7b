//! Shards whose mailboxes have room for one message: what finds none is kept, and nothing is lost: no client, no
//! server, no permit, no place. (Cancels: `cancel::storm::no_cancel_is_lost_where_mailboxes_are_full`.)

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tests::canary;
use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually};
use tests::wire::{Session, frontend};

tests::on_many_shards!(
    clients_and_servers_that_find_no_room_stay_and_none_is_lost,
    permits_whose_news_finds_no_room_are_used_all_the_same,
    clients_that_come_at_once_are_all_served,
);

const SERVERS: usize = 4;
const CLIENTS: usize = 24;

fn start(shards: usize, configure: impl FnOnce(Config) -> Config) -> (Pgmux, Direct) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .servers(SERVERS)
        .set("engine.mailbox", 1)
        .set("proxy.max_clients", CLIENTS)
        .set("pool.connection_timeout", "60s");
    (
        Pgmux::start(&configure(config)),
        Direct::open(cluster, &database),
    )
}

/// Everything is there again: each place for a client, each server for whoever comes.
fn expect_nothing_lost(pgmux: Pgmux, mut direct: Direct) {
    pgmux.wait_for("clients", 0);
    let figures = pgmux.figures();
    for name in ["panics", "violations", "waiting", "wait_timeouts"] {
        assert_eq!(figures[name], 0, "{name}: {figures:?}");
    }
    assert!(figures["mail_refused"] > 0, "there was always room");
    assert_eq!(figures["handovers_given"], figures["handovers_taken"]);
    let mut clients: Vec<Session> = (0..CLIENTS).map(|_| pgmux.client()).collect();
    for client in &mut clients[..SERVERS] {
        client.query("begin");
    }
    direct.expect_servers(SERVERS);
    for client in &mut clients[..SERVERS] {
        client.query("commit");
    }
    clients.iter_mut().for_each(canary::ask);
    drop(clients);
    direct.expect_idle();
    pgmux.stop();
}

fn clients_and_servers_that_find_no_room_stay_and_none_is_lost(shards: usize) {
    let (pgmux, direct) = start(shards, |config| config.set("engine.balance", "restless"));
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let pgmux = &pgmux;
            scope.spawn(move || {
                let mut client = pgmux.client();
                for round in 0..25 {
                    let expected = format!("{number}/{round}");
                    assert_eq!(client.value(&format!("select '{expected}'")), expected);
                }
                // Some vanish while they move.
                if number % 3 == 0 {
                    client.send(&frontend::query("select 1"));
                    client.conn.reset();
                }
            });
        }
    });
    assert!(pgmux.figure("clients_moved") > 0);
    expect_nothing_lost(pgmux, direct);
}

fn permits_whose_news_finds_no_room_are_used_all_the_same(shards: usize) {
    let (pgmux, mut direct) = start(shards, |config| config.set("engine.balance", "off"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let pgmux = &pgmux;
                scope.spawn(move || {
                    let mut client = pgmux.client();
                    for _ in 0..25 {
                        client.send(&frontend::query("select pg_sleep(0.001)"));
                        // Its server may be ended under it, and it with it.
                        if client.conn.recv_until(b'Z').is_err() {
                            client = again(pgmux);
                        }
                    }
                })
            })
            .collect();
        // Servers end, so their permits go to who waits, wherever that is.
        let done = &done;
        let killer = scope.spawn(move || {
            while !done.load(Ordering::SeqCst) {
                for pid in direct.servers().into_iter().take(2) {
                    direct.number(&format!("select count(pg_terminate_backend({pid}))"));
                }
            }
            direct
        });
        let ended: Vec<_> = asking.into_iter().map(|client| client.join()).collect();
        done.store(true, Ordering::SeqCst);
        let direct = killer.join().expect("who ends servers");
        assert!(ended.iter().all(Result::is_ok), "a client failed");
        direct
    });
    let direct = Direct::open(Cluster::shared(), &pgmux.login().database);
    assert!(pgmux.figure("servers_closed") > 4);
    expect_nothing_lost(pgmux, direct);
}

/// A client's place is free a moment after it has gone.
fn again(pgmux: &Pgmux) -> Session {
    let opened = eventually(PATIENCE, || {
        Session::try_open(&pgmux.endpoint(), &pgmux.login()).ok()
    });
    opened.expect("a place")
}

fn clients_that_come_at_once_are_all_served(shards: usize) {
    let (pgmux, direct) = start(shards, |config| config);
    for _ in 0..3 {
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| canary::ask(&mut again(&pgmux)));
            }
        });
    }
    // By now the shards have told each other of who came and who left, in vain at times.
    let mut crowd: Vec<Session> = (0..CLIENTS / 2).map(|_| again(&pgmux)).collect();
    crowd.iter_mut().for_each(canary::ask);
    drop(crowd);
    // Where no message met another, there was room.
    let figures = pgmux.figures();
    assert_eq!(figures["panics"], 0);
    assert_eq!(figures["login_failures"], 0, "{figures:?}");
    drop(direct);
    pgmux.stop();
}
