//! TLS handshakes: those who say all that they want in the last flight, and what those cost who never come to it.

use tests::cluster::{Cluster, PASSWORD};
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::process::rss_kib;
use tests::tls::{Authority, Tls};
use tests::wire::{Conn, Login, Message, frontend};
use tests::{canary, on_shards};

on_shards!(
    who_says_all_in_the_last_flight_and_goes_is_heard,
    who_says_all_in_the_last_flight_is_answered,
    a_stalled_handshake_costs_little_and_leaves_nothing,
);

/// pgmux with TLS in front of a fresh database.
fn pgmux(shards: usize, configure: impl FnOnce(Config) -> Config) -> (Pgmux, String) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let authority = Authority::new("a CA of handshakes");
    let pair = authority.sign("localhost", &["localhost"]);
    let config = Config::new(cluster, &database)
        .shards(shards)
        .set("tls.enabled", true)
        .set("tls.cert_file", pair.cert.display())
        .set("tls.key_file", pair.key.display());
    (Pgmux::start(&configure(config)), database)
}

/// By TLS 1.3 and 1.2, asked for and at once.
fn ways() -> impl Iterator<Item = (bool, bool)> {
    [true, false]
        .into_iter()
        .flat_map(|newest| [true, false].map(|direct| (newest, direct)))
}

fn say_at_once(pgmux: &Pgmux, (newest, direct): (bool, bool), bytes: &[u8]) -> Conn {
    let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
    if !direct {
        conn.send(&frontend::ssl_request()).expect("a request");
        assert_eq!(conn.recv_byte().expect("an answer"), b'S');
    }
    let tls = Tls::new(&["postgresql"], None, newest);
    conn.say_at_once(&tls, bytes).expect("a handshake")
}

/// tokio-postgres cancels like this: on a busy machine its last flight, its request and its goodbye come in one piece.
fn who_says_all_in_the_last_flight_and_goes_is_heard(shards: usize) {
    let (pgmux, database) = pgmux(shards, |config| config);
    let mut client = pgmux.client();
    let (pid, key) = client.key.clone().expect("a key");
    for way in ways() {
        client.send(&frontend::query("select pg_sleep(60)"));
        Direct::open(Cluster::shared(), &database).expect_sleeper();
        drop(say_at_once(
            &pgmux,
            way,
            &frontend::cancel_request(pid, &key),
        ));
        let answer = client.replies();
        let error = answer.iter().find(|message| message.tag == b'E');
        let code = error.map(Message::sqlstate);
        assert_eq!(code.as_deref(), Some("57014"), "newest, direct: {way:?}");
    }
    canary::ask(&mut client);
    drop(client);
    pgmux.stop();
}

/// As direct: a client that has closed its side is read to the end and answered, its login too.
fn who_says_all_in_the_last_flight_is_answered(shards: usize) {
    let (pgmux, database) = pgmux(shards, |config| {
        config
            .users(&["app", "app_trust"])
            .set("auth.method", "trust")
    });
    let startup = frontend::startup(3, 0, &[("user", "app_trust"), ("database", &database)]);
    let all = [startup, frontend::query("select 'heard'")].concat();
    for way in ways() {
        let answer = say_at_once(&pgmux, way, &all)
            .recv_to_end()
            .expect("the end");
        let heard = answer.windows(5).any(|bytes| bytes == b"heard");
        assert!(heard, "newest, direct: {way:?}: {answer:?}");
    }
    canary::check(&pgmux.endpoint(), &Login::new("app", PASSWORD, &database));
    pgmux.stop();
}

/// whoever has not logged in costs little, wherever its handshake stalls: less than 4 KiB until its first record is
/// whole, and behind that what rustls keeps for the rest of a handshake (some 3 KiB by TLS 1.2, 4 by 1.3) on top.
fn a_stalled_handshake_costs_little_and_leaves_nothing(shards: usize) {
    const EACH: usize = 700;
    let (pgmux, _) = pgmux(shards, |config| {
        config
            .set("proxy.login_timeout", "10m")
            .set("proxy.max_unauthenticated", 10_000)
            .set("proxy.max_unauthenticated_per_source", 10_000)
    });
    let hello = Tls::default().hello();
    let oldest = Tls::new(&["postgresql"], None, false).hello();
    // What is sent, whether the server's flight comes for it, and the most that it may cost.
    let steps: [(&str, &[u8], bool, u64); 4] = [
        ("asked for", &[], false, 4096),
        (
            "amid the first record",
            &hello[..hello.len() / 2],
            false,
            4096,
        ),
        ("behind our flight", &hello, true, 10_000),
        ("behind our flight of TLS 1.2", &oldest, true, 10_000),
    ];
    let open = |bytes: &[u8], answered: bool| {
        let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
        conn.send(&frontend::ssl_request()).expect("a request");
        assert_eq!(conn.recv_byte().expect("an answer"), b'S');
        conn.send(bytes).expect("a beginning");
        if answered {
            assert_eq!(conn.recv_byte().expect("a record"), 0x16);
        }
        conn
    };
    // What every shard needs once is there before it is measured.
    let warm: Vec<Conn> = (0..64 * shards).map(|_| open(&hello, true)).collect();
    canary::check(&pgmux.endpoint(), &pgmux.login());
    let mut held = Vec::new();
    for (step, bytes, answered, most) in steps {
        let before = rss_kib(pgmux.pid());
        held.extend((0..EACH).map(|_| open(bytes, answered)));
        // Shards that have answered somebody who came later have seen all of them.
        for _ in 0..4 * shards {
            canary::check(&pgmux.endpoint(), &pgmux.login());
        }
        let grown = rss_kib(pgmux.pid()).saturating_sub(before);
        let each = grown * 1024 / EACH as u64;
        assert!(each < most, "{step}: {each} bytes each");
    }
    drop((warm, held));
    pgmux.wait_for("logging_in", 0);
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}
