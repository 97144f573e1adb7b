//! Cancel requests: they end what their client waits for, wherever that is, and nothing else, ever.

mod peers;
mod races;
mod servers;
mod storm;
mod support;
mod waiting;

use rustix::process::Signal;
use support::{
    Key, ask_to_cancel, batch, cancel, cancel_at, end_of, error_in, expect_cancelled, key_of,
    stand, tags,
};
use tests::canary;
use tests::cluster::Cluster;
use tests::process::PATIENCE;
use tests::process::eventually;
use tests::wire::{Conn, Endpoint, Session, frontend};

tests::on_1_2_and_4_shards!(
    ends_the_own_query_from_any_shard,
    with_a_foreign_key_does_nothing,
    works_while_others_wait_for_a_server,
    of_an_idle_client_does_nothing_to_its_next_query,
    ends_a_batch_and_a_copy,
    is_answered_by_nothing_whatever_its_key,
    works_while_the_process_stops,
    storm_leaves_nothing_behind,
);

fn ends_the_own_query_from_any_shard(shards: usize) {
    let mut stand = stand(shards, |config| config.servers(2));
    for minor in [0, 2] {
        let login = stand.pgmux.login().minor(minor);
        let mut client = Session::open(&stand.pgmux.endpoint(), &login);
        // Eight rounds: the cancel connections hash to different shards.
        for _ in 0..8 {
            stand.sleep(&mut client);
            cancel(&stand.pgmux, &key_of(&client));
            let replies = client.replies();
            assert_eq!(replies[0].tag, b'T');
            assert_eq!(replies[1].sqlstate(), "57014");
            canary::ask(&mut client);
        }
    }
    stand.end();
}

fn with_a_foreign_key_does_nothing(shards: usize) {
    let mut stand = stand(shards, |config| config.servers(2));
    let mut client = stand.pgmux.client();
    client.send(&frontend::query("select pg_sleep(0.5), 'done'"));
    stand.direct.expect_sleeper();
    let (pid, key) = key_of(&client);
    for bit in 0..8 {
        let mut wrong = key.clone();
        wrong[0] ^= 1 << bit;
        cancel(&stand.pgmux, &(pid, wrong));
    }
    for wrong in [
        vec![],
        vec![0; 3],
        vec![0; 4],
        vec![0; 32],
        vec![0; 256],
        [&key[..], &[0]].concat(),
    ] {
        cancel(&stand.pgmux, &(pid, wrong));
    }
    let replies = client.replies();
    assert_eq!(replies[1].row()[1].as_deref(), Some("done"));
    assert_eq!(stand.pgmux.figures()["cancels_sent"], 0);
    stand.end();
}

/// BR-030: cancels never wait behind the pool.
fn works_while_others_wait_for_a_server(shards: usize) {
    let mut stand = stand(shards, |config| config.servers(1));
    let mut client = stand.pgmux.client();
    let mut waiter = stand.pgmux.client();
    client.query("begin");
    stand.sleep(&mut client);
    waiter.send(&frontend::query("select 1"));
    cancel(&stand.pgmux, &key_of(&client));
    expect_cancelled(&mut client);
    client.query("rollback");
    waiter.replies();
    stand.end();
}

/// Neither now nor later, and also in a transaction that waits for its client.
fn of_an_idle_client_does_nothing_to_its_next_query(shards: usize) {
    let stand = stand(shards, |config| config.servers(2));
    let mut client = stand.pgmux.client();
    let key = key_of(&client);
    for round in 0..200 {
        if round % 4 == 2 {
            client.query("begin");
        }
        cancel(&stand.pgmux, &key);
        let replies = client.query("select pg_sleep(0.002)");
        assert_eq!(error_in(&replies), None, "round {round}");
        if round % 4 == 2 {
            cancel(&stand.pgmux, &key);
            assert_eq!(error_in(&client.query("commit")), None, "round {round}");
        }
        // Several at once, and the question while the last of them ends.
        if round % 10 == 0 {
            let open = || Conn::open(&stand.pgmux.endpoint()).expect("a connection");
            let conns: Vec<_> = (0..5).map(|_| ask_to_cancel(open(), &key)).collect();
            conns.into_iter().for_each(end_of);
            assert_eq!(error_in(&client.query("select pg_sleep(0.002)")), None);
        }
    }
    assert_eq!(stand.pgmux.figures()["cancels_sent"], 0);
    stand.end();
}

/// A pipeline goes on behind the batch that was cancelled.
fn ends_a_batch_and_a_copy(shards: usize) {
    let mut stand = stand(shards, |config| config.servers(1));
    stand
        .direct
        .run("create table t(a int); grant all on t to app");
    let mut client = stand.pgmux.client();
    let key = key_of(&client);
    client.send(&[batch("select pg_sleep(60)"), batch("select 7")].concat());
    stand.direct.expect_sleeper();
    cancel(&stand.pgmux, &key);
    expect_cancelled(&mut client);
    assert_eq!(tags(&client.replies()), "12TDCZ");
    client.send(&frontend::query("copy t from stdin"));
    assert_eq!(client.conn.recv().expect("CopyInResponse").tag, b'G');
    cancel(&stand.pgmux, &key);
    // PostgreSQL looks when data come.
    client.send(&frontend::copy_data(b"1\n"));
    expect_cancelled(&mut client);
    stand.end();
}

/// BR-037: right, wrong, unknown, of a length that this server never gives: as PostgreSQL.
fn is_answered_by_nothing_whatever_its_key(shards: usize) {
    let stand = stand(shards, |config| config.servers(1));
    let cluster = Cluster::shared();
    let login = stand.pgmux.login();
    let postgres = Endpoint::local(cluster.port());
    for endpoint in [stand.pgmux.endpoint(), postgres] {
        let client = Session::open(&endpoint, &login);
        let (pid, key) = key_of(&client);
        let keys: [Key; 5] = [
            (pid, key.clone()),
            (pid, vec![key[0] ^ 1, key[1], key[2], key[3]]),
            (pid, vec![7; 32]),
            (1, key.clone()),
            (-1, key),
        ];
        for key in &keys {
            cancel_at(&endpoint, key);
        }
    }
    stand.end();
}

/// Whoever else comes then is told what PostgreSQL says.
fn works_while_the_process_stops(shards: usize) {
    let mut stand = stand(shards, |config| {
        config.servers(1).set("proxy.shutdown_timeout", "60s")
    });
    let mut inside = stand.pgmux.client();
    let mut idle = stand.pgmux.client();
    inside.query("begin");
    stand.pgmux.signal(Signal::TERM);
    assert!(idle.farewell().expect("an end").is_some());
    let refused = eventually(PATIENCE, || {
        let refused = Session::try_open(&stand.pgmux.endpoint(), &stand.pgmux.login());
        let refusal = refused.map(|_| ()).expect_err("a refusal");
        refusal.contains("57P03").then_some(refusal)
    });
    assert!(refused.is_some());
    // Whichever shard they come to.
    for round in 0..8 {
        let point = format!("savepoint s{round}");
        inside.query(&point);
        stand.sleep(&mut inside);
        cancel(&stand.pgmux, &key_of(&inside));
        expect_cancelled(&mut inside);
        inside.query(&format!("rollback to s{round}"));
    }
    inside.query("commit");
    assert_eq!(stand.pgmux.wait().code(), Some(0));
}

/// BR-032.
fn storm_leaves_nothing_behind(shards: usize) {
    const WORKERS: usize = 20;
    let stand = stand(shards, |config| config.servers(4));
    let pgmux = &stand.pgmux;
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(move || {
                let mut client = pgmux.client();
                let key = key_of(&client);
                for round in 0..10 {
                    client.send(&frontend::query("select pg_sleep(0.02)"));
                    let open = || Conn::open(&pgmux.endpoint()).expect("a connection");
                    let conns: Vec<_> = (0..1 + round % 8)
                        .map(|_| ask_to_cancel(open(), &key))
                        .collect();
                    client.replies();
                    conns.into_iter().for_each(end_of);
                    canary::ask(&mut client);
                }
            });
        }
    });
    let gone = eventually(PATIENCE, || {
        let figures = pgmux.figures();
        let at_rest = ["clients", "logging_in", "waiting", "cancels_under_way"]
            .iter()
            .all(|name| figures[*name] == 0);
        at_rest.then_some(())
    });
    assert!(gone.is_some(), "{:?}", pgmux.figures());
    stand.end();
}
