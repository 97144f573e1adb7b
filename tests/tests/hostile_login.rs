//! Servers that lie, stall and babble while pgmux logs in to them. The password is never told to a server that asks in a
//! way that is not allowed, and the client gets one error that says what is wrong.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tests::cluster::{Cluster, PASSWORD};
use tests::hostile::{Duel, HONEST, Lie, data_row, ready};
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually};
use tests::wire::{Login, Session, frontend};
use tests::{canary, on_shards, side_by_side};

on_shards!(
    password_is_never_given_to_a_server_that_asks_in_a_weaker_way,
    lies_in_scram_end_the_login,
    nonsense_instead_of_a_login_ends_it,
    real_servers_are_logged_in_to_by_each_allowed_method,
    server_that_stalls_in_its_login_does_not_hold_the_client,
    keys_of_any_length_or_none_are_accepted,
    nobody_listening_is_an_error_and_not_the_end,
    refusal_of_the_server_is_told_to_the_client,
);

fn password_is_never_given_to_a_server_that_asks_in_a_weaker_way(shards: usize) {
    let asks: [(&str, &str, Vec<u8>); 7] = [
        (
            "clear text",
            "[scram-sha-256, md5, trust]",
            3_u32.to_be_bytes().to_vec(),
        ),
        (
            "md5",
            "[scram-sha-256]",
            [&5_u32.to_be_bytes()[..], b"salt"].concat(),
        ),
        ("nothing", "[scram-sha-256]", 0_u32.to_be_bytes().to_vec()),
        (
            "PLAIN",
            "[scram-sha-256]",
            [&10_u32.to_be_bytes()[..], b"PLAIN\0\0"].concat(),
        ),
        (
            "PLUS only",
            "[scram-sha-256]",
            [&10_u32.to_be_bytes()[..], b"SCRAM-SHA-256-PLUS\0\0"].concat(),
        ),
        (
            "no mechanism",
            "[scram-sha-256, md5]",
            [&10_u32.to_be_bytes()[..], b"\0"].concat(),
        ),
        (
            "scram",
            "[md5, trust]",
            [&10_u32.to_be_bytes()[..], b"SCRAM-SHA-256\0\0"].concat(),
        ),
    ];
    side_by_side(asks, |(what, allowed, request)| {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        let duel = Duel::configured(
            shards,
            |config| config.set("databases.fake.backend.auth_methods", allowed),
            move |peer, _| {
                peer.read_startup()?;
                peer.say(b'R', &request)?;
                let message = peer.read()?;
                ear.lock().expect("the ear").push(message);
                peer.greet()?;
                peer.serve("fake")
            },
        );
        duel.must_fail(what);
        let heard = heard.lock().expect("the ear");
        let told = heard.iter().find(|message| message.tag != b'X');
        assert!(told.is_none(), "{what}: the server was told {told:?}");
    });
}

fn lies_in_scram_end_the_login(shards: usize) {
    let lies = [
        Lie::Iterations(i64::from(i32::MAX)),
        Lie::Iterations(0),
        Lie::Iterations(-1),
        Lie::Iterations(100_001),
        Lie::ForeignNonce,
        Lie::BareNonce,
        Lie::LongNonce(64 * 1024),
        Lie::WrongSignature,
        Lie::NoSignature,
        Lie::Garbage,
        Lie::BadSalt,
    ];
    let current = Arc::new(Mutex::new(Lie::None));
    let lie = Arc::clone(&current);
    let duel = Duel::start(shards, move |peer, _| {
        peer.read_startup()?;
        let lie = *lie.lock().expect("the lie");
        peer.scram(lie)?;
        peer.greet()?;
        peer.serve("fake")
    });
    for lie in lies {
        *current.lock().expect("the lie") = lie;
        let started = Instant::now();
        duel.must_fail(&format!("{lie:?}"));
        assert!(
            started.elapsed() < PATIENCE,
            "{lie:?} took {:?}",
            started.elapsed()
        );
    }
    *current.lock().expect("the lie") = Lie::None;
    // pgmux may rest between its attempts by now: a client that comes in the meantime is refused in time.
    let forgiven = eventually(PATIENCE, || {
        Session::try_open(&duel.pgmux.endpoint(), &duel.pgmux.login()).ok()
    });
    assert_eq!(forgiven.expect("a login").trace("select 'fake'"), HONEST);
    duel.pgmux.stop();
}

fn nonsense_instead_of_a_login_ends_it(shards: usize) {
    let sayings: Vec<(&str, Vec<u8>)> = vec![
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("zeros", vec![0; 64]),
        ("length 3", vec![b'R', 0, 0, 0, 3]),
        ("length 2^32-1", vec![b'R', 0xff, 0xff, 0xff, 0xff, 0]),
        ("a short request", frontend::tagged(b'R', &[0, 0])),
        (
            "an unknown request",
            frontend::tagged(b'R', &99_u32.to_be_bytes()),
        ),
        ("GSS", frontend::tagged(b'R', &7_u32.to_be_bytes())),
        (
            "SASLFinal first",
            frontend::tagged(b'R', &[&12_u32.to_be_bytes()[..], b"v=x"].concat()),
        ),
        ("a row", data_row("x")),
        ("ready at once", ready()),
        ("an old error", b"Eno support\n\0".to_vec()),
        ("an empty error", frontend::tagged(b'E', &[])),
        ("a huge error", vec![b'E', 0x7f, 0xff, 0xff, 0xff, b'S']),
    ];
    let current = Arc::new(Mutex::new(Vec::new()));
    let saying = Arc::clone(&current);
    let duel = Duel::start(shards, move |peer, _| {
        peer.read_startup()?;
        let saying = saying.lock().expect("the saying").clone();
        peer.send(&saying)
    });
    for (what, saying) in sayings {
        *current.lock().expect("the saying") = saying;
        duel.must_fail(what);
    }
    duel.pgmux.stop();
}

fn real_servers_are_logged_in_to_by_each_allowed_method(shards: usize) {
    let cluster = Cluster::shared();
    side_by_side(
        [
            ("app", "[scram-sha-256]", true),
            ("app", "[md5, password, trust]", false),
            ("app_md5", "[md5]", true),
            ("app_md5", "[scram-sha-256]", false),
            ("app_trust", "[trust]", true),
            ("app_trust", "[scram-sha-256, md5]", false),
            ("app_password", "[password]", true),
            ("app_password", "[scram-sha-256, md5, trust]", false),
        ],
        |(role, methods, works)| {
            let database = cluster.fresh_database();
            let config = Config::new(cluster, &database)
                .shards(shards)
                .set("backend.user", role)
                .set("backend.auth_methods", methods)
                .set("pool.connection_timeout", "2s");
            let pgmux = Pgmux::start(&config);
            let user = Session::try_open(&pgmux.endpoint(), &pgmux.login())
                .map(
                    |mut session| match session.query("select current_user").as_slice() {
                        [_, row, ..] if row.tag == b'D' => row.row()[0].clone(),
                        _ => None,
                    },
                )
                .ok()
                .flatten();
            assert_eq!(
                user.as_deref(),
                works.then_some(role),
                "{role} by {methods}"
            );
            pgmux.stop();
        },
    );
}

fn server_that_stalls_in_its_login_does_not_hold_the_client(shards: usize) {
    let phases: [(&str, usize); 4] = [
        ("startup", 0),
        ("request", 1),
        ("challenge", 2),
        ("greeting", 3),
    ];
    side_by_side(phases, |(what, phase)| {
        let duel = Duel::configured(
            shards,
            |config| config.set("pool.connection_timeout", "500ms"),
            move |peer, _| {
                if phase == 0 {
                    return peer.drain();
                }
                peer.read_startup()?;
                if phase == 1 {
                    return peer.drain();
                }
                if phase == 2 {
                    peer.say(
                        b'R',
                        &[&10_u32.to_be_bytes()[..], b"SCRAM-SHA-256\0\0"].concat(),
                    )?;
                    return peer.drain();
                }
                peer.scram(Lie::None)?;
                peer.drain()
            },
        );
        let started = Instant::now();
        duel.must_fail(what);
        assert!(
            started.elapsed() < Duration::from_secs(15),
            "{what}: {:?}",
            started.elapsed()
        );
    });
}

fn keys_of_any_length_or_none_are_accepted(shards: usize) {
    side_by_side([0, 4, 32, 256], |length| {
        let duel = Duel::start(shards, move |peer, _| {
            peer.read_startup()?;
            peer.scram(Lie::None)?;
            for pair in [
                &b"server_version\x0015.18\0"[..],
                b"client_encoding\0UTF8\0",
            ] {
                peer.say(b'S', pair)?;
            }
            if length > 0 {
                peer.say(b'K', &vec![7; 4 + length])?;
            }
            peer.send(&ready())?;
            peer.serve("fake")
        });
        let mut client = duel.pgmux.client();
        assert_eq!(
            client.trace("select 'fake'"),
            HONEST,
            "a key of {length} bytes"
        );
        duel.pgmux.stop();
    });
}

fn nobody_listening_is_an_error_and_not_the_end(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let port = tests::process::free_port();
    let config = Config::fake(port)
        .database(&database, cluster.port())
        .shards(shards)
        .set("pool.connection_timeout", "1s");
    let pgmux = Pgmux::start(&config);
    let failed = Session::try_open(&pgmux.endpoint(), &pgmux.login()).and_then(|mut session| {
        let trace = session.trace("select 1");
        Err(trace.first().cloned().unwrap_or_default()).map(|_: ()| session)
    });
    let refusal = failed.map(|_| ()).expect_err("an error");
    assert!(
        refusal.contains(" 08") || refusal.contains(" 57P03"),
        "{refusal}"
    );
    canary::check(&pgmux.endpoint(), &Login::new("app", PASSWORD, &database));
    pgmux.stop();
}

fn refusal_of_the_server_is_told_to_the_client(shards: usize) {
    side_by_side(
        [
            ("53300", "sorry, too many clients already"),
            ("57P03", "the database system is starting up"),
            ("3D000", "database \"fake\" does not exist"),
        ],
        |(sqlstate, text)| {
            let duel = Duel::configured(
                shards,
                |config| config.set("pool.connection_timeout", "1s"),
                move |peer, _| {
                    peer.read_startup()?;
                    peer.error("FATAL", sqlstate, text)
                },
            );
            let refusal = match Session::try_open(&duel.pgmux.endpoint(), &duel.pgmux.login()) {
                Err(refusal) => refusal,
                Ok(mut session) => session.trace("select 1").concat(),
            };
            assert!(refusal.contains("ErrorResponse"), "{refusal}");
            duel.check();
        },
    );
}
