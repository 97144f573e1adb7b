//! Clients that go without a word, again and again: no server, lock or transaction of theirs stays, and none is lost.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually, rss_kib};
use tests::wire::{Session, frontend};
use tests::{canary, on_shards};

on_shards!(
    lock_of_a_client_that_vanished_is_free_for_the_next,
    clients_that_quit_in_a_transaction_cost_few_servers,
    clients_that_vanish_in_transactions_leave_none_open_and_starve_nobody,
    texts_that_are_all_different_or_absurd_are_not_kept,
);

fn bench(shards: usize, servers: usize) -> (Pgmux, Direct) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database).shards(shards);
    (
        Pgmux::start(&config.servers(servers)),
        Direct::open(cluster, &database),
    )
}

fn lock_of_a_client_that_vanished_is_free_for_the_next(shards: usize) {
    // BR-077.
    let (pgmux, mut direct) = bench(shards, 2);
    for sql in [
        "select pg_try_advisory_lock(7)",
        "begin; select pg_try_advisory_lock(7); rollback",
    ] {
        let mut holder = pgmux.client();
        holder.query(sql);
        holder.send(&frontend::query("select pg_sleep(60)"));
        direct.expect_sleeper();
        holder.conn.reset();
        let mut next = pgmux.client();
        let locked = eventually(PATIENCE, || {
            (next.value("select pg_try_advisory_lock(7)") == "t").then_some(())
        });
        assert!(locked.is_some(), "{sql}: {:#?}", direct.activity());
        assert_eq!(next.value("select pg_advisory_unlock(7)"), "t");
        drop(next);
        direct.expect_idle();
    }
    pgmux.stop();
}

fn clients_that_quit_in_a_transaction_cost_few_servers(shards: usize) {
    // BR-085. As many servers as no shard has to wait for another's.
    let (pgmux, mut direct) = bench(shards, 8);
    let mut pids = BTreeSet::new();
    for _ in 0..100 {
        let mut client = pgmux.client();
        client.query("begin");
        pids.insert(client.value("select pg_backend_pid()"));
        client.send(&frontend::terminate());
    }
    direct.expect_idle();
    assert!(pids.len() <= 16, "{} servers for 100 clients", pids.len());
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn clients_that_vanish_in_transactions_leave_none_open_and_starve_nobody(shards: usize) {
    // BR-079: a third of the clients vanish at each place of the loop in turn.
    let (pgmux, mut direct) = bench(shards, 3);
    let failed = AtomicBool::new(false);
    let mut batch = frontend::parse("", "begin read only", &[]);
    batch.extend(frontend::bind_text("", "", &[]));
    batch.extend(frontend::execute("", 0));
    std::thread::scope(|scope| {
        for number in 0..20 {
            let (pgmux, batch, failed) = (&pgmux, &batch, &failed);
            scope.spawn(move || {
                for round in 0..5 {
                    let mut client = pgmux.client();
                    let last = if number % 3 == 0 { round % 3 } else { 9 };
                    client.send(batch);
                    if last == 0 {
                        client.conn.reset();
                        continue;
                    }
                    client.send(&frontend::sync());
                    let begun = client.replies();
                    let open = begun.last().is_some_and(|ready| ready.body == b"T");
                    failed.fetch_or(!open, Ordering::SeqCst);
                    if last == 1 {
                        client.conn.reset();
                        continue;
                    }
                    client.send(&frontend::query("select 1"));
                    if last == 2 {
                        client.conn.reset();
                        continue;
                    }
                    client.replies();
                    client.query("commit");
                }
            });
        }
    });
    assert!(!failed.load(Ordering::SeqCst), "a BEGIN without its reply");
    direct.expect_idle();
    assert_eq!(pgmux.figure("wait_timeouts"), 0);
    // As many servers as before can be had at once.
    let mut all: Vec<Session> = (0..3).map(|_| pgmux.client()).collect();
    for client in &mut all {
        client.query("begin");
    }
    drop(all);
    pgmux.stop();
}

fn texts_that_are_all_different_or_absurd_are_not_kept(shards: usize) {
    // BR-126.
    let (pgmux, _direct) = bench(shards, 2);
    let mut client = pgmux.client();
    let mut ask = |rounds: std::ops::Range<u32>| {
        for round in rounds {
            let pairs: Vec<String> = (0..300).map(|n| format!("('x{n}', 'y{round}')")).collect();
            let list = pairs.join(", ");
            assert_eq!(client.value(&format!("select ('a', 'b') in ({list})")), "f");
            let sql = format!("select ('x1', $1::text) in ({list})");
            client.rows_extended(&sql, &["z"]);
        }
    };
    ask(0..100);
    let before = rss_kib(pgmux.pid());
    ask(100..500);
    let mut client = pgmux.client();
    let deep = format!("select {}1{}", "(".repeat(10_000), ")".repeat(10_000));
    client.query(&deep);
    let long = format!("select length('{}')", "x".repeat(5_000_000));
    assert_eq!(client.value(&long), "5000000");
    let elements = vec!["1"; 100_000].join(",");
    let sql = format!("select cardinality(array[{elements}])");
    assert_eq!(client.value(&sql), "100000");
    canary::ask(&mut client);
    let grown = rss_kib(pgmux.pid()).saturating_sub(before);
    // 400 texts of 6 KiB twice, and one of 5 MB: far less than either would be if it were kept.
    assert!(grown < 24 * 1024, "{grown} KiB more");
    pgmux.stop();
}
