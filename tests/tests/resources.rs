//! Memory, descriptors and CPU: nothing grows, nothing spins, whoever the peer is.

use std::net::SocketAddr;
use std::time::Duration;

use tests::cluster::{Cluster, PASSWORD};
use tests::direct::Direct;
use tests::hostile::FakeServer;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, cpu_ticks, eventually, open_fds, rss_kib, wake_ups};
use tests::wire::{Conn, Login, Session, frontend};
use tests::{canary, on_shards};

on_shards!(
    client_that_never_reads_does_not_grow_memory_or_stall_others,
    server_that_never_reads_does_not_grow_memory_or_stall_others,
    pipelining_without_reading_is_held_back,
    flood_of_notices_is_held_back,
    claims_of_huge_messages_cost_nothing,
    ten_thousand_connects_leave_no_descriptor,
    idle_process_uses_no_cpu,
    many_prepared_statements_reach_a_plateau,
    large_messages_leave_no_large_buffers,
    out_of_descriptors_is_survived,
);

fn start(shards: usize, servers: usize) -> (Pgmux, Direct) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .servers(servers);
    (Pgmux::start(&config), Direct::open(cluster, &database))
}

/// Runs `work` and says by how many KiB the process has grown at most, looking while `work` runs and after it.
fn growth(pgmux: &Pgmux, work: impl FnOnce()) -> u64 {
    let before = rss_kib(pgmux.pid());
    work();
    rss_kib(pgmux.pid()).saturating_sub(before)
}

fn narrow(pgmux: &Pgmux) -> Session {
    let address = SocketAddr::from(([127, 0, 0, 1], pgmux.port()));
    let conn = Conn::open_narrow(address, 4096).expect("a connection");
    Session::log_in(conn, &pgmux.login()).expect("a login")
}

/// Waits until the server behind a client that does not read is itself held back: it waits for its socket.
fn wait_until_blocked(direct: &mut Direct, count: i64) {
    let sql = "select count(*) from pg_stat_activity where datname = current_database() \
               and wait_event = 'ClientWrite'";
    let blocked = eventually(PATIENCE, || (direct.number(sql) >= count).then_some(()));
    assert!(blocked.is_some(), "the server is not held back");
}

fn client_that_never_reads_does_not_grow_memory_or_stall_others(shards: usize) {
    let (pgmux, mut direct) = start(shards, 6);
    canary::check(&pgmux.endpoint(), &pgmux.login());
    let mut deaf: Vec<Session> = (0..4).map(|_| narrow(&pgmux)).collect();
    let grown = growth(&pgmux, || {
        for client in &mut deaf {
            client.send(&frontend::query(
                "select repeat('x', 1000000) from generate_series(1, 100)",
            ));
        }
        wait_until_blocked(&mut direct, 4);
    });
    assert!(
        grown < 12 * 1024,
        "{grown} KiB for four clients that do not read"
    );
    let mut neighbour = pgmux.client();
    for _ in 0..50 {
        canary::ask(&mut neighbour);
    }
    // One of them reads at last, and everything is there.
    let rows = deaf[0]
        .replies()
        .iter()
        .filter(|message| message.tag == b'D')
        .count();
    assert_eq!(rows, 100);
    drop(deaf);
    direct.expect_idle();
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn server_that_never_reads_does_not_grow_memory_or_stall_others(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let server = FakeServer::start(|peer, _| {
        peer.log_in()?;
        peer.pause(Duration::from_secs(8));
        Ok(())
    });
    let config = Config::fake(server.port())
        .database(&database, cluster.port())
        .shards(shards);
    let pgmux = Pgmux::start(&config);
    let mut client = pgmux.client();
    let grown = growth(&pgmux, || {
        // The sender stops when it is held back; its thread is left to its fate with the connection.
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let batch = frontend::query(&format!("select '{}'", "x".repeat(1_000_000)));
                let deadline = std::time::Instant::now() + Duration::from_secs(2);
                while std::time::Instant::now() < deadline
                    && client.conn.send_within(&batch, Duration::from_millis(500))
                {}
            });
            let real = Login::new("app", PASSWORD, &database);
            for _ in 0..20 {
                canary::check(&pgmux.endpoint(), &real);
            }
            sender.join().expect("the sender");
        });
    });
    assert!(
        grown < 12 * 1024,
        "{grown} KiB for a server that does not read"
    );
    drop(client);
    pgmux.stop();
}

fn pipelining_without_reading_is_held_back(shards: usize) {
    let (pgmux, mut direct) = start(shards, 2);
    canary::check(&pgmux.endpoint(), &pgmux.login());
    let mut client = narrow(&pgmux);
    let mut batch = frontend::parse("", "select repeat('y', 500)", &[]);
    batch.extend(frontend::bind_text("", "", &[]));
    batch.extend(frontend::execute("", 0));
    let batch = batch.repeat(200);
    let mut sent = 0;
    let grown = growth(&pgmux, || {
        while sent < 2000 && client.conn.send_within(&batch, Duration::from_millis(700)) {
            sent += 1;
        }
    });
    assert!(sent < 2000, "nothing held the client back");
    assert!(
        grown < 12 * 1024,
        "{grown} KiB for a client that only sends"
    );
    drop(client);
    direct.expect_idle();
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn flood_of_notices_is_held_back(shards: usize) {
    let (pgmux, mut direct) = start(shards, 2);
    canary::check(&pgmux.endpoint(), &pgmux.login());
    let mut client = narrow(&pgmux);
    let grown = growth(&pgmux, || {
        client.send(&frontend::query(
            "do $$ begin for i in 1..200000 loop raise notice '% %', i, repeat('n', 100); end loop; end $$",
        ));
        wait_until_blocked(&mut direct, 1);
    });
    assert!(
        grown < 12 * 1024,
        "{grown} KiB for notices that nobody reads"
    );
    let notices = client
        .replies()
        .iter()
        .filter(|message| message.tag == b'N')
        .count();
    assert_eq!(notices, 200_000);
    direct.expect_idle();
    pgmux.stop();
}

fn claims_of_huge_messages_cost_nothing(shards: usize) {
    let (pgmux, mut direct) = start(shards, 2);
    let mut clients: Vec<Session> = (0..100).map(|_| pgmux.client()).collect();
    let grown = growth(&pgmux, || {
        for client in &mut clients {
            client.send(&[b'Q', 0x3f, 0xff, 0xff, 0xf0, b's']);
        }
        canary::check(&pgmux.endpoint(), &pgmux.login());
    });
    assert!(
        grown < 8 * 1024,
        "{grown} KiB for a hundred claims of 1 GiB"
    );
    drop(clients);
    direct.expect_idle();
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

/// Opens `rounds` times a hundred connections that never log in, and drops
/// them: with a reset in every second round, else with a FIN.
fn connect_and_leave(pgmux: &Pgmux, rounds: usize) {
    for round in 0..rounds {
        let connections: Vec<Conn> = (0..100)
            .map(|_| Conn::open(&pgmux.endpoint()).expect("a connection"))
            .collect();
        if round % 2 == 0 {
            connections.into_iter().for_each(Conn::reset);
        }
    }
}

fn ten_thousand_connects_leave_no_descriptor(shards: usize) {
    let (pgmux, _direct) = start(shards, 2);
    canary::check(&pgmux.endpoint(), &pgmux.login());
    let fds = open_fds(pgmux.pid());
    let all_gone = || {
        let back = eventually(PATIENCE, || (open_fds(pgmux.pid()) <= fds).then_some(()));
        assert!(
            back.is_some(),
            "{} descriptors, {fds} before",
            open_fds(pgmux.pid())
        );
    };
    // How much of every shard's buffers and heap is touched at once depends on how many connections come together; but
    // only a leak grows each time. Half a KiB lost with each connection is what shows.
    let grown: Vec<u64> = (0..6)
        .map(|_| {
            let rss = rss_kib(pgmux.pid());
            connect_and_leave(&pgmux, 20);
            all_gone();
            rss_kib(pgmux.pid()).saturating_sub(rss)
        })
        .collect();
    assert!(
        grown.iter().any(|&grown| grown < 1024),
        "each time that two thousand connections came and went: {grown:?} KiB more"
    );
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn idle_process_uses_no_cpu(shards: usize) {
    let (pgmux, _direct) = start(shards, 4);
    let mut clients: Vec<Session> = (0..50).map(|_| pgmux.client()).collect();
    for client in &mut clients {
        canary::ask(client);
    }
    let before = (cpu_ticks(pgmux.pid()), wake_ups(pgmux.pid()));
    std::thread::sleep(Duration::from_secs(2));
    let used = (
        cpu_ticks(pgmux.pid()) - before.0,
        wake_ups(pgmux.pid()) - before.1,
    );
    // Two ticks are 20 ms of 2 s, far above idling and far below spinning.
    assert!(used.0 <= 2, "{} ticks in two idle seconds", used.0);
    assert!(used.1 <= 200, "{} wake-ups in two idle seconds", used.1);
    pgmux.stop();
}

fn many_prepared_statements_reach_a_plateau(shards: usize) {
    let (pgmux, mut direct) = start(shards, 1);
    let mut client = pgmux.client();
    let mut churn = |from: usize, count: usize| {
        for number in from..from + count {
            let name = format!("statement {number}");
            let mut batch = frontend::parse(
                &name,
                &format!("select {number} -- {}", "t".repeat(2000)),
                &[],
            );
            batch.extend(frontend::bind_text("", &name, &[]));
            batch.extend(frontend::execute("", 0));
            batch.extend(frontend::close(b'S', &name));
            batch.extend(frontend::sync());
            client.send(&batch);
            assert_eq!(client.replies().len(), 6);
        }
    };
    churn(0, 1500);
    let grown = growth(&pgmux, || churn(1500, 3000));
    assert!(
        grown < 4 * 1024,
        "{grown} KiB for 3,000 statements that were closed"
    );
    drop(client);
    let mut other = pgmux.client();
    let kept: i64 = other
        .value("select count(*) from pg_prepared_statements")
        .parse()
        .expect("a number");
    assert!(kept <= 200, "{kept} statements on a server");
    direct.expect_idle();
    pgmux.stop();
}

fn large_messages_leave_no_large_buffers(shards: usize) {
    let (pgmux, _direct) = start(shards, 2);
    let mut clients: Vec<Session> = (0..20).map(|_| pgmux.client()).collect();
    for client in &mut clients {
        canary::ask(client);
    }
    let large = "v".repeat(4_000_000);
    let grown = growth(&pgmux, || {
        for client in &mut clients {
            assert_eq!(client.value("select repeat('x', 4000000)").len(), 4_000_000);
            assert_eq!(
                client.rows_extended("select length($1)::text", &[&large])[0][0].as_deref(),
                Some("4000000")
            );
        }
    });
    assert!(
        grown < 12 * 1024,
        "{grown} KiB after twenty clients with large messages"
    );
    pgmux.stop();
}

fn out_of_descriptors_is_survived(shards: usize) {
    let cluster = Cluster::shared();
    let config = Config::new(cluster, &cluster.fresh_database())
        .shards(shards)
        .servers(2)
        .file_limit(160);
    let pgmux = Pgmux::start(&config);
    let mut client = pgmux.client();
    canary::ask(&mut client);
    let crowd: Vec<Conn> = (0..300)
        .filter_map(|_| Conn::open(&pgmux.endpoint()).ok())
        .collect();
    let before = cpu_ticks(pgmux.pid());
    for _ in 0..20 {
        canary::ask(&mut client);
    }
    std::thread::sleep(Duration::from_secs(1));
    let used = cpu_ticks(pgmux.pid()) - before;
    assert!(
        used <= 30,
        "{used} ticks in a second without descriptors: a loop that does not back off"
    );
    drop(crowd);
    let served = eventually(PATIENCE, || {
        Session::try_open(&pgmux.endpoint(), &pgmux.login()).ok()
    });
    canary::ask(&mut served.expect("a client after the crowd"));
    pgmux.stop();
}
