//! Servers that lie, die, stall and babble. A server may only hurt its own lease: the client gets one error that says
//! so, no invented bytes, and everybody else is served.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tests::cluster::{Cluster, PASSWORD};
use tests::hostile::{
    FakeServer, Lie, Peer, data_row, error, honest_reply, ready, row_description,
};
use tests::pgmux::{Config, Pgmux};
use tests::process::PATIENCE;
use tests::wire::{Endpoint, Login, Message, Session, WireError, describe, frontend};
use tests::{canary, on_shards};

on_shards!(
    honest_server_is_used,
    password_is_never_given_to_a_server_that_asks_in_a_weaker_way,
    lies_in_scram_end_the_login,
    nonsense_instead_of_a_login_ends_it,
    real_servers_are_logged_in_to_by_each_allowed_method,
    garbage_instead_of_a_reply_ends_the_lease,
    reply_that_is_cut_anywhere_is_never_filled_up,
    server_that_stalls_in_its_login_does_not_hold_the_client,
    server_that_never_answers_is_dropped_with_its_client,
    odd_error_responses_are_passed_on_as_they_are,
    odd_rows_are_passed_on_as_they_are,
    replies_that_nobody_asked_for_end_the_lease,
    chatter_between_any_two_messages_counts_for_nothing,
    chatter_on_an_idle_server_is_no_harm,
    idle_server_that_dies_or_babbles_is_not_used_again,
    fatal_in_a_pipeline_is_told_once,
    keys_of_any_length_or_none_are_accepted,
    nobody_listening_is_an_error_and_not_the_end,
    refusal_of_the_server_is_told_to_the_client,
);

/// A pgmux with a scripted server in the database `fake` and a real one beside it.
struct Duel {
    server: FakeServer,
    pgmux: Pgmux,
    real: Login,
}

fn duel<F>(shards: usize, configure: impl FnOnce(Config) -> Config, script: F) -> Duel
where
    F: Fn(&mut Peer, usize) -> io::Result<()> + Send + Sync + 'static,
{
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let server = FakeServer::start(script);
    let config = Config::fake(server.port())
        .database(&database, cluster.port())
        .shards(shards)
        .servers(1)
        .set("pool.connection_timeout", "2s");
    Duel {
        pgmux: Pgmux::start(&configure(config)),
        server,
        real: Login::new("app", PASSWORD, &database),
    }
}

fn same(config: Config) -> Config {
    config
}

impl Duel {
    /// The client's request must fail by an ErrorResponse with a proper SQLSTATE, at the login or after it; then the
    /// neighbour must be served.
    fn must_fail(&mut self, what: &str) -> String {
        let refusal = match Session::try_open(&self.pgmux.endpoint(), &self.pgmux.login()) {
            Err(refusal) => refusal,
            Ok(mut session) => {
                session.send(&frontend::query("select 'fake'"));
                let seen = read_all(&mut session);
                let error = seen.iter().find(|line| line.starts_with("ErrorResponse"));
                error
                    .unwrap_or_else(|| panic!("{what}: no error but {seen:?}"))
                    .clone()
            }
        };
        let sqlstate = refusal.split(' ').nth(2).unwrap_or_default();
        let class = sqlstate.get(..2).unwrap_or_default();
        assert!(
            ["08", "28", "53", "57", "58"].contains(&class),
            "{what}: {refusal}"
        );
        assert!(
            !refusal.contains("127.0.0.1") && !refusal.contains(PASSWORD),
            "{what}: {refusal}"
        );
        self.check();
        refusal
    }

    fn check(&self) {
        canary::check(&self.pgmux.endpoint(), &self.real);
    }
}

/// The messages up to ReadyForQuery or the end, as lines.
fn read_all(session: &mut Session) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match session.conn.recv() {
            Ok(message) => {
                lines.push(describe(&message));
                if message.tag == b'Z' {
                    return lines;
                }
            }
            Err(WireError::Closed | WireError::Partial(_)) => {
                lines.push("<closed>".into());
                return lines;
            }
            Err(error) => panic!("{error} after {lines:?}"),
        }
    }
}

const HONEST: [&str; 4] = [
    "RowDescription \"value\":25",
    "DataRow \"fake\"",
    "CommandComplete \"SELECT 1\"",
    "ReadyForQuery I",
];

fn honest_server_is_used(shards: usize) {
    let duel = duel(shards, same, |peer, _| {
        peer.log_in()?;
        peer.serve("fake")
    });
    let mut client = duel.pgmux.client();
    for _ in 0..3 {
        assert_eq!(client.trace("select 'fake'"), HONEST);
    }
    assert_eq!(
        client.rows_extended("select 'fake'", &[]),
        [[Some("fake".to_string())]]
    );
    duel.pgmux.stop();
}

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
    for (what, allowed, request) in asks {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        let mut duel = duel(
            shards,
            |config| config.set("backend.auth_methods", allowed),
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
    }
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
    let mut duel = duel(shards, same, move |peer, _| {
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
    assert_eq!(duel.pgmux.client().trace("select 'fake'"), HONEST);
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
    let mut duel = duel(shards, same, move |peer, _| {
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
    for (role, methods, works) in [
        ("app", "[scram-sha-256]", true),
        ("app", "[md5, password, trust]", false),
        ("app_md5", "[md5]", true),
        ("app_md5", "[scram-sha-256]", false),
        ("app_trust", "[trust]", true),
        ("app_trust", "[scram-sha-256, md5]", false),
        ("app_password", "[password]", true),
        ("app_password", "[scram-sha-256, md5, trust]", false),
    ] {
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
    }
}

fn garbage_instead_of_a_reply_ends_the_lease(shards: usize) {
    let replies: Vec<(&str, Vec<u8>)> = vec![
        ("length 3", vec![b'Z', 0, 0, 0, 3]),
        ("length 0", vec![b'D', 0, 0, 0, 0]),
        (
            "a claim of 4 GiB",
            vec![b'D', 0xff, 0xff, 0xff, 0xff, 1, 2, 3],
        ),
        ("HTTP", b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
        ("tag 0", frontend::tagged(0, b"x")),
        ("a tag of clients", frontend::tagged(b'Q', b"select 1\0")),
        (
            "a login request",
            frontend::tagged(b'R', &3_u32.to_be_bytes()),
        ),
        ("CopyBoth", frontend::tagged(b'W', &[0, 0, 0])),
        ("status X", frontend::tagged(b'Z', b"X")),
        ("no status", frontend::tagged(b'Z', b"")),
        ("a long status", frontend::tagged(b'Z', b"II")),
        ("a key", frontend::tagged(b'K', &[0, 0, 0, 1, 0, 0, 0, 1])),
    ];
    let current = Arc::new(Mutex::new(Vec::new()));
    let reply = Arc::clone(&current);
    let duel = duel(shards, same, move |peer, _| {
        peer.log_in()?;
        // The first request of a connection is answered well, so that the client is logged in by then.
        let request = peer.read_request()?;
        peer.send(&honest_reply(&request, "fake"))?;
        peer.read_request()?;
        let reply = reply.lock().expect("the reply").clone();
        peer.send(&reply)?;
        peer.drain()
    });
    for (what, reply) in replies {
        *current.lock().expect("the reply") = reply;
        let mut client = duel.pgmux.client();
        assert_eq!(client.trace("select 'fake'"), HONEST, "before {what}");
        client.send(&frontend::query("select 'fake'"));
        let seen = read_all(&mut client);
        let errors = seen
            .iter()
            .filter(|line| line.starts_with("ErrorResponse"))
            .count();
        assert!(errors <= 1, "{what}: {seen:?}");
        assert!(
            !seen.contains(&HONEST[1].to_string()),
            "{what}: an invented row: {seen:?}"
        );
        duel.server.expect_abandoned();
        duel.check();
    }
    duel.pgmux.stop();
}

fn reply_that_is_cut_anywhere_is_never_filled_up(shards: usize) {
    let request = [Message {
        tag: b'Q',
        body: b"select 'fake'\0".to_vec(),
    }];
    let length = honest_reply(&request, "fake").len();
    let cut = Arc::new(AtomicUsize::new(0));
    let limit = Arc::clone(&cut);
    let duel = duel(shards, same, move |peer, _| {
        peer.log_in()?;
        let request = peer.read_request()?;
        let reply = honest_reply(&request, "fake");
        peer.send(&reply[..limit.load(Ordering::SeqCst).min(reply.len())])
    });
    for at in 0..length {
        cut.store(at, Ordering::SeqCst);
        let mut client = duel.pgmux.client();
        client.send(&frontend::query("select 'fake'"));
        let seen = read_all(&mut client);
        let honest = seen
            .iter()
            .zip(HONEST)
            .take_while(|(got, honest)| got == honest)
            .count();
        let rest: Vec<_> = seen[honest..]
            .iter()
            .map(|line| line.split(' ').next().unwrap_or_default())
            .collect();
        let proper: [&[&str]; 3] = [
            &["ErrorResponse", "ReadyForQuery"],
            &["ErrorResponse", "<closed>"],
            &["<closed>"],
        ];
        assert!(proper.contains(&rest.as_slice()), "cut at {at}: {seen:?}");
        assert!(
            rest.len() == 2 || honest < HONEST.len() && at > 0,
            "cut at {at}, nothing said: {seen:?}"
        );
    }
    duel.check();
    duel.pgmux.stop();
}

fn server_that_stalls_in_its_login_does_not_hold_the_client(shards: usize) {
    let phases: [(&str, usize); 4] = [
        ("startup", 0),
        ("request", 1),
        ("challenge", 2),
        ("greeting", 3),
    ];
    for (what, phase) in phases {
        let mut duel = duel(
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
    }
}

fn server_that_never_answers_is_dropped_with_its_client(shards: usize) {
    let duel = duel(shards, same, |peer, _| {
        peer.log_in()?;
        peer.drain()
    });
    for _ in 0..3 {
        let mut client = duel.pgmux.client();
        client.send(&frontend::query("select 'fake'"));
        assert!(client.conn.is_quiet(Duration::from_millis(100)));
        client.conn.reset();
        duel.server.expect_abandoned();
    }
    duel.check();
    duel.pgmux.stop();
}

fn odd_error_responses_are_passed_on_as_they_are(shards: usize) {
    let bodies: Vec<Vec<u8>> = vec![
        b"\0".to_vec(),
        b"SERROR\0Mboom\0\0".to_vec(),
        b"SERROR\0Mboom\0".to_vec(),
        b"SERROR\0C22012\0Mboom\0Qunknown field\0zanother\0\0".to_vec(),
        b"C\0M\0S\0\0".to_vec(),
        b"SERROR\0C22012\0M\xff\xfe\x80\0\0".to_vec(),
        [&b"SERROR\0C22012\0M"[..], &vec![b'x'; 200_000], b"\0\0"].concat(),
        Vec::new(),
    ];
    for body in bodies {
        let told = body.clone();
        let duel = duel(shards, same, move |peer, _| {
            peer.log_in()?;
            loop {
                let request = peer.read_request()?;
                if request[0].body.starts_with(b"select 'error'") {
                    peer.say(b'E', &told)?;
                    peer.send(&ready())?;
                } else {
                    peer.send(&honest_reply(&request, "fake"))?;
                }
            }
        });
        let mut client = duel.pgmux.client();
        let replies = client.query("select 'error'");
        assert_eq!(replies.len(), 2);
        assert_eq!(replies[0].body, body);
        assert_eq!(client.trace("select 'fake'"), HONEST);
        duel.pgmux.stop();
    }
}

fn odd_rows_are_passed_on_as_they_are(shards: usize) {
    let wide = [&65_535_u16.to_be_bytes()[..], &[0xff; 65_535 * 4]].concat();
    let rows: Vec<Vec<u8>> = vec![
        frontend::tagged(b'D', &[0, 0]),
        frontend::tagged(b'D', &wide),
        frontend::tagged(b'D', &[0, 1, 0xff, 0xff, 0xff, 0xfe]),
        frontend::tagged(b'D', &[0x7f, 0xff]),
        frontend::tagged(b'D', b""),
        frontend::tagged(b'T', &[0, 0]),
    ];
    let reply = [
        rows.concat(),
        frontend::tagged(b'C', b"SELECT 1\0"),
        ready(),
    ]
    .concat();
    let told = reply.clone();
    let duel = duel(shards, same, move |peer, _| {
        peer.log_in()?;
        loop {
            let request = peer.read_request()?;
            match request[0].body.starts_with(b"select 'odd'") {
                true => peer.send(&told)?,
                false => peer.send(&honest_reply(&request, "fake"))?,
            }
        }
    });
    let mut client = duel.pgmux.client();
    let seen: Vec<u8> = client
        .query("select 'odd'")
        .iter()
        .flat_map(Message::to_bytes)
        .collect();
    assert!(seen == reply, "the bytes differ");
    assert_eq!(client.trace("select 'fake'"), HONEST);
    duel.pgmux.stop();
}

fn replies_that_nobody_asked_for_end_the_lease(shards: usize) {
    // Behind or in place of an honest reply; the connection's number is the row's value, so that a shifted stream
    // would show.
    let extras: [(&str, Vec<u8>); 6] = [
        ("a second ReadyForQuery", ready()),
        ("ParseComplete", frontend::tagged(b'1', b"")),
        (
            "another reply",
            [
                row_description(),
                data_row("stolen"),
                frontend::tagged(b'C', b"SELECT 1\0"),
                ready(),
            ]
            .concat(),
        ),
        ("a row", data_row("stolen")),
        ("BackendKeyData", frontend::tagged(b'K', &[0; 8])),
        ("an error", error("ERROR", "22012", "stolen")),
    ];
    for (what, extra) in extras {
        let told = extra.clone();
        let duel = duel(shards, same, move |peer, number| {
            peer.log_in()?;
            loop {
                let request = peer.read_request()?;
                let mut reply = honest_reply(&request, &number.to_string());
                if request[0].body.starts_with(b"select 'extra'") {
                    reply.extend(&told);
                }
                peer.send(&reply)?;
            }
        });
        for _ in 0..5 {
            let mut guilty = duel.pgmux.client();
            guilty.send(&frontend::query("select 'extra'"));
            read_all(&mut guilty);
            let mut next = duel.pgmux.client();
            let trace = next.trace("select 'next'");
            assert_eq!(trace.len(), 4, "after {what}: {trace:?}");
            assert!(
                !trace.concat().contains("stolen"),
                "after {what}: {trace:?}"
            );
        }
        duel.check();
        duel.pgmux.stop();
    }
}

fn chatter_between_any_two_messages_counts_for_nothing(shards: usize) {
    let chatter: [Vec<u8>; 3] = [
        frontend::tagged(b'N', b"SNOTICE\0C00000\0Mchatter\0\0"),
        frontend::tagged(b'A', b"\0\0\0\x01channel\0payload\0"),
        frontend::tagged(b'S', b"application_name\0chatter\0"),
    ];
    let place = Arc::new(AtomicUsize::new(0));
    let (current, talk) = (Arc::clone(&place), chatter.clone());
    let duel = duel(shards, same, move |peer, _| {
        peer.log_in()?;
        loop {
            let request = peer.read_request()?;
            let at = current.load(Ordering::SeqCst);
            let (position, kind) = (at / talk.len(), at % talk.len());
            let reply = honest_reply(&request, "fake");
            for (index, message) in split(&reply).into_iter().enumerate() {
                if index == position {
                    peer.send(&talk[kind])?;
                }
                peer.send(&message)?;
            }
        }
    });
    let mut client = duel.pgmux.client();
    let mut batch = frontend::parse("s", "select 'fake'", &[]);
    batch.extend(frontend::bind_text("", "s", &[]));
    batch.extend(frontend::describe(b'P', ""));
    batch.extend(frontend::execute("", 0));
    batch.extend(frontend::close(b'S', "s"));
    batch.extend(frontend::sync());
    let asked = |client: &mut Session, bytes: &[u8]| -> String {
        client.send(bytes);
        let replies = client.replies();
        replies
            .iter()
            .map(|message| char::from(message.tag))
            .filter(|tag| !"NAS".contains(*tag))
            .collect()
    };
    for at in 0..7 * chatter.len() {
        place.store(at, Ordering::SeqCst);
        assert_eq!(
            asked(&mut client, &frontend::query("select 'fake'")),
            "TDCZ",
            "place {at}"
        );
        assert_eq!(asked(&mut client, &batch), "12TDC3Z", "place {at}");
    }
    duel.pgmux.stop();
}

fn chatter_on_an_idle_server_is_no_harm(shards: usize) {
    let duel = duel(shards, same, |peer, number| {
        peer.log_in()?;
        loop {
            let request = peer.read_request()?;
            peer.send(&honest_reply(&request, &number.to_string()))?;
            peer.say(b'N', b"SNOTICE\0C00000\0Mchatter\0\0")?;
            peer.say(b'S', b"application_name\0chatter\0")?;
            peer.say(b'A', b"\0\0\0\x01channel\0payload\0")?;
        }
    });
    let mut clients: Vec<Session> = (0..3).map(|_| duel.pgmux.client()).collect();
    for _ in 0..5 {
        for client in &mut clients {
            let replies = client.query("select 'fake'");
            assert!(replies.iter().any(|message| message.tag == b'D'));
            assert!(replies.iter().all(|message| message.tag != b'E'));
        }
    }
    duel.check();
    duel.pgmux.stop();
}

fn idle_server_that_dies_or_babbles_is_not_used_again(shards: usize) {
    let last_words: [(&str, Vec<u8>); 7] = [
        ("EOF", Vec::new()),
        (
            "FATAL",
            error(
                "FATAL",
                "57P01",
                "terminating connection due to administrator command",
            ),
        ),
        ("a row", data_row("stolen")),
        ("ReadyForQuery", ready()),
        ("half a message", vec![b'D', 0, 0, 1]),
        ("garbage", vec![0xff; 100]),
        ("an error", error("ERROR", "XX000", "stolen")),
    ];
    for (what, words) in last_words {
        let said = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&said);
        let duel = duel(shards, same, move |peer, _| {
            peer.log_in()?;
            let request = peer.read_request()?;
            peer.send(&honest_reply(&request, "fake"))?;
            // Idle now; the client has its answer before the last words come.
            peer.pause(Duration::from_millis(60));
            peer.send(&words)?;
            count.fetch_add(1, Ordering::SeqCst);
            match words.is_empty() {
                true => Ok(()),
                false => peer.drain(),
            }
        });
        let mut client = duel.pgmux.client();
        for round in 1..=3 {
            assert_eq!(
                client.trace("select 'fake'"),
                HONEST,
                "{what}, round {round}"
            );
            let heard = tests::process::eventually(PATIENCE, || {
                (said.load(Ordering::SeqCst) >= round && duel.server.open() == 0).then_some(())
            });
            assert!(heard.is_some(), "{what}: the server is kept");
        }
        duel.check();
        duel.pgmux.stop();
    }
}

fn fatal_in_a_pipeline_is_told_once(shards: usize) {
    let duel = duel(shards, same, |peer, _| {
        peer.log_in()?;
        let request = peer.read_request()?;
        peer.send(&honest_reply(&request, "fake"))?;
        peer.read_request()?;
        peer.error(
            "FATAL",
            "57P01",
            "terminating connection due to administrator command",
        )
    });
    let mut client = duel.pgmux.client();
    client.send(&frontend::query("select 'fake'").repeat(4));
    assert_eq!(read_all(&mut client), HONEST);
    let seen = read_all(&mut client);
    assert_eq!(
        seen,
        [
            "ErrorResponse FATAL 57P01 \"terminating connection due to administrator command\"",
            "<closed>"
        ]
    );
    duel.check();
    duel.pgmux.stop();
}

fn keys_of_any_length_or_none_are_accepted(shards: usize) {
    for length in [0, 4, 32, 256] {
        let duel = duel(shards, same, move |peer, _| {
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
    }
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
    for (sqlstate, text) in [
        ("53300", "sorry, too many clients already"),
        ("57P03", "the database system is starting up"),
        ("3D000", "database \"fake\" does not exist"),
    ] {
        let mut duel = duel(
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
        let _ = &mut duel;
    }
}

/// Cuts bytes into messages.
fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while bytes.len() >= 5 {
        let length = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        let (message, rest) = bytes.split_at(1 + usize::try_from(length).expect("64-bit"));
        messages.push(message.to_vec());
        bytes = rest;
    }
    messages
}

#[test]
fn scripted_servers_agree_with_a_real_client() {
    // The referee is refereed: the postgres crate logs in to the scripted server and reads its row.
    let server = FakeServer::start(|peer, _| {
        peer.log_in()?;
        peer.serve("fake")
    });
    let mut client = postgres::Config::new()
        .host("127.0.0.1")
        .port(server.port())
        .user("app")
        .password(PASSWORD)
        .dbname("fake")
        .connect(postgres::NoTls)
        .expect("a login");
    let rows = client.simple_query("select 'fake'").expect("a row");
    assert!(rows.iter().any(
        |row| matches!(row, postgres::SimpleQueryMessage::Row(row) if row.get(0) == Some("fake"))
    ));
    let raw = Session::open(
        &Endpoint::local(server.port()),
        &Login::new("app", PASSWORD, "fake"),
    );
    assert_eq!(
        raw.parameters.get("server_version").map(String::as_str),
        Some("15.18")
    );
}
