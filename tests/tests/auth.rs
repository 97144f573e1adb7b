//! Who is let in by which proof, and as whom: rules, lists, PostgreSQL's own secrets, and clients' own roles at the
//! servers.

use std::fs;
use std::time::{Duration, Instant};

use tests::cluster::{Cluster, PASSWORD};
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux, yaml_string};
use tests::process::{PATIENCE, TempDir, eventually};
use tests::tls::{Authority, Tls};
use tests::wire::{Conn, Endpoint, Login, Session, md5_verifier, scram_verifier};
use tests::{canary, on_shards};

on_shards!(
    first_rule_that_fits_decides_and_none_is_a_refusal,
    rules_tell_tls_from_clear_and_compare_certificates,
    passwords_in_clear_are_taken_by_tls_or_a_unix_socket_only,
    userlist_has_secrets_of_each_kind,
    users_that_are_listed_nowhere_are_asked_for,
    answers_hold_as_long_as_the_cache_says,
    hundred_logins_of_one_user_ask_once,
    query_that_fails_is_a_refusal_without_its_words,
    own_roles_run_with_their_own_rights_on_their_own_servers,
    own_roles_log_in_by_what_their_login_proved,
    pools_of_roles_are_counted_and_go_when_unused,
    roles_together_keep_to_the_total,
    without_authentication_nobody_is_somebody_else,
    failed_logins_are_answered_later_and_hold_no_server,
);

/// pgmux in front of a fresh database, with files of its own and a look past it.
struct Stand {
    pgmux: Pgmux,
    direct: Direct,
    database: String,
    dir: TempDir,
}

impl Stand {
    fn open(shards: usize, configure: impl FnOnce(Config, &Stage) -> Config) -> Self {
        let cluster = Cluster::shared();
        let stage = Stage {
            database: cluster.fresh_database(),
            dir: TempDir::new("auth").expect("a directory"),
        };
        let config = Config::new(cluster, &stage.database).shards(shards);
        let config = configure(config, &stage);
        let Stage { database, dir } = stage;
        Self {
            pgmux: Pgmux::start(&config),
            direct: Direct::open(cluster, &database),
            database,
            dir,
        }
    }

    fn login(&self, user: &str, password: &str) -> Result<Session, String> {
        self.door(user, password)()
    }

    /// A login that any thread may do.
    fn door(
        &self,
        user: &str,
        password: &str,
    ) -> impl Fn() -> Result<Session, String> + Send + Sync + use<> {
        let endpoint = self.pgmux.endpoint();
        let login = Login::new(user, password, &self.database);
        move || Session::try_open(&endpoint, &login).map_err(plain)
    }

    fn client(&self, user: &str) -> Session {
        let login = self.login(user, PASSWORD);
        login.unwrap_or_else(|refusal| panic!("{user}: {refusal}"))
    }

    fn refused(&self, user: &str, password: &str) -> String {
        match self.login(user, password) {
            Ok(_) => panic!("{user} is let in"),
            Err(refusal) => refusal,
        }
    }
}

/// What a configuration can be written with.
struct Stage {
    database: String,
    dir: TempDir,
}

impl Stage {
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// A role of this name that no other test has.
    fn role(&self, name: &str) -> String {
        format!("{name}_{}", self.database)
    }

    fn run(&self, sql: &str) {
        Direct::open(Cluster::shared(), &self.database).run(sql);
    }

    /// A role that may read secrets, and the configuration to ask as it. It asks elsewhere, so that the servers of the
    /// database are those of the pools.
    fn asking(&self, config: Config) -> Config {
        let role = self.role("reader");
        self.run(&format!(
            "create role {role} superuser login password {}",
            yaml_string(PASSWORD)
        ));
        config
            .unset("auth.users")
            .set("auth.query", "on")
            .set("auth.query_user", role)
            .set("auth.query_password", yaml_string(PASSWORD))
            .set("auth.query_database", "postgres")
    }

    fn login_role(&self, name: &str, options: &str) -> String {
        let role = self.role(name);
        let password = yaml_string(PASSWORD);
        self.run(&format!(
            "create role {role} login password {password} {options}"
        ));
        role
    }
}

fn plain(refusal: String) -> String {
    refusal.replace("\\\"", "\"")
}

fn contains(refusal: &str, words: &[&str]) {
    for word in words {
        assert!(refusal.contains(word), "{word:?} expected in: {refusal}");
    }
}

const WRONG: &[&str] = &["28P01", "password authentication failed for user"];

fn first_rule_that_fits_decides_and_none_is_a_refusal(shards: usize) {
    let stand = Stand::open(shards, |config, stage| {
        let rules = format!(
            "# the order counts\n\
             host all other all reject\n\
             host {db} app_trust 127.0.0.0 255.0.0.0 trust\n\
             host {db} \"/^app_m\" samenet md5\n\
             host {db} @names 127.0.0.1/32 scram-sha-256\n\
             host {db} app all trust\n",
            db = stage.database
        );
        stage.file("names", "app, nobody\n");
        config
            .users(&["app", "app_md5", "app_trust", "other", "app_password"])
            .set("auth.hba_file", stage.file("hba", &rules))
            .set("databases.elsewhere.writer.port", Cluster::shared().port())
            .set("databases.elsewhere.writer.host", "127.0.0.1")
    });
    let db = &stand.database;
    for user in ["app", "app_md5", "app_trust"] {
        canary::ask(&mut stand.client(user));
    }
    canary::ask(&mut stand.login("app_trust", "whatever").expect("trust"));
    for user in ["app", "app_md5", "nobody"] {
        contains(&stand.refused(user, "wrong"), WRONG);
    }
    contains(
        &stand.refused("other", PASSWORD),
        &[
            "FATAL",
            "28000",
            &format!(
                "pg_hba.conf rejects connection for host \"127.0.0.1\", user \"other\", database \"{db}\", no encryption"
            ),
        ],
    );
    contains(
        &stand.refused("app_password", PASSWORD),
        &[
            "FATAL",
            "28000",
            &format!(
                "no pg_hba.conf entry for host \"127.0.0.1\", user \"app_password\", database \"{db}\", no encryption"
            ),
        ],
    );
    let elsewhere = Login::new("app", PASSWORD, "elsewhere");
    let refusal = Session::try_open(&stand.pgmux.endpoint(), &elsewhere).expect_err("no rule");
    contains(
        &plain(refusal),
        &["28000", "database \"elsewhere\", no encryption"],
    );
    stand.pgmux.stop();
}

fn rules_tell_tls_from_clear_and_compare_certificates(shards: usize) {
    let authority = Authority::new("a CA of tests");
    let pair = authority.sign("localhost", &["localhost"]);
    let stand = Stand::open(shards, |config, stage| {
        let rules = "hostnossl all app all reject\n\
                     hostssl all app all cert map=m\n\
                     hostssl all other all cert clientname=DN map=m\n\
                     hostssl all app_trust all scram-sha-256 clientcert=verify-ca\n\
                     hostssl all app_md5 all scram-sha-256\n";
        let maps = "m /^(.*)-machine$ \\1\nm \"/(^|,)CN=another(,|$)\" other\n";
        config
            .users(&["app", "other", "app_trust", "app_md5"])
            .set("tls.enabled", true)
            .set("tls.cert_file", pair.cert.display())
            .set("tls.key_file", pair.key.display())
            .set("tls.ca_file", authority.file().display())
            .set("auth.hba_file", stage.file("hba", rules))
            .set("auth.ident_file", stage.file("ident", maps))
    });
    let shown = |common_name: Option<&str>, user: &str, password: &str| {
        let pair = common_name.map(|name| authority.sign(name, &[]));
        let conn = Conn::open(&stand.pgmux.endpoint()).expect("a connection");
        let conn = conn
            .secure(&Tls::new(&[], pair.as_ref(), true))
            .expect("TLS");
        Session::log_in(conn, &Login::new(user, password, &stand.database)).map_err(plain)
    };
    contains(&stand.refused("app", PASSWORD), &["28000", "rejects"]);
    canary::ask(&mut shown(Some("app-machine"), "app", "").expect("its certificate"));
    canary::ask(&mut shown(Some("another"), "other", "").expect("its whole name"));
    canary::ask(&mut shown(None, "app_md5", PASSWORD).expect("no certificate wanted"));
    canary::ask(&mut shown(Some("x"), "app_trust", PASSWORD).expect("any certificate"));
    for (name, user, password, words) in [
        (
            Some("other-machine"),
            "app",
            PASSWORD,
            "certificate authentication failed for user \"app\"",
        ),
        (
            Some("app"),
            "other",
            PASSWORD,
            "certificate authentication failed for user \"other\"",
        ),
        (
            None,
            "app",
            PASSWORD,
            "connection requires a valid client certificate",
        ),
        (
            None,
            "app_trust",
            PASSWORD,
            "connection requires a valid client certificate",
        ),
        (
            Some("x"),
            "app_trust",
            "wrong",
            "password authentication failed",
        ),
    ] {
        let refusal = shown(name, user, password).expect_err("a refusal");
        contains(&refusal, &[words]);
    }
    let refusal = shown(None, "nobody", "").expect_err("no rule");
    contains(
        &refusal,
        &["28000", "no pg_hba.conf entry", "SSL encryption"],
    );
    stand.pgmux.stop();
}

fn passwords_in_clear_are_taken_by_tls_or_a_unix_socket_only(shards: usize) {
    let authority = Authority::new("a CA of tests");
    let pair = authority.sign("localhost", &["localhost"]);
    let port = tests::process::free_port();
    let stand = Stand::open(shards, |config, stage| {
        let socket = stage.dir.path().join("s");
        let list = format!(
            "\"app\" \"{}\"\n\"other\" \"{}\"\n",
            scram_verifier(PASSWORD, b"0123456789abcdef", 4096),
            md5_verifier("other", PASSWORD)
        );
        config
            .unset("auth.users")
            .set(
                "proxy.listen",
                format!("['127.0.0.1:{port}', 'unix:{}']", socket.display()),
            )
            .set("tls.enabled", true)
            .set("tls.cert_file", pair.cert.display())
            .set("tls.key_file", pair.key.display())
            .set(
                "auth.hba_file",
                stage.file("hba", "host all all all password\nlocal all all password\n"),
            )
            .set("auth.file", stage.file("users", &list))
    });
    let login = |conn: Conn, user: &str, password: &str| {
        Session::log_in(conn, &Login::new(user, password, &stand.database)).map_err(plain)
    };
    let tcp = || Conn::open(&Endpoint::local(port)).expect("a connection");
    let refusal = login(tcp(), "app", PASSWORD).expect_err("in clear");
    contains(&refusal, &["FATAL", "28000", "over TLS only"]);
    let socket = Endpoint::Unix(stand.dir.path().join("s"));
    for user in ["app", "other"] {
        for secure in [true, false] {
            let conn = || match secure {
                true => tcp().secure(&Tls::default()).expect("TLS"),
                false => Conn::open(&socket).expect("a connection"),
            };
            canary::ask(&mut login(conn(), user, PASSWORD).expect("a login"));
            for (user, wrong) in [(user, "wrong"), (user, ""), ("nobody", PASSWORD)] {
                contains(&login(conn(), user, wrong).expect_err("wrong"), WRONG);
            }
        }
    }
    stand.pgmux.stop();
}

fn userlist_has_secrets_of_each_kind(shards: usize) {
    let stand = Stand::open(shards, |config, stage| {
        let list = format!(
            "; PgBouncer's format\n\"app\" \"{PASSWORD}\"\n\"other\" \"{}\"\n\"app_md5\" \"{}\" ignored\n\"a \"\"b\"\"\" \"say \"\"so\"\"\"\n\"none\" \"\"\n",
            scram_verifier(PASSWORD, b"0123456789abcdef", 4096),
            md5_verifier("app_md5", PASSWORD)
        );
        config
            .unset("auth.users")
            .set("auth.method", "md5")
            .set("auth.file", stage.file("users", &list))
    });
    for user in ["app", "other", "app_md5"] {
        canary::ask(&mut stand.client(user));
        contains(&stand.refused(user, "wrong"), WRONG);
    }
    canary::ask(&mut stand.login("a \"b\"", "say \"so\"").expect("quotes"));
    for user in ["none", "nobody"] {
        contains(&stand.refused(user, ""), WRONG);
    }
    stand.pgmux.stop();
}

fn users_that_are_listed_nowhere_are_asked_for(shards: usize) {
    let mut names = [const { String::new() }; 5];
    let stand = Stand::open(shards, |config, stage| {
        names = [
            stage.login_role("fine", "valid until 'infinity'"),
            stage.login_role("still", "valid until '2999-01-01'"),
            stage.login_role("old", "valid until 'yesterday'"),
            stage.login_role("never", ""),
            stage.login_role("bare", ""),
        ];
        stage.run(&format!(
            "alter role {} nologin; alter role {} password null",
            stage.role("never"),
            stage.role("bare")
        ));
        // What the database makes of names must not reach the query.
        stage.run(&format!(
            "create schema evil; create function evil.isfinite(timestamptz) returns bool language sql as 'select null::bool'; \
             alter role {} set search_path = evil, pg_catalog",
            stage.role("fine")
        ));
        stage.asking(config)
    });
    let [fine, still, old, never, bare] = &names;
    for user in [fine, still] {
        canary::ask(&mut stand.client(user));
        contains(&stand.refused(user, "wrong"), WRONG);
    }
    let mut exchanges = Vec::new();
    for user in [old, never, bare, "nobody", "x'; drop table t; --"] {
        for password in [PASSWORD, "", "wrong"] {
            let refusal = stand.refused(user, password);
            contains(&refusal, WRONG);
            exchanges.push(refusal.replace(user, "USER").replace("\\'", "'"));
        }
    }
    exchanges.dedup();
    assert_eq!(exchanges.len(), 1, "told apart: {exchanges:#?}");
    assert!(!stand.pgmux.log().contains(PASSWORD));
    stand.pgmux.stop();
}

fn answers_hold_as_long_as_the_cache_says(shards: usize) {
    for (cache, forgotten) in [("1h", false), ("1s", true)] {
        let mut role = String::new();
        let mut stand = Stand::open(shards, |config, stage| {
            role = stage.login_role("changing", "");
            stage.asking(config).set("auth.query_cache", cache)
        });
        canary::ask(&mut stand.client(&role));
        stand
            .direct
            .run(&format!("alter role {role} password 'new'"));
        if forgotten {
            let login = eventually(PATIENCE, || stand.login(&role, "new").ok());
            canary::ask(&mut login.expect("the new password, in time"));
            contains(&stand.refused(&role, PASSWORD), WRONG);
        } else {
            contains(&stand.refused(&role, "new"), WRONG);
            canary::ask(&mut stand.client(&role));
        }
        stand.pgmux.stop();
    }
}

fn hundred_logins_of_one_user_ask_once(shards: usize) {
    let mut role = String::new();
    let mut stand = Stand::open(shards, |config, stage| {
        role = stage.login_role("crowd", "");
        stage.run(
            "create sequence asked; create function secret(who text) returns table (name text, passwd text) language sql security definer as \
             $$ select nextval('public.asked'), pg_sleep(0.5); select usename::text, passwd from pg_shadow where usename = who $$; \
             grant all on asked to public",
        );
        stage
            .asking(config)
            .unset("auth.query_database")
            .set("auth.query", "'select * from public.secret($1)'")
    });
    let door = stand.door(&role, PASSWORD);
    std::thread::scope(|scope| {
        let logins: Vec<_> = (0..100).map(|_| scope.spawn(|| door().map(drop))).collect();
        for login in logins {
            login.join().expect("a thread").expect("a login");
        }
    });
    assert_eq!(stand.direct.number("select last_value from asked"), 1);
    stand.pgmux.stop();
}

fn query_that_fails_is_a_refusal_without_its_words(shards: usize) {
    let mut stand = Stand::open(shards, |config, stage| {
        stage.run("create function secret(who text) returns table (name text, passwd text) language plpgsql as \
             $$ begin raise exception 'hunter2 is secret'; end $$");
        stage
            .asking(config)
            .unset("auth.query_database")
            .set("auth.query", "'select * from public.secret($1)'")
    });
    contains(&stand.refused("app", PASSWORD), &["FATAL", "08006"]);
    assert!(
        !stand.pgmux.log().contains("hunter2"),
        "{}",
        stand.pgmux.log()
    );
    stand.direct.run("create or replace function secret(who text) returns table (name text, passwd text) language sql as \
         $$ select usename::text, passwd from pg_shadow where usename = who $$");
    let mended = eventually(PATIENCE, || stand.login("app", PASSWORD).ok());
    canary::ask(&mut mended.expect("a login once the query is mended"));
    stand.pgmux.stop();
}

fn own_roles_run_with_their_own_rights_on_their_own_servers(shards: usize) {
    let mut roles = [const { String::new() }; 2];
    let mut stand = Stand::open(shards, |config, stage| {
        roles = [stage.login_role("ann", ""), stage.login_role("bob", "")];
        let [ann, _] = &roles;
        stage.run(&format!(
            "create table mine(x int); alter table mine owner to {ann}"
        ));
        passthrough(stage.asking(config))
    });
    let [ann, bob] = &roles;
    let mut seen: Vec<(String, String)> = Vec::new();
    for _ in 0..3 {
        let mut clients: Vec<_> = [ann, bob, ann, bob]
            .map(|role| (role, stand.client(role)))
            .into();
        for (role, client) in &mut clients {
            let who = client.value("select current_user || ' ' || session_user");
            assert_eq!(who, format!("{role} {role}"));
            assert_eq!(client.parameters["session_authorization"], **role);
            assert_eq!(client.parameters["is_superuser"], "off");
            if *role == ann {
                client.query("begin");
                assert_eq!(
                    client.trace("insert into mine values (1)")[0],
                    "CommandComplete \"INSERT 0 1\""
                );
                client.query("commit");
            } else {
                assert_eq!(client.sqlstate("select * from mine"), "42501");
                assert_eq!(client.sqlstate(&format!("set role {ann}")), "42501");
                assert_eq!(
                    client.sqlstate(&format!("set session authorization {ann}")),
                    "42501"
                );
            }
            seen.push((client.value("select pg_backend_pid()"), role.to_string()));
        }
    }
    for (pid, role) in &seen {
        let shared = seen.iter().any(|(other, who)| pid == other && who != role);
        assert!(!shared, "server {pid} had two roles");
    }
    let strangers = format!(
        "select count(*) from pg_stat_activity where datname = '{}' and usename not in ('{ann}', '{bob}', 'postgres')",
        stand.database
    );
    assert_eq!(stand.direct.number(&strangers), 0);
    contains(&stand.refused(ann, "wrong"), WRONG);
    stand.pgmux.stop();
}

fn passthrough(config: Config) -> Config {
    config
        .set("backend.user", "passthrough")
        .unset("backend.password")
}

fn own_roles_log_in_by_what_their_login_proved(shards: usize) {
    let mut stale = String::new();
    let stand = Stand::open(shards, |config, stage| {
        stale = stage.role("stale");
        stage.run(&format!(
            "create role {stale} login password 'at the server'"
        ));
        let verifier = scram_verifier(PASSWORD, b"0123456789abcdef", 4096);
        let password = yaml_string(PASSWORD);
        let users = format!(
            "[{{username: app, password: {password}}}, {{username: app_md5, password: '{}'}}, \
              {{username: app_trust}}, {{username: other}}, {{username: {stale}, password: '{verifier}'}}]",
            md5_verifier("app_md5", PASSWORD)
        );
        let rules = "host all app_trust,other all trust\nhost all all all md5\n";
        passthrough(config)
            .set("auth.users", users)
            .set("auth.hba_file", stage.file("hba", rules))
    });
    for user in ["app", "app_md5", "app_trust"] {
        let mut client = stand.client(user);
        assert_eq!(client.value("select current_user"), user);
    }
    // Without a proof there is nothing to log in with where the server asks.
    contains(
        &stand.refused("other", PASSWORD),
        &["FATAL", "28000", "the client was let in without one"],
    );
    contains(
        &stand.refused(&stale, PASSWORD),
        &["FATAL", "28000", "is not the one that pgmux knows"],
    );
    assert!(!stand.pgmux.log().contains(PASSWORD));
    stand.pgmux.stop();
}

fn pools_of_roles_are_counted_and_go_when_unused(shards: usize) {
    let mut stand = Stand::open(shards, |config, _| {
        passthrough(config)
            .users(&["app", "other"])
            .set("pool.max_role_pools", 1)
            .set("pool.idle_timeout", "1s")
    });
    let mut app = stand.client("app");
    canary::ask(&mut app);
    let refusal = stand.refused("other", PASSWORD);
    contains(&refusal, &["FATAL", "53300", "pool.max_role_pools"]);
    canary::ask(&mut stand.client("app"));
    drop(app);
    stand.direct.expect_servers(0);
    let other = eventually(PATIENCE, || stand.login("other", PASSWORD).ok());
    let mut other = other.expect("room once the role is unused");
    assert_eq!(other.value("select current_user"), "other");
    drop(other);
    stand.direct.expect_servers(0);
    stand.pgmux.stop();
}

fn roles_together_keep_to_the_total(shards: usize) {
    let mut stand = Stand::open(shards, |config, _| {
        passthrough(config)
            .users(&["app", "other", "app_trust"])
            .set("pool.max_connections", 2)
            .set("pool.max_total_connections", 3)
    });
    // Idle servers of one role make way for another.
    for _ in 0..3 {
        for role in ["app", "other", "app_trust"] {
            let mut pair = [stand.client(role), stand.client(role)];
            for client in &mut pair {
                client.query("begin");
                assert_eq!(client.value("select current_user"), role);
                assert!(stand.direct.servers().len() <= 3);
            }
        }
    }
    // Busy ones do when they are free.
    let mut busy = [
        stand.client("app"),
        stand.client("app"),
        stand.client("other"),
    ];
    for client in &mut busy {
        client.query("begin");
    }
    let door = stand.door("app_trust", PASSWORD);
    let waits = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| door().map(|mut client| client.value("select current_user")));
        let [first, ..] = &mut busy;
        first.query("commit");
        waiter.join().expect("the waiter")
    });
    assert_eq!(waits.as_deref(), Ok("app_trust"));
    assert!(stand.direct.servers().len() <= 3);
    drop(busy);
    stand.pgmux.stop();
}

fn without_authentication_nobody_is_somebody_else(shards: usize) {
    let stand = Stand::open(shards, |config, _| {
        config
            .unset("auth.users")
            .set("auth.enabled", false)
            .set("auth.method", "trust")
    });
    canary::ask(
        &mut stand
            .login("app", "")
            .expect("whom the servers are logged in as"),
    );
    for user in ["other", "postgres", "APP", ""] {
        let refusal = stand.refused(user, PASSWORD);
        contains(&refusal, &["FATAL", "28000"]);
    }
    stand.pgmux.stop();
}

fn failed_logins_are_answered_later_and_hold_no_server(shards: usize) {
    let mut stand = Stand::open(shards, |config, _| config.users(&["app", "other"]));
    let (right, door) = (stand.door("app", PASSWORD), stand.door("app", "wrong"));
    let time = |password: &str| {
        let started = Instant::now();
        let fine = if password == PASSWORD {
            right()
        } else {
            door()
        };
        (started.elapsed(), fine.is_ok())
    };
    for _ in 0..16 {
        assert!(!time("wrong").1);
    }
    let (late, fine) = time("wrong");
    assert!(
        !fine && late >= Duration::from_millis(1000),
        "after {late:?}"
    );
    assert_eq!(stand.direct.servers(), [0; 0]);
    // Many at once, and those who know their password are as quick as ever.
    std::thread::scope(|scope| {
        let failing: Vec<_> = (0..20).map(|_| scope.spawn(|| door().is_ok())).collect();
        let quickest = (0..5)
            .map(|_| time(PASSWORD))
            .map(|(time, fine)| (!fine, time))
            .min()
            .expect("five logins");
        assert!(
            !quickest.0 && quickest.1 < late / 2,
            "a good login took {quickest:?}"
        );
        assert!(
            failing
                .into_iter()
                .all(|login| !login.join().expect("a thread"))
        );
    });
    stand.pgmux.stop();
}

#[test]
fn clients_that_have_not_logged_in_are_capped_by_their_source() {
    let port = tests::process::free_port();
    let stand = Stand::open(1, |config, stage| {
        let socket = stage.dir.path().join("s");
        config.set("proxy.max_unauthenticated_per_source", 5).set(
            "proxy.listen",
            format!("['127.0.0.1:{port}', 'unix:{}']", socket.display()),
        )
    });
    let tcp = Endpoint::local(port);
    let login = Login::new("app", PASSWORD, &stand.database);
    // Who has stood still for a second makes room: on a slow machine it takes some tries to be quicker.
    let mut silent = Vec::new();
    let refusal = eventually(PATIENCE, || {
        silent.extend((0..5).map(|_| Conn::open(&tcp).expect("a connection")));
        Session::try_open(&tcp, &login).err()
    });
    contains(&refusal.expect("a refusal"), &["FATAL", "53300"]);
    let socket = Endpoint::Unix(stand.dir.path().join("s"));
    canary::ask(&mut Session::open(&socket, &login));
    drop(silent);
    let room = eventually(PATIENCE, || Session::try_open(&tcp, &login).ok());
    canary::ask(&mut room.expect("room again"));
    stand.pgmux.stop();
}
