//! TLS with servers: every sslmode, certificates both ways, bound logins, cancel requests, and servers that play tricks.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tests::cluster::{Cluster, Options};
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually, free_port, rss_kib};
use tests::tls::{Authority, Tls};
use tests::wire::{Session, frontend};
use tests::{canary, side_by_side};

/// A cluster with TLS, and whose certificates it has and takes. `other` must come by TLS, `app_md5` in clear,
/// `app_password` with a certificate of its own.
struct Secured {
    cluster: Cluster,
    authority: Authority,
}

fn secured() -> &'static Secured {
    static SECURED: OnceLock<Secured> = OnceLock::new();
    SECURED.get_or_init(|| {
        let authority = Authority::new("a CA of servers");
        let pair = authority.sign("a server", &["localhost"]);
        pair.give_to_server();
        let hba = [
            "hostnossl all other 127.0.0.1/32 reject",
            "hostssl all app_md5 127.0.0.1/32 reject",
            "hostssl all app_password 127.0.0.1/32 scram-sha-256 clientcert=verify-full",
        ];
        let settings = vec![
            "ssl = on".into(),
            format!("ssl_cert_file = '{}'", pair.cert.display()),
            format!("ssl_key_file = '{}'", pair.key.display()),
            format!("ssl_ca_file = '{}'", authority.file().display()),
        ];
        let cluster = Cluster::start(&Options {
            settings,
            hba: hba.map(String::from).to_vec(),
            ..Options::default()
        });
        Secured { cluster, authority }
    })
}

fn config(cluster: &Cluster) -> Config {
    let database = cluster.fresh_database();
    Config::new(cluster, &database)
        .set(&format!("databases.{database}.writer.host"), "localhost")
        .set("pool.connection_timeout", "6s")
}

/// Whether the server connection has TLS, or why there is none.
fn secures(config: &Config) -> Result<bool, String> {
    let pgmux = Pgmux::start(config);
    let mut session = Session::try_open(&pgmux.endpoint(), &pgmux.login())?;
    let ssl = session.value("select ssl from pg_stat_ssl where pid = pg_backend_pid()");
    pgmux.stop();
    Ok(ssl == "t")
}

#[test]
fn each_sslmode_does_as_in_libpq() {
    let Secured { cluster, authority } = secured();
    let stranger = Authority::new("another CA");
    let (right, wrong) = (authority.file(), stranger.file());
    // The role, the mode, the CA, and whether there is TLS; `None`: no login.
    let table = [
        ("app", "disable", None, Some(false)),
        ("app", "allow", None, Some(false)),
        ("app", "prefer", None, Some(true)),
        ("app", "require", None, Some(true)),
        ("app", "require", Some(&right), Some(true)),
        ("app", "require", Some(&wrong), None),
        ("app", "prefer", Some(&wrong), Some(true)),
        ("app", "verify-ca", Some(&right), Some(true)),
        ("app", "verify-ca", Some(&wrong), None),
        ("app", "verify-full", Some(&right), Some(true)),
        ("app", "verify-full", Some(&wrong), None),
        ("other", "disable", None, None),
        ("other", "allow", None, Some(true)),
        ("other", "prefer", None, Some(true)),
        ("app_md5", "prefer", None, Some(false)),
        ("app_md5", "require", None, None),
    ];
    side_by_side(table, |(role, mode, ca, expected)| {
        let mut config = config(cluster)
            .set("backend.user", role)
            .set("backend.server_sslmode", mode);
        if let Some(ca) = ca {
            config = config.set("backend.server_ca_file", ca.display());
        }
        let found = secures(&config);
        assert_eq!(
            found.clone().ok(),
            expected,
            "{role}, {mode}, {ca:?}: {found:?}"
        );
    });
}

#[test]
fn verify_full_compares_the_name() {
    let Secured { cluster, authority } = secured();
    for (mode, expected) in [("verify-ca", true), ("verify-full", false)] {
        let database = cluster.fresh_database();
        let config = Config::new(cluster, &database)
            .set("backend.server_sslmode", mode)
            .set("backend.server_ca_file", authority.file().display());
        // The certificate is localhost's, not 127.0.0.1's.
        assert_eq!(secures(&config).is_ok(), expected, "{mode}");
    }
}

#[test]
fn server_without_tls_is_an_error_where_tls_is_demanded() {
    let cluster = Cluster::shared();
    for (mode, expected) in [("allow", true), ("prefer", true), ("require", false)] {
        let found = secures(&config(cluster).set("backend.server_sslmode", mode));
        assert_eq!(found.is_ok(), expected, "{mode}: {found:?}");
        if let Err(words) = found {
            assert!(
                words.contains("there is no TLS connection to it"),
                "{words}"
            );
        }
    }
    // A unix socket never leaves the machine: as in libpq, nothing is demanded of it.
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .set(
            &format!("databases.{database}.writer.host"),
            cluster.socket_dir().display(),
        )
        .set("backend.server_sslmode", "require");
    assert_eq!(secures(&config), Ok(false));
}

#[test]
fn our_certificate_is_shown_to_servers_that_ask() {
    let Secured { cluster, authority } = secured();
    let mine = authority.sign("app_password", &[]);
    let wrong = authority.sign("somebody else", &[]);
    for (pair, expected) in [(None, false), (Some(wrong), false), (Some(mine), true)] {
        let mut config = config(cluster)
            .set("backend.user", "app_password")
            .set("backend.server_sslmode", "require");
        if let Some(pair) = &pair {
            config = config
                .set("backend.server_cert_file", pair.cert.display())
                .set("backend.server_key_file", pair.key.display());
        }
        assert_eq!(secures(&config).is_ok(), expected, "{pair:?}");
    }
}

#[test]
fn logins_are_bound_to_the_connection() {
    let Secured { cluster, .. } = secured();
    for binding in ["disable", "prefer", "require"] {
        let config = config(cluster)
            .set("backend.server_sslmode", "require")
            .set("backend.server_channel_binding", binding);
        assert_eq!(secures(&config), Ok(true), "{binding}");
    }
    // Nobody to bind to: the server asks for no proof at all.
    let config = config(cluster)
        .set("backend.user", "app_trust")
        .set("backend.server_sslmode", "require")
        .set("backend.server_channel_binding", "require");
    assert!(secures(&config).is_err());
}

/// A man in the middle, with a certificate of his own for both ends.
#[test]
fn a_bound_login_does_not_pass_a_man_in_the_middle() {
    let Secured { cluster, .. } = secured();
    let authority = Authority::new("the man's CA");
    let pair = authority.sign("localhost", &["localhost"]);
    let database = cluster.fresh_database();
    let behind = |binding: &str| {
        let man = pipe_of_tls(cluster.port(), &pair);
        let config = Config::new(cluster, &database)
            .set(&format!("databases.{database}.writer.port"), man)
            .set("backend.server_sslmode", "require")
            .set("backend.server_channel_binding", binding);
        secures(&config)
    };
    assert_eq!(behind("disable"), Ok(true));
    assert!(behind("prefer").is_err());
    assert!(behind("require").is_err());
}

#[test]
fn cancel_requests_go_by_tls() {
    let Secured { cluster, .. } = secured();
    let database = cluster.fresh_database();
    let (tap, seen) = tap(cluster.port());
    let config = Config::new(cluster, &database)
        .set(&format!("databases.{database}.writer.port"), tap)
        .set("backend.server_sslmode", "require");
    let pgmux = Pgmux::start(&config);
    let mut session = pgmux.client();
    let (pid, key) = session.key.clone().expect("a key");
    session.send(&frontend::query("select pg_sleep(60)"));
    assert!(session.conn.is_quiet(Duration::from_millis(300)));
    let before = seen.lock().expect("the list").len();
    let mut conn = tests::wire::Conn::open(&pgmux.endpoint()).expect("a connection");
    conn.send(&frontend::cancel_request(pid, &key))
        .expect("a request");
    let replies = session.replies();
    let error = replies
        .iter()
        .find(|reply| reply.tag == b'E')
        .expect("an error");
    assert_eq!(error.sqlstate(), "57014");
    canary::ask(&mut session);
    let seen = seen.lock().expect("the list").clone();
    assert!(seen.len() > before, "a connection for the request");
    assert!(
        seen.iter()
            .all(|first| first[..] == frontend::ssl_request()),
        "{seen:?}"
    );
    pgmux.stop();
}

/// CVE-2021-23222, CVE-2024-10977.
#[test]
fn servers_that_say_anything_in_clear_before_tls_are_left() {
    let startup_of_a_login = [&b"R\0\0\0\x08\0\0\0\0"[..], b"Z\0\0\0\x05I"].concat();
    let error = frontend::tagged(b'E', b"SFATAL\0C28000\0Mgive me your password\0\0");
    let table: [(&str, Vec<u8>); 7] = [
        (
            "a login behind S",
            [&b"S"[..], &startup_of_a_login].concat(),
        ),
        (
            "a login behind N",
            [&b"N"[..], &startup_of_a_login].concat(),
        ),
        ("an error", error),
        ("garbage behind S", b"Sgarbage".to_vec()),
        ("G", b"G".to_vec()),
        ("a second S", b"SS".to_vec()),
        ("nothing", Vec::new()),
    ];
    side_by_side(table, |(what, answer)| {
        for mode in ["prefer", "require"] {
            let (port, heard) = answering(answer.clone());
            let config = Config::fake(port)
                .set("backend.server_sslmode", mode)
                .set("backend.auth_methods", "[scram-sha-256, trust]")
                .set("pool.connection_timeout", "2s");
            let pgmux = Pgmux::start(&config);
            let refusal = Session::try_open(&pgmux.endpoint(), &pgmux.login());
            let words = refusal.expect_err(what);
            // In clear, which `prefer` allows, a server's refusal is its own business.
            assert!(
                mode == "prefer" || !words.contains("give me your password"),
                "{what}, {mode}: {words}"
            );
            // With `require` nothing but requests for TLS was ever sent.
            let heard = eventually(PATIENCE, || {
                let heard = heard.lock().expect("the list").clone();
                (!heard.is_empty()).then_some(heard)
            });
            let heard = heard.expect("a request for TLS");
            if mode == "require" {
                let only = heard
                    .iter()
                    .all(|bytes| bytes[..] == frontend::ssl_request());
                assert!(only, "{what}: {heard:?}");
            }
        }
    });
}

#[test]
fn relay_between_tls_and_tls_is_exact_and_stays_small() {
    let Secured { cluster, authority } = secured();
    let pair = authority.sign("a proxy", &["localhost"]);
    let config = config(cluster)
        .set("backend.server_sslmode", "require")
        .set("tls.enabled", true)
        .set("tls.cert_file", pair.cert.display())
        .set("tls.key_file", pair.key.display());
    let pgmux = Pgmux::start(&config);
    let client = || {
        let conn = tests::wire::Conn::open(&pgmux.endpoint()).expect("a connection");
        Session::log_in(conn.secure(&Tls::default()).expect("TLS"), &pgmux.login())
            .expect("a login")
    };
    let mut session = client();
    canary::ask(&mut session);
    let before = rss_kib(pgmux.pid());
    // 30 MB to the server, then back.
    let text: String = (0..30_000_000_u32)
        .map(|at| char::from(b'a' + (at % 23) as u8))
        .collect();
    let request = [
        frontend::parse("", "select md5($1), $1", &[25]),
        frontend::bind_text("", "", &[&text]),
        frontend::execute("", 0),
        frontend::sync(),
    ]
    .concat();
    session.send(&request);
    let replies = session.replies();
    let row = replies
        .iter()
        .find(|reply| reply.tag == b'D')
        .expect("a row")
        .row();
    assert!(
        row[1].as_deref() == Some(text.as_str()),
        "the same text comes back"
    );
    // What was sent is what the server has seen.
    let direct = cluster
        .superuser("postgres")
        .query_one("select md5($1)", &[&text])
        .expect("md5");
    assert_eq!(row[0].as_deref(), Some(direct.get::<_, &str>(0)));
    let grown = rss_kib(pgmux.pid()).saturating_sub(before);
    assert!(grown < 24 * 1024, "{grown} KiB more for 60 MB");
    // Two clients on one server, by turns.
    let mut other = client();
    for _ in 0..50 {
        canary::ask(&mut session);
        canary::ask(&mut other);
    }
    drop((session, other));
    pgmux.stop();
}

/// A pipe to a port that notes how each connection begins.
fn tap(to: u16) -> (u16, Arc<Mutex<Vec<Vec<u8>>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&seen);
    let port = listen(move |mut client| {
        let mut first = [0; 8];
        client.read_exact(&mut first)?;
        list.lock().expect("the list").push(first.to_vec());
        let mut server = TcpStream::connect(("127.0.0.1", to))?;
        server.write_all(&first)?;
        join(client, server)
    });
    (port, seen)
}

/// A server that answers whatever comes first with these bytes, and notes all that it hears.
fn answering(answer: Vec<u8>) -> (u16, Arc<Mutex<Vec<Vec<u8>>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&heard);
    let port = listen(move |mut client| {
        let mut chunk = [0; 8192];
        let read = client.read(&mut chunk)?;
        let mut said = chunk[..read].to_vec();
        client.write_all(&answer)?;
        if !answer.is_empty() {
            client.set_read_timeout(Some(Duration::from_millis(500)))?;
            while let Ok(read @ 1..) = client.read(&mut chunk) {
                said.extend_from_slice(&chunk[..read]);
            }
        }
        list.lock().expect("the list").push(said);
        Ok(())
    });
    (port, heard)
}

/// A server that has TLS with a certificate of its own, and TLS again to a port.
fn pipe_of_tls(to: u16, pair: &tests::tls::Pair) -> u16 {
    let server = tests::tls::server(pair);
    listen(move |mut client| {
        let mut request = [0; 8];
        client.read_exact(&mut request)?;
        client.write_all(b"S")?;
        let conn = tests::wire::Conn::open(&tests::wire::Endpoint::local(to))?;
        let conn = conn.secure(&Tls::default())?;
        tests::tls::relay(client, &server, conn)
    })
}

fn listen(serve: impl Fn(TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> u16 {
    let port = free_port();
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a listener");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            // A connection that breaks is no business of this thread's.
            std::thread::spawn(move || drop(serve(client)));
        }
    });
    port
}

fn join(client: TcpStream, server: TcpStream) -> std::io::Result<()> {
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    let forth = std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let (mut from, mut to) = (server, client);
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = forth.join();
    Ok(())
}
