//! Startup and authentication: what a stranger can send before anybody knows who it is.

use std::time::{Duration, Instant};

use tests::cluster::{Cluster, PASSWORD};
use tests::pgmux::{Config, Pgmux, yaml_string};
use tests::process::{PATIENCE, eventually, open_fds};
use tests::wire::{
    Conn, Endpoint, Login, Message, ScramClient, Session, describe, frontend, md5_verifier,
    scram_verifier,
};
use tests::{canary, on_shards};

on_shards!(
    encryption_requests_are_refused_by_one_byte_each_once,
    endless_encryption_requests_are_ended,
    silent_and_slow_clients_are_ended_by_the_login_deadline,
    malformed_scram_is_answered_as_direct,
    unknown_users_get_the_exchange_of_known_ones,
    md5_users_log_in_with_hash_or_clear_text,
    scram_users_log_in_with_verifier_or_clear_text,
    trusted_users_need_no_password_but_a_name,
    unknown_database_is_a_fatal_error,
    overlong_names_are_refused,
    replication_is_refused,
    protocol_three_two_is_spoken,
    probes_leave_nothing_behind,
    wrong_password_is_refused_beside_a_warm_server,
);

fn pgmux(shards: usize, configure: impl FnOnce(Config) -> Config) -> Pgmux {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    Pgmux::start(&configure(Config::new(cluster, &database).shards(shards)))
}

fn encryption_requests_are_refused_by_one_byte_each_once(shards: usize) {
    let pgmux = pgmux(shards, |config| config);
    let (ssl, gss) = (frontend::ssl_request(), frontend::gssenc_request());
    for order in [[&ssl, &gss], [&gss, &ssl]] {
        let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
        for request in order {
            conn.send(request).expect("a request");
            assert_eq!(conn.recv_byte().expect("an answer"), b'N');
        }
        let mut session = Session::log_in(conn, &pgmux.login()).expect("a login");
        canary::ask(&mut session);
    }
    pgmux.stop();
}

fn endless_encryption_requests_are_ended(shards: usize) {
    let pgmux = pgmux(shards, |config| config);
    let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
    let round = [frontend::ssl_request(), frontend::gssenc_request()].concat();
    // The peer may close while we still send.
    let _ = conn.send(&round.repeat(10_000));
    let answer = conn.recv_to_end().expect("the end");
    let refusals = answer.iter().take_while(|byte| **byte == b'N').count();
    assert!(refusals <= 2, "{refusals} refusals");
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn silent_and_slow_clients_are_ended_by_the_login_deadline(shards: usize) {
    let pgmux = pgmux(shards, |config| config.set("proxy.login_timeout", "600ms"));
    let startup = startup(&pgmux.login());
    let beginnings: [&[u8]; 6] = [
        b"",
        &startup[..3],
        &startup[..10],
        &frontend::ssl_request(),
        &startup,
        &[
            &startup[..],
            &frontend::sasl_initial("SCRAM-SHA-256", &ScramClient::new("x").first()),
        ]
        .concat(),
    ];
    let mut silent: Vec<Conn> = beginnings
        .iter()
        .map(|bytes| {
            let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
            conn.send(bytes).expect("a beginning");
            conn
        })
        .collect();
    // One more drips: the deadline is one for the whole login, not one for each read.
    let mut slow = Conn::open(&pgmux.endpoint()).expect("a connection");
    let started = Instant::now();
    for byte in startup.chunks(1) {
        if slow.send(byte).is_err() || !slow.is_quiet(Duration::from_millis(100)) {
            break;
        }
    }
    assert!(
        started.elapsed() < PATIENCE / 2,
        "a drip kept the login open"
    );
    slow.recv_to_end().expect("the end");
    for conn in &mut silent {
        conn.recv_to_end().expect("the end");
    }
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn malformed_scram_is_answered_as_direct(shards: usize) {
    let pgmux = pgmux(shards, |config| config);
    let direct = Endpoint::local(Cluster::shared().port());
    let mut differences = Vec::new();
    let initial = |mechanism: &str, response: &[u8]| frontend::sasl_initial(mechanism, response);
    let raw = |body: &[u8]| frontend::tagged(b'p', body);
    let firsts: Vec<(&str, Vec<u8>)> = vec![
        ("an unknown mechanism", initial("PLAIN", b"x")),
        (
            "channel binding that was not offered",
            initial("SCRAM-SHA-256-PLUS", b"p=tls-server-end-point,,n=,r=abc"),
        ),
        ("an empty message", initial("SCRAM-SHA-256", b"")),
        ("no attributes", initial("SCRAM-SHA-256", b"hello")),
        ("no nonce", initial("SCRAM-SHA-256", b"n,,n=")),
        (
            "an unprintable nonce",
            initial("SCRAM-SHA-256", b"n,,n=,r=\x01\x02"),
        ),
        (
            "an authorisation identity",
            initial("SCRAM-SHA-256", b"n,a=postgres,n=,r=abcdefgh"),
        ),
        (
            "a mandatory extension",
            initial("SCRAM-SHA-256", b"n,,m=ext,n=,r=abcdefgh"),
        ),
        (
            "binding required without PLUS",
            initial("SCRAM-SHA-256", b"p=tls-unique,,n=,r=abcdefgh"),
        ),
        (
            "a length of 2^31-1",
            raw(b"SCRAM-SHA-256\0\x7f\xff\xff\xff"),
        ),
        ("a length of -2", raw(b"SCRAM-SHA-256\0\xff\xff\xff\xfe")),
        ("no length", raw(b"SCRAM-SHA-256\0")),
        ("no end of the mechanism", raw(b"SCRAM-SHA-256")),
        ("nothing", raw(b"")),
        (
            OVERSIZED,
            initial("SCRAM-SHA-256", &[&b"n,,n=,r="[..], &[b'x'; 1100]].concat()),
        ),
        ("a password", frontend::password(PASSWORD)),
        ("a Query", frontend::query("select 1")),
    ];
    for (what, message) in firsts {
        let answers = [&direct, &pgmux.endpoint()].map(|endpoint| {
            let mut conn = Conn::open(endpoint).expect("a connection");
            conn.send(&startup(&pgmux.login())).expect("startup");
            conn.recv().expect("a request");
            conn.send(&message).expect("a message");
            outcome(&mut conn)
        });
        differences.extend(difference(what, &answers));
    }
    let nonce = "rOprNGfwEbeRWgbNEkqO";
    let lasts: Vec<(&str, String)> = vec![
        ("no proof", format!("c=biws,r={nonce}")),
        ("another nonce", "c=biws,r=other,p=AAAA".into()),
        ("another binding", format!("c=eSws,r={nonce},p=AAAA")),
        ("a short proof", format!("c=biws,r={nonce},p=AAAA")),
        ("no Base64", format!("c=biws,r={nonce},p=!!!!")),
        ("nothing", String::new()),
        (OVERSIZED, format!("c=biws,r={nonce}{}", "x".repeat(2000))),
    ];
    for (what, last) in lasts {
        let answers = [&direct, &pgmux.endpoint()].map(|endpoint| {
            let mut conn = Conn::open(endpoint).expect("a connection");
            conn.send(&startup(&pgmux.login())).expect("startup");
            conn.recv().expect("a request");
            let first = ScramClient::new(PASSWORD).first();
            conn.send(&frontend::sasl_initial("SCRAM-SHA-256", &first))
                .expect("the first message");
            let challenge = conn.recv().expect("a challenge");
            let text = String::from_utf8_lossy(&challenge.body[4..]).into_owned();
            let theirs = text
                .split(',')
                .next()
                .unwrap_or_default()
                .trim_start_matches("r=")
                .to_owned();
            conn.send(&frontend::sasl_response(
                last.replace(nonce, &theirs).as_bytes(),
            ))
            .expect("the last message");
            outcome(&mut conn)
        });
        differences.extend(difference(what, &answers));
    }
    assert!(differences.is_empty(), "{differences:#?}");
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn unknown_users_get_the_exchange_of_known_ones(shards: usize) {
    let pgmux = pgmux(shards, |config| config);
    let exchange = |user: &str| {
        let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
        let login = Login::new(user, "wrong", &pgmux.login().database);
        conn.send(&startup(&login)).expect("startup");
        let mut seen = vec![describe(&conn.recv().expect("a request"))];
        let mut scram = ScramClient::new("wrong");
        conn.send(&frontend::sasl_initial("SCRAM-SHA-256", &scram.first()))
            .expect("the first message");
        let challenge = conn.recv().expect("a challenge");
        let text = String::from_utf8_lossy(&challenge.body[4..]).into_owned();
        let salt = text
            .split(',')
            .find_map(|part| part.strip_prefix("s="))
            .unwrap_or_default()
            .to_owned();
        let iterations = text
            .split(',')
            .find_map(|part| part.strip_prefix("i="))
            .unwrap_or_default()
            .to_owned();
        seen.push(format!(
            "{} i={iterations} salt of {}",
            describe(&challenge),
            salt.len()
        ));
        conn.send(&frontend::sasl_response(
            &scram.last(&challenge.body[4..]).expect("an answer"),
        ))
        .expect("the answer");
        let refusal = conn.recv().expect("a refusal");
        seen.push(describe(&refusal).replace(user, "somebody"));
        conn.recv_to_end().expect("the end");
        (seen, salt)
    };
    let (known, salt_of_known) = exchange("app");
    let (unknown, salt_of_unknown) = exchange("nobody");
    assert_eq!(unknown, known);
    // A salt that changed from login to login would tell the unknown user from the known one.
    assert_eq!(exchange("app").1, salt_of_known);
    assert_eq!(exchange("nobody").1, salt_of_unknown);
    assert_ne!(exchange("somebody").1, salt_of_unknown);
    pgmux.stop();
}

fn md5_users_log_in_with_hash_or_clear_text(shards: usize) {
    let stored = md5_verifier("hashed", "pencil");
    let users = format!(
        "[{{username: app, password: {}}}, {{username: hashed, password: {stored}}}]",
        yaml_string(PASSWORD)
    );
    let pgmux = pgmux(shards, |config| {
        config.set("auth.method", "md5").set("auth.users", users)
    });
    let database = pgmux.login().database;
    let login = |user: &str, password: &str| attempt(&pgmux, user, password, &database);
    assert_eq!(
        login("app", PASSWORD),
        Ok("AuthenticationMD5Password".into())
    );
    assert_eq!(
        login("hashed", "pencil"),
        Ok("AuthenticationMD5Password".into())
    );
    for (user, password) in [("app", "x"), ("hashed", "x"), ("nobody", "x")] {
        assert!(
            login(user, password).is_err_and(|refusal| refusal.contains("28P01")),
            "{user}"
        );
    }
    pgmux.stop();
}

fn scram_users_log_in_with_verifier_or_clear_text(shards: usize) {
    let stored = scram_verifier("pencil", b"0123456789abcdef", 4096);
    let few = scram_verifier("pencil", b"another salt", 1000);
    let users = format!(
        "[{{username: app, password: {}}}, {{username: hashed, password: '{stored}'}}, \
         {{username: few, password: '{few}'}}]",
        yaml_string(PASSWORD)
    );
    let pgmux = pgmux(shards, |config| {
        config
            .set("auth.method", "scram-sha-256")
            .set("auth.users", users)
    });
    let database = pgmux.login().database;
    let login = |user: &str, password: &str| attempt(&pgmux, user, password, &database);
    for (user, password) in [("app", PASSWORD), ("hashed", "pencil"), ("few", "pencil")] {
        assert_eq!(
            login(user, password),
            Ok("AuthenticationSASL \"SCRAM-SHA-256\"".into())
        );
    }
    for (user, password) in [
        ("app", "x"),
        ("hashed", PASSWORD),
        ("few", "x"),
        ("nobody", "pencil"),
    ] {
        assert!(
            login(user, password).is_err_and(|refusal| refusal.contains("28P01")),
            "{user}"
        );
    }
    pgmux.stop();
}

fn trusted_users_need_no_password_but_a_name(shards: usize) {
    let pgmux = pgmux(shards, |config| {
        config
            .set("auth.method", "trust")
            .set("auth.users", "[{username: app}]")
    });
    let database = pgmux.login().database;
    assert_eq!(
        attempt(&pgmux, "app", "", &database),
        Ok("AuthenticationOk".into())
    );
    assert!(
        attempt(&pgmux, "nobody", "", &database).is_err_and(|refusal| refusal.contains("FATAL 28"))
    );
    pgmux.stop();
}

fn unknown_database_is_a_fatal_error(shards: usize) {
    let pgmux = pgmux(shards, |config| config);
    let refusal = attempt(&pgmux, "app", PASSWORD, "no_such_database").expect_err("a refusal");
    assert_eq!(
        refusal,
        "ErrorResponse FATAL 3D000 \"database \\\"no_such_database\\\" does not exist\""
    );
    // A stranger learns nothing about which databases there are.
    let stranger = attempt(&pgmux, "app", "wrong", "no_such_database").expect_err("a refusal");
    assert!(stranger.contains("28P01"), "{stranger}");
    pgmux.stop();
}

fn overlong_names_are_refused(shards: usize) {
    let pgmux = pgmux(shards, |config| config);
    let database = pgmux.login().database;
    let long = "x".repeat(5000);
    for (user, database) in [
        ("app", long.as_str()),
        (long.as_str(), database.as_str()),
        ("app\n\u{7f}", "a\"b'c"),
    ] {
        assert!(
            attempt(&pgmux, user, PASSWORD, database)
                .is_err_and(|refusal| refusal.contains("FATAL"))
        );
    }
    canary::check(&pgmux.endpoint(), &pgmux.login());
    assert!(
        !pgmux.log().contains(&long),
        "a log line of the client's length"
    );
    pgmux.stop();
}

fn replication_is_refused(shards: usize) {
    let pgmux = pgmux(shards, |config| config);
    for value in ["true", "database", "1", "on"] {
        let login = pgmux.login().param("replication", value);
        let refusal = Session::try_open(&pgmux.endpoint(), &login)
            .map(|_| ())
            .expect_err("a refusal");
        assert!(refusal.starts_with("ErrorResponse FATAL"), "{refusal}");
    }
    let login = pgmux.login().param("replication", "false");
    canary::check(&pgmux.endpoint(), &login);
    pgmux.stop();
}

fn protocol_three_two_is_spoken(shards: usize) {
    let pgmux = pgmux(shards, |config| config.set("auth.method", "trust"));
    let login = pgmux.login();
    let params = [
        ("user", "app"),
        ("database", login.database.as_str()),
        ("_pq_.nonsense", "1"),
    ];
    for (minor, options) in [(2, 2), (2, 3), (9, 3), (0, 3)] {
        let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
        conn.send(&frontend::startup(3, minor, &params[..options]))
            .expect("startup");
        let greeting = conn.recv_until(b'Z').expect("a login");
        let negotiation = greeting.iter().find(|message| message.tag == b'v');
        let must_negotiate = minor > 2 || options == 3;
        assert!(
            negotiation.is_some() || !must_negotiate,
            "3.{minor} with {options} parameters"
        );
        if let Some(negotiation) = negotiation {
            let named = describe(negotiation).contains("_pq_.nonsense");
            assert_eq!(named, options == 3, "{}", describe(negotiation));
        }
        let key = greeting
            .iter()
            .find(|message| message.tag == b'K')
            .expect("a key");
        assert!(
            (8..=260).contains(&key.body.len()),
            "a key of {} bytes",
            key.body.len() - 4
        );
        conn.send(&frontend::query("select 1")).expect("a query");
        assert_eq!(conn.recv_until(b'Z').expect("an answer").len(), 4);
    }
    pgmux.stop();
}

fn probes_leave_nothing_behind(shards: usize) {
    let pgmux = pgmux(shards, |config| config);
    canary::check(&pgmux.endpoint(), &pgmux.login());
    let startup = startup(&pgmux.login());
    let probes: [&[u8]; 5] = [
        b"",
        &frontend::ssl_request(),
        &startup[..6],
        &startup,
        b"GET / HTTP/1.0\r\n\r\n",
    ];
    let before = open_fds(pgmux.pid());
    for _ in 0..100 {
        for probe in probes {
            let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
            let _ = conn.send(probe);
        }
    }
    let back = eventually(PATIENCE, || (open_fds(pgmux.pid()) <= before).then_some(()));
    assert!(
        back.is_some(),
        "{} descriptors, {before} before",
        open_fds(pgmux.pid())
    );
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn wrong_password_is_refused_beside_a_warm_server(shards: usize) {
    let pgmux = pgmux(shards, |config| config);
    canary::check(&pgmux.endpoint(), &pgmux.login());
    for password in ["", "wrong", "correct horse", &PASSWORD.to_uppercase()] {
        let refusal =
            attempt(&pgmux, "app", password, &pgmux.login().database).expect_err("a refusal");
        assert!(refusal.contains("28P01"), "{refusal}");
    }
    assert!(!pgmux.log().contains(PASSWORD), "the password in the log");
    pgmux.stop();
}

/// Logs in; gives the authentication request that came first, or the refusal.
fn attempt(pgmux: &Pgmux, user: &str, password: &str, database: &str) -> Result<String, String> {
    let session = Session::try_open(&pgmux.endpoint(), &Login::new(user, password, database))?;
    Ok(session.greeting.first().map(describe).unwrap_or_default())
}

fn startup(login: &Login) -> Vec<u8> {
    frontend::startup(
        3,
        0,
        &[("user", &login.user), ("database", &login.database)],
    )
}

const OVERSIZED: &str = "more than 1,024 bytes";

/// What differs, if something does, between PostgreSQL's answer and pgmux's. To a message over the limit PostgreSQL says
/// that the password is wrong; to say what is wrong with it is stricter and as final.
fn difference(what: &str, [direct, through]: &[String; 2]) -> Option<String> {
    let oversized = what.starts_with(OVERSIZED) && through == "ErrorResponse FATAL 08P01, closed";
    (direct != through && !oversized).then(|| format!("{what}: {through}, direct: {direct}"))
}

/// Severity and SQLSTATE of what comes, then whether the peer closed.
fn outcome(conn: &mut Conn) -> String {
    let class = |message: &Message| {
        describe(message)
            .split(' ')
            .take(3)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut seen = Vec::new();
    loop {
        match conn.recv() {
            Ok(message) => seen.push(class(&message)),
            Err(error) => {
                seen.push(error.to_string());
                return seen.join(", ");
            }
        }
    }
}
