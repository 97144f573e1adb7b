//! Logins that users of other poolers have reported: odd passwords, roles whose password changes, cold pools, bindings, and
//! who could steer the query for secrets. Cases BR-038 to BR-050, S-6, A-5, A-6, A-10 and X-11 of the catalogues.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use tests::cluster::{Cluster, PASSWORD};
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux, yaml_string};
use tests::process::{PATIENCE, TempDir, eventually, free_port};
use tests::tls::{Authority, Tls};
use tests::wire::{Conn, Endpoint, Login, Session, frontend, scram_verifier};
use tests::{canary, on_shards};

on_shards!(
    negotiation_is_told_once_however_long_the_login_takes,
    passwords_of_any_signs_log_in_everywhere,
    a_role_that_changes_its_password_is_asked_for_the_new_one,
    fifty_first_clients_of_a_cold_pool_get_in,
    nobody_steers_the_query_for_secrets,
    an_answer_holds_no_longer_than_the_password,
    a_login_that_was_allowed_allows_no_other,
    logins_are_bound_where_that_can_hold_and_nowhere_else,
    hashing_holds_nobody_up,
);

/// pgmux in front of a fresh database, with files of its own and a look past it.
struct Stand {
    pgmux: Pgmux,
    database: String,
    dir: TempDir,
    _authority: Authority,
}

impl Stand {
    /// `configure` gets the database's name and a directory; with TLS for whoever asks for it.
    fn open(shards: usize, configure: impl FnOnce(Config, &str, &TempDir) -> Config) -> Self {
        let cluster = Cluster::shared();
        let database = cluster.fresh_database();
        let dir = TempDir::new("logins").expect("a directory");
        let authority = Authority::new("a CA of logins");
        let pair = authority.sign("localhost", &["localhost"]);
        let config = Config::new(cluster, &database)
            .shards(shards)
            .set("tls.enabled", true)
            .set("tls.cert_file", pair.cert.display())
            .set("tls.key_file", pair.key.display());
        let config = configure(config, &database, &dir);
        Self {
            pgmux: Pgmux::start(&config),
            database,
            dir,
            _authority: authority,
        }
    }

    fn login(&self, user: &str, password: &str) -> Result<Session, String> {
        let login = Login::new(user, password, &self.database);
        Session::try_open(&self.pgmux.endpoint(), &login)
    }

    fn refused(&self, user: &str, password: &str, code: &str) {
        match self.login(user, password) {
            Ok(_) => panic!("{user} is let in"),
            Err(refusal) => assert!(refusal.contains(code), "{refusal}"),
        }
    }
}

fn run(database: &str, sql: &str) {
    Direct::open(Cluster::shared(), database).run(sql);
}

/// Asks PostgreSQL for users, in the client's own database, by a role of its own.
fn asking(config: Config, database: &str) -> Config {
    let password = yaml_string(PASSWORD);
    run(
        database,
        &format!("create role reader_{database} superuser login password {password}"),
    );
    config
        .unset("auth.users")
        .set("auth.query", "on")
        .set("auth.query_user", format!("reader_{database}"))
        .set("auth.query_password", password)
}

fn passthrough(config: Config) -> Config {
    config
        .set("backend.user", "passthrough")
        .unset("backend.password")
}

/// BR-038: ahead of everything else and never again, with a cold cache of secrets and with a warm one.
fn negotiation_is_told_once_however_long_the_login_takes(shards: usize) {
    let stand = Stand::open(shards, |config, database, _| asking(config, database));
    for round in ["cold", "warm", "warm"] {
        let login = Login::new("app", PASSWORD, &stand.database)
            .param("_pq_.unheard_of", "1")
            .minor(9);
        let session = Session::open(&stand.pgmux.endpoint(), &login);
        let tags: Vec<u8> = session.greeting.iter().map(|message| message.tag).collect();
        assert_eq!(tags[..2], *b"vR", "{round}: {tags:?}");
        let told = tags.iter().filter(|tag| **tag == b'v').count();
        assert_eq!(told, 1, "{round}: {tags:?}");
    }
    stand.pgmux.stop();
}

/// BR-043: by libpq, which prepares passwords as PostgreSQL does; given to pgmux in its file, by the environment, in a file
/// of its own, and by PostgreSQL; for clients, and for servers that ask for SCRAM.
fn passwords_of_any_signs_log_in_everywhere(shards: usize) {
    let composed = "caf\u{e9} \u{fb01}n";
    let decomposed = "cafe\u{301} \u{fb01}n";
    let long = "x!".repeat(100);
    // As the role was made with it, and as the client types it.
    let passwords = [
        ("a.,-!*b", "a.,-!*b"),
        ("x y", "x y"),
        ("k'1=2", "k'1=2"),
        ("100%", "100%"),
        ("\"$HOME\" #{}: \\", "\"$HOME\" #{}: \\"),
        (composed, decomposed),
        (decomposed, composed),
        // No SASLprep makes anything of this one: its bytes count.
        ("soft\u{7}bell", "soft\u{7}bell"),
        (&long, &long),
    ];
    let mut stands = Vec::new();
    for way in ["file", "elsewhere", "query"] {
        let stand = Stand::open(shards, |mut config, database, dir| {
            let mut users = Vec::new();
            for (number, (made, typed)) in passwords.iter().enumerate() {
                let role = format!("odd{number}_{database}");
                run(
                    database,
                    &format!(
                        "set standard_conforming_strings = on; create role {role} login password '{}'",
                        made.replace('\'', "''")
                    ),
                );
                // A database for each, whose servers are logged in as this role.
                let name = format!("{database}_{number}");
                let port = Cluster::shared().port();
                config = config.database(&name, port);
                let backend = format!("databases.{name}.backend");
                config = config.set(&format!("{backend}.database"), database);
                let (key, value) = match (way, number % 2) {
                    ("elsewhere", 0) => {
                        let name = format!("ODD{number}");
                        config = config.env(&name, typed);
                        ("password", format!("'${{{name}}}'"))
                    }
                    ("elsewhere", _) => {
                        let file = dir.path().join(&role);
                        fs::write(&file, format!("{typed}\n")).expect("a file");
                        ("password_file", file.display().to_string())
                    }
                    _ => ("password", double_quoted(typed)),
                };
                if way == "query" {
                    continue;
                }
                config = config
                    .set(&format!("{backend}.user"), &role)
                    .set(&format!("{backend}.{key}"), &value);
                users.push(format!("{{username: {role}, {key}: {value}}}"));
            }
            match way {
                "query" => passthrough(asking(config, database)),
                _ => config.set("auth.users", format!("[{}]", users.join(", "))),
            }
        });
        stands.push((way, stand));
    }
    for (way, stand) in stands {
        for (number, (_, typed)) in passwords.iter().enumerate() {
            let role = format!("odd{number}_{}", stand.database);
            let name = format!("{}_{number}", stand.database);
            let wrong = (number == 0).then_some(("another", false));
            for (password, fits) in [(*typed, true)].into_iter().chain(wrong) {
                let output = Command::new("psql")
                    .args([
                        "-X",
                        "-A",
                        "-t",
                        "-c",
                        "select current_user",
                        "-h",
                        "127.0.0.1",
                    ])
                    .args(["-p", &stand.pgmux.port().to_string(), "-U", &role, &name])
                    .env("PGPASSWORD", password)
                    // Otherwise it tries each wrong one twice, and the brakes are another test's.
                    .env("PGSSLMODE", "disable")
                    .env("HOME", "/nonexistent")
                    .output()
                    .expect("psql");
                let words = String::from_utf8_lossy(&output.stderr);
                assert_eq!(
                    output.status.success(),
                    fits,
                    "{way}, {password:?}: {words}"
                );
                if fits {
                    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), role);
                }
            }
        }
        stand.pgmux.stop();
    }
}

/// YAML in which any text can be written.
fn double_quoted(text: &str) -> String {
    let signs = text.chars().map(|sign| match sign {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        sign if sign.is_control() => format!("\\x{:02x}", sign as u32),
        sign => sign.to_string(),
    });
    format!("\"{}\"", signs.collect::<String>())
}

/// BR-045: what a client mistypes is kept nowhere, and PostgreSQL is not asked for it again and again.
fn a_role_that_changes_its_password_is_asked_for_the_new_one(shards: usize) {
    let stand = Stand::open(shards, |config, database, _| {
        run(
            database,
            &format!("create role rotating_{database} login password 'first'"),
        );
        passthrough(asking(config, database))
            .set("auth.query_cache", "1s")
            .set("pool.idle_timeout", "1s")
    });
    let role = format!("rotating_{}", stand.database);
    let attempts = || {
        let log = Cluster::shared().log();
        let of_role = |line: &&str| line.contains(&role);
        let failed = |line: &&str| line.contains("password authentication failed");
        let lines: Vec<&str> = log.lines().filter(of_role).collect();
        (
            lines.iter().filter(|line| failed(line)).count(),
            lines
                .iter()
                .filter(|line| line.contains("connection authorized"))
                .count(),
        )
    };
    stand.refused(&role, "mistyped", "28P01");
    let mut client = stand.login(&role, "first").expect("the right one, at once");
    assert_eq!(client.value("select current_user"), role);
    // On every shard, of which only one will see the new password.
    let early = |_| stand.login(&role, "first").expect("the right one");
    let mut early: Vec<Session> = (0..2 * shards).map(early).collect();
    run(
        &stand.database,
        &format!("alter role {role} password 'second'"),
    );
    let renewed = eventually(PATIENCE, || stand.login(&role, "second").ok());
    let mut renewed = renewed.expect("the new one, once the answer is forgotten");
    assert_eq!(renewed.value("select current_user"), role);
    stand.refused(&role, "first", "28P01");
    // Who is there stays, on servers that know the new keys.
    let mut direct = Direct::open(Cluster::shared(), &stand.database);
    let servers = format!("select count(*) from pg_stat_activity where usename = '{role}'");
    let closed = || (direct.number(&servers) == 0).then_some(());
    assert!(eventually(PATIENCE, closed).is_some(), "idle servers stay");
    for client in &mut early {
        assert_eq!(client.value("select current_user"), role);
    }
    drop(early);
    for client in [&mut client, &mut renewed] {
        client.query("begin");
        assert_eq!(client.value("select current_user"), role);
    }
    for client in [&mut client, &mut renewed] {
        client.query("commit");
    }
    assert_eq!(attempts().0, 0, "PostgreSQL was shown a wrong password");
    // A while in which nobody wants anything.
    let before = attempts();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(attempts(), before, "logins that nobody has asked for");
    drop((client, renewed));
    stand.pgmux.stop();
}

/// BR-050: nothing is there yet, and all come at once.
fn fifty_first_clients_of_a_cold_pool_get_in(shards: usize) {
    let stand = Stand::open(shards, |config, _, _| config);
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let mut client = stand.login("app", PASSWORD).expect("a login");
                canary::ask(&mut client);
            });
        }
    });
    stand.pgmux.stop();
}

/// S-6: neither what the client asks for, nor what its database or the asking role has, decides what the names in the
/// query mean. All of it says that everybody's password is `evil`.
fn nobody_steers_the_query_for_secrets(shards: usize) {
    for query in [
        "on",
        "'select usename, passwd from pg_shadow where usename = $1'",
    ] {
        let stand = Stand::open(shards, |config, database, _| {
            let verifier = scram_verifier("evil", b"0123456789abcdef", 4096);
            let config = asking(config, database).set("auth.query", query);
            run(
                database,
                &format!(
                    "create schema evil; grant usage on schema evil to public;
                     create view evil.pg_shadow as select rolname as usename, '{verifier}'::text as passwd, null::timestamptz as valuntil from pg_roles;
                     create function evil.yes(name, text) returns bool language sql as 'select true';
                     create function evil.yes(name, name) returns bool language sql as 'select true';
                     create operator evil.= (leftarg = name, rightarg = text, function = evil.yes);
                     create operator evil.= (leftarg = name, rightarg = name, function = evil.yes);
                     grant select on evil.pg_shadow to public;
                     alter role reader_{database} set search_path = evil, pg_catalog;
                     alter database {database} set search_path = evil, pg_catalog"
                ),
            );
            config
        });
        let steered = |password: &str| {
            let login = Login::new("app", password, &stand.database)
                .param("options", "-csearch_path=evil,pg_catalog")
                .param("search_path", "evil, pg_catalog");
            Session::try_open(&stand.pgmux.endpoint(), &login)
        };
        let refusal = steered("evil").map(drop).expect_err("an intruder");
        assert!(refusal.contains("28P01"), "{query}: {refusal}");
        stand.refused("nobody", "evil", "28P01");
        let mut client = steered(PASSWORD).expect("the real password");
        // It is the client's own for its own queries.
        assert!(client.value("show search_path").contains("evil"), "{query}");
        stand.pgmux.stop();
    }
}

/// though answers are kept for an hour.
fn an_answer_holds_no_longer_than_the_password(shards: usize) {
    let stand = Stand::open(shards, |config, database, _| {
        asking(config, database).set("auth.query_cache", "1h")
    });
    let role = format!("ending_{}", stand.database);
    run(
        &stand.database,
        &format!(
            "do $$ begin execute format('create role {role} login password %L valid until %L', 'secret', now() + interval '8 s'); end $$"
        ),
    );
    canary::ask(&mut stand.login(&role, "secret").expect("in time"));
    let refusal = eventually(PATIENCE, || stand.login(&role, "secret").map(drop).err());
    let refusal = refusal.expect("it is valid no more");
    assert!(refusal.contains("28P01"), "{refusal}");
    stand.pgmux.stop();
}

/// the same user, with the right password, by another address, without TLS, to another database.
fn a_login_that_was_allowed_allows_no_other(shards: usize) {
    let stand = Stand::open(shards, |config, database, dir| {
        let file = dir.path().join("hba");
        let rules = format!("hostssl {database} app 127.0.0.1/32 scram-sha-256\n");
        fs::write(&file, rules).expect("a file of rules");
        asking(config, database)
            .database("elsewhere", Cluster::shared().port())
            .set("auth.hba_file", file.display())
    });
    let address = SocketAddr::from(([127, 0, 0, 1], stand.pgmux.port()));
    let attempt = |source: u8, secure: bool, database: &str| {
        let conn = Conn::open_from(Ipv4Addr::new(127, 0, 0, source), address);
        let conn = conn.expect("a connection");
        let conn = match secure {
            true => conn.secure(&Tls::default()).expect("TLS"),
            false => conn,
        };
        Session::log_in(conn, &Login::new("app", PASSWORD, database))
    };
    let database = stand.database.as_str();
    for _ in 0..2 * shards {
        canary::ask(&mut attempt(1, true, database).expect("the login that is allowed"));
        for (source, secure, database) in [
            (2, true, database),
            (1, false, database),
            (1, true, "elsewhere"),
        ] {
            let refusal = attempt(source, secure, database).map(drop);
            let refusal = refusal.expect_err("no rule allows this");
            assert!(
                refusal.contains("28000") && refusal.contains("no pg_hba.conf entry"),
                "{source}, {secure}, {database}: {refusal}"
            );
        }
    }
    stand.pgmux.stop();
}

/// BR-042, BR-046, A-5: what is offered, and who says what does not fit it.
fn logins_are_bound_where_that_can_hold_and_nowhere_else(shards: usize) {
    let port = free_port();
    let stand = Stand::open(shards, |config, _, dir| {
        let listen = format!(
            "['127.0.0.1:{port}', 'unix:{}']",
            dir.path().join("s").display()
        );
        config.set("proxy.listen", listen)
    });
    let startup = Login::new("app", PASSWORD, &stand.database).startup();
    let tcp = || Conn::open(&Endpoint::local(port)).expect("a connection");
    let tls = || tcp().secure(&Tls::default()).expect("TLS");
    let local = || {
        let socket = Endpoint::Unix(stand.dir.path().join("s"));
        Conn::open(&socket).expect("a connection")
    };
    let offered = |mut conn: Conn| {
        conn.send(&startup).expect("a startup packet");
        let body = conn.recv().expect("a request").body;
        (conn, String::from_utf8_lossy(&body[4..]).into_owned())
    };
    let both = "SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0";
    assert_eq!(offered(tls()).1, both);
    for conn in [tcp(), local()] {
        assert_eq!(offered(conn).1, "SCRAM-SHA-256\0\0");
    }
    let (plain, plus) = ("SCRAM-SHA-256", "SCRAM-SHA-256-PLUS");
    for (what, mechanism, header, code) in [
        (
            "a binding that was not offered, it says",
            plain,
            "y,,",
            "28000",
        ),
        ("a binding by another name", plus, "p=tls-unique,,", "08P01"),
        ("no binding where it chose one", plus, "n,,", "08P01"),
        (
            "a binding where it chose none",
            plain,
            "p=tls-server-end-point,,",
            "08P01",
        ),
    ] {
        let (mut conn, _) = offered(tls());
        let first = format!("{header}n=,r=abcdefgh");
        conn.send(&frontend::sasl_initial(mechanism, first.as_bytes()))
            .expect("an answer");
        let error = conn.recv().expect("an error");
        assert_eq!(
            (error.tag, error.sqlstate().as_str()),
            (b'E', code),
            "{what}"
        );
    }
    // The right name and another certificate's hash.
    let (mut conn, _) = offered(tls());
    let first = b"p=tls-server-end-point,,n=,r=abcdefgh";
    conn.send(&frontend::sasl_initial(plus, first))
        .expect("an answer");
    let challenge = conn.recv().expect("a challenge").body;
    let challenge = String::from_utf8_lossy(&challenge[4..]).into_owned();
    let nonce = challenge.split(',').next().expect("a nonce");
    let header = "cD10bHMtc2VydmVyLWVuZC1wb2ludCwsAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let last = format!("c={header},{nonce},p={}=", "A".repeat(43));
    conn.send(&frontend::sasl_response(last.as_bytes()))
        .expect("an answer");
    let error = conn.recv().expect("an error");
    assert_eq!((error.tag, error.sqlstate().as_str()), (b'E', "28000"));
    let login = Login::new("app", PASSWORD, &stand.database);
    canary::check(&Endpoint::local(port), &login);
    stand.pgmux.stop();

    // Where TLS is demanded nobody is asked for anything before.
    let stand = Stand::open(shards, |config, _, _| {
        config.set("tls.client_sslmode", "require")
    });
    let mut conn = Conn::open(&stand.pgmux.endpoint()).expect("a connection");
    conn.send(&Login::new("app", PASSWORD, &stand.database).startup())
        .expect("a startup packet");
    let error = conn.recv().expect("an error");
    assert_eq!((error.tag, error.sqlstate().as_str()), (b'E', "28000"));
    assert_eq!(conn.recv_to_end().expect("the end"), b"");
    stand.pgmux.stop();
}

/// logins each of which costs hundreds of thousands of rounds of hashing, beside texts of megabytes.
fn hashing_holds_nobody_up(shards: usize) {
    const ROUNDS: u32 = 300_000;
    let stand = Stand::open(shards, |config, _, dir| {
        let file = dir.path().join("hba");
        let rules = "hostssl all slow all password\nhost all all all scram-sha-256\n";
        fs::write(&file, rules).expect("a file of rules");
        let verifier = scram_verifier("right", b"0123456789abcdef", ROUNDS);
        let users = format!(
            "[{{username: app, password: {}}}, {{username: slow, password: '{verifier}'}}]",
            yaml_string(PASSWORD)
        );
        config
            .set("auth.hba_file", file.display())
            .set("auth.users", users)
    });
    let slow_login = |password: &str| {
        let begun = Instant::now();
        let conn = Conn::open(&stand.pgmux.endpoint()).expect("a connection");
        let conn = conn.secure(&Tls::default()).expect("TLS");
        let login = Login::new("slow", password, &stand.database);
        let outcome = Session::log_in(conn, &login).map(drop);
        assert_eq!(outcome.is_ok(), password == "right", "{outcome:?}");
        begun.elapsed()
    };
    let text = format!("select length('{}')", "x".repeat(8_000_000));
    let mut neighbour = stand.login("app", PASSWORD).expect("a login");
    canary::ask(&mut neighbour);
    let alone = slow_login("right");
    std::thread::scope(|scope| {
        let mut others = Vec::new();
        for password in ["right", "wrong", "wrong"] {
            let slow_login = &slow_login;
            others.push(scope.spawn(move || {
                slow_login(password);
            }));
        }
        others.push(scope.spawn(|| {
            let mut client = stand.login("app", PASSWORD).expect("a login");
            assert_eq!(client.value(&text), "8000000");
        }));
        let mut slowest = Duration::ZERO;
        while !others.iter().all(|other| other.is_finished()) {
            let asked = Instant::now();
            canary::ask(&mut neighbour);
            slowest = slowest.max(asked.elapsed());
        }
        // Hashed on the neighbour's shard, one login would hold it up for all that it takes.
        let bound = Duration::from_secs(1).max(alone / 2);
        assert!(
            slowest < bound,
            "a query took {slowest:?}, a login alone {alone:?}"
        );
    });
    canary::ask(&mut neighbour);
    stand.pgmux.stop();
}
