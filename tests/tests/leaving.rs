//! Clients that leave at any byte: nobody else may ever feel it.

use std::time::Duration;

use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::wire::{Endpoint, Session, frontend};
use tests::{canary, on_shards};

on_shards!(
    client_that_leaves_at_any_message_hurts_nobody,
    client_that_leaves_inside_any_message_hurts_nobody,
    client_that_stops_reading_mid_row_hurts_nobody,
    client_that_closes_its_side_gets_all_that_it_is_owed,
    client_that_closes_its_side_in_the_queue_is_still_served,
    client_that_closes_its_side_in_a_transaction_rolls_back,
    client_that_closes_its_side_and_vanishes_frees_its_server,
    client_that_closes_its_side_in_a_long_silence_frees_its_server,
);

struct Stand {
    pgmux: Pgmux,
    direct: Direct,
}

fn stand(shards: usize, servers: usize) -> Stand {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .servers(servers);
    Stand {
        pgmux: Pgmux::start(&config),
        direct: Direct::open(cluster, &database),
    }
}

impl Stand {
    fn check(&mut self) {
        canary::check(&self.pgmux.endpoint(), &self.pgmux.login());
        self.direct.expect_idle();
    }
}

/// Conversations whose client will leave at each point. Each ends idle if it is not cut.
fn conversations() -> Vec<Vec<Vec<u8>>> {
    let extended = |sql: &str, values: &[&str]| {
        vec![
            frontend::parse("", sql, &[]),
            frontend::bind_text("", "", values),
            frontend::describe(b'P', ""),
            frontend::execute("", 0),
        ]
    };
    let mut pipeline = Vec::new();
    for _ in 0..2 {
        pipeline.extend(extended("select $1::text", &["p"]));
        pipeline.push(frontend::sync());
    }
    let mut flushed = extended("insert into mess values ($1::int) returning a", &["5"]);
    flushed.insert(2, frontend::flush());
    flushed.push(frontend::flush());
    flushed.push(frontend::sync());
    let mut named = vec![
        frontend::parse("s", "select generate_series(1, 100000)", &[]),
        frontend::sync(),
    ];
    named.extend([
        frontend::bind_text("p", "s", &[]),
        frontend::execute("p", 10),
        frontend::flush(),
    ]);
    named.extend([
        frontend::execute("p", 0),
        frontend::close(b'S', "s"),
        frontend::sync(),
    ]);
    let mut copied = extended("copy mess from stdin", &[]);
    copied.extend([
        frontend::copy_data(b"1\n2\n"),
        frontend::copy_data(b"3"),
        frontend::copy_done(),
    ]);
    copied.push(frontend::sync());
    vec![
        vec![
            frontend::query("begin"),
            frontend::query("insert into mess values (1)"),
            frontend::query("select * from mess for update"),
            frontend::query("savepoint s"),
            frontend::query("select 1/0"),
            frontend::query("rollback"),
        ],
        vec![
            frontend::query("copy mess from stdin"),
            frontend::copy_data(b"7\n"),
            frontend::copy_data(b"8\n"),
            frontend::copy_fail("no"),
        ],
        vec![
            frontend::query("copy (select generate_series(1, 200000)) to stdout"),
            frontend::query("select pg_sleep(0.02)"),
            frontend::function_call(177, &[Some(b"1".to_vec()), Some(b"2".to_vec())]),
        ],
        pipeline,
        flushed,
        named,
        copied,
    ]
}

fn client_that_leaves_at_any_message_hurts_nobody(shards: usize) {
    let mut stand = stand(shards, 1);
    stand
        .direct
        .run("create table mess(a int); grant all on mess to public");
    for conversation in conversations() {
        for count in 1..=conversation.len() {
            for reset in [false, true] {
                leave_after(
                    &mut stand,
                    &conversation[..count].concat(),
                    reset,
                    count % 2 == 0,
                );
            }
        }
    }
    assert_eq!(
        stand
            .direct
            .number("select count(*) from mess where a not in (5, 1, 2, 3)"),
        0
    );
    stand.pgmux.stop();
}

fn client_that_leaves_inside_any_message_hurts_nobody(shards: usize) {
    let mut stand = stand(shards, 1);
    stand
        .direct
        .run("create table mess(a int); grant all on mess to public");
    for conversation in conversations() {
        let bytes = conversation.concat();
        // A prime step meets every kind of place without trying all of them.
        for cut in (1..bytes.len()).step_by(13) {
            leave_after(&mut stand, &bytes[..cut], cut % 2 == 0, false);
        }
    }
    stand.pgmux.stop();
}

/// A client sends these bytes and is gone; `hear` reads the first reply before. Then the only server must serve a
/// stranger.
fn leave_after(stand: &mut Stand, bytes: &[u8], reset: bool, hear: bool) {
    let mut client = stand.pgmux.client();
    client.send(bytes);
    if hear {
        client.conn.patience = Duration::from_millis(50);
        let _ = client.conn.recv();
    }
    if reset {
        client.conn.reset();
    } else {
        drop(client);
    }
    stand.check();
}

fn client_that_stops_reading_mid_row_hurts_nobody(shards: usize) {
    let mut stand = stand(shards, 1);
    let mut client = stand.pgmux.client();
    client.send(&frontend::query(
        "select repeat('x', 5000000) from generate_series(1, 20)",
    ));
    client.conn.recv().expect("a row description");
    client.conn.reset();
    stand.check();
    stand.pgmux.stop();
}

/// What a client hears that sends these bytes and closes its side, up to the end of the connection.
fn hear_after_closing(client: &mut Session, bytes: &[u8]) -> Vec<u8> {
    client.send(bytes);
    client.conn.close_write();
    client.conn.recv_to_end().expect("replies and the end")
}

fn client_that_closes_its_side_gets_all_that_it_is_owed(shards: usize) {
    let mut stand = stand(shards, 1);
    let large = frontend::query("select repeat('x', 1000) from generate_series(1, 20000)");
    let bind = |portal| frontend::bind_text(portal, "s", &[]);
    let flushed = [
        frontend::parse("s", "select generate_series(1, 5000)", &[]),
        bind(""),
        frontend::execute("", 0),
        frontend::flush(),
    ];
    let batches = [
        frontend::parse("s", "select pg_sleep(0.05)", &[]),
        bind(""),
        frontend::execute("", 0),
        frontend::sync(),
        bind("p"),
        frontend::execute("p", 0),
        frontend::close(b'S', "s"),
        frontend::sync(),
        frontend::query("select 'last'"),
    ];
    let settled = [
        frontend::query("set work_mem = '1MB'; create temp table t(a int)"),
        frontend::query("drop table t"),
        frontend::query("select 1/0"),
    ];
    let direct = Endpoint::local(Cluster::shared().port());
    for bytes in [large, flushed.concat(), batches.concat(), settled.concat()] {
        let mut client = Session::open(&direct, &stand.pgmux.login());
        let expected = hear_after_closing(&mut client, &bytes);
        let mut client = stand.pgmux.client();
        let got = hear_after_closing(&mut client, &bytes);
        assert!(
            got == expected,
            "{} bytes for {}, and direct {}",
            got.len(),
            String::from_utf8_lossy(&bytes),
            expected.len()
        );
        stand.check();
    }
    stand.pgmux.stop();
}

fn client_that_closes_its_side_in_the_queue_is_still_served(shards: usize) {
    let mut stand = stand(shards, 1);
    stand
        .direct
        .run("create table mess(a int); grant all on mess to public");
    let mut holder = stand.pgmux.client();
    holder.query("begin");
    let mut waiters: Vec<Session> = (0..3).map(|_| stand.pgmux.client()).collect();
    for waiter in &mut waiters {
        waiter.send(&frontend::query("insert into mess values (1)"));
        waiter.conn.close_write();
    }
    holder.query("commit");
    for waiter in &mut waiters {
        let heard = waiter.conn.recv_to_end().expect("replies and the end");
        assert_eq!(heard.last(), Some(&b'I'), "ReadyForQuery is the last");
    }
    assert_eq!(stand.direct.number("select count(*) from mess"), 3);
    stand.check();
    stand.pgmux.stop();
}

fn client_that_closes_its_side_in_a_transaction_rolls_back(shards: usize) {
    let mut stand = stand(shards, 1);
    stand
        .direct
        .run("create table mess(a int); grant all on mess to public");
    let open_batch = [
        frontend::parse("", "insert into mess values (2)", &[]),
        frontend::bind_text("", "", &[]),
        frontend::execute("", 0),
    ];
    let in_transaction = [
        frontend::query("begin"),
        frontend::query("insert into mess values (1)"),
    ];
    for bytes in [in_transaction.concat(), open_batch.concat()] {
        let mut client = stand.pgmux.client();
        hear_after_closing(&mut client, &bytes);
        stand.check();
        assert_eq!(stand.direct.number("select count(*) from mess"), 0);
    }
    stand.pgmux.stop();
}

fn client_that_closes_its_side_and_vanishes_frees_its_server(shards: usize) {
    let mut stand = stand(shards, 1);
    let mut client = stand.pgmux.client();
    client.send(&frontend::query(
        "select repeat('x', 5000000) from generate_series(1, 20)",
    ));
    client.conn.close_write();
    client.conn.recv().expect("a row description");
    client.conn.reset();
    stand.check();
    stand.pgmux.stop();
}

fn client_that_closes_its_side_in_a_long_silence_frees_its_server(shards: usize) {
    let mut stand = stand(shards, 1);
    let mut client = stand.pgmux.client();
    client.send(&frontend::query("select pg_sleep(600)"));
    stand.direct.expect_sleeper();
    drop(client);
    stand.check();
    stand.pgmux.stop();
}
