//! SIGHUP: who may log in with what is read again, all of it or nothing.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use tests::cluster::{Cluster, PASSWORD};
use tests::direct::Direct;
use tests::pgmux::{Config, KEPT, Pgmux, RELOADED, yaml_string};
use tests::process::{PATIENCE, TempDir, eventually};
use tests::wire::{Login, Session, describe};
use tests::{canary, on_shards};

on_shards!(
    a_changed_list_lets_the_new_in_and_keeps_the_removed_out,
    changed_rules_decide_about_the_next_login,
    a_faulty_file_is_named_with_its_line_and_changes_nothing,
    passwords_in_files_are_read_again_for_clients_and_servers,
    what_postgresql_has_said_of_users_is_forgotten,
);

/// pgmux in front of a fresh database, with files beside it.
struct Stand {
    pgmux: Pgmux,
    direct: Direct,
    database: String,
    dir: TempDir,
}

impl Stand {
    fn open(
        shards: usize,
        files: &[(&str, &str)],
        configure: impl FnOnce(Config) -> Config,
    ) -> Self {
        let cluster = Cluster::shared();
        let database = cluster.fresh_database();
        let dir = TempDir::new("reload").expect("a directory");
        let mut config = Config::new(cluster, &database).shards(shards);
        for (name, text) in files {
            fs::write(dir.path().join(name), text).expect("a file");
            let key = match *name {
                LIST => "auth.file",
                RULES => "auth.hba_file",
                SERVERS => "backend.password_file",
                _ => "auth.users",
            };
            let path = dir.path().join(name).display().to_string();
            config = match *name {
                CLIENT => config.set(key, format!("[{{username: app, password_file: {path}}}]")),
                _ => config.set(key, path),
            };
        }
        Self {
            pgmux: Pgmux::start(&configure(config)),
            direct: Direct::open(cluster, &database),
            database,
            dir,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes files and has them read; what pgmux says then must hold these words.
    fn reload(&self, files: &[(&str, &str)], expected: &str) {
        for (name, text) in files {
            fs::write(self.file(name), text).expect("a file");
        }
        let told = || {
            let log = self.pgmux.log();
            log.lines().filter(|line| line.contains(expected)).count()
        };
        let before = told();
        self.pgmux.signal(Signal::HUP);
        let heard = eventually(PATIENCE, || (told() > before).then_some(()));
        assert!(heard.is_some(), "no {expected:?} in: {}", self.pgmux.log());
    }

    fn login(&self, user: &str, password: &str) -> Result<Session, String> {
        let login = Login::new(user, password, &self.database);
        Session::try_open(&self.pgmux.endpoint(), &login)
    }

    fn client(&self, user: &str, password: &str) -> Session {
        let login = self.login(user, password);
        login.unwrap_or_else(|refusal| panic!("{user}: {refusal}"))
    }

    fn refused(&self, user: &str, password: &str, words: &str) {
        match self.login(user, password) {
            Ok(_) => panic!("{user} is let in"),
            Err(refusal) => assert!(refusal.contains(words), "{refusal}"),
        }
    }
}

fn a_changed_list_lets_the_new_in_and_keeps_the_removed_out(shards: usize) {
    let stand = Stand::open(
        shards,
        &[(LIST, "\"ann\" \"one\"\n\"bob\" \"two\"\n")],
        |config| config.unset("auth.users"),
    );
    let mut bob = stand.client("bob", "two");
    let mut working = stand.client("bob", "two");
    let mut ann = stand.client("ann", "one");
    working.query("begin");
    stand.refused("eve", "three", WRONG);
    stand.reload(&[(LIST, "\"ann\" \"other\"\n\"eve\" \"three\"\n")], READ);
    canary::ask(&mut stand.client("eve", "three"));
    canary::ask(&mut stand.client("ann", "other"));
    canary::ask(&mut ann);
    stand.refused("ann", "one", WRONG);
    stand.refused("bob", "two", WRONG);
    // Who is not listed any more may finish its transaction.
    assert_eq!(working.value("select 1"), "1");
    working.query("commit");
    for gone in [&mut bob, &mut working] {
        let words = gone.farewell().expect("an end").expect("last words");
        let words = describe(&words);
        assert!(
            words.contains("FATAL 28000") && words.contains("bob"),
            "{words}"
        );
    }
    stand.pgmux.stop();
}

fn changed_rules_decide_about_the_next_login(shards: usize) {
    let stand = Stand::open(
        shards,
        &[(RULES, "host all all all scram-sha-256\n")],
        |config| config.users(&["app", "other"]),
    );
    let mut other = stand.client("other", PASSWORD);
    stand.reload(
        &[(
            RULES,
            "host all other all reject\nhost all all all scram-sha-256\n",
        )],
        READ,
    );
    stand.refused("other", PASSWORD, "28000");
    canary::ask(&mut stand.client("app", PASSWORD));
    canary::ask(&mut other);
    stand.reload(&[(RULES, "host all all all scram-sha-256\n")], READ);
    canary::ask(&mut stand.client("other", PASSWORD));
    stand.pgmux.stop();
}

fn a_faulty_file_is_named_with_its_line_and_changes_nothing(shards: usize) {
    let rules = "host all ann all scram-sha-256\n";
    let stand = Stand::open(
        shards,
        &[(LIST, "\"ann\" \"one\"\n"), (RULES, rules)],
        |config| config.unset("auth.users"),
    );
    // Each alone: the good one of the two must not be taken either.
    stand.reload(&[(LIST, "\"ann\" \"new\"\n\"eve\n")], "list.txt:2:");
    stand.reload(&[], KEPT);
    stand.reload(
        &[
            (LIST, "\"ann\" \"new\"\n"),
            (RULES, "\nhost all ann all magic\n"),
        ],
        "rules.conf:2:",
    );
    stand.reload(&[], KEPT);
    canary::ask(&mut stand.client("ann", "one"));
    stand.refused("ann", "new", WRONG);
    fs::remove_file(stand.file(LIST)).expect("the list");
    stand.reload(&[(RULES, rules)], KEPT);
    canary::ask(&mut stand.client("ann", "one"));
    assert!(!stand.pgmux.log().contains("\"new\""), "a secret is logged");
    stand.reload(&[(LIST, "\"ann\" \"new\"\n")], READ);
    canary::ask(&mut stand.client("ann", "new"));
    stand.pgmux.stop();
}

fn passwords_in_files_are_read_again_for_clients_and_servers(shards: usize) {
    let files = [(SERVERS, "wrong\n"), (CLIENT, "first\n")];
    let stand = Stand::open(shards, &files, |config| config.unset("backend.password"));
    stand.refused("app", "second", WRONG);
    // The key of a wrong password must not outlive it: the salt stays.
    stand.refused("app", "first", "no server for database");
    let servers = format!("{PASSWORD}\n");
    stand.reload(&[(SERVERS, &servers), (CLIENT, "second\n")], READ);
    stand.refused("app", "first", WRONG);
    let client = eventually(PATIENCE, || stand.login("app", "second").ok());
    canary::ask(&mut client.expect("a server with the right password"));
    stand.pgmux.stop();
}

fn what_postgresql_has_said_of_users_is_forgotten(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let (role, reader) = (format!("changing_{database}"), format!("asking_{database}"));
    let password = yaml_string(PASSWORD);
    cluster
        .superuser("postgres")
        .batch_execute(&format!(
            "create role {role} login password {password}; create role {reader} superuser login password {password}"
        ))
        .expect("roles");
    let mut stand = Stand::open(shards, &[], |config| {
        config
            .unset("auth.users")
            .set("auth.query", "on")
            .set("auth.query_user", &reader)
            .set("auth.query_password", &password)
            .set("auth.query_database", "postgres")
            .set("auth.query_cache", "1h")
    });
    canary::ask(&mut stand.client(&role, PASSWORD));
    stand
        .direct
        .run(&format!("alter role {role} password 'new'"));
    canary::ask(&mut stand.client(&role, PASSWORD));
    stand.reload(&[], READ);
    stand.refused(&role, PASSWORD, WRONG);
    canary::ask(&mut stand.client(&role, "new"));
    stand.pgmux.stop();
}

const LIST: &str = "list.txt";
const RULES: &str = "rules.conf";
/// With the password that servers are logged in with.
const SERVERS: &str = "servers.password";
/// With a client's.
const CLIENT: &str = "client.password";

const WRONG: &str = "28P01";
const READ: &str = RELOADED;
