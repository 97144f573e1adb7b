//! PAUSE, RESUME, RECONNECT and KILL of a database. cases.md, BR-113 and BR-121.

use std::path::PathBuf;
use std::time::Duration;

use tests::cluster::{Cluster, Options};
use tests::control::{begin, finish, is_pending, order};
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::process::TempDir;
use tests::wire::{Session, describe, frontend};
use tests::{canary, on_shards};

on_shards!(
    a_pause_is_complete_when_no_server_is_left,
    who_asks_while_paused_waits_longer_than_it_would_wait_for_a_server,
    a_resume_ends_the_pause_that_waits_and_leaves_nothing_paused,
    two_pauses_at_once_both_return,
    whoever_paused_may_go_and_another_resumes,
    only_the_named_database_is_paused,
    a_database_that_is_paused_lives_through_a_restart_of_postgresql,
    servers_are_replaced_when_they_are_given_back,
    clients_of_a_killed_database_are_ended_and_the_next_wait,
    a_reload_does_not_end_a_pause,
    orders_that_make_no_sense_are_told_what_would,
);

struct Stand {
    pgmux: Pgmux,
    direct: Direct,
    config: Config,
    database: String,
    socket: PathBuf,
    _dir: TempDir,
}

impl Stand {
    fn open(shards: usize, configure: impl FnOnce(Config) -> Config) -> Self {
        Self::of(Cluster::shared(), shards, configure)
    }

    fn of(cluster: &Cluster, shards: usize, configure: impl FnOnce(Config) -> Config) -> Self {
        let database = cluster.fresh_database();
        let dir = TempDir::new("pause").expect("a directory");
        let socket = dir.path().join("control");
        let config = Config::new(cluster, &database)
            .shards(shards)
            .set("control.socket", socket.display());
        let config = configure(config);
        Self {
            pgmux: Pgmux::start(&config),
            direct: Direct::open(cluster, &database),
            config,
            database,
            socket,
            _dir: dir,
        }
    }

    fn order(&self, words: &str) -> String {
        order(&self.socket, words)
    }

    fn pause(&self) -> String {
        self.order(&format!("pause {}", self.database))
    }

    fn resume(&self) {
        let answer = self.order(&format!("resume {}", self.database));
        assert!(answer.contains("resumed"), "{answer}");
    }
}

fn begun(stand: &Stand) -> Session {
    let mut client = stand.pgmux.client();
    client.query("begin");
    client
}

fn a_pause_is_complete_when_no_server_is_left(shards: usize) {
    let mut stand = Stand::open(shards, |config| config);
    let mut idle: Vec<_> = (0..3).map(|_| stand.pgmux.client()).collect();
    idle.iter_mut().for_each(canary::ask);
    let mut inside = begun(&stand);
    let mut pausing = begin(&stand.socket, &format!("pause {}", stand.database));
    // The idle servers go at once, the one in use when it comes back.
    stand.direct.expect_servers(1);
    assert_eq!(inside.value("select 1"), "1");
    std::thread::sleep(Duration::from_millis(200));
    assert!(is_pending(&pausing), "a transaction still runs");
    inside.query("commit");
    let answer = finish(&mut pausing);
    assert!(answer.contains("\"paused\""), "{answer}");
    assert_eq!(stand.direct.servers().len(), 0);
    // New clients come in where no server is needed for it, and wait.
    let mut late = stand.pgmux.client();
    late.send(&frontend::query("select 'late'"));
    inside.send(&frontend::query("select 'next'"));
    assert!(late.conn.is_quiet(Duration::from_millis(300)));
    assert!(inside.conn.is_quiet(Duration::from_millis(10)));
    assert_eq!(stand.direct.servers().len(), 0);
    stand.resume();
    late.replies();
    inside.replies();
    idle.iter_mut().for_each(canary::ask);
    stand.pgmux.stop();
}

fn who_asks_while_paused_waits_longer_than_it_would_wait_for_a_server(shards: usize) {
    let stand = Stand::open(shards, |config| config.set("pool.connection_timeout", "1s"));
    let mut client = stand.pgmux.client();
    canary::ask(&mut client);
    assert!(stand.pause().contains("\"paused\""));
    client.send(&frontend::query("select 'patient'"));
    assert!(client.conn.is_quiet(Duration::from_millis(2500)));
    stand.resume();
    let replies = client.replies();
    assert!(replies.iter().any(|reply| reply.tag == b'D'));
    stand.pgmux.stop();
}

fn a_resume_ends_the_pause_that_waits_and_leaves_nothing_paused(shards: usize) {
    let stand = Stand::open(shards, |config| config);
    let mut inside = begun(&stand);
    let mut pausing = begin(&stand.socket, &format!("pause {}", stand.database));
    while !stand.order("status").contains(&stand.database) {}
    stand.resume();
    let answer = finish(&mut pausing);
    assert!(
        answer.contains("error") && answer.contains("resumed"),
        "{answer}"
    );
    canary::ask(&mut stand.pgmux.client());
    inside.query("commit");
    canary::ask(&mut inside);
    stand.pgmux.stop();
}

fn two_pauses_at_once_both_return(shards: usize) {
    let stand = Stand::open(shards, |config| config);
    let mut inside = begun(&stand);
    let mut pauses = [1, 2].map(|_| begin(&stand.socket, "pause"));
    inside.query("commit");
    for pause in &mut pauses {
        assert!(finish(pause).contains("\"paused\""));
    }
    assert!(stand.order("resume").contains("resumed"));
    canary::ask(&mut inside);
    stand.pgmux.stop();
}

fn whoever_paused_may_go_and_another_resumes(shards: usize) {
    let stand = Stand::open(shards, |config| config);
    let mut inside = begun(&stand);
    drop(begin(&stand.socket, "pause"));
    while !stand.order("status").contains(&stand.database) {}
    inside.query("commit");
    inside.send(&frontend::query("select 1"));
    assert!(inside.conn.is_quiet(Duration::from_millis(300)));
    stand.resume();
    inside.replies();
    stand.pgmux.stop();
}

fn only_the_named_database_is_paused(shards: usize) {
    let cluster = Cluster::shared();
    let other = cluster.fresh_database();
    let stand = Stand::open(shards, |config| config.database(&other, cluster.port()));
    assert!(
        stand
            .order(&format!("pause {other}"))
            .contains("\"paused\"")
    );
    canary::ask(&mut stand.pgmux.client());
    assert!(stand.order("resume").contains("resumed"));
    stand.pgmux.stop();
}

fn a_database_that_is_paused_lives_through_a_restart_of_postgresql(shards: usize) {
    let mut cluster = Cluster::start(&Options::default());
    let database = cluster.fresh_database();
    let dir = TempDir::new("pause").expect("a directory");
    let socket = dir.path().join("control");
    let config = Config::new(&cluster, &database)
        .shards(shards)
        .set("pool.min_connections", 2)
        .set("control.socket", socket.display());
    let pgmux = Pgmux::start(&config);
    let mut clients: Vec<_> = (0..4).map(|_| pgmux.client()).collect();
    clients.iter_mut().for_each(canary::ask);
    assert!(order(&socket, "pause").contains("\"paused\""));
    for client in &mut clients {
        client.send(&frontend::query("select 'here'"));
    }
    cluster.crash();
    cluster.resume();
    assert!(order(&socket, "resume").contains("resumed"));
    for client in &mut clients {
        let replies = client.replies();
        assert!(replies.iter().all(|reply| reply.tag != b'E'));
    }
    pgmux.stop();
}

fn servers_are_replaced_when_they_are_given_back(shards: usize) {
    let mut stand = Stand::open(shards, |config| config.servers(2));
    let mut inside = begun(&stand);
    let mut idle = stand.pgmux.client();
    canary::ask(&mut idle);
    let before = stand.direct.servers();
    let busy: i32 = inside
        .value("select pg_backend_pid()")
        .parse()
        .expect("a number");
    assert!(stand.order("reconnect").contains("reconnecting"));
    assert_eq!(inside.value("select pg_backend_pid()"), busy.to_string());
    inside.query("commit");
    for client in [&mut inside, &mut idle] {
        let now: i32 = client
            .value("select pg_backend_pid()")
            .parse()
            .expect("a number");
        assert!(!before.contains(&now), "{now} of {before:?}");
    }
    stand.pgmux.stop();
}

fn clients_of_a_killed_database_are_ended_and_the_next_wait(shards: usize) {
    let mut stand = Stand::open(shards, |config| config);
    let mut inside = begun(&stand);
    let mut idle = stand.pgmux.client();
    canary::ask(&mut idle);
    assert!(
        stand
            .order(&format!("kill {}", stand.database))
            .contains("\"paused\"")
    );
    for client in [&mut inside, &mut idle] {
        let words = client.farewell().expect("an end").expect("last words");
        assert!(describe(&words).contains("FATAL 57P01"));
    }
    stand.direct.expect_servers(0);
    let mut next = stand.pgmux.client();
    next.send(&frontend::query("select 1"));
    assert!(next.conn.is_quiet(Duration::from_millis(200)));
    stand.resume();
    next.replies();
    stand.pgmux.stop();
}

fn a_reload_does_not_end_a_pause(shards: usize) {
    let stand = Stand::open(shards, |config| config);
    let mut client = stand.pgmux.client();
    canary::ask(&mut client);
    assert!(stand.pause().contains("\"paused\""));
    assert!(stand.pgmux.reload(&stand.config.clone().servers(3)));
    client.send(&frontend::query("select 1"));
    assert!(client.conn.is_quiet(Duration::from_millis(300)));
    stand.resume();
    client.replies();
    stand.pgmux.stop();
}

fn orders_that_make_no_sense_are_told_what_would(shards: usize) {
    let stand = Stand::open(shards, |config| config);
    for (words, answer) in [
        ("pause nowhere", "does not exist"),
        ("resume nowhere", "does not exist"),
        ("dance", "expected reload, pause"),
        ("", "expected reload, pause"),
    ] {
        let told = stand.order(words);
        assert!(
            told.contains("error") && told.contains(answer),
            "{words}: {told}"
        );
    }
    let report = stand.order("reload");
    assert!(report.contains("\"outcome\":\"applied\""), "{report}");
    stand
        .pgmux
        .rewrite(&stand.config.clone().set("pool.max_connections", "many"));
    let report = stand.order("reload");
    for words in [
        "\"outcome\":\"refused\"",
        "pool.max_connections",
        "\"line\":",
    ] {
        assert!(report.contains(words), "{words}: {report}");
    }
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&stand.socket)
        .expect("the socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    stand.pgmux.stop();
    assert!(!stand.socket.exists());
}
