//! `engine.memory_max`: from the mark on logins are refused, then idle clients leave, and the kernel never has to kill.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tests::canary;
use tests::cgroup::Cgroup;
use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually, rss_kib};
use tests::wire::{Conn, Session, frontend};

tests::on_shards!(
    memory_bombs_never_meet_the_oom_killer,
    idle_clients_leave_when_refusing_is_not_enough,
    no_client_is_refused_while_there_is_memory,
);

const MB: u64 = 1 << 20;

/// A Parse of a name and a text that nobody else has, of 100 KB.
fn bomb(client: usize, number: usize) -> Vec<u8> {
    let text = format!("select '{client}/{number}/{}'", "x".repeat(100_000));
    [
        frontend::parse(&format!("s{number}"), &text, &[]),
        frontend::sync(),
    ]
    .concat()
}

/// Most of a Parse of 4 MB, of which the rest never comes.
fn half_a_parse() -> Vec<u8> {
    let whole = frontend::parse("s", &"x".repeat(4_000_000), &[]);
    whole[..whole.len() - 100].to_vec()
}

/// The mark is far enough above what pgmux takes by itself, and as far below what it may have.
fn mark(shards: usize) -> u64 {
    (70 + 15 * shards as u64) * MB
}

/// Clients that want rows and do not read them, clients that never end their batch, clients that have long statements
/// kept and clients that send half of one: of reliability.md together.
fn memory_bombs_never_meet_the_oom_killer(shards: usize) {
    let limit = 2 * mark(shards);
    let group = Cgroup::with_memory(limit);
    if let Err(reason) = &group {
        eprintln!("without a cgroup, by the resident memory alone: {reason}");
    }
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let mut config = Config::new(cluster, &database)
        .shards(shards)
        .servers(10)
        .set("engine.memory_max", format!("{}MB", mark(shards) / MB));
    if let Ok(group) = &group {
        config = config.within(group.words());
    }
    let pgmux = Pgmux::start(&config);
    let address = SocketAddr::from(([127, 0, 0, 1], pgmux.port()));
    let narrow = || {
        let conn = Conn::open_narrow(address, 4096).expect("a connection");
        Session::log_in(conn, &pgmux.login()).expect("a login")
    };
    let mut deaf: Vec<Session> = (0..3).map(|_| narrow()).collect();
    for client in &mut deaf {
        client.send(&frontend::query(
            "select repeat('x', 1000000) from generate_series(1, 10000)",
        ));
    }
    let mut endless: Vec<Session> = (0..2).map(|_| narrow()).collect();
    let batch = [
        frontend::parse("", "select 1", &[]),
        frontend::bind_text("", "", &[]),
        frontend::execute("", 0),
    ];
    let batch = batch.concat().repeat(2000);
    for client in &mut endless {
        while client.conn.send_within(&batch, Duration::from_millis(200)) {}
    }
    let peak = AtomicU64::new(0);
    let refused = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                peak.fetch_max(rss_kib(pgmux.pid()) * 1024, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let bombers: Vec<_> = (0..6)
            .map(|worker| {
                let (pgmux, refused) = (&pgmux, &refused);
                scope.spawn(move || bombard(pgmux, worker, refused))
            })
            .collect();
        let kept: Vec<_> = bombers.into_iter().map(|one| one.join()).collect();
        done.store(true, Ordering::SeqCst);
        drop(kept);
    });
    let peak = peak.load(Ordering::SeqCst);
    assert!(
        refused.load(Ordering::SeqCst) > 0,
        "nobody was refused, with {peak} bytes at most"
    );
    assert!(peak < limit, "{peak} bytes resident");
    if let Ok(group) = &group {
        assert_eq!(group.kills(), 0, "the kernel has killed");
        eprintln!(
            "peak: {peak} resident, {:?} of the cgroup, {limit} allowed",
            group.peak()
        );
    }
    // With the attackers gone all is as before.
    drop((deaf, endless));
    pgmux.wait_for("clients", 0);
    serves_again(&pgmux);
    Direct::open(cluster, &database).expect_idle();
    assert!(pgmux.figure("memory_refusals") > 0);
    pgmux.stop();
}

/// Logs in again and again and keeps what memory it can get, until logins have been refused often enough.
fn bombard(pgmux: &Pgmux, worker: usize, refused: &AtomicUsize) -> Vec<Session> {
    let (end, half) = (Instant::now() + PATIENCE, half_a_parse());
    let mut kept = Vec::new();
    while Instant::now() < end && refused.load(Ordering::SeqCst) < 30 {
        let Ok(mut client) = Session::try_open(&pgmux.endpoint(), &pgmux.login()) else {
            refused.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        if worker == 0 {
            for number in 0..20 {
                let told = client.conn.send(&bomb(kept.len(), number));
                if told.is_err() || client.conn.recv_until(b'Z').is_err() {
                    break;
                }
            }
        } else {
            client.conn.send_within(&half, Duration::from_secs(5));
        }
        kept.push(client);
    }
    kept
}

fn serves_again(pgmux: &Pgmux) {
    let served = eventually(PATIENCE, || {
        Session::try_open(&pgmux.endpoint(), &pgmux.login()).ok()
    });
    assert!(
        served.is_some(),
        "logins are still refused: {:?}",
        pgmux.figures()
    );
    canary::check(&pgmux.endpoint(), &pgmux.login());
}

fn idle_clients_leave_when_refusing_is_not_enough(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .set("engine.memory_max", format!("{}MB", mark(shards) / MB));
    let pgmux = Pgmux::start(&config);
    let mut inside = pgmux.client();
    inside.query("begin");
    let (half, end) = (half_a_parse(), Instant::now() + PATIENCE * 2);
    let mut kept = Vec::new();
    while pgmux.figure("clients_shed") == 0 {
        assert!(
            Instant::now() < end,
            "nobody was sent away: {:?}",
            pgmux.figures()
        );
        if let Ok(mut client) = Session::try_open(&pgmux.endpoint(), &pgmux.login()) {
            client.conn.send_within(&half, Duration::from_secs(5));
            kept.push(client);
        }
    }
    // Who has a transaction stays; room comes back without any client's doing.
    assert_eq!(inside.value("select 7"), "7");
    serves_again(&pgmux);
    let told = kept.iter_mut().find_map(|client| {
        client.conn.patience = Duration::from_millis(50);
        client.farewell().ok().flatten()
    });
    let told = told.expect("somebody who was sent away");
    assert_eq!(
        (told.sqlstate().as_str(), told.field(b'S').as_str()),
        ("57P01", "FATAL")
    );
    assert!(told.field(b'M').contains("memory"), "{told:?}");
    pgmux.stop();
}

fn no_client_is_refused_while_there_is_memory(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .set("engine.memory_max", "50%");
    let pgmux = Pgmux::start(&config);
    let mut clients: Vec<Session> = (0..100).map(|_| pgmux.client()).collect();
    for client in &mut clients {
        canary::ask(client);
    }
    let figures = pgmux.figures();
    assert_eq!(
        (figures["memory_refusals"], figures["clients_shed"]),
        (0, 0)
    );
    assert!(figures["memory_bytes"] > MB);
    pgmux.stop();
}
