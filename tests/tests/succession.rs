//! One process after another at the same addresses; what a service manager hears, and what it hands on; the watch of
//! the configuration's files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tests::cluster::{Cluster, PASSWORD};
use tests::control::order;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux, RELOADED, binary};
use tests::process::{Guarded, PATIENCE, TempDir, eventually, free_port};
use tests::wire::{Conn, Endpoint, Login, Session, frontend};
use tests::{canary, on_shards};

on_shards!(
    a_new_process_takes_over_while_the_old_one_drains,
    a_unix_socket_is_taken_over_without_a_gap,
    cancel_requests_reach_their_process_whichever_hears_them,
    a_new_process_that_does_not_start_changes_nothing,
    ten_restarts_under_load_fail_no_transaction,
    the_service_manager_hears_of_each_step,
    sockets_of_the_service_manager_are_listened_on,
    a_changed_file_is_read_without_a_signal,
);

struct Stand {
    config: Config,
    direct: Direct,
    database: String,
    socket: PathBuf,
    dir: TempDir,
    port: u16,
}

impl Stand {
    fn open(shards: usize, configure: impl FnOnce(Config) -> Config) -> Self {
        let cluster = Cluster::shared();
        let database = cluster.fresh_database();
        let dir = TempDir::new("next").expect("a directory");
        let socket = dir.path().join("control");
        let port = free_port();
        let config = Config::new(cluster, &database)
            .shards(shards)
            .port(port)
            .set("proxy.shutdown_timeout", "20s")
            .set("control.socket", socket.display());
        Self {
            config: configure(config),
            direct: Direct::open(cluster, &database),
            database,
            socket,
            dir,
            port,
        }
    }

    fn start(&self) -> Pgmux {
        Pgmux::start(&self.config)
    }

    fn serving(&self) -> String {
        order(&self.socket, "status")
    }
}

fn a_new_process_takes_over_while_the_old_one_drains(shards: usize) {
    let stand = Stand::open(shards, |config| config);
    let mut old = stand.start();
    let mut inside = old.client();
    let mut idle = old.client();
    inside.query("begin");
    let new = stand.start();
    assert!(new.log().contains("taking over"), "{}", new.log());
    let words = idle.farewell().expect("an end").expect("last words");
    assert_eq!(words.sqlstate(), "57P01");
    // Whoever comes now is the new one's, and none is turned away.
    let mut fresh: Vec<_> = (0..20).map(|_| new.client()).collect();
    fresh.iter_mut().for_each(canary::ask);
    assert!(new.figure("clients") >= 20);
    assert!(stand.serving().contains(&new.pid().to_string()));
    assert_eq!(inside.value("select 'still here'"), "still here");
    inside.query("commit");
    assert_eq!(old.wait().code(), Some(0));
    fresh.iter_mut().for_each(canary::ask);
    assert!(stand.socket.exists(), "it is the new one's");
    new.stop();
    assert!(!stand.socket.exists());
    let left: Vec<_> = fs::read_dir(stand.dir.path())
        .expect("the directory")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

fn a_unix_socket_is_taken_over_without_a_gap(shards: usize) {
    let stand = Stand::open(shards, |config| config);
    let path = stand.dir.path().join("clients");
    let config = stand
        .config
        .clone()
        .set("proxy.listen", format!("['unix:{}']", path.display()));
    let endpoint = Endpoint::Unix(path.clone());
    let login = Login::new("app", PASSWORD, &stand.database);
    let stop = AtomicBool::new(false);
    let come = AtomicU64::new(0);
    let mut serving = Pgmux::start(&config);
    std::thread::scope(|scope| {
        let _guard = Ends(&stop);
        let comers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        let conn = Conn::open(&endpoint).expect("somebody listens at any time");
                        // One whose process has been told to go meanwhile is told so.
                        match Session::log_in(conn, &login) {
                            Ok(_) => drop(come.fetch_add(1, Relaxed)),
                            Err(words) => assert!(words.contains("57P01"), "{words}"),
                        }
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            let before = come.load(Relaxed);
            let mut next = Pgmux::start(&config);
            std::mem::swap(&mut next, &mut serving);
            assert_eq!(next.wait().code(), Some(0));
            eventually(PATIENCE, || (come.load(Relaxed) > before + 5).then_some(()))
                .expect("clients");
        }
        stop.store(true, Relaxed);
        for comer in comers {
            comer.join().expect("nobody is refused");
        }
    });
    assert!(path.exists());
    serving.stop();
    assert!(!path.exists());
}

fn cancel_requests_reach_their_process_whichever_hears_them(shards: usize) {
    let mut stand = Stand::open(shards, |config| config);
    let mut old = stand.start();
    let mut of_old = old.client();
    of_old.send(&frontend::query("select pg_sleep(60)"));
    stand.direct.expect_sleeper();
    let mut new = stand.start();
    // It comes to the new one, which alone listens.
    let sleeps = |direct: &mut Direct| {
        direct.number("select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'")
    };
    cancel(stand.port, &of_old);
    let errors = std::iter::from_fn(|| of_old.conn.recv().ok()).find(|reply| reply.tag == b'E');
    assert_eq!(
        errors.map(|error| error.sqlstate()).as_deref(),
        Some("57014")
    );
    assert_eq!(sleeps(&mut stand.direct), 0);
    drop(of_old);
    assert_eq!(old.wait().code(), Some(0));
    // Across two successions, and for its own clients as ever.
    let mut of_new = new.client();
    of_new.query("begin");
    let newer = stand.start();
    let newest = stand.start();
    of_new.send(&frontend::query("select pg_sleep(60)"));
    stand.direct.expect_sleeper();
    cancel(stand.port, &of_new);
    let replies = of_new.replies();
    assert!(
        replies
            .iter()
            .any(|reply| reply.tag == b'E' && reply.sqlstate() == "57014")
    );
    of_new.query("rollback");
    drop(of_new);
    assert_eq!(new.wait().code(), Some(0));
    let mut own = newest.client();
    own.send(&frontend::query("select pg_sleep(60)"));
    stand.direct.expect_sleeper();
    cancel(stand.port, &own);
    assert!(own.replies().iter().any(|reply| reply.tag == b'E'));
    drop(newer);
    newest.stop();
}

/// Sends a cancel request and waits for its end.
fn cancel(port: u16, client: &Session) {
    let (pid, key) = client.key.clone().expect("a cancel key");
    let mut conn = Conn::open(&Endpoint::local(port)).expect("a connection");
    conn.send(&frontend::cancel_request(pid, &key))
        .expect("a request");
    let heard = conn.recv_to_end().expect("its end");
    assert!(heard.is_empty());
}

fn a_new_process_that_does_not_start_changes_nothing(shards: usize) {
    let stand = Stand::open(shards, |config| config);
    let old = stand.start();
    let mut client = old.client();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port();
    let listen = format!("['127.0.0.1:{}', '127.0.0.1:{port}']", stand.port);
    let failed = Pgmux::try_start(&stand.config.clone().set("proxy.listen", listen));
    assert!(failed.is_err_and(|log| log.contains("cannot listen")));
    canary::ask(&mut client);
    (0..10).for_each(|_| canary::ask(&mut old.client()));
    assert!(stand.serving().contains(&old.pid().to_string()));
    let new = stand.start();
    canary::ask(&mut new.client());
    new.stop();
}

/// Ends the work of others even if this test fails meanwhile.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A client that does what a careful application does: when it is told that the process stops, it connects again and
/// does what it was about to do. Everything else is a failure.
fn work(port: u16, database: &str, number: usize, stop: &AtomicBool, done: &AtomicU64) {
    let login = Login::new("app", PASSWORD, database);
    let connect = || Session::open(&Endpoint::local(port), &login);
    let mut client = connect();
    let mut round = 0;
    while !stop.load(Relaxed) {
        match transaction(&mut client, number, round) {
            Ok(()) => {
                done.fetch_add(1, Relaxed);
                round += 1;
            }
            Err(Told::ToGo) => client = connect(),
            Err(Told::Else(what)) => panic!("client {number}, transaction {round}: {what}"),
        }
    }
}

enum Told {
    /// 57P01, before anything of the transaction was done.
    ToGo,
    Else(String),
}

fn transaction(client: &mut Session, number: usize, round: u64) -> Result<(), Told> {
    let steps = [
        "begin".to_owned(),
        format!("insert into done values ({number}, {round})"),
        "commit".to_owned(),
    ];
    for (place, step) in steps.iter().enumerate() {
        if client.conn.send(&frontend::query(step)).is_err() && place > 0 {
            return Err(Told::Else(format!("{step} cannot be sent")));
        }
        loop {
            match client.conn.recv() {
                Ok(message) if message.tag == b'Z' => break,
                Ok(message) if message.tag == b'E' => {
                    let code = message.sqlstate();
                    return Err(match (code.as_str(), place) {
                        ("57P01", 0) => Told::ToGo,
                        _ => Told::Else(format!("{step}: {code}")),
                    });
                }
                Ok(_) => {}
                Err(error) => return Err(Told::Else(format!("{step}: {error:?}"))),
            }
        }
    }
    Ok(())
}

fn ten_restarts_under_load_fail_no_transaction(shards: usize) {
    let mut stand = Stand::open(shards, |config| config.servers(4));
    stand.direct.run("create table done(client int, round int, primary key (client, round)); grant all on done to app");
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut serving = stand.start();
    std::thread::scope(|scope| {
        let _guard = Ends(&stop);
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let (port, database) = (stand.port, &stand.database);
                let (stop, done) = (&stop, &done);
                scope.spawn(move || work(port, database, number, stop, done))
            })
            .collect();
        for _ in 0..10 {
            let before = done.load(Relaxed);
            let mut next = stand.start();
            std::mem::swap(&mut next, &mut serving);
            assert_eq!(next.wait().code(), Some(0));
            let more = || (done.load(Relaxed) > before + 16).then_some(());
            eventually(PATIENCE, more).expect("transactions go on");
        }
        stop.store(true, Relaxed);
        for client in clients {
            client.join().expect("no failed transaction");
        }
    });
    let rows = stand.direct.number("select count(*) from done");
    assert_eq!(
        u64::try_from(rows),
        Ok(done.load(Relaxed)),
        "each is done once"
    );
    serving.stop();
}

fn the_service_manager_hears_of_each_step(shards: usize) {
    let stand = Stand::open(shards, |config| config);
    let path = stand.dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let heard = || {
        let mut buffer = [0; 4096];
        let read = manager.recv(&mut buffer).expect("a word");
        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
        text.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<BTreeMap<_, _>>()
    };
    let config = stand
        .config
        .clone()
        .env("NOTIFY_SOCKET", &path.display().to_string());
    let pgmux = Pgmux::start(&config);
    let ready = heard();
    assert_eq!(
        (&*ready["READY"], &*ready["MAINPID"]),
        ("1", &*pgmux.pid().to_string())
    );
    assert!(pgmux.reload(&config));
    let reloading = heard();
    assert_eq!(reloading["RELOADING"], "1");
    assert!(
        reloading["MONOTONIC_USEC"]
            .parse::<u64>()
            .is_ok_and(|micros| micros > 0)
    );
    assert_eq!(heard()["READY"], "1");
    assert!(!pgmux.reload(&config.clone().set("pool.max_connections", "none")));
    assert_eq!(heard()["RELOADING"], "1");
    assert!(heard()["STATUS"].contains("refused"));
    pgmux.stop();
    assert_eq!(heard()["STOPPING"], "1");
}

fn sockets_of_the_service_manager_are_listened_on(shards: usize) {
    let stand = Stand::open(shards, |config| config);
    // Not made to be shared: nobody else could listen at this address.
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = socket.local_addr().expect("its address").port();
    // A client that comes before there is anybody to serve it.
    let early = Conn::open(&Endpoint::local(port)).expect("a connection");
    let config = stand
        .config
        .clone()
        .unset("control")
        .set("proxy.listen", format!("'127.0.0.1:{port}'"));
    let file = stand.dir.path().join("activated.yaml");
    fs::write(&file, config.to_yaml()).expect("the file");
    let log = fs::File::create(stand.dir.path().join("activated.log")).expect("the log");
    let script = "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" run -c \"$1\" 3<&0 </dev/null";
    let mut command = std::process::Command::new("sh");
    command.arg("-c").arg(script).arg(binary()).arg(&file);
    command
        .stdin(std::os::fd::OwnedFd::from(socket))
        .stderr(log)
        .process_group(0);
    let mut pgmux = Guarded::spawn(&mut command, Signal::KILL, stand.dir.path()).expect("pgmux");
    let login = Login::new("app", PASSWORD, &stand.database);
    canary::ask(&mut Session::log_in(early, &login).expect("a login"));
    let mut clients: Vec<_> = (0..8)
        .map(|_| Session::open(&Endpoint::local(port), &login))
        .collect();
    clients.iter_mut().for_each(canary::ask);
    drop(clients);
    pgmux.signal(Signal::TERM);
    assert_eq!(
        pgmux.wait(PATIENCE).and_then(|status| status.code()),
        Some(0)
    );
}

fn a_changed_file_is_read_without_a_signal(shards: usize) {
    let stand = Stand::open(shards, |config| config.set("config.watch", true));
    // As Kubernetes mounts it: the file is a link into a directory that is a link.
    let mount = stand.dir.path().join("mount");
    fs::create_dir_all(mount.join("one")).expect("directories");
    let config = stand
        .config
        .clone()
        .unset("control")
        .set("proxy.listen", format!("'127.0.0.1:{}'", stand.port));
    fs::write(mount.join("one/pgmux.yaml"), config.to_yaml()).expect("the file");
    std::os::unix::fs::symlink("one", mount.join("..data")).expect("a link");
    std::os::unix::fs::symlink("..data/pgmux.yaml", mount.join("pgmux.yaml")).expect("a link");
    let log = stand.dir.path().join("watched.log");
    let mut command = std::process::Command::new(binary());
    command.args(["run", "-c"]).arg(mount.join("pgmux.yaml"));
    command.stderr(fs::File::create(&log).expect("the log"));
    let mut pgmux = Guarded::spawn(&mut command, Signal::KILL, stand.dir.path()).expect("pgmux");
    let text = || fs::read_to_string(&log).unwrap_or_default();
    let count = |words: &str| text().matches(words).count();
    eventually(PATIENCE, || (count("ready") > 0).then_some(())).expect("it serves");
    let changes = |what: &str, change: &dyn Fn(&Config)| {
        let before = count(RELOADED);
        let limit = before + 3;
        let clients = config.clone().set("proxy.max_clients", limit);
        // The thread that watches begins behind the word that it serves.
        let started = Instant::now();
        change(&clients);
        let read = || (count(RELOADED) > before).then_some(());
        assert!(eventually(PATIENCE, read).is_some(), "{what}: {}", text());
        assert!(started.elapsed() < Duration::from_secs(15), "{what}");
        let to = format!("to={limit}");
        assert!(text().contains(&to), "{what}: {}", text());
    };
    changes("swapped", &|config| {
        fs::create_dir_all(mount.join("two")).expect("a directory");
        fs::write(mount.join("two/pgmux.yaml"), config.to_yaml()).expect("the file");
        std::os::unix::fs::symlink("two", mount.join("..tmp")).expect("a link");
        fs::rename(mount.join("..tmp"), mount.join("..data")).expect("swapped");
    });
    changes("renamed over", &|config| {
        fs::write(mount.join("two/next"), config.to_yaml()).expect("the file");
        fs::rename(mount.join("two/next"), mount.join("two/pgmux.yaml")).expect("renamed");
    });
    changes("written", &|config| {
        fs::write(mount.join("two/pgmux.yaml"), config.to_yaml()).expect("written");
    });
    let login = Login::new("app", PASSWORD, &stand.database);
    canary::ask(&mut Session::open(&Endpoint::local(stand.port), &login));
    pgmux.signal(Signal::TERM);
    assert_eq!(
        pgmux.wait(PATIENCE).and_then(|status| status.code()),
        Some(0)
    );
}
