//! TLS with clients: every sslmode of libpq, direct TLS, certificates, resumption, reload, and whoever wants to break it.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tests::cluster::{Cluster, PASSWORD};
use tests::pgmux::{Config, KEPT, Pgmux, RELOADED};
use tests::process::{PATIENCE, eventually, rss_kib};
use tests::tls::{Authority, Pair, Tls};
use tests::wire::{Conn, Message, Session, Slicing, WireError, describe, frontend};
use tests::{canary, on_shards};

on_shards!(
    psql_connects_by_each_sslmode_as_the_configuration_wants_it,
    psql_verifies_the_certificate_and_binds_its_login_to_it,
    client_certificates_are_demanded_verified_and_compared_with_the_user,
    direct_tls_needs_the_protocol_by_alpn,
    clear_bytes_behind_the_request_are_refused_and_never_executed,
    stalled_and_broken_handshakes_end_and_hold_nobody_up,
    broken_records_end_only_their_own_client,
    cut_off_clients_leave_nothing,
    who_will_say_no_more_still_gets_its_answer,
    records_of_any_size_and_cut_anywhere_mean_the_same,
    pipeline_of_megabytes_is_answered_in_full,
    client_that_never_reads_stays_small_and_holds_nobody_up,
    what_has_come_is_read_without_a_further_packet,
    sessions_are_resumed_on_any_shard,
    certificates_are_read_again_at_sighup,
    oldest_version_is_kept,
    idle_clients_cost_little,
    goodbye_comes_with_close_notify,
    cancel_requests_come_in_clear_and_by_tls,
);

/// pgmux with TLS in front of a fresh database.
struct Stand {
    pgmux: Pgmux,
    authority: Authority,
    pair: Pair,
}

impl Stand {
    fn open(shards: usize) -> Self {
        Self::configured(shards, |config, _| config)
    }

    fn configured(shards: usize, configure: impl FnOnce(Config, &Authority) -> Config) -> Self {
        let cluster = Cluster::shared();
        let database = cluster.fresh_database();
        let authority = Authority::new("a CA of tests");
        let pair = authority.sign("localhost", &["localhost"]);
        let config = Config::new(cluster, &database)
            .shards(shards)
            .set("tls.enabled", true)
            .set("tls.cert_file", pair.cert.display())
            .set("tls.key_file", pair.key.display());
        Self {
            pgmux: Pgmux::start(&configure(config, &authority)),
            authority,
            pair,
        }
    }

    fn conn(&self) -> Conn {
        Conn::open(&self.pgmux.endpoint()).expect("a connection")
    }

    fn secure(&self, tls: &Tls) -> Conn {
        self.conn().secure(tls).expect("TLS")
    }

    fn client(&self) -> Session {
        Session::log_in(self.secure(&Tls::default()), &self.pgmux.login()).expect("a login")
    }

    /// psql's verdict and words. `settings` is a part of its connection string.
    fn psql(&self, settings: &str) -> (bool, String) {
        let login = self.pgmux.login();
        let output = Command::new("psql")
            .args([
                "-X",
                "-A",
                "-t",
                "-c",
                "select 'row ' || 42",
                "-c",
                "\\conninfo",
            ])
            .arg(format!(
                "host=localhost hostaddr=127.0.0.1 port={} user={} dbname={} {settings}",
                self.pgmux.port(),
                login.user,
                login.database,
            ))
            .env("PGPASSWORD", PASSWORD)
            .env("PGCONNECT_TIMEOUT", "20")
            .env("HOME", "/nonexistent")
            .output()
            .expect("psql");
        let words = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&words).into_owned(),
        )
    }

    fn close(self) {
        canary::ask(&mut self.client());
        self.pgmux.stop();
    }
}

const SSLMODES: [&str; 6] = [
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];

fn psql_connects_by_each_sslmode_as_the_configuration_wants_it(shards: usize) {
    for demanded in ["disable", "allow", "prefer", "require"] {
        let stand = Stand::configured(shards, |config, _| {
            config.set("tls.client_sslmode", demanded)
        });
        for wanted in SSLMODES {
            let ca = stand.authority.file();
            let (fine, words) =
                stand.psql(&format!("sslmode={wanted} sslrootcert={}", ca.display()));
            let tls = match (demanded, wanted) {
                ("disable", "disable" | "allow" | "prefer") => Some(false),
                ("disable", _) => None,
                ("require", "disable") => None,
                (_, "disable") => Some(false),
                // libpq's `allow` begins in clear.
                (_, "allow") => Some(demanded == "require"),
                _ => Some(true),
            };
            let what = format!("{demanded}, psql {wanted}: {words}");
            assert_eq!(fine, tls.is_some(), "{what}");
            if let Some(tls) = tls {
                assert!(words.contains("row 42"), "{what}");
                assert_eq!(words.contains("SSL connection"), tls, "{what}");
            } else if demanded == "require" {
                assert!(
                    words.contains("connections without TLS are not accepted"),
                    "{what}"
                );
                assert!(!words.contains("password"), "{what}");
            }
        }
        stand.pgmux.stop();
    }
}

fn psql_verifies_the_certificate_and_binds_its_login_to_it(shards: usize) {
    let stand = Stand::open(shards);
    let stranger = Authority::new("another CA");
    let ca = |authority: &Authority| authority.file().display().to_string();
    let (right, wrong) = (ca(&stand.authority), ca(&stranger));
    for (settings, expected) in [
        (format!("sslmode=verify-full sslrootcert={right}"), true),
        (format!("sslmode=verify-ca sslrootcert={wrong}"), false),
        ("sslmode=require channel_binding=require".into(), true),
        ("sslmode=require channel_binding=prefer".into(), true),
        ("sslmode=require channel_binding=disable".into(), true),
        ("sslmode=disable channel_binding=require".into(), false),
        ("sslmode=disable channel_binding=prefer".into(), true),
        (
            "sslmode=require ssl_max_protocol_version=TLSv1.2 channel_binding=require".into(),
            true,
        ),
    ] {
        let (fine, words) = stand.psql(&settings);
        assert_eq!(fine, expected, "{settings}: {words}");
    }
    stand.close();
}

fn client_certificates_are_demanded_verified_and_compared_with_the_user(shards: usize) {
    let foreign = Authority::new("another CA");
    let stranger = foreign.sign("app", &[]);
    for demanded in ["prefer", "verify-ca", "verify-full"] {
        let stand = Stand::configured(shards, |config, authority| {
            config
                .set("tls.client_sslmode", demanded)
                .set("tls.ca_file", authority.file().display())
        });
        let app = stand.authority.sign("app", &[]);
        let other = stand.authority.sign("somebody else", &[]);
        for (pair, expected) in [
            (None, demanded == "prefer"),
            (Some(&stranger), false),
            (Some(&other), demanded != "verify-full"),
            (Some(&app), true),
        ] {
            let settings = match pair {
                None => "sslmode=require sslcert=/nonexistent".into(),
                Some(pair) => format!(
                    "sslmode=require sslcert='{}' sslkey='{}'",
                    pair.cert.display(),
                    pair.key.display()
                ),
            };
            let (fine, words) = stand.psql(&settings);
            assert_eq!(fine, expected, "{demanded}, {settings}: {words}");
            for newest in [true, false] {
                let tls = Tls::new(&[], pair, newest);
                let session = stand.conn().secure(&tls).map_err(|error| error.to_string());
                let session = session.and_then(|conn| Session::log_in(conn, &stand.pgmux.login()));
                assert_eq!(session.is_ok(), expected, "{demanded}, {pair:?}, {newest}");
            }
        }
        let refusal = stand.conn();
        let refusal = Session::log_in(refusal, &stand.pgmux.login());
        assert_eq!(
            refusal.is_ok(),
            demanded == "prefer",
            "in clear, {demanded}"
        );
        stand.pgmux.stop();
    }
}

fn direct_tls_needs_the_protocol_by_alpn(shards: usize) {
    let stand = Stand::open(shards);
    for newest in [true, false] {
        let tls = Tls::new(&["h2", "postgresql"], None, newest);
        let conn = stand.conn().shake_hands(&tls).expect("direct TLS");
        let mut session = Session::log_in(conn, &stand.pgmux.login()).expect("a login");
        canary::ask(&mut session);
        for wrong in [&[][..], &["h2"]] {
            let tls = Tls::new(wrong, None, newest);
            // With another protocol there is not even TLS.
            let Ok(conn) = stand.conn().shake_hands(&tls) else {
                assert!(
                    !wrong.is_empty(),
                    "TLS without ALPN is ended behind the handshake"
                );
                continue;
            };
            assert!(wrong.is_empty());
            let refusal = Session::log_in(conn, &stand.pgmux.login());
            assert!(refusal.is_err(), "direct TLS with {wrong:?}");
        }
        // Whoever asks first may leave ALPN away.
        let tls = Tls::new(&[], None, newest);
        Session::log_in(stand.secure(&tls), &stand.pgmux.login()).expect("TLS on request");
        assert!(
            stand
                .conn()
                .secure(&Tls::new(&["h2"], None, newest))
                .is_err()
        );
    }
    // TLS within TLS there is none.
    let mut conn = stand.secure(&Tls::default());
    conn.send(&frontend::ssl_request()).expect("a request");
    assert_eq!(conn.recv().expect("an error").sqlstate(), "0A000");
    stand.close();
}

/// CVE-2021-23214.
fn clear_bytes_behind_the_request_are_refused_and_never_executed(shards: usize) {
    let stand = Stand::open(shards);
    let login = stand.pgmux.login();
    let startup = frontend::startup(
        3,
        0,
        &[("user", &login.user), ("database", &login.database)],
    );
    let query = frontend::query("create table injected()");
    for clear in [
        &startup[..],
        &[&startup[..], &query].concat(),
        b"\x16",
        b"\x16\x03\x01\x02",
    ] {
        let mut conn = stand.conn();
        conn.send(&[&frontend::ssl_request(), clear].concat())
            .expect("one write");
        let answer = conn.recv_to_end().expect("the end");
        let words = String::from_utf8_lossy(&answer).into_owned();
        assert!(
            words.contains("received unencrypted data after SSL request"),
            "{words}"
        );
        assert_eq!(answer[0], b'E', "nothing but the error");
    }
    // A little later they are taken for TLS, which they are not.
    let mut conn = stand.conn();
    conn.send(&frontend::ssl_request()).expect("a request");
    assert_eq!(conn.recv_byte().expect("an answer"), b'S');
    conn.send(&startup).expect("clear bytes");
    let answer = conn.recv_to_end().expect("the end");
    assert!(answer.len() <= 7, "at most an alert: {answer:?}");
    let tables = stand
        .client()
        .value("select count(*) from pg_class where relname = 'injected'");
    assert_eq!(tables, "0");
    stand.close();
}

fn stalled_and_broken_handshakes_end_and_hold_nobody_up(shards: usize) {
    let stand = Stand::configured(shards, |config, _| config.set("proxy.login_timeout", "3s"));
    let hello = client_hello();
    let mut stalled = Vec::new();
    for beginning in [
        &hello[..0],
        &hello[..1],
        &hello[..7],
        &hello[..hello.len() - 1],
        &hello,
    ] {
        let mut asked = stand.conn();
        asked.send(&frontend::ssl_request()).expect("a request");
        assert_eq!(asked.recv_byte().expect("an answer"), b'S');
        asked.send(beginning).expect("a beginning");
        stalled.push(asked);
        let mut direct = stand.conn();
        direct.send(beginning).expect("a beginning");
        stalled.push(direct);
    }
    let begun = Instant::now();
    canary::ask(&mut stand.client());
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "a login waits for stalled ones"
    );
    for conn in &mut stalled {
        conn.recv_to_end().expect("the end of a stalled handshake");
    }
    let mut odd = hello.clone();
    odd[5] = 99;
    let oversize = [&[0x16, 3, 1, 0xff, 0xff][..], &[0; 100]].concat();
    let endless = [0x16, 3, 1, 0x40, 0]
        .iter()
        .chain([2; 16384].iter())
        .copied();
    let endless: Vec<u8> = endless.collect();
    for garbage in [
        &odd[..],
        &oversize,
        &endless.repeat(40),
        b"\x16GET / HTTP/1.1\r\n\r\n",
        &[0x16; 3000],
    ] {
        let mut conn = stand.conn();
        // The peer may close while we still send.
        let _ = conn.send(garbage);
        conn.recv_to_end().expect("the end of a broken handshake");
        canary::ask(&mut stand.client());
    }
    stand.close();
}

fn broken_records_end_only_their_own_client(shards: usize) {
    let stand = Stand::open(shards);
    let mut neighbour = stand.client();
    for broken in [
        &[
            0x17, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0,
        ][..],
        &[0x17, 3, 3, 0xff, 0xff, 0],
        &[0x17, 3, 3, 0, 0],
        &[0x99, 3, 3, 0, 1, 0],
        b"Q\0\0\0\x0dselect 1\0",
    ] {
        let mut session = stand.client();
        assert_eq!(session.value("select 1"), "1");
        session.conn.tls().below_write(broken);
        let ended = session.conn.recv_to_end();
        assert!(ended.is_ok(), "{broken:?}: {ended:?}");
        canary::ask(&mut neighbour);
    }
    // A record that is changed on its way.
    let mut session = stand.client();
    let mut record = session
        .conn
        .tls()
        .seal(&frontend::query("create table forged()"));
    let last = record.len() - 1;
    record[last] ^= 1;
    session.conn.tls().below_write(&record);
    assert!(session.conn.recv_to_end().is_ok());
    assert_eq!(
        neighbour.value("select count(*) from pg_class where relname = 'forged'"),
        "0"
    );
    stand.close();
}

fn cut_off_clients_leave_nothing(shards: usize) {
    let stand = Stand::configured(shards, |config, _| config.servers(1));
    for abruptly in [true, false] {
        // Half a record.
        let mut session = stand.client();
        let record = session.conn.tls().seal(&frontend::query("select 1"));
        session.conn.tls().below_write(&record[..record.len() / 2]);
        if abruptly {
            session.conn.reset();
        }
        // In a transaction, with a query under way.
        let mut session = stand.client();
        session.query("begin");
        session.query("create table cut_off()");
        session.send(&frontend::query("select pg_sleep(60)"));
        if abruptly {
            session.conn.reset();
        }
    }
    let tables = stand
        .client()
        .value("select count(*) from pg_class where relname = 'cut_off'");
    assert_eq!(tables, "0");
    stand.close();
}

/// As direct: a client that has closed its side, by TLS's own word, by TCP's, or both, is read to the end and answered.
fn who_will_say_no_more_still_gets_its_answer(shards: usize) {
    use std::net::Shutdown;
    let stand = Stand::configured(shards, |config, _| config.servers(1));
    for newest in [true, false] {
        for (notified, closed) in [(true, true), (true, false), (false, true)] {
            let tls = Tls::new(&[], None, newest);
            let mut session =
                Session::log_in(stand.secure(&tls), &stand.pgmux.login()).expect("a login");
            let sql =
                "select pg_sleep(0.2); select repeat('x', 1000) from generate_series(1, 5000)";
            session.send(&frontend::query(sql));
            let stream = session.conn.tls();
            if notified {
                stream.close_notify();
            }
            if closed {
                stream
                    .below()
                    .shutdown(Shutdown::Write)
                    .expect("half a close");
            }
            let what = format!("newest {newest}, close_notify {notified}, FIN {closed}");
            let mut rows = 0;
            loop {
                let message = session.conn.recv();
                let message = message.unwrap_or_else(|error| panic!("{what}: {error}"));
                rows += usize::from(message.tag == b'D');
                if message.tag == b'Z' {
                    break;
                }
            }
            assert_eq!(rows, 5001, "{what}");
            assert!(
                matches!(session.conn.recv(), Err(WireError::Closed)),
                "{what}"
            );
        }
    }
    stand.close();
}

fn records_of_any_size_and_cut_anywhere_mean_the_same(shards: usize) {
    let stand = Stand::open(shards);
    let sql = "select 'a row that is long enough to be cut in many places' || 1";
    let expected = stand.client().trace(sql);
    for newest in [true, false] {
        let tls = Tls::new(&[], None, newest);
        let mut session =
            Session::log_in(stand.secure(&tls), &stand.pgmux.login()).expect("a login");
        // Each byte of the network by itself.
        let records = session.conn.tls().seal(&frontend::query(sql));
        session.conn.tls().below_write_each(&records);
        let replies = session.replies();
        assert_eq!(replies.iter().map(describe).collect::<Vec<_>>(), expected);
        // Each byte of the application in a record of its own.
        session
            .conn
            .send_sliced(&frontend::query(sql), Slicing::Bytes)
            .expect("records");
        let replies = session.replies();
        assert_eq!(replies.iter().map(describe).collect::<Vec<_>>(), expected);
        // Many tiny records at once.
        let query = frontend::query(sql).repeat(50);
        let tiny: Vec<u8> = query
            .chunks(3)
            .flat_map(|piece| session.conn.tls().seal(piece))
            .collect();
        session.conn.tls().below_write(&tiny);
        for _ in 0..50 {
            let replies = session.replies();
            assert_eq!(replies.iter().map(describe).collect::<Vec<_>>(), expected);
        }
    }
    // A handshake in single bytes.
    let mut conn = stand.conn();
    for byte in client_hello() {
        conn.send(&[byte]).expect("a byte");
    }
    assert_eq!(conn.recv_byte().expect("a server's hello"), 0x16);
    stand.close();
}

fn pipeline_of_megabytes_is_answered_in_full(shards: usize) {
    let stand = Stand::open(shards);
    let mut session = stand.client();
    // 40 requests of 100 kB, with as much for an answer.
    let text = "x".repeat(100_000);
    let batch: Vec<u8> = [
        frontend::parse("", "select $1::text", &[]),
        frontend::bind_text("", "", &[&text]),
        frontend::execute("", 0),
    ]
    .concat();
    let all = [batch.repeat(40), frontend::sync()].concat();
    let mut writer = session.conn.tls().seal(&all);
    let below = session
        .conn
        .tls()
        .below()
        .try_clone()
        .expect("a second handle");
    let sending = std::thread::spawn(move || {
        use std::io::Write;
        (&below)
            .write_all(&std::mem::take(&mut writer))
            .expect("the pipeline");
    });
    let replies = session.replies();
    sending.join().expect("all is sent");
    let rows: Vec<&Message> = replies.iter().filter(|reply| reply.tag == b'D').collect();
    assert_eq!(rows.len(), 40);
    assert!(
        rows.iter()
            .all(|row| row.row()[0].as_deref() == Some(text.as_str()))
    );
    // Two hundred thousand small messages.
    let small = [
        frontend::bind_text("", "", &["1"]),
        frontend::execute("", 0),
    ]
    .concat();
    for _ in 0..5 {
        let parse = frontend::parse("", "select $1::text", &[]);
        let all = [parse, small.repeat(4000), frontend::sync()].concat();
        session.send(&all);
        let rows = session
            .replies()
            .iter()
            .filter(|reply| reply.tag == b'D')
            .count();
        assert_eq!(rows, 4000);
    }
    stand.close();
}

fn client_that_never_reads_stays_small_and_holds_nobody_up(shards: usize) {
    let stand = Stand::open(shards);
    canary::ask(&mut stand.client());
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], stand.pgmux.port()));
    let before = rss_kib(stand.pgmux.pid());
    let mut lazy = Vec::new();
    for _ in 0..2 {
        let conn = Conn::open_narrow(address, 4096).expect("a connection");
        let conn = conn.secure(&Tls::default()).expect("TLS");
        let mut session = Session::log_in(conn, &stand.pgmux.login()).expect("a login");
        session.send(&frontend::query(
            "select repeat('x', 1000000) from generate_series(1, 200)",
        ));
        lazy.push(session);
    }
    let mut busy = stand.client();
    for _ in 0..100 {
        canary::ask(&mut busy);
    }
    let grown = rss_kib(stand.pgmux.pid()).saturating_sub(before);
    assert!(
        grown < 24 * 1024,
        "{grown} KiB more for 400 MB that nobody reads"
    );
    // One of them does read, and gets all of it.
    let mut session = lazy.pop().expect("a client");
    let mut bytes = 0;
    loop {
        let message = session.conn.recv().expect("a message");
        bytes += message.body.len();
        if message.tag == b'Z' {
            break;
        }
    }
    assert!(bytes > 200_000_000, "{bytes}");
    let grown = rss_kib(stand.pgmux.pid()).saturating_sub(before);
    assert!(grown < 24 * 1024, "{grown} KiB more for a stream of 200 MB");
    stand.close();
}

/// libpq's asynchronous interface waits for the socket, not for bytes that lie in the TLS library: what pgmux has
/// decrypted must be acted on without a further packet, and what it sends must be complete.
fn what_has_come_is_read_without_a_further_packet(shards: usize) {
    let stand = Stand::configured(shards, |config, _| config.servers(1));
    let mut session = stand.client();
    let mut holder = stand.client();
    holder.query("begin");
    // All in one packet and several records; the server is not to be had yet.
    let queries: Vec<u8> = (0..5)
        .flat_map(|number| {
            session
                .conn
                .tls()
                .seal(&frontend::query(&format!("select {number}")))
        })
        .collect();
    session.conn.tls().below_write(&queries);
    assert!(session.conn.is_quiet(Duration::from_millis(200)));
    holder.query("commit");
    for number in 0..5 {
        let replies = session.replies();
        let row = replies
            .iter()
            .find(|reply| reply.tag == b'D')
            .expect("a row");
        assert_eq!(row.row()[0].as_deref(), Some(number.to_string().as_str()));
    }
    stand.close();
}

fn sessions_are_resumed_on_any_shard(shards: usize) {
    let stand = Stand::open(shards);
    for newest in [true, false] {
        let tls = Tls::new(&["postgresql"], None, newest);
        let mut resumed = Vec::new();
        for _ in 0..6 {
            let conn = stand.secure(&tls);
            // The login reads the ticket that TLS 1.3 sends behind the handshake.
            let mut session = Session::log_in(conn, &stand.pgmux.login()).expect("a login");
            canary::ask(&mut session);
            resumed.push(session.conn.tls().is_resumed());
        }
        assert_eq!(
            resumed,
            [false, true, true, true, true, true],
            "newest: {newest}"
        );
    }
    stand.close();
}

fn certificates_are_read_again_at_sighup(shards: usize) {
    let stand = Stand::open(shards);
    let tls = Tls::default();
    let mut old = Session::log_in(stand.secure(&tls), &stand.pgmux.login()).expect("a login");
    canary::ask(&mut old);
    let first = old.conn.tls().certificate();
    let served = || stand.secure(&Tls::default()).tls().certificate();
    let told = |what: &str| {
        let told = || stand.pgmux.log().matches(what).count();
        let before = told();
        stand.pgmux.signal(Signal::HUP);
        let heard = eventually(PATIENCE, || (told() > before).then_some(()));
        assert!(heard.is_some(), "no {what:?} in: {}", stand.pgmux.log());
    };

    // A key that does not belong to the certificate, then no certificate.
    let fresh = stand.authority.sign("fresh", &["localhost"]);
    let good = std::fs::read(&stand.pair.key).expect("the key");
    std::fs::copy(&fresh.key, &stand.pair.key).expect("a wrong key");
    told(KEPT);
    assert_eq!(served(), first);
    std::fs::write(&stand.pair.key, good).expect("the right key");
    std::fs::write(&stand.pair.cert, "nonsense").expect("no certificate");
    told(KEPT);
    assert_eq!(served(), first);

    fresh.replace(&stand.pair);
    told(RELOADED);
    assert_ne!(served(), first);
    canary::ask(&mut old);
    // A session of before is of no use: whatever was changed holds for it too.
    let mut conn = stand.secure(&tls);
    assert!(!conn.tls().is_resumed());
    let (fine, words) = stand.psql("sslmode=require channel_binding=require");
    assert!(fine, "bound to the new certificate: {words}");
    stand.close();
}

fn oldest_version_is_kept(shards: usize) {
    let stand = Stand::configured(shards, |config, _| config.set("tls.min_version", "TLSv1.3"));
    assert!(stand.conn().secure(&Tls::new(&[], None, false)).is_err());
    let (fine, words) = stand.psql("sslmode=require ssl_max_protocol_version=TLSv1.2");
    assert!(!fine, "{words}");
    let (fine, words) = stand.psql("sslmode=require");
    assert!(fine, "{words}");
    stand.close();
}

fn idle_clients_cost_little(shards: usize) {
    let stand = Stand::open(shards);
    let open = |count: usize| -> Vec<Session> { (0..count).map(|_| stand.client()).collect() };
    let warm = open(20);
    let before = rss_kib(stand.pgmux.pid());
    let mut idle = open(200);
    for session in &mut idle {
        canary::ask(session);
    }
    let each = rss_kib(stand.pgmux.pid()).saturating_sub(before) / 200;
    assert!(each < 20, "{each} KiB for an idle client");
    drop((warm, idle));
    stand.close();
}

fn goodbye_comes_with_close_notify(shards: usize) {
    let stand = Stand::configured(shards, |config, _| {
        config.set("proxy.shutdown_timeout", "5s")
    });
    let mut idle = stand.client();
    let mut refused = stand.secure(&Tls::default());
    refused
        .send(&frontend::startup(
            3,
            0,
            &[("user", "app"), ("replication", "true")],
        ))
        .expect("a startup");
    assert_eq!(refused.recv().expect("an error").tag, b'E');
    assert!(refused.tls().is_ended_in_order(), "behind a refused login");
    stand.pgmux.signal(Signal::TERM);
    let words = idle.farewell().expect("the end").expect("words");
    assert_eq!(words.sqlstate(), "57P01");
    assert!(idle.conn.tls().is_ended_in_order(), "behind the goodbye");
}

fn cancel_requests_come_in_clear_and_by_tls(shards: usize) {
    let stand = Stand::configured(shards, |config, _| {
        config.set("tls.client_sslmode", "require")
    });
    for secure in [true, false] {
        let mut session = stand.client();
        let (pid, key) = session.key.clone().expect("a key");
        session.send(&frontend::query("select pg_sleep(60)"));
        // libpq up to 16 knows no other way than in clear.
        let mut conn = stand.conn();
        if secure {
            conn = conn.secure(&Tls::default()).expect("TLS");
        }
        // It must find the query running.
        assert!(session.conn.is_quiet(Duration::from_millis(300)));
        conn.send(&frontend::cancel_request(pid, &key))
            .expect("a request");
        assert!(matches!(conn.recv(), Err(WireError::Closed)));
        let replies = session.replies();
        let error = replies
            .iter()
            .find(|reply| reply.tag == b'E')
            .expect("an error");
        assert_eq!(error.sqlstate(), "57014");
    }
    stand.close();
}

/// A client's first record, as rustls makes it.
fn client_hello() -> Vec<u8> {
    Tls::default().hello()
}
