//! Replication connections: PostgreSQL's own programs through pgmux, and what such a connection may not do.

use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tests::cluster::{Cluster, Options, PASSWORD};
use tests::direct::Direct;
use tests::hostile::{Duel, Lie};
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, TempDir, eventually, rss_kib};
use tests::version::Version;
use tests::wire::{Conn, Login, Session, WireError, describe, frontend};
use tests::{canary, on_shards};

on_shards!(
    a_base_backup_is_taken_through_pgmux,
    logical_changes_are_received_through_pgmux,
    wal_is_received_through_pgmux,
    sql_goes_over_a_connection_to_one_database_and_is_cancelled,
    such_connections_take_no_place_in_the_pool_and_are_limited,
    a_client_that_does_not_read_costs_no_memory,
    streaming_ends_when_pgmux_is_told_to_stop,
    a_command_may_end_when_pgmux_is_told_to_stop,
    either_end_ends_the_other,
    nobody_chooses_who_it_is,
    only_whole_messages_are_followed_by_words_of_pgmux,
);

fn a_base_backup_is_taken_through_pgmux(shards: usize) {
    let (pgmux, _) = pgmux(shards, |config| config);
    let dir = TempDir::new("backup").expect("a directory");
    let target = dir.path().join("data");
    // The WAL comes by a second connection at the same time.
    let output = run(&pgmux, "pg_basebackup", |command| {
        command
            .args(["--checkpoint=fast", "--wal-method=stream", "-D"])
            .arg(&target)
    });
    succeeded(&output);
    let verified = program("pg_verifybackup")
        .arg(&target)
        .output()
        .expect("pg_verifybackup");
    succeeded(&verified);
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn logical_changes_are_received_through_pgmux(shards: usize) {
    let (pgmux, database) = pgmux(shards, |config| config);
    let slot = format!("slot_{database}");
    let recvlogical = |arguments: &[&str]| {
        run(&pgmux, "pg_recvlogical", |command| {
            command
                .args(["--no-loop", "-S", &slot, "-d", &database])
                .args(arguments)
        })
    };
    succeeded(&recvlogical(&["--create-slot", "-P", "test_decoding"]));
    let mut client = pgmux.client();
    client.query("create table fruit (name text)");
    client.query("insert into fruit values ('pear'), ('fig')");
    let end = client.value("select pg_current_wal_insert_lsn()");
    let received = recvlogical(&["--start", "--endpos", &end, "-f", "-"]);
    succeeded(&received);
    let text = String::from_utf8_lossy(&received.stdout);
    for change in ["name[text]:'pear'", "name[text]:'fig'"] {
        assert!(text.contains(change), "{text}");
    }
    succeeded(&recvlogical(&["--drop-slot"]));
    let slots = client
        .value("select count(*) from pg_replication_slots where database = current_database()");
    assert_eq!(slots, "0");
    pgmux.stop();
}

fn wal_is_received_through_pgmux(shards: usize) {
    let (pgmux, _) = pgmux(shards, |config| config);
    let dir = TempDir::new("wal").expect("a directory");
    let mut client = pgmux.client();
    client.query("create table filler as select repeat('x', 1000) from generate_series(1, 1000)");
    // It begins with the segment that is current when it asks; others may have ended the one that `end` is in.
    let segments = eventually(PATIENCE, || {
        let end = client.value("select pg_current_wal_insert_lsn()");
        let output = run(&pgmux, "pg_receivewal", |command| {
            command
                .args(["--no-loop", "--endpos", &end, "-D"])
                .arg(dir.path())
        });
        succeeded(&output);
        let segments = std::fs::read_dir(dir.path()).expect("the directory");
        (segments.count() > 0).then_some(())
    });
    assert!(segments.is_some(), "no segment of WAL was written");
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn sql_goes_over_a_connection_to_one_database_and_is_cancelled(shards: usize) {
    let (pgmux, database) = pgmux(shards, |config| config);
    let login = pgmux
        .login()
        .param("replication", "database")
        .param("DateStyle", "German")
        .minor(2);
    let mut client = Session::open(&pgmux.endpoint(), &login);
    assert_eq!(client.parameters["DateStyle"], "German, DMY");
    assert_eq!(client.value("select current_database()"), database);
    assert_eq!(client.value("show datestyle"), "German, DMY");
    let system = client.rows("IDENTIFY_SYSTEM");
    assert_eq!(system[0].len(), 4, "{system:?}");

    client.send(&frontend::query("select pg_sleep(60)"));
    Direct::open(cluster(), &database).expect_sleeper();
    let (pid, key) = client.key.clone().expect("a key");
    assert_eq!(key.len(), 32);
    let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
    conn.send(&frontend::cancel_request(pid, &key))
        .expect("a request");
    conn.recv_to_end().expect("the end");
    let answer = client.replies();
    let error = answer
        .iter()
        .find(|message| message.tag == b'E')
        .expect("an error");
    assert_eq!(error.sqlstate(), "57014");
    assert_eq!(client.value("select 1"), "1");
    pgmux.stop();
}

fn such_connections_take_no_place_in_the_pool_and_are_limited(shards: usize) {
    let (pgmux, _) = pgmux(shards, |config| {
        config
            .servers(1)
            .set("proxy.max_replication_connections", 2)
    });
    let login = pgmux.login().param("replication", "true");
    let first = Session::open(&pgmux.endpoint(), &login);
    let second = Session::open(&pgmux.endpoint(), &login);
    canary::check(&pgmux.endpoint(), &pgmux.login());
    let refusal = Session::try_open(&pgmux.endpoint(), &login)
        .map(|_| ())
        .expect_err("a refusal");
    assert!(
        refusal.starts_with("ErrorResponse FATAL 53300"),
        "{refusal}"
    );
    drop(first);
    let next = eventually(PATIENCE, || {
        Session::try_open(&pgmux.endpoint(), &login).ok()
    });
    assert!(
        next.is_some(),
        "the place of one that left is not given back"
    );
    drop((second, next));
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn a_client_that_does_not_read_costs_no_memory(shards: usize) {
    let (pgmux, _) = pgmux(shards, |config| config);
    canary::check(&pgmux.endpoint(), &pgmux.login());
    let before = rss_kib(pgmux.pid());
    let mut client = Session::open(&pgmux.endpoint(), &login(&pgmux));
    let pids = walsenders(&pgmux);
    assert_eq!(pids.len(), 1, "{pids:?}");
    client.send(&frontend::query("BASE_BACKUP (CHECKPOINT 'fast')"));
    // A cluster is some 20 MB; the socket's buffers and pgmux's together take a few.
    let blocked = eventually(PATIENCE, || {
        let sql = format!(
            "select coalesce(wait_event, '') from pg_stat_activity where pid = {}",
            pids[0]
        );
        let waits_for = Direct::open(cluster(), "postgres").text(&sql);
        ["ClientWrite", "WalSenderWriteData"]
            .contains(&waits_for.as_str())
            .then_some(())
    });
    assert!(blocked.is_some(), "the server is never held back");
    canary::check(&pgmux.endpoint(), &pgmux.login());
    let grown = rss_kib(pgmux.pid()).saturating_sub(before);
    assert!(grown < 6 * 1024, "{grown} KiB more");
    // What was held back is all there when it is read.
    let rest = client.replies();
    assert!(
        rest.iter().all(|message| message.tag != b'E'),
        "{:?}",
        rest.last().map(describe)
    );
    let bytes: usize = rest
        .iter()
        .filter(|message| message.tag == b'd')
        .map(|message| message.body.len())
        .sum();
    assert!(bytes > 15_000_000, "{bytes} bytes");
    pgmux.stop();
}

fn streaming_ends_when_pgmux_is_told_to_stop(shards: usize) {
    let (mut pgmux, _) = pgmux(shards, |config| config);
    let mut client = stream(&pgmux);
    let started = Instant::now();
    pgmux.signal(Signal::TERM);
    let words = client
        .farewell()
        .expect("an orderly end")
        .expect("last words");
    assert_eq!(words.sqlstate(), "57P01");
    let status = pgmux.wait();
    assert!(status.success(), "{status}");
    // Far less than proxy.shutdown_timeout, which is 10 s.
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "{:?}",
        started.elapsed()
    );
}

fn a_command_may_end_when_pgmux_is_told_to_stop(shards: usize) {
    let (mut pgmux, database) = pgmux(shards, |config| config);
    let login = pgmux.login().param("replication", "database");
    let mut client = Session::open(&pgmux.endpoint(), &login);
    client.send(&frontend::query("select pg_sleep(1), 'done'"));
    Direct::open(cluster(), &database).expect_sleeper();
    pgmux.signal(Signal::TERM);
    let answer: Vec<String> = client.replies().iter().map(describe).collect();
    assert!(
        answer.iter().any(|line| line.contains("done")),
        "{answer:?}"
    );
    let words = client
        .farewell()
        .expect("an orderly end")
        .expect("last words");
    assert_eq!(words.sqlstate(), "57P01");
    assert!(pgmux.wait().success());
}

fn either_end_ends_the_other(shards: usize) {
    let (pgmux, _) = pgmux(shards, |config| config);
    // The server is terminated: its client hears why.
    let mut client = stream(&pgmux);
    let [pid] = walsenders(&pgmux)[..] else {
        panic!("one walsender expected")
    };
    Direct::open(cluster(), "postgres").run(&format!("select pg_terminate_backend({pid})"));
    let words = client
        .farewell()
        .expect("an orderly end")
        .expect("last words");
    assert_eq!(words.sqlstate(), "57P01", "{}", describe(&words));
    gone(&pgmux, "a server that was terminated");
    // The client leaves: with a word, without one, and in the middle of a message.
    type End = fn(Session);
    let ends: [(&str, End); 3] = [
        ("a client that said goodbye", |mut client| {
            client.send(&frontend::terminate())
        }),
        ("a client that was cut off", |client| client.conn.reset()),
        ("a client that left amid a message", |mut client| {
            client.send(b"d\0\0\xff\xff")
        }),
    ];
    for (what, end) in ends {
        end(stream(&pgmux));
        gone(&pgmux, what);
        canary::check(&pgmux.endpoint(), &pgmux.login());
    }
    pgmux.stop();
}

fn nobody_chooses_who_it_is(shards: usize) {
    let (pgmux, _) = pgmux(shards, |config| config);
    for (name, value) in [
        ("options", "-c user=postgres"),
        ("options", "-c database=postgres"),
        ("options", "--replication=true"),
        ("options", "-c _pq_.x=1"),
        ("USER", "postgres"),
        ("Database", "postgres"),
    ] {
        let login = pgmux
            .login()
            .param("replication", "database")
            .param(name, value);
        let refusal = Session::try_open(&pgmux.endpoint(), &login)
            .map(|_| ())
            .expect_err(value);
        assert!(
            refusal.starts_with("ErrorResponse FATAL 42704"),
            "{name}={value}: {refusal}"
        );
    }
    let stranger = Login::new("app", "wrong", &pgmux.login().database).param("replication", "true");
    let refusal = Session::try_open(&pgmux.endpoint(), &stranger)
        .map(|_| ())
        .expect_err("a stranger");
    assert!(refusal.contains("28P01"), "{refusal}");
    for value in ["2", "", "databases"] {
        let login = pgmux.login().param("replication", value);
        let refusal = Session::try_open(&pgmux.endpoint(), &login)
            .map(|_| ())
            .expect_err(value);
        assert!(
            refusal.starts_with("ErrorResponse FATAL 22023"),
            "{value}: {refusal}"
        );
    }
    let nowhere = Login::new("app", PASSWORD, "replication").param("replication", "database");
    let refusal = Session::try_open(&pgmux.endpoint(), &nowhere)
        .map(|_| ())
        .expect_err("no such database");
    assert!(refusal.contains("3D000"), "{refusal}");
    let anywhere = Login::new("app", PASSWORD, "replication").param("replication", "on");
    Session::open(&pgmux.endpoint(), &anywhere);
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

/// A scripted server stops amid a message of the copy: nothing that pgmux says may stand there.
fn only_whole_messages_are_followed_by_words_of_pgmux(shards: usize) {
    let duel = Duel::configured(
        shards,
        |config| config.set("proxy.allow_replication", true),
        |peer, _| {
            peer.read_startup()?;
            peer.scram(Lie::None)?;
            peer.greet()?;
            peer.read_request()?;
            peer.say(b'W', &[0, 0, 0])?;
            peer.send(b"d\0\0\0\x64half")?;
            peer.drain()
        },
    );
    let login = duel.pgmux.login().param("replication", "true");
    let mut client = Session::open(&duel.pgmux.endpoint(), &login);
    client.send(&frontend::query("START_REPLICATION 0/0"));
    assert_eq!(client.conn.recv().expect("a reply").tag, b'W');
    duel.check();
    duel.pgmux.signal(Signal::TERM);
    assert!(
        matches!(client.conn.recv(), Err(WireError::Partial(_))),
        "something stood amid a message"
    );
}

/// A client that streams WAL from where it is now.
fn stream(pgmux: &Pgmux) -> Session {
    let mut client = Session::open(&pgmux.endpoint(), &login(pgmux));
    let system = client.rows("IDENTIFY_SYSTEM");
    let position = system[0][2].clone().expect("a position");
    client.send(&frontend::query(&format!(
        "START_REPLICATION PHYSICAL {position}"
    )));
    assert_eq!(client.conn.recv().expect("a reply").tag, b'W');
    client
}

/// Servers of the cluster's replication have a name, for other tests have some too.
fn login(pgmux: &Pgmux) -> Login {
    let login = pgmux.login().param("replication", "true");
    let name = login.database.clone();
    login.param("application_name", &name)
}

fn walsenders(pgmux: &Pgmux) -> Vec<i64> {
    let sql = format!(
        "select coalesce(string_agg(pid::text, ' '), '') from pg_stat_activity \
         where backend_type = 'walsender' and application_name = '{}'",
        pgmux.login().database
    );
    let pids = Direct::open(cluster(), "postgres").text(&sql);
    pids.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

fn gone(pgmux: &Pgmux, what: &str) {
    let gone = eventually(PATIENCE, || walsenders(pgmux).is_empty().then_some(()));
    assert!(
        gone.is_some(),
        "{what} left a walsender: {:?}",
        walsenders(pgmux)
    );
}

/// A cluster that may be replicated, by `app`.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let cluster = Cluster::start(&Options {
            // The programs are the distribution's, and take no server that is newer.
            version: Version::Distribution,
            settings: [
                "wal_level = logical",
                "max_wal_senders = 100",
                "max_replication_slots = 20",
                // Other tests make checkpoints.
                "wal_keep_size = 1GB",
            ]
            .map(String::from)
            .to_vec(),
            ..Options::default()
        });
        Direct::open(&cluster, "postgres").run("alter role app replication");
        cluster
    })
}

/// A pgmux that passes replication through, in front of a database of its own.
fn pgmux(shards: usize, configure: impl FnOnce(Config) -> Config) -> (Pgmux, String) {
    let database = cluster().fresh_database();
    let config = Config::new(cluster(), &database)
        .shards(shards)
        .set("proxy.allow_replication", true)
        // pg_basebackup names its slot by its process id, which is pgmux's.
        .set("engine.instance_id", INSTANCES.fetch_add(1, Relaxed));
    (Pgmux::start(&configure(config)), database)
}

/// Each pgmux in front of the cluster has a number of its own.
static INSTANCES: AtomicU8 = AtomicU8::new(1);

/// Runs one of PostgreSQL's programs on pgmux.
fn run(pgmux: &Pgmux, name: &str, configure: impl FnOnce(&mut Command) -> &mut Command) -> Output {
    let mut command = program(name);
    command
        .env("PGPASSWORD", PASSWORD)
        .args(["-h", "127.0.0.1", "-U", "app", "-p"])
        .arg(pgmux.port().to_string());
    configure(&mut command).output().expect(name)
}

fn program(name: &str) -> Command {
    Command::new(Version::Distribution.bin_dir().join(name))
}

fn succeeded(output: &Output) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {told}", output.status);
}
