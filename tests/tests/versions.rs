//! Protocol 3.2: which keys clients get and which cancel, and how pgmux gets along with servers that do not speak it.
//! What clients are told of versions and options is in `oracle_negotiate_options`.

use std::sync::{Arc, Mutex};

use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::hostile::{Duel, FakeServer, HONEST, Lie};
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually};
use tests::version::Version;
use tests::wire::{Conn, Session, frontend};
use tests::{canary, on_shards, on_versions, side_by_side};

on_versions!(
    keys_are_as_long_as_postgresql_18_makes_them,
    a_key_cancels_whole_and_in_no_other_form,
);

on_shards!(
    a_server_that_speaks_less_goes_on_on_the_same_connection,
    a_server_that_refuses_three_two_is_asked_for_three_zero_from_then_on,
    a_negotiation_that_makes_no_sense_ends_the_login,
    a_servers_key_of_any_length_comes_back_to_it,
);

fn keys_are_as_long_as_postgresql_18_makes_them(version: Version) {
    let cluster = Cluster::of(version);
    let pgmux = Pgmux::start(&Config::new(cluster, &cluster.fresh_database()));
    let mut pids = Vec::new();
    for (minor, length) in [(0, 4), (1, 4), (2, 32), (3, 32), (9999, 32)] {
        let session = Session::open(&pgmux.endpoint(), &pgmux.login().minor(minor));
        let (pid, key) = session.key.clone().expect("a key");
        assert_eq!(key.len(), length, "3.{minor}");
        assert!(pid > 0, "3.{minor}: {pid}");
        let negotiated = session.greeting.iter().any(|message| message.tag == b'v');
        assert_eq!(negotiated, minor > 2, "3.{minor}");
        pids.push((pid, key, session));
    }
    if version == Version::Pg18 {
        let direct = tests::wire::Endpoint::local(cluster.port());
        for (minor, length) in [(0, 4), (1, 4), (2, 32), (3, 32)] {
            let session = Session::open(&direct, &pgmux.login().minor(minor));
            let (_, key) = session.key.expect("a key");
            assert_eq!(key.len(), length, "PostgreSQL itself, 3.{minor}");
        }
    }
    pgmux.stop();
}

fn a_key_cancels_whole_and_in_no_other_form(version: Version) {
    let cluster = Cluster::of(version);
    let database = cluster.fresh_database();
    let pgmux = Pgmux::start(&Config::new(cluster, &database).shards(2));
    for minor in [0, 2] {
        let mut victim = Session::open(&pgmux.endpoint(), &pgmux.login().minor(minor));
        let (pid, key) = victim.key.clone().expect("a key");
        victim.send(&frontend::query("select pg_sleep(60)"));
        Direct::open(cluster, &database).expect_sleeper();
        let mut flipped = key.clone();
        flipped[key.len() - 1] ^= 1;
        let longer = [&key[..], &[0]].concat();
        let longest = [&key[..], &vec![0; 256 - key.len()]].concat();
        for wrong in [
            &key[..4.min(key.len() - 1)],
            &flipped,
            &longer,
            &longest,
            &[0; 4],
            &[0; 32],
        ] {
            cancel(&pgmux, pid, wrong);
        }
        for (wrong_pid, key) in [
            (pid ^ 1, &key),
            (pid ^ 1 << 20, &key),
            (0, &key),
            (-1, &key),
        ] {
            cancel(&pgmux, wrong_pid, key);
        }
        // Each of these was delivered, or dropped, before its connection ended.
        Direct::open(cluster, &database).expect_sleeper();
        cancel(&pgmux, pid, &key);
        let answer = victim.replies();
        let error = answer.iter().find(|message| message.tag == b'E');
        assert_eq!(error.expect("an error").sqlstate(), "57014");
        canary::ask(&mut victim);
    }
    pgmux.stop();
}

fn a_server_that_speaks_less_goes_on_on_the_same_connection(shards: usize) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&asked);
    let duel = Duel::start(shards, move |peer, _| {
        peer.read_startup()?;
        ear.lock().expect("the ear").push(peer.minor);
        peer.say(b'v', &negotiation(3, 0, &[]))?;
        peer.scram(Lie::None)?;
        peer.greet()?;
        peer.serve("fake")
    });
    assert_eq!(duel.pgmux.client().trace("select 'fake'"), HONEST);
    assert_eq!(duel.server.accepted(), 1);
    assert_eq!(*asked.lock().expect("the ear"), [2]);
    duel.check();
    duel.pgmux.stop();
}

fn a_server_that_refuses_three_two_is_asked_for_three_zero_from_then_on(shards: usize) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&asked);
    let duel = Duel::start(shards, move |peer, _| {
        peer.read_startup()?;
        ear.lock().expect("the ear").push(peer.minor);
        if peer.minor != 0 {
            let text = "unsupported frontend protocol 3.2: server supports 1.0 to 3.0";
            return peer.error("FATAL", "0A000", text);
        }
        peer.scram(Lie::None)?;
        peer.greet()?;
        // One answer, so that the next client needs another connection.
        let request = peer.read_request()?;
        peer.send(&tests::hostile::honest_reply(&request, "fake"))
    });
    for _ in 0..2 * shards + 2 {
        let mut client = match Session::try_open(&duel.pgmux.endpoint(), &duel.pgmux.login()) {
            Ok(client) => client,
            // The server has hung up while it was asked what it reports.
            Err(_) => continue,
        };
        client.send(&frontend::query("select 'fake'"));
        tests::hostile::read_all(&mut client);
    }
    let asked = asked.lock().expect("the ear").clone();
    let newer = asked.iter().filter(|minor| **minor == 2).count();
    assert!((1..=shards).contains(&newer), "once a shard: {asked:?}");
    assert!(
        asked.iter().filter(|minor| **minor == 0).count() > newer,
        "{asked:?}"
    );
    duel.check();
    duel.pgmux.stop();
}

fn a_negotiation_that_makes_no_sense_ends_the_login(shards: usize) {
    let lies: [(&str, Vec<Vec<u8>>); 8] = [
        ("3.2, which was asked for", vec![negotiation(3, 2, &[])]),
        ("3.1, which is no version", vec![negotiation(3, 1, &[])]),
        ("3.9", vec![negotiation(3, 9, &[])]),
        ("2.0", vec![negotiation(2, 0, &[])]),
        (
            "an option that was not asked for",
            vec![negotiation(3, 0, &["_pq_.x"])],
        ),
        (
            "twice",
            vec![negotiation(3, 0, &[]), negotiation(3, 0, &[])],
        ),
        (
            "a count that lies",
            vec![b"\0\x03\0\0\x7f\xff\xff\xff".to_vec()],
        ),
        ("nothing", vec![Vec::new()]),
    ];
    side_by_side(lies, |(what, messages)| {
        let duel = Duel::configured(
            shards,
            |config| config.set("pool.connection_timeout", "1s"),
            move |peer, _| {
                peer.read_startup()?;
                for message in &messages {
                    peer.say(b'v', message)?;
                }
                peer.scram(Lie::None)?;
                peer.greet()?;
                peer.serve("fake")
            },
        );
        duel.must_fail(what);
    });
}

fn a_servers_key_of_any_length_comes_back_to_it(shards: usize) {
    side_by_side([4, 5, 32, 255, 256], |length| {
        let key: Vec<u8> = (0..length)
            .map(|at| u8::try_from(at % 251).expect("a byte"))
            .collect();
        let shown = Arc::new(Mutex::new(None));
        let server = FakeServer::start({
            let (key, shown) = (key.clone(), Arc::clone(&shown));
            move |peer, number| {
                if number > 0 {
                    let packet = peer.read_packet()?;
                    *shown.lock().expect("what is shown") = Some(packet);
                    return Ok(());
                }
                peer.read_startup()?;
                peer.scram(Lie::None)?;
                peer.say(b'S', b"client_encoding\0UTF8\0")?;
                peer.say(b'K', &[&[0, 0, 0x10, 0][..], &key].concat())?;
                peer.say(b'Z', b"I")?;
                peer.read_request()?;
                peer.drain()
            }
        });
        let pgmux = Pgmux::start(&Config::fake(server.port()).shards(shards).servers(1));
        let mut client = Session::open(&pgmux.endpoint(), &pgmux.login().minor(2));
        client.send(&frontend::query("select 1"));
        let (pid, secret) = client.key.clone().expect("a key");
        let expected = [&[0x04, 0xd2, 0x16, 0x2e, 0, 0, 0x10, 0][..], &key].concat();
        // The first may come before the query is on its way, and then cancels nothing.
        let cancelled = eventually(PATIENCE, || {
            cancel(&pgmux, pid, &secret);
            shown.lock().expect("what is shown").clone()
        });
        assert_eq!(
            cancelled.as_ref(),
            Some(&expected),
            "a key of {length} bytes"
        );
    });
}

/// Sends a cancel request and waits for the end of its connection.
fn cancel(pgmux: &Pgmux, pid: i32, key: &[u8]) {
    let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
    conn.send(&frontend::cancel_request(pid, key))
        .expect("a request");
    assert_eq!(
        conn.recv_to_end().expect("the end"),
        b"",
        "a cancel request is never answered"
    );
}

fn negotiation(major: u16, minor: u16, options: &[&str]) -> Vec<u8> {
    let mut body = [major.to_be_bytes(), minor.to_be_bytes()].concat();
    body.extend(u32::try_from(options.len()).expect("a few").to_be_bytes());
    for option in options {
        body.extend(frontend::cstr(option));
    }
    body
}
