//! What those who have not logged in can do: say the wrong thing at the wrong time, take up memory and places, flood with
//! cancel requests, fill the log. After each attack a fresh client gets its own row.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tests::cluster::{Cluster, PASSWORD};
use tests::hostile::{Duel, HONEST};
use tests::pgmux::{Config, Pgmux, yaml_string};
use tests::process::{PATIENCE, eventually, rss_kib};
use tests::tls::{Authority, Tls};
use tests::wire::{Conn, Login, ScramClient, Session, frontend, md5_verifier, scram_verifier};
use tests::{canary, on_shards};

on_shards!(
    no_message_is_taken_before_its_time,
    a_half_open_login_costs_less_than_four_kib,
    names_of_strangers_are_not_kept,
    cancel_requests_of_strangers_reach_no_server,
    no_secret_is_logged,
    good_clients_work_on_amid_crowds_of_strangers,
);

fn pgmux(shards: usize, configure: impl FnOnce(Config) -> Config) -> Pgmux {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    Pgmux::start(&configure(Config::new(cluster, &database).shards(shards)))
}

/// S-8: each wrong message at each step before the login is over. None is answered like a message of a session.
fn no_message_is_taken_before_its_time(shards: usize) {
    let pgmux = pgmux(shards, |config| config);
    let startup = startup(&pgmux.login());
    let first = frontend::sasl_initial("SCRAM-SHA-256", &ScramClient::new("x").first());
    let wrong: [(&str, Vec<u8>); 10] = [
        ("a Query", frontend::query("create table intruder ()")),
        (
            "a Parse and a Sync",
            [frontend::parse("", "select 1", &[]), frontend::sync()].concat(),
        ),
        ("a Sync", frontend::sync()),
        ("a Terminate", frontend::terminate()),
        ("a FunctionCall", frontend::function_call(1598, &[])),
        ("CopyData", frontend::copy_data(b"x")),
        ("an SSLRequest", frontend::ssl_request()),
        ("a startup packet", startup.clone()),
        ("a CancelRequest", frontend::cancel_request(1, &[0; 4])),
        ("a tag that is 0", frontend::tagged(0, b"x")),
    ];
    let steps: [(&str, Vec<&[u8]>); 3] = [
        ("first of all", vec![]),
        ("instead of SASL", vec![&startup]),
        ("between the steps of SASL", vec![&startup, &first]),
    ];
    for (step, before) in &steps {
        for (what, message) in &wrong {
            let is_allowed =
                before.is_empty() && ["an SSLRequest", "a startup packet"].contains(what);
            if is_allowed {
                continue;
            }
            let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
            for packet in before {
                conn.send(packet).expect("a packet");
                assert_eq!(conn.recv().expect("a request").tag, b'R', "{what} {step}");
            }
            // All of a session behind it: nothing of it may be read.
            let rest = [&message[..], &frontend::query("select 'intruder'")].concat();
            conn.send(&rest).expect("a message");
            let answer = conn.recv_to_end().unwrap_or_default();
            assert!(
                answer.is_empty() || answer[0] == b'E',
                "{what} {step}: {answer:?}"
            );
            let seen = answer.windows(8).any(|bytes| bytes == b"intruder");
            assert!(!seen, "{what} {step}: it was executed");
        }
        canary::check(&pgmux.endpoint(), &pgmux.login());
    }
    let mut client = pgmux.client();
    assert_eq!(
        client.value("select count(*) from pg_class where relname = 'intruder'"),
        "0"
    );
    drop(client);
    pgmux.stop();
}

/// what a login costs that stops at each step, with the buffers that it needs there.
fn a_half_open_login_costs_less_than_four_kib(shards: usize) {
    const EACH: usize = 300;
    let pgmux = pgmux(shards, |config| {
        // All of them come from one address.
        config
            .set("proxy.login_timeout", "10m")
            .set("proxy.max_unauthenticated_per_source", 2000)
    });
    let startup = startup(&pgmux.login());
    let first = frontend::sasl_initial("SCRAM-SHA-256", &ScramClient::new("x").first());
    let steps: [(&str, Vec<&[u8]>, usize); 3] = [
        ("amid the startup packet", vec![&startup[..20]], 0),
        ("before SASL", vec![&startup], 1),
        ("amid SASL", vec![&startup, &first], 2),
    ];
    let open = |packets: &[&[u8]], replies: usize| {
        let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
        for (index, packet) in packets.iter().enumerate() {
            conn.send(packet).expect("a packet");
            if index < replies {
                conn.recv().expect("a reply");
            }
        }
        conn
    };
    // What every shard needs once is there before it is measured.
    let warm: Vec<Conn> = (0..64 * shards).map(|_| open(&steps[2].1, 2)).collect();
    canary::check(&pgmux.endpoint(), &pgmux.login());
    let before = rss_kib(pgmux.pid());
    let mut held = Vec::new();
    for (_, packets, replies) in &steps {
        held.extend((0..EACH).map(|_| open(packets, *replies)));
    }
    // Shards that have answered somebody who came later have seen all of them.
    for _ in 0..4 * shards {
        canary::check(&pgmux.endpoint(), &pgmux.login());
    }
    let grown = rss_kib(pgmux.pid()).saturating_sub(before);
    let each = grown * 1024 / held.len() as u64;
    assert!(each < 4096, "{each} bytes each");
    drop((warm, held));
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

/// S-7, X-12: names that nobody knows are forgotten with who came with them. (Settings: `Reports`, unit tests.)
fn names_of_strangers_are_not_kept(shards: usize) {
    let pgmux = pgmux(shards, |config| config.set("auth.method", "trust"));
    // Each from a source of its own and with users of its own: the brakes would delay the others.
    let round = |from: usize, count: usize| {
        for number in from..from + count {
            let name = format!("{number:04}{}", "x".repeat(2000));
            let source = Ipv4Addr::new(127, 1, (number / 200) as u8, (number % 200) as u8 + 1);
            for login in [
                Login::new(&name, "", &name),
                Login::new(&format!("{number}"), "", "nowhere")
                    .param("options", &format!("-c stranger_{number}={name}")),
            ] {
                let address = SocketAddr::from(([127, 0, 0, 1], pgmux.port()));
                let conn = Conn::open_from(source, address).expect("a connection");
                assert!(Session::log_in(conn, &login).is_err(), "{number}");
            }
        }
    };
    round(0, 200);
    let before = rss_kib(pgmux.pid());
    round(200, 800);
    let grown = rss_kib(pgmux.pid()).saturating_sub(before);
    // 800 rounds with three names of 2 KB would be 4.8 MB, and as much again where they are copied.
    assert!(grown < 1536, "{grown} KiB");
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

/// no connection to a server for a key that is nobody's, nor for a client that waits for nothing.
fn cancel_requests_of_strangers_reach_no_server(shards: usize) {
    let duel = Duel::start(shards, |peer, _| {
        peer.log_in()?;
        peer.serve("fake")
    });
    let mut client = Session::open(&duel.pgmux.endpoint(), &duel.pgmux.login().minor(2));
    assert_eq!(client.trace("select 'fake'"), HONEST);
    let servers = duel.server.accepted();
    let (pid, key) = client.key.clone().expect("a key");
    let keys = [
        vec![0; 4],
        vec![0; 32],
        vec![0; 256],
        key[..31].to_vec(),
        key,
    ];
    for round in 0..400_i32 {
        for key in &keys {
            let pid = if round % 2 == 0 {
                pid
            } else {
                pid.wrapping_add(round << 18)
            };
            let mut conn = Conn::open(&duel.pgmux.endpoint()).expect("a connection");
            conn.send(&frontend::cancel_request(pid, key))
                .expect("a request");
            if round % 50 == 0 {
                assert_eq!(conn.recv_to_end().unwrap_or_default(), b"");
            }
        }
    }
    duel.check();
    assert_eq!(client.trace("select 'fake'"), HONEST);
    assert_eq!(
        duel.server.accepted(),
        servers,
        "a cancel request was passed on"
    );
    let settled = eventually(PATIENCE, || (duel.server.open() == servers).then_some(()));
    assert!(settled.is_some());
    duel.pgmux.stop();
}

/// at the most talkative level, with logins that succeed and that fail, by every method.
fn no_secret_is_logged(shards: usize) {
    let scram = scram_verifier("pencil-of-lead", b"0123456789abcdef", 4096);
    let md5 = md5_verifier("hashed", "pencil-of-lead");
    let users = format!(
        "[{{username: app, password: {}}}, {{username: hashed, password: {md5}}}, {{username: verified, password: '{scram}'}}]",
        yaml_string(PASSWORD)
    );
    for method in ["scram-sha-256", "md5"] {
        let users = match method {
            // A SCRAM verifier cannot answer MD5, nor an MD5 hash SCRAM.
            "md5" => format!(
                "[{{username: app, password: {}}}, {{username: hashed, password: {md5}}}]",
                yaml_string(PASSWORD)
            ),
            _ => users.replace(&format!("{{username: hashed, password: {md5}}}, "), ""),
        };
        let pgmux = pgmux(shards, |config| {
            config
                .set("auth.method", method)
                .set("auth.users", users)
                .arg("--log-level")
                .arg("trace")
        });
        let database = pgmux.login().database;
        for (user, password) in [
            ("app", PASSWORD),
            ("hashed", "pencil-of-lead"),
            ("verified", "pencil-of-lead"),
            ("app", "wrong-and-secret"),
            ("nobody", "wrong-and-secret"),
        ] {
            let login = Login::new(user, password, &database);
            if let Ok(mut client) = Session::try_open(&pgmux.endpoint(), &login) {
                canary::ask(&mut client);
            }
        }
        let stored = scram.rsplit('$').next().unwrap_or_default();
        let mut secrets = vec![PASSWORD, "pencil-of-lead", "wrong-and-secret", &md5[3..]];
        secrets.extend(stored.split(':'));
        let log = pgmux.log();
        for secret in secrets {
            assert!(!log.contains(secret), "{method}: {secret} is in the log");
        }
        canary::check(&pgmux.endpoint(), &pgmux.login());
        pgmux.stop();
    }
}

/// stalled handshakes, half-open logins and wrong passwords at once. How good clients fare to the millisecond
/// is measured by `pgmux-attack` in `bench`; here that nobody waits behind them, and that all of it is given back.
fn good_clients_work_on_amid_crowds_of_strangers(shards: usize) {
    const STALLED: usize = 200;
    const HALF_OPEN: usize = 600;
    const GUESSES: usize = 200;
    let authority = Authority::new("a CA of strangers");
    let pair = authority.sign("localhost", &["localhost"]);
    let pgmux = pgmux(shards, |config| {
        config
            .set("proxy.login_timeout", "10m")
            .set("proxy.max_unauthenticated_per_source", 2000)
            .set("tls.enabled", true)
            .set("tls.cert_file", pair.cert.display())
            .set("tls.key_file", pair.key.display())
    });
    let (endpoint, login) = (pgmux.endpoint(), pgmux.login());
    let mut runner = pgmux.client();
    let (packet, hello) = (startup(&login), Tls::default().hello());
    let crowd = || {
        let mut held = Vec::new();
        for nth in 0..STALLED + HALF_OPEN {
            let mut conn = Conn::open(&endpoint).expect("a connection");
            if nth < STALLED {
                conn.send(&frontend::ssl_request()).expect("a request");
                assert_eq!(conn.recv_byte().expect("an answer"), b'S');
                conn.send(&hello).expect("a hello");
                assert_eq!(conn.recv_byte().expect("the other hello"), 0x16);
            } else {
                conn.send(&packet).expect("a startup packet");
            }
            held.push(conn);
        }
        held
    };
    // What every shard needs once, and what the allocator keeps, is there before it is measured.
    drop(crowd());
    pgmux.wait_for("logging_in", 0);
    let before = rss_kib(pgmux.pid());

    let held = crowd();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (endpoint, database) = (&endpoint, &login.database);
            scope.spawn(move || {
                for nth in 0..GUESSES / 8 {
                    // The brakes are another test's.
                    let user = format!("guess{thread}x{nth}");
                    let guess = Session::try_open(endpoint, &Login::new(&user, "wrong", database));
                    assert!(guess.is_err_and(|refusal| refusal.contains("28P01")));
                }
            });
        }
        for _ in 0..20 {
            let begun = Instant::now();
            canary::check(&endpoint, &login);
            assert!(
                begun.elapsed() < PATIENT,
                "a login takes {:?}",
                begun.elapsed()
            );
            let begun = Instant::now();
            canary::ask(&mut runner);
            assert!(
                begun.elapsed() < PATIENT,
                "a query takes {:?}",
                begun.elapsed()
            );
        }
    });
    drop(held);
    pgmux.wait_for("logging_in", 0);
    pgmux.wait_for("clients", 1);
    let more = rss_kib(pgmux.pid()).saturating_sub(before);
    assert!(more < 2048, "{more} KiB more than after the first crowd");
    canary::check(&endpoint, &login);
    drop(runner);
    pgmux.stop();
}

/// A loaded machine's, not a figure.
const PATIENT: Duration = Duration::from_secs(5);

fn startup(login: &Login) -> Vec<u8> {
    frontend::startup(
        3,
        0,
        &[("user", &login.user), ("database", &login.database)],
    )
}
