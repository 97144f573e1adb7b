//! Cancel requests by the kind of server, and servers that do not take them as they should.

use super::support::{ask_to_cancel, cancel, end_of, expect_cancelled, key_of, stand, tags};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tests::cluster::{Cluster, PASSWORD};
use tests::hostile::{FakeServer, HONEST, Lie, honest_reply, row_description};
use tests::pgmux::{Config, Pgmux, yaml_string};
use tests::process::{PATIENCE, eventually};
use tests::wire::{Conn, Endpoint, Login, Session, describe, frontend};
use tests::{canary, on_shards};

on_shards!(
    a_server_behind_a_unix_socket_is_reached,
    a_role_of_the_clients_own_is_reached,
    a_server_that_stays_with_its_client_is_reached,
    a_walsender_does_what_it_does_without_pgmux,
    a_server_whose_request_is_lost_serves_nobody_else,
    a_server_without_a_key_is_left_alone,
);

fn a_server_behind_a_unix_socket_is_reached(shards: usize) {
    let cluster = Cluster::shared();
    let dir = cluster.socket_dir().display().to_string();
    let mut stand = stand(shards, |config| {
        let database = config.main_database().to_owned();
        config.set(
            &format!("databases.{database}.writer.host"),
            yaml_string(&dir),
        )
    });
    let mut client = stand.pgmux.client();
    stand.sleep(&mut client);
    cancel(&stand.pgmux, &key_of(&client));
    expect_cancelled(&mut client);
    stand.end();
}

fn a_role_of_the_clients_own_is_reached(shards: usize) {
    let mut stand = stand(shards, |config| {
        config
            .set("backend.user", "passthrough")
            .unset("backend.password")
            .users(&["app", "other"])
    });
    for user in ["app", "other"] {
        let login = Login::new(user, PASSWORD, &stand.pgmux.login().database);
        let mut client = Session::open(&stand.pgmux.endpoint(), &login);
        stand.sleep(&mut client);
        cancel(&stand.pgmux, &key_of(&client));
        expect_cancelled(&mut client);
        canary::ask(&mut client);
    }
    stand.end();
}

fn a_server_that_stays_with_its_client_is_reached(shards: usize) {
    for (mode, before) in [
        ("session", "select 1"),
        ("transaction", "listen news"),
        ("transaction", "prepare p as select 1"),
        ("transaction", "set application_name = 'mine'"),
        ("statement", "select 1"),
    ] {
        let mut stand = stand(shards, |config| config.set("pool.mode", mode));
        let mut client = stand.pgmux.client();
        client.query(before);
        stand.sleep(&mut client);
        cancel(&stand.pgmux, &key_of(&client));
        expect_cancelled(&mut client);
        // Idle again, it is not to be hit.
        cancel(&stand.pgmux, &key_of(&client));
        canary::ask(&mut client);
        drop(client);
        stand.end();
    }
}

/// While it streams a walsender takes it for the end of the stream; idle it does nothing.
fn a_walsender_does_what_it_does_without_pgmux(shards: usize) {
    let stand = stand(shards, |config| config.set("proxy.allow_replication", true));
    let mut admin = Cluster::shared().superuser("postgres");
    admin
        .batch_execute("alter role app replication")
        .expect("a right");
    let login = stand.pgmux.login().param("replication", "true");
    let trace = |endpoint: &Endpoint| {
        let mut client = Session::open(endpoint, &login);
        let key = key_of(&client);
        let mut lines = Vec::new();
        for _ in 0..3 {
            super::cancel_at(endpoint, &key);
            let system = client.rows("IDENTIFY_SYSTEM");
            let start = system[0][2].clone().expect("a position");
            client.send(&frontend::query(&format!(
                "START_REPLICATION PHYSICAL {start}"
            )));
            assert_eq!(client.conn.recv().expect("CopyBothResponse").tag, b'W');
            super::cancel_at(endpoint, &key);
            let replies = client.replies();
            let told = replies.iter().filter(|message| message.tag != b'd');
            lines.extend(told.map(describe));
        }
        lines
    };
    let direct = trace(&Endpoint::local(Cluster::shared().port()));
    assert!(direct[0].contains("57014"), "{direct:?}");
    assert_eq!(trace(&stand.pgmux.endpoint()), direct);
    stand.end();
}

/// The request is read and nothing more is heard of it: it may hit the server at any time.
fn a_server_whose_request_is_lost_serves_nobody_else(shards: usize) {
    let go = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&go);
    let fake = FakeServer::start(move |peer, _| {
        if peer.log_in().is_err() {
            // A cancel request. Longer than pgmux waits for its end.
            std::thread::sleep(Duration::from_secs(10));
            return Ok(());
        }
        let request = peer.read_request()?;
        let reply = honest_reply(&request, "fake");
        let (first, rest) = reply.split_at(row_description().len());
        peer.send(first)?;
        eventually(PATIENCE, || told.load(Ordering::SeqCst).then_some(()));
        peer.send(rest)?;
        peer.serve("fake")
    });
    let pgmux = Pgmux::start(&Config::fake(fake.port()).shards(shards).servers(1));
    let mut client = Session::open(&pgmux.endpoint(), &pgmux.login());
    let key = key_of(&client);
    let logins = fake.accepted();
    client.send(&frontend::query("select 'fake'"));
    let open = || Conn::open(&pgmux.endpoint()).expect("a connection");
    assert_eq!(client.conn.recv().expect("RowDescription").tag, b'T');
    let mut conns = Vec::new();
    for count in 1..=7 {
        conns.push(ask_to_cancel(open(), &key));
        // Those that come together go as one.
        let counted = eventually(PATIENCE, || {
            let figures = pgmux.figures();
            (figures["cancels_sent"] + figures["cancels_dropped"] == count).then_some(())
        });
        assert!(counted.is_some(), "{:?}", pgmux.figures());
    }
    go.store(true, Ordering::SeqCst);
    assert_eq!(tags(&client.replies()), "DCZ");
    // Its own next question waits for what may still hit it, and then gets another server.
    let trace = client.trace("select 'fake'");
    assert_eq!(trace, HONEST);
    conns.into_iter().for_each(end_of);
    let figures = pgmux.figures();
    assert_eq!(
        (figures["cancels_sent"], figures["cancels_dropped"]),
        (4, 3)
    );
    assert_eq!(fake.accepted(), logins + 4 + 1, "logins and requests");
    assert_eq!(figures["servers_closed"], 1);
    pgmux.stop();
}

/// BR-035.
fn a_server_without_a_key_is_left_alone(shards: usize) {
    let fake = FakeServer::start(|peer, _| {
        peer.read_startup()?;
        peer.scram(Lie::None)?;
        peer.say(b'Z', b"I")?;
        peer.serve("fake")
    });
    let pgmux = Pgmux::start(&Config::fake(fake.port()).shards(shards).servers(1));
    let mut client = Session::open(&pgmux.endpoint(), &pgmux.login());
    let servers = fake.accepted();
    for _ in 0..20 {
        client.send(&frontend::query("select 'fake'"));
        cancel(&pgmux, &key_of(&client));
        assert_eq!(tags(&client.replies()), "TDCZ");
    }
    assert_eq!(fake.accepted(), servers);
    pgmux.stop();
}
