//! Replication by clients' own roles, and by rules: who replicates is whom PostgreSQL lets, and whom the file lets.

use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use tests::cluster::{Cluster, Options, PASSWORD};
use tests::direct::Direct;
use tests::on_shards;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, TempDir, eventually};
use tests::version::Version;
use tests::wire::{Conn, Login, Session, frontend};

on_shards!(
    own_roles_replicate_with_their_own_rights,
    a_pool_of_a_role_stays_while_it_replicates,
    rules_tell_replication_from_databases,
);

/// PostgreSQL, not pgmux, says whether a role may: `REPLICATION` is an attribute that no membership gives.
fn own_roles_replicate_with_their_own_rights(shards: usize) {
    let (pgmux, database, _dir) = pgmux(shards, |config, _| passthrough(config));
    backup(&pgmux, "replicator");
    receive_changes(&pgmux, &database, "replicator");
    for kind in ["true", "database"] {
        // It may log in and ask, and that is all.
        let mut client = Session::open(&pgmux.endpoint(), &login(&database, "app"));
        assert_eq!(client.value("select current_user"), "app");
        let refusal = refused(&pgmux, &login(&database, "app").param("replication", kind));
        assert!(
            refusal.starts_with("ErrorResponse FATAL 42501"),
            "{kind}: {refusal}"
        );
        // Nobody gets in by the keys of one who was here before.
        let wrong = Login::new("replicator", "wrong", &database).param("replication", kind);
        let refusal = refused(&pgmux, &wrong);
        assert!(refusal.contains("28P01"), "{kind}: {refusal}");
    }
    let login = login(&database, "replicator").param("replication", "database");
    let mut client = Session::open(&pgmux.endpoint(), &login);
    assert_eq!(
        client.value("select current_user || ' ' || session_user"),
        "replicator replicator"
    );
    assert_eq!(client.sqlstate("select * from pg_authid"), "42501");

    // Its key is good for its own server.
    let (pid, key) = client.key.clone().expect("a key");
    client.send(&frontend::query("select pg_sleep(60)"));
    Direct::open(cluster(), &database).expect_sleeper();
    let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
    conn.send(&frontend::cancel_request(pid, &key))
        .expect("a request");
    conn.recv_to_end().expect("the end");
    let answer = client.replies();
    let error = answer.iter().find(|message| message.tag == b'E');
    assert_eq!(error.expect("an error").sqlstate(), "57014");
    drop(client);
    pgmux.stop();
}

/// Another role that wants its place does not get it, however long nothing but a walsender has been there.
fn a_pool_of_a_role_stays_while_it_replicates(shards: usize) {
    let (pgmux, database, _dir) = pgmux(shards, |config, _| {
        passthrough(config)
            .set("pool.max_role_pools", 1)
            .set("pool.idle_timeout", "1s")
    });
    let physical = login(&database, "replicator").param("replication", "true");
    let mut client = Session::open(&pgmux.endpoint(), &physical);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let refusal = refused(&pgmux, &login(&database, "app"));
    assert!(refusal.contains("53300"), "{refusal}");
    assert_eq!(client.rows("IDENTIFY_SYSTEM")[0].len(), 4);
    drop(client);
    let other = eventually(PATIENCE, || {
        Session::try_open(&pgmux.endpoint(), &login(&database, "app")).ok()
    });
    let mut other = other.expect("room once the role is unused");
    assert_eq!(other.value("select current_user"), "app");
    drop(other);
    pgmux.stop();
}

/// `replication` is no database: it stands for walsenders of the whole cluster, and `all` does not; one for a database is
/// let in by that database's rules.
fn rules_tell_replication_from_databases(shards: usize) {
    let (pgmux, database, _dir) = pgmux(shards, |config, dir| {
        let rules = "host replication replicator 127.0.0.1/32 scram-sha-256\n\
             host replication other all reject\n\
             host all app,other all scram-sha-256\n";
        let file = dir.path().join("hba");
        std::fs::write(&file, rules).expect("a file of rules");
        config
            .set("backend.user", "replicator")
            .users(&["app", "other", "replicator"])
            .set("auth.hba_file", file.display())
    });
    backup(&pgmux, "replicator");
    receive_changes(&pgmux, &database, "app");
    for (user, kind, words) in [
        (
            "app",
            "true",
            "no pg_hba.conf entry for replication connection from host \"127.0.0.1\", user \"app\", no encryption",
        ),
        (
            "other",
            "true",
            "pg_hba.conf rejects replication connection for host \"127.0.0.1\", user \"other\", no encryption",
        ),
        ("replicator", "database", "no pg_hba.conf entry for host"),
        ("replicator", "false", "no pg_hba.conf entry for host"),
    ] {
        let refusal = refused(&pgmux, &login(&database, user).param("replication", kind));
        let refusal = refusal.replace("\\\"", "\"");
        assert!(
            refusal.starts_with("ErrorResponse FATAL 28000") && refusal.contains(words),
            "{user}, {kind}: {refusal}"
        );
    }
    // A database of that name is another thing.
    let named = Login::new("replicator", PASSWORD, "replication");
    let refusal = refused(&pgmux, &named);
    assert!(refusal.contains("28000"), "{refusal}");
    pgmux.stop();
}

/// PostgreSQL's own program takes a backup that its other program finds whole.
fn backup(pgmux: &Pgmux, user: &str) {
    let dir = TempDir::new("backup").expect("a directory");
    let target = dir.path().join("data");
    succeeded(&run(pgmux, user, "pg_basebackup", |command| {
        command
            .args(["--checkpoint=fast", "--wal-method=stream", "-D"])
            .arg(&target)
    }));
    let verified = program("pg_verifybackup").arg(&target).output();
    succeeded(&verified.expect("pg_verifybackup"));
}

/// Another makes changes past pgmux, and all of them come.
fn receive_changes(pgmux: &Pgmux, database: &str, user: &str) {
    let slot = format!("slot_{database}");
    let recvlogical = |arguments: &[&str]| {
        run(pgmux, user, "pg_recvlogical", |command| {
            command
                .args(["--no-loop", "-S", &slot, "-d", database])
                .args(arguments)
        })
    };
    succeeded(&recvlogical(&["--create-slot", "-P", "test_decoding"]));
    let mut direct = Direct::open(cluster(), database);
    direct.run("create table fruit (name text); insert into fruit values ('pear'), ('fig')");
    let end = direct.text("select pg_current_wal_insert_lsn()::text");
    let received = recvlogical(&["--start", "--endpos", &end, "-f", "-"]);
    succeeded(&received);
    let text = String::from_utf8_lossy(&received.stdout);
    for change in ["name[text]:'pear'", "name[text]:'fig'"] {
        assert!(text.contains(change), "{text}");
    }
    succeeded(&recvlogical(&["--drop-slot"]));
}

fn login(database: &str, user: &str) -> Login {
    Login::new(user, PASSWORD, database)
}

fn refused(pgmux: &Pgmux, login: &Login) -> String {
    let opened = Session::try_open(&pgmux.endpoint(), login);
    opened.map(|_| ()).expect_err("a refusal")
}

fn passthrough(config: Config) -> Config {
    config
        .set("backend.user", "passthrough")
        .unset("backend.password")
        .users(&["app", "other", "replicator"])
}

/// A cluster that `replicator` may replicate, and nobody else.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let cluster = Cluster::start(&Options {
            // The programs are the distribution's, and take no server that is newer.
            version: Version::Distribution,
            settings: [
                "wal_level = logical",
                "max_wal_senders = 20",
                "max_replication_slots = 20",
                "wal_keep_size = 1GB",
            ]
            .map(String::from)
            .to_vec(),
            ..Options::default()
        });
        let password = PASSWORD.replace('\'', "''");
        Direct::open(&cluster, "postgres").run(&format!(
            "create role replicator login replication password '{password}'"
        ));
        cluster
    })
}

/// A pgmux that passes replication through, in front of a database of its own, and a directory for its files.
fn pgmux(
    shards: usize,
    configure: impl FnOnce(Config, &TempDir) -> Config,
) -> (Pgmux, String, TempDir) {
    let database = cluster().fresh_database();
    let dir = TempDir::new("replication").expect("a directory");
    let config = Config::new(cluster(), &database)
        .shards(shards)
        .set("proxy.allow_replication", true)
        // pg_basebackup names its slot by its process id, which is pgmux's.
        .set("engine.instance_id", INSTANCES.fetch_add(1, Relaxed));
    (Pgmux::start(&configure(config, &dir)), database, dir)
}

/// Each pgmux in front of the cluster has a number of its own.
static INSTANCES: AtomicU8 = AtomicU8::new(1);

/// Runs one of PostgreSQL's programs on pgmux.
fn run(
    pgmux: &Pgmux,
    user: &str,
    name: &str,
    configure: impl FnOnce(&mut Command) -> &mut Command,
) -> Output {
    let mut command = program(name);
    command
        .env("PGPASSWORD", PASSWORD)
        .args(["-h", "127.0.0.1", "-U", user, "-p"])
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
