//! Another configuration for a process that serves: what of it holds for the clients that are there, and for the next.
//! cases.md, section 12.

use std::time::Duration;

use rustix::process::Signal;
use tests::cluster::{Cluster, Options, PASSWORD};
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux, yaml_string};
use tests::process::{PATIENCE, eventually};
use tests::wire::{Login, Session, describe, frontend};
use tests::{canary, on_shards};

on_shards!(
    transactions_live_through_other_sizes_and_timeouts,
    a_pool_that_is_made_smaller_closes_what_is_idle_and_then_what_comes_back,
    a_pool_that_is_made_larger_serves_who_waits,
    clients_go_to_the_new_server_with_their_next_transaction,
    who_waits_for_a_server_of_the_old_target_gets_one_of_the_new,
    a_login_that_hangs_at_the_old_target_holds_nobody_up,
    a_database_that_is_added_serves_and_one_that_is_removed_ends_its_clients,
    a_database_that_is_named_again_serves_again,
    clients_of_other_databases_notice_nothing,
    a_rotated_password_changes_nothing_else,
    another_role_serves_the_next_transaction,
    a_client_keeps_the_mode_that_it_logged_in_with,
    limits_hold_for_the_next_client,
    a_fault_is_told_with_key_and_line_and_changes_nothing,
    what_takes_a_restart_is_told_with_its_reason,
    the_log_level_changes,
    roles_follow_the_limits_of_their_database,
    fifty_reloads_under_load_fail_nobody,
);

struct Stand {
    pgmux: Pgmux,
    direct: Direct,
    config: Config,
    database: String,
}

impl Stand {
    fn open(shards: usize, configure: impl FnOnce(Config) -> Config) -> Self {
        let cluster = Cluster::shared();
        let database = cluster.fresh_database();
        let config = configure(Config::new(cluster, &database).shards(shards));
        Self {
            pgmux: Pgmux::start(&config),
            direct: Direct::open(cluster, &database),
            config,
            database,
        }
    }

    /// Has a changed configuration read, which must be taken.
    fn reload(&mut self, change: impl FnOnce(Config) -> Config) {
        self.config = change(self.config.clone());
        assert!(self.pgmux.reload(&self.config), "{}", self.pgmux.log());
    }

    fn login(&self, user: &str, password: &str, database: &str) -> Result<Session, String> {
        let login = Login::new(user, password, database);
        Session::try_open(&self.pgmux.endpoint(), &login)
    }
}

fn last_words(client: &mut Session) -> String {
    let words = client.farewell().expect("an end").expect("last words");
    describe(&words)
}

fn transactions_live_through_other_sizes_and_timeouts(shards: usize) {
    let mut stand = Stand::open(shards, |config| config.servers(5));
    stand
        .direct
        .run("create table kept(a int); grant all on kept to app");
    let mut inside = stand.pgmux.client();
    inside.query("begin");
    inside.query("insert into kept values (1)");
    for (key, value) in [
        ("pool.max_connections", "3"),
        ("pool.max_connections", "8"),
        ("pool.connection_timeout", "7s"),
        ("pool.idle_timeout", "1m"),
        ("pool.max_lifetime", "1h"),
        ("pool.reset_query", "DISCARD ALL"),
        ("proxy.login_timeout", "9s"),
    ] {
        stand.reload(|config| config.set(key, value));
        assert_eq!(inside.value("select count(*) from kept"), "1");
    }
    inside.query("commit");
    assert_eq!(stand.direct.number("select count(*) from kept"), 1);
    canary::ask(&mut inside);
    stand.pgmux.stop();
}

fn a_pool_that_is_made_smaller_closes_what_is_idle_and_then_what_comes_back(shards: usize) {
    let mut stand = Stand::open(shards, |config| config.servers(6));
    let mut clients: Vec<_> = (0..6).map(|_| stand.pgmux.client()).collect();
    for client in &mut clients {
        client.query("begin");
    }
    let (idle, busy) = clients.split_at_mut(3);
    for client in idle {
        client.query("commit");
    }
    stand.reload(|config| config.servers(2));
    stand.direct.expect_servers(3);
    for client in busy {
        assert_eq!(client.value("select 1"), "1");
        client.query("commit");
    }
    eventually(PATIENCE, || {
        (stand.direct.servers().len() <= 2).then_some(())
    })
    .expect("two servers at most");
    // The limit is exact: two run and the third waits.
    for client in &mut clients[..2] {
        client.query("begin");
    }
    clients[2].send(&frontend::query("select 1"));
    assert!(clients[2].conn.is_quiet(Duration::from_millis(300)));
    clients[0].query("commit");
    clients[2].replies();
    stand.pgmux.stop();
}

fn a_pool_that_is_made_larger_serves_who_waits(shards: usize) {
    let mut stand = Stand::open(shards, |config| config.servers(1));
    let mut holder = stand.pgmux.client();
    holder.query("begin");
    let mut waiters: Vec<_> = (0..3).map(|_| stand.pgmux.client()).collect();
    for waiter in &mut waiters {
        waiter.send(&frontend::query("begin"));
    }
    assert!(waiters[0].conn.is_quiet(Duration::from_millis(200)));
    stand.reload(|config| config.servers(4));
    for waiter in &mut waiters {
        waiter.replies();
    }
    holder.query("commit");
    stand.pgmux.stop();
}

/// A second cluster with a database of the same name, whose rows say that it is another.
fn other(database: &str) -> Cluster {
    let other = Cluster::start(&Options::default());
    other.create_database(database);
    let sql = "create table place(name text); insert into place values ('new'); grant all on place to app";
    other
        .superuser(database)
        .batch_execute(sql)
        .expect("a table");
    other
}

fn clients_go_to_the_new_server_with_their_next_transaction(shards: usize) {
    let mut stand = Stand::open(shards, |config| config);
    let sql = "create table place(name text); insert into place values ('old'); grant all on place to app";
    stand.direct.run(sql);
    let other = other(&stand.database);
    let mut inside = stand.pgmux.client();
    let mut idle: Vec<_> = (0..4).map(|_| stand.pgmux.client()).collect();
    inside.query("begin");
    for client in &mut idle {
        assert_eq!(client.value("select name from place"), "old");
    }
    let port = format!("databases.{}.writer.port", stand.database);
    stand.reload(|config| config.set(&port, other.port()));
    assert_eq!(inside.value("select name from place"), "old");
    for client in &mut idle {
        assert_eq!(client.value("select name from place"), "new");
    }
    inside.query("commit");
    assert_eq!(inside.value("select name from place"), "new");
    assert_eq!(stand.pgmux.client().value("select name from place"), "new");
    stand.direct.expect_servers(0);
    stand.pgmux.stop();
}

fn who_waits_for_a_server_of_the_old_target_gets_one_of_the_new(shards: usize) {
    let mut stand = Stand::open(shards, |config| config.servers(1));
    let other = other(&stand.database);
    let mut holder = stand.pgmux.client();
    holder.query("begin");
    let mut waiter = stand.pgmux.client();
    waiter.send(&frontend::query("select name from place"));
    assert!(waiter.conn.is_quiet(Duration::from_millis(200)));
    let port = format!("databases.{}.writer.port", stand.database);
    stand.reload(|config| config.set(&port, other.port()));
    // The budget is exact: the old server has its permit until it has gone.
    assert!(waiter.conn.is_quiet(Duration::from_millis(200)));
    holder.query("commit");
    let replies = waiter.replies();
    let row = replies
        .iter()
        .find(|reply| reply.tag == b'D')
        .expect("a row");
    assert_eq!(row.row()[0].as_deref(), Some("new"));
    stand.pgmux.stop();
}

fn a_login_that_hangs_at_the_old_target_holds_nobody_up(shards: usize) {
    // It takes connections and says nothing.
    let hole = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = hole.local_addr().expect("its address").port();
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let good = Config::new(cluster, &database).shards(shards);
    let key = format!("databases.{database}.writer.port");
    let pgmux = Pgmux::start(&good.clone().set(&key, port));
    let waiting = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let started = std::time::Instant::now();
            canary::ask(&mut pgmux.client());
            started.elapsed()
        });
        let met = eventually(PATIENCE, || (pgmux.figure("waiting") > 0).then_some(()));
        met.expect("a client that waits");
        assert!(pgmux.reload(&good));
        client.join().expect("an answer")
    });
    // Not the 15 s that a login may take.
    assert!(waiting < Duration::from_secs(12), "{waiting:?}");
    pgmux.stop();
}

fn a_database_that_is_added_serves_and_one_that_is_removed_ends_its_clients(shards: usize) {
    let cluster = Cluster::shared();
    let added = cluster.fresh_database();
    let mut stand = Stand::open(shards, |config| config);
    let refusal = stand.login("app", PASSWORD, &added).err();
    assert!(refusal.is_some_and(|refusal| refusal.contains("3D000")));
    stand.reload(|config| config.database(&added, cluster.port()));
    let mut idle = stand.login("app", PASSWORD, &added).expect("a login");
    let mut inside = stand.login("app", PASSWORD, &added).expect("a login");
    let mut listening = stand.login("app", PASSWORD, &added).expect("a login");
    canary::ask(&mut idle);
    inside.query("begin");
    listening.query("listen news");
    stand.reload(|config| config.unset(&format!("databases.{added}")));
    for client in [&mut idle, &mut listening] {
        let words = last_words(client);
        assert!(
            words.contains("FATAL 57P04") && words.contains(&added),
            "{words}"
        );
    }
    let refusal = stand.login("app", PASSWORD, &added).err();
    assert!(refusal.is_some_and(|refusal| refusal.contains("3D000")));
    assert_eq!(inside.value("select 'still here'"), "still here");
    inside.query("commit");
    assert!(last_words(&mut inside).contains("FATAL 57P04"));
    Direct::open(cluster, &added).expect_servers(0);
    canary::ask(&mut stand.pgmux.client());
    stand.pgmux.stop();
}

fn a_database_that_is_named_again_serves_again(shards: usize) {
    let cluster = Cluster::shared();
    let added = cluster.fresh_database();
    let mut stand = Stand::open(shards, |config| config.database(&added, cluster.port()));
    let mut before = stand.login("app", PASSWORD, &added).expect("a login");
    before.query("begin");
    stand.reload(|config| config.unset(&format!("databases.{added}")));
    stand.reload(|config| config.database(&added, cluster.port()));
    canary::ask(&mut stand.login("app", PASSWORD, &added).expect("a login"));
    // Who was there before its database went is still to go.
    before.query("commit");
    assert!(last_words(&mut before).contains("FATAL 57P04"));
    stand.pgmux.stop();
}

fn clients_of_other_databases_notice_nothing(shards: usize) {
    let cluster = Cluster::shared();
    let (first, last) = (cluster.fresh_database(), cluster.fresh_database());
    let mut stand = Stand::open(shards, |config| config);
    let mut clients: Vec<_> = (0..8).map(|_| stand.pgmux.client()).collect();
    for client in &mut clients {
        client.query("set application_name to 'mine'");
    }
    // In front of it and behind it in the order of names.
    for name in ["aaa", "zzz"] {
        let port = cluster.port();
        stand.reload(|config| config.database(name, port));
        for client in &mut clients {
            assert_eq!(client.value("show application_name"), "mine");
            assert_eq!(client.value("select current_database()"), stand.database);
        }
    }
    stand.reload(|config| config.unset("databases.aaa"));
    for client in &mut clients {
        assert_eq!(client.value("select current_database()"), stand.database);
    }
    drop((first, last));
    stand.pgmux.stop();
}

fn a_rotated_password_changes_nothing_else(shards: usize) {
    let users = |password: &str| {
        format!(
            "[{{username: app, password: {}, max_connections: 2}}]",
            yaml_string(password)
        )
    };
    let mut stand = Stand::open(shards, |config| {
        config
            .servers(1)
            .set("pool.mode", "session")
            .set("connection_limits.enabled", true)
            .set("auth.users", users("one"))
    });
    let database = stand.database.clone();
    let mut before = stand.login("app", "one", &database).expect("a login");
    before.query("set work_mem to '1MB'");
    stand.reload(|config| config.set("auth.users", users("two")));
    let refusal = stand.login("app", "one", &database).err();
    assert!(refusal.is_some_and(|refusal| refusal.contains("28P01")));
    let mut second = stand.login("app", "two", &database).expect("a login");
    // Still one server, in session mode, and two clients.
    second.send(&frontend::query("select 1"));
    assert!(second.conn.is_quiet(Duration::from_millis(300)));
    assert_eq!(before.value("show work_mem"), "1MB");
    let refusal = stand.login("app", "two", &database).err();
    assert!(refusal.is_some_and(|refusal| refusal.contains("53300")));
    drop(before);
    second.replies();
    stand.pgmux.stop();
}

fn another_role_serves_the_next_transaction(shards: usize) {
    let mut stand = Stand::open(shards, |config| config);
    let mut inside = stand.pgmux.client();
    let mut idle = stand.pgmux.client();
    inside.query("begin");
    assert_eq!(idle.value("select current_user"), "app");
    stand.reload(|config| config.set("backend.user", "other"));
    assert_eq!(inside.value("select current_user"), "app");
    inside.query("commit");
    assert_eq!(inside.value("select current_user"), "other");
    assert_eq!(idle.value("select current_user"), "other");
    stand.pgmux.stop();
}

fn a_client_keeps_the_mode_that_it_logged_in_with(shards: usize) {
    let mut stand = Stand::open(shards, |config| {
        config.servers(1).set("pool.mode", "session")
    });
    let mut before = stand.pgmux.client();
    before.query("create temp table mine(a int)");
    stand.reload(|config| config.servers(2).set("pool.mode", "transaction"));
    // Its server is its own until it leaves; the others share.
    assert_eq!(before.value("select count(*) from mine"), "0");
    let mut others: Vec<_> = (0..3).map(|_| stand.pgmux.client()).collect();
    for _ in 0..2 {
        others.iter_mut().for_each(canary::ask);
        assert_eq!(before.value("select count(*) from mine"), "0");
    }
    drop(before);
    others.iter_mut().for_each(canary::ask);
    stand.pgmux.stop();
}

fn limits_hold_for_the_next_client(shards: usize) {
    let mut stand = Stand::open(shards, |config| config);
    let mut before: Vec<_> = (0..3).map(|_| stand.pgmux.client()).collect();
    let database = stand.database.clone();
    stand.reload(|config| config.set("proxy.max_clients", 3));
    let refusal = stand.login("app", PASSWORD, &database).err();
    assert!(refusal.is_some_and(|refusal| refusal.contains("53300")));
    before.iter_mut().for_each(canary::ask);
    stand.reload(|config| config.set("proxy.max_clients", 4));
    canary::ask(&mut stand.login("app", PASSWORD, &database).expect("a login"));
    stand.pgmux.stop();
}

fn a_fault_is_told_with_key_and_line_and_changes_nothing(shards: usize) {
    let stand = Stand::open(shards, |config| config.set("proxy.max_clients", 9));
    let port = format!("databases.{}.writer.port", stand.database);
    let bad = |key: &str, value: &str| stand.config.clone().set(key, value);
    for (config, key) in [
        (bad("proxy.max_clients", "nine"), "proxy.max_clients"),
        (bad(&port, "0"), "writer.port"),
        (bad("pool.nonsense", "1"), "pool.nonsense"),
        (bad("auth.hba_file", "/nowhere/hba.conf"), "hba.conf"),
    ] {
        let before = stand.pgmux.log().len();
        assert!(!stand.pgmux.reload(&config.set("proxy.max_clients", "nine")));
        let log = stand.pgmux.log().split_off(before);
        assert!(log.contains(key), "{key}: {log}");
        let line = log
            .lines()
            .find(|line| line.contains(key))
            .unwrap_or_default();
        assert!(
            line.contains("pgmux.yaml:") && line.contains("ERROR"),
            "{line}"
        );
    }
    std::fs::write(stand.pgmux.file(), "a: [").expect("the file");
    assert!(
        !stand
            .pgmux
            .outcome_of_reload(|| stand.pgmux.signal(Signal::HUP))
    );
    canary::ask(&mut stand.pgmux.client());
    assert!(stand.pgmux.reload(&stand.config));
    canary::ask(&mut stand.pgmux.client());
    stand.pgmux.stop();
}

fn what_takes_a_restart_is_told_with_its_reason(shards: usize) {
    let mut stand = Stand::open(shards, |config| config);
    stand.reload(|config| {
        config
            .set("engine.shards", 7)
            .set("engine.instance_id", 9)
            .set("pool.idle_timeout", "77s")
    });
    let log = stand.pgmux.log();
    for (key, words) in [
        ("engine.shards", "takes a restart"),
        ("engine.instance_id", "takes a restart"),
        ("pool.idle_timeout", "changed"),
    ] {
        let told = log
            .lines()
            .any(|line| line.contains(key) && line.contains(words) && line.contains("reload"));
        assert!(told, "{key} {words}: {log}");
    }
    canary::ask(&mut stand.pgmux.client());
    stand.pgmux.stop();
}

fn the_log_level_changes(shards: usize) {
    let mut stand = Stand::open(shards, |config| config);
    let lines = || stand.pgmux.log().matches(" stats ").count();
    let ask = || stand.pgmux.signal(Signal::USR1);
    stand.pgmux.figures();
    stand
        .pgmux
        .rewrite(&stand.config.clone().set("log.level", "warn"));
    stand.pgmux.signal(Signal::HUP);
    // What it says of itself cannot be read at this level: so it falls silent.
    let silent = eventually(PATIENCE, || {
        let before = lines();
        ask();
        std::thread::sleep(Duration::from_millis(300));
        (lines() == before).then_some(())
    });
    silent.expect("no line of level info");
    stand.reload(|config| config.set("log.level", "info"));
    stand.pgmux.figures();
    stand.pgmux.stop();
}

fn roles_follow_the_limits_of_their_database(shards: usize) {
    let cluster = Cluster::shared();
    let mut stand = Stand::open(shards, |config| {
        config
            .users(&["app", "other"])
            .servers(3)
            .set("backend.user", "passthrough")
            .unset("backend.password")
    });
    let database = stand.database.clone();
    let mut clients: Vec<_> = ["app", "app", "app", "other", "other", "other"]
        .iter()
        .map(|user| stand.login(user, PASSWORD, &database).expect("a login"))
        .collect();
    for client in &mut clients {
        client.query("begin");
    }
    for client in &mut clients {
        client.query("commit");
    }
    let mut direct = Direct::open(cluster, &database);
    assert_eq!(direct.servers().len(), 6);
    let all = format!("databases.{database}.max_server_connections");
    stand.reload(|config| config.set(&all, 2));
    eventually(PATIENCE, || (direct.servers().len() <= 2).then_some(()))
        .unwrap_or_else(|| panic!("{:?}", direct.activity()));
    clients.iter_mut().for_each(canary::ask);
    assert!(direct.servers().len() <= 2, "{:?}", direct.activity());
    stand.reload(|config| config.unset(&all));
    for client in &mut clients {
        client.query("begin");
    }
    for client in &mut clients {
        client.query("commit");
    }
    stand.pgmux.stop();
}

fn fifty_reloads_under_load_fail_nobody(shards: usize) {
    let stand = Stand::open(shards, |config| config.servers(5));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _guard = Ends(&stop);
        let workers: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = stand.pgmux.client();
                    let mut done = 0_u64;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        client.query("begin");
                        assert_eq!(client.value("select 1"), "1");
                        let ready = client.query("commit");
                        assert!(ready.iter().all(|reply| reply.tag != b'E'));
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        for round in 0..50 {
            let config = stand
                .config
                .clone()
                .servers(2 + round % 5)
                .set("pool.idle_timeout", format!("{}s", 60 + round))
                .set("proxy.login_timeout", format!("{}s", 20 + round));
            let config = match round % 5 {
                // Its servers are replaced, too.
                4 => config.set("backend.user", "other"),
                _ => config,
            };
            assert!(stand.pgmux.reload(&config), "{}", stand.pgmux.log());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for worker in workers {
            assert!(worker.join().expect("no failure") > 0);
        }
    });
    stand.pgmux.wait_for("waiting", 0);
    stand.pgmux.stop();
}

/// Ends the work of others even if this test fails meanwhile.
struct Ends<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
