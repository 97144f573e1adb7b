//! Budgets, waiting, ages, and the pool modes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually};
use tests::wire::{Session, frontend};
use tests::{canary, on_shards};

on_shards!(
    servers_never_exceed_the_budget_under_fifty_clients,
    whole_budget_is_usable_from_any_shard,
    waiters_are_served_in_the_order_of_their_coming,
    waiter_that_gives_up_keeps_its_session,
    waiter_that_leaves_frees_its_place,
    waiters_that_reset_their_settings_do_not_pass_a_server_on_unused,
    waiters_with_settings_and_new_statements_do_not_pass_a_server_on_unused,
    idle_servers_are_closed_after_idle_timeout,
    servers_are_replaced_after_max_lifetime,
    session_mode_keeps_the_server_until_the_client_leaves,
    statement_mode_refuses_transactions,
    minimum_is_opened_in_advance,
    pool_of_a_database_overrides_the_general_one,
    reset_query_runs_when_a_server_was_dirtied,
);

struct Bench {
    pgmux: Pgmux,
    direct: Direct,
}

fn bench(shards: usize, configure: impl FnOnce(Config) -> Config) -> Bench {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = configure(Config::new(cluster, &database).shards(shards));
    Bench {
        pgmux: Pgmux::start(&config),
        direct: Direct::open(cluster, &database),
    }
}

fn servers_never_exceed_the_budget_under_fifty_clients(shards: usize) {
    let mut bench = bench(shards, |config| config.servers(5));
    let done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::SeqCst) {
                most = most.max(bench.direct.servers().len());
            }
            most
        });
        let clients: Vec<_> = (0..50)
            .map(|number| {
                let pgmux = &bench.pgmux;
                scope.spawn(move || {
                    let mut client = pgmux.client();
                    for round in 0..20 {
                        let expected = format!("{number}/{round}");
                        assert_eq!(client.value(&format!("select '{expected}'")), expected);
                        client.query("begin");
                        client.rows_extended("select $1::text", &[&expected]);
                        client.query("commit");
                    }
                })
            })
            .collect();
        let failed = clients
            .into_iter()
            .map(|client| client.join())
            .filter(Result::is_err)
            .count();
        done.store(true, Ordering::SeqCst);
        assert_eq!(failed, 0, "clients that failed");
        watch.join().expect("the watch")
    });
    assert!((1..=5).contains(&most), "{most} servers for a budget of 5");
    bench.direct.expect_idle();
    bench.pgmux.stop();
}

fn whole_budget_is_usable_from_any_shard(shards: usize) {
    // Slices must not strand capacity: with as many clients as servers, each gets one, wherever it was accepted.
    let mut bench = bench(shards, |config| config.servers(4));
    for _ in 0..5 {
        let mut clients: Vec<Session> = (0..4).map(|_| bench.pgmux.client()).collect();
        for client in &mut clients {
            client.query("begin");
        }
        assert_eq!(bench.direct.servers().len(), 4);
        for client in &mut clients {
            client.query("commit");
        }
    }
    bench.pgmux.stop();
}

fn waiters_are_served_in_the_order_of_their_coming(shards: usize) {
    // Order is promised within a shard: one shard proves it, four prove only that all are served.
    let mut bench = bench(shards, |config| config.servers(1));
    bench.direct.run(
        "create table served(number int, at serial); grant all on served, served_at_seq to app",
    );
    let mut holder = bench.pgmux.client();
    holder.query("begin");
    let mut waiters: Vec<Session> = (0..8).map(|_| bench.pgmux.client()).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&frontend::query(&format!(
            "insert into served values ({number})"
        )));
        // Each request must have arrived before the next is sent: a round on an idle login proves that.
        bench.pgmux.client();
    }
    holder.query("commit");
    for waiter in &mut waiters {
        waiter.replies();
    }
    let order = bench
        .direct
        .text("select string_agg(number::text, ' ' order by at) from served");
    if shards == 1 {
        assert_eq!(order, "0 1 2 3 4 5 6 7");
    }
    assert_eq!(order.split(' ').count(), 8);
    bench.pgmux.stop();
}

fn waiter_that_gives_up_keeps_its_session(shards: usize) {
    let bench = bench(shards, |config| {
        config.servers(1).set("pool.connection_timeout", "300ms")
    });
    let mut holder = bench.pgmux.client();
    holder.query("begin");
    let mut waiter = bench.pgmux.client();
    for _ in 0..2 {
        let replies = waiter.query("select 1");
        assert_eq!(replies.len(), 2, "one error and one ReadyForQuery");
        assert_eq!(replies[0].tag, b'E');
        assert_eq!(replies[0].sqlstate(), "53300");
        assert_eq!(replies[1].body, b"I");
    }
    let mut batch = frontend::parse("", "select 2", &[]);
    batch.extend(frontend::bind_text("", "", &[]));
    batch.extend(frontend::execute("", 0));
    batch.extend(frontend::sync());
    waiter.send(&batch);
    let tags: Vec<u8> = waiter.replies().iter().map(|message| message.tag).collect();
    assert_eq!(tags, b"EZ");
    holder.query("commit");
    canary::ask(&mut waiter);
    bench.pgmux.stop();
}

fn waiter_that_leaves_frees_its_place(shards: usize) {
    let mut bench = bench(shards, |config| config.servers(1));
    bench
        .direct
        .run("create table trace(a int); grant all on trace to app");
    let mut holder = bench.pgmux.client();
    holder.query("begin");
    for _ in 0..5 {
        let mut waiter = bench.pgmux.client();
        waiter.send(&frontend::query("insert into trace values (1)"));
        waiter.conn.reset();
    }
    let mut last = bench.pgmux.client();
    last.send(&frontend::query("select 7"));
    holder.query("commit");
    assert_eq!(last.replies().len(), 4);
    canary::ask(&mut holder);
    bench.direct.expect_idle();
    bench.pgmux.stop();
}

fn waiters_that_reset_their_settings_do_not_pass_a_server_on_unused(shards: usize) {
    // Each needs the server's settings changed before its RESET, which is more than a text that is passed on.
    let bench = bench(shards, |config| config.servers(1));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let pgmux = &bench.pgmux;
            scope.spawn(move || {
                let login = pgmux
                    .login()
                    .param("application_name", &format!("n{number}"));
                let mut client = Session::open(&pgmux.endpoint(), &login);
                for _ in 0..20 {
                    client.query("set work_mem = '1MB'");
                    client.query("reset all");
                }
                assert_eq!(client.value("show work_mem"), "4MB");
            });
        }
    });
    bench.pgmux.stop();
}

fn waiters_with_settings_and_new_statements_do_not_pass_a_server_on_unused(shards: usize) {
    // Each has just made a statement, and needs the server's settings changed before its next message.
    let bench = bench(shards, |config| config.servers(1));
    let mut clients: Vec<Session> = (0..4).map(|_| bench.pgmux.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.query(&format!("set work_mem = '{}MB'", number + 1));
        let mut batch = frontend::parse("s", "select current_setting('work_mem')", &[]);
        batch.extend(frontend::sync());
        client.send(&batch);
        client.replies();
    }
    let mut holder = bench.pgmux.client();
    holder.query("begin");
    let mut batch = frontend::bind_text("", "s", &[]);
    batch.extend(frontend::execute("", 0));
    batch.extend(frontend::sync());
    for client in &mut clients {
        client.send(&batch);
        // The request must have arrived before the server is free: a round on an idle login proves that.
        bench.pgmux.client();
    }
    holder.query("commit");
    for (number, client) in clients.iter_mut().enumerate() {
        let replies = client.replies();
        let row = replies.iter().find(|message| message.tag == b'D');
        let expected = format!("{}MB", number + 1);
        assert_eq!(row.expect("a row").row(), [Some(expected)]);
    }
    bench.pgmux.stop();
}

fn idle_servers_are_closed_after_idle_timeout(shards: usize) {
    let mut bench = bench(shards, |config| config.set("pool.idle_timeout", "400ms"));
    let mut clients: Vec<Session> = (0..3).map(|_| bench.pgmux.client()).collect();
    for client in &mut clients {
        client.query("begin");
    }
    assert_eq!(bench.direct.servers().len(), 3);
    for client in &mut clients {
        client.query("commit");
    }
    bench.direct.expect_servers(0);
    canary::ask(&mut clients[0]);
    bench.pgmux.stop();
}

fn servers_are_replaced_after_max_lifetime(shards: usize) {
    let bench = bench(shards, |config| {
        config.servers(1).set("pool.max_lifetime", "500ms")
    });
    let mut client = bench.pgmux.client();
    let first = client.value("select pg_backend_pid()");
    let replaced = eventually(PATIENCE, || {
        (client.value("select pg_backend_pid()") != first).then_some(())
    });
    assert!(replaced.is_some(), "the server was never replaced");
    // A transaction is never cut by its server's age.
    client.query("begin");
    let inside = client.value("select pg_backend_pid()");
    client.query("select pg_sleep(1.2)");
    assert_eq!(client.value("select pg_backend_pid()"), inside);
    client.query("commit");
    bench.pgmux.stop();
}

fn session_mode_keeps_the_server_until_the_client_leaves(shards: usize) {
    let mut bench = bench(shards, |config| {
        config.servers(1).set("pool.mode", "session")
    });
    let mut first = bench.pgmux.client();
    let pid = first.value("select pg_backend_pid()");
    first.query("set work_mem = '1MB'");
    first.query("create temp table mine(a int)");
    first.query("listen chat");
    first.query("prepare p as select 5");
    assert_eq!(first.value("execute p"), "5");
    assert_eq!(first.value("show work_mem"), "1MB");
    assert_eq!(first.value("select pg_backend_pid()"), pid);
    // A notification comes while the session is idle (B5).
    bench.direct.run("notify chat, 'hello'");
    let message = first.conn.recv().expect("a notification");
    assert_eq!(message.tag, b'A');
    // Another client waits until the first has left, and finds nothing of it.
    let mut second = bench.pgmux.client();
    second.send(&frontend::query("select 1"));
    assert!(
        second.conn.is_quiet(Duration::from_millis(150)),
        "served though the server is taken"
    );
    first.send(&frontend::terminate());
    second.replies();
    assert_eq!(second.value("show work_mem"), "4MB");
    assert_eq!(second.sqlstate("select * from mine"), "42P01");
    assert_eq!(second.sqlstate("execute p"), "26000");
    assert_eq!(
        second.value("select count(*) from pg_listening_channels()"),
        "0"
    );
    bench.pgmux.stop();
}

fn statement_mode_refuses_transactions(shards: usize) {
    let mut bench = bench(shards, |config| {
        config.servers(1).set("pool.mode", "statement")
    });
    let mut client = bench.pgmux.client();
    assert_eq!(client.value("select 1"), "1");
    canary::ask(&mut client);
    client.send(&frontend::query("begin"));
    let refusal = client.farewell().expect("the end of the session");
    let refusal = refusal.expect("a session that ends with a word");
    assert!(
        !refusal.sqlstate().is_empty(),
        "a refusal without an SQLSTATE"
    );
    bench.direct.expect_idle();
    canary::check(&bench.pgmux.endpoint(), &bench.pgmux.login());
    bench.pgmux.stop();
}

fn minimum_is_opened_in_advance(shards: usize) {
    let mut bench = bench(shards, |config| {
        config.servers(4).set("pool.min_connections", 3)
    });
    bench.direct.expect_servers(3);
    bench.pgmux.stop();
}

fn pool_of_a_database_overrides_the_general_one(shards: usize) {
    let cluster = Cluster::shared();
    let (small, large) = (cluster.fresh_database(), cluster.fresh_database());
    let config = Config::new(cluster, &small)
        .database(&large, cluster.port())
        .shards(shards)
        .servers(1)
        .set("pool.connection_timeout", "300ms")
        .set(&format!("databases.{large}.pool.max_connections"), 3)
        .set(&format!("databases.{large}.pool.mode"), "session");
    let pgmux = Pgmux::start(&config);
    let mut login = pgmux.login();
    let mut first = pgmux.client();
    first.query("begin");
    let mut second = pgmux.client();
    assert_eq!(second.sqlstate("select 1"), "53300");
    login.database = large;
    let mut clients: Vec<Session> = (0..3)
        .map(|_| Session::open(&pgmux.endpoint(), &login))
        .collect();
    for client in &mut clients {
        client.query("set work_mem = '1MB'");
    }
    for client in &mut clients {
        assert_eq!(client.value("show work_mem"), "1MB");
    }
    pgmux.stop();
}

fn reset_query_runs_when_a_server_was_dirtied(shards: usize) {
    let bench = bench(shards, |config| {
        config
            .servers(1)
            .set("pool.reset_query", "'DISCARD ALL'")
            .set("pool.mode", "session")
    });
    let mut first = bench.pgmux.client();
    first.query("set statement_timeout = '1h'");
    drop(first);
    let mut second = bench.pgmux.client();
    assert_eq!(second.value("show statement_timeout"), "0");
    bench.pgmux.stop();
}

#[test]
fn connection_timeout_counts_from_the_request_and_not_from_each_wake_up() {
    let bench = bench(1, |config| {
        config.servers(1).set("pool.connection_timeout", "500ms")
    });
    let mut holder = bench.pgmux.client();
    holder.query("begin");
    let mut waiter = bench.pgmux.client();
    let started = Instant::now();
    assert_eq!(waiter.sqlstate("select 1"), "53300");
    assert!(
        started.elapsed() >= Duration::from_millis(450),
        "gave up after {:?}",
        started.elapsed()
    );
    bench.pgmux.stop();
}
