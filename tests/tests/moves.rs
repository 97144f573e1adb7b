//! Servers that move from shard to shard: nothing is stranded, and what a server has of its past goes along.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tests::cluster::{Cluster, Options};
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually};
use tests::tls::Authority;
use tests::wire::{Conn, Session, frontend};

tests::on_many_shards!(
    servers_of_all_shards_get_to_the_one_that_has_all_clients,
    clients_that_wander_take_the_servers_along,
    clients_that_move_of_themselves_find_every_server,
    who_waits_longest_of_all_shards_is_served_first_within_the_margin,
    nobody_waits_in_vain_while_a_server_is_idle_somewhere,
    a_moved_server_has_its_statements_and_its_settings,
    a_query_on_a_moved_server_is_cancelled,
    servers_of_a_clients_own_role_move_too,
    servers_with_tls_move_too,
);

struct Bench {
    pgmux: Pgmux,
    direct: Direct,
    shards: usize,
}

fn bench(shards: usize, configure: impl FnOnce(Config) -> Config) -> Bench {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    // Clients stay where they are, so that servers move.
    let config = Config::new(cluster, &database)
        .shards(shards)
        .set("engine.balance", "off");
    let config = configure(config);
    Bench {
        pgmux: Pgmux::start(&config),
        direct: Direct::open(cluster, &database),
        shards,
    }
}

impl Bench {
    /// So many clients on a shard, by the process id that they are told.
    fn clients(&self, shard: usize, count: usize) -> Vec<Session> {
        let mut strangers = Vec::new();
        let mut clients = Vec::new();
        while clients.len() < count {
            let client = self.pgmux.client();
            match shard_of(&client) == shard {
                true => clients.push(client),
                // Those stay until all are there, lest the next one takes their place.
                false => strangers.push(client),
            }
            assert!(strangers.len() < 500, "hardly any client gets to {shard}");
        }
        clients
    }

    fn client(&self, shard: usize) -> Session {
        self.clients(shard, 1).remove(0)
    }

    /// A client on each shard.
    fn one_on_each(&self) -> Vec<Session> {
        (0..self.shards).map(|shard| self.client(shard)).collect()
    }

    /// Opens as many servers as there may be, on all shards.
    fn open_servers_everywhere(&mut self, servers: usize) {
        let per_shard = servers / self.shards;
        let clients = (0..self.shards).map(|shard| self.clients(shard, per_shard));
        let mut clients: Vec<_> = clients.flatten().collect();
        for client in &mut clients {
            client.query("begin");
        }
        for client in &mut clients {
            client.query("commit");
        }
        self.direct.expect_servers(servers);
    }
}

fn shard_of(client: &Session) -> usize {
    let pid = client.key.as_ref().expect("a key").0;
    usize::try_from(pid >> 20).expect("positive") - 1
}

/// Runs `work` while somebody counts the servers; gives the most.
fn watched<T>(direct: &mut Direct, work: impl FnOnce() -> T) -> (usize, T) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::SeqCst) {
                most = most.max(direct.servers().len());
            }
            most
        });
        let result = work();
        done.store(true, Ordering::SeqCst);
        (watch.join().expect("the watch"), result)
    })
}

/// Every client asks so many questions at the same time as the others, and gets its own answers.
fn ask_together(clients: &mut [Session], rounds: usize) {
    std::thread::scope(|scope| {
        for (number, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || {
                for round in 0..rounds {
                    let expected = format!("{number}/{round}");
                    assert_eq!(client.value(&format!("select '{expected}'")), expected);
                }
            });
        }
    });
}

/// So many clients have a server at the same time, so all are where they are.
fn take_all(clients: &mut [Session], servers: usize) {
    for client in &mut clients[..servers] {
        client.query("begin");
    }
    for client in &mut clients[..servers] {
        client.query("commit");
    }
}

fn servers_of_all_shards_get_to_the_one_that_has_all_clients(shards: usize) {
    let mut bench = bench(shards, |config| config.servers(4));
    bench.open_servers_everywhere(4);
    let mut clients = bench.clients(0, 8);
    let moved = (4 - 4 / shards) as u64;
    let (most, ()) = watched(&mut bench.direct, || {
        // One server would do, but slowly; so the others come too.
        let came = eventually(PATIENCE, || {
            ask_together(&mut clients, 50);
            (bench.pgmux.figures()["handovers_taken"] >= moved).then_some(())
        });
        assert!(came.is_some(), "{:?}", bench.pgmux.figures());
        take_all(&mut clients, 4);
    });
    assert!(most <= 4, "{most} servers");
    let figures = bench.pgmux.figures();
    assert_eq!(figures["servers_opened"], 4, "{figures:?}");
    assert!(figures["handovers_taken"] >= moved, "{figures:?}");
    assert_eq!(figures["handovers_taken"], figures["handovers_given"]);
    assert!(figures.contains_key("handover_p50_us"));
    assert_eq!(figures["servers"], 4);
    bench.pgmux.stop();
}

fn clients_that_wander_take_the_servers_along(shards: usize) {
    let mut bench = bench(shards, |config| config.servers(4));
    let rounds = 3 * shards;
    let crowds: Vec<_> = (0..rounds)
        .map(|round| bench.clients(round % shards, 6))
        .collect();
    let (most, ()) = watched(&mut bench.direct, || {
        for mut crowd in crowds {
            ask_together(&mut crowd, 20);
            take_all(&mut crowd, 4);
        }
    });
    assert!(most <= 4, "{most} servers");
    let figures = bench.pgmux.figures();
    assert!(figures["servers_opened"] <= 4, "{figures:?}");
    bench.pgmux.stop();
}

/// The same where clients move on after each transaction, each by itself.
fn clients_that_move_of_themselves_find_every_server(shards: usize) {
    let mut bench = bench(shards, |config| {
        config.servers(4).set("engine.balance", "restless")
    });
    let mut clients: Vec<Session> = (0..8).map(|_| bench.pgmux.client()).collect();
    let (most, ()) = watched(&mut bench.direct, || {
        for _ in 0..10 {
            ask_together(&mut clients, 10);
            take_all(&mut clients, 4);
        }
    });
    assert!(most <= 4, "{most} servers");
    let figures = bench.pgmux.figures();
    assert_eq!(figures["servers_opened"], 4, "{figures:?}");
    assert_eq!(figures["wait_timeouts"], 0, "{figures:?}");
    assert!(figures["clients_moved"] > 100, "{figures:?}");
    bench.pgmux.stop();
}

/// One server. Its shard has clients that ask without end, so it never rests there; and yet whoever waits elsewhere gets it
/// after the margin, before those who came later.
fn who_waits_longest_of_all_shards_is_served_first_within_the_margin(shards: usize) {
    let bench = bench(shards, |config| config.servers(1));
    let mut holder = bench.client(0);
    let mut elsewhere: Vec<Session> = (1..shards).map(|shard| bench.client(shard)).collect();
    let mut late = bench.clients(0, 4);
    for _ in 0..5 {
        holder.query("begin");
        for client in &mut elsewhere {
            client.send(&frontend::query("select clock_timestamp()::text"));
        }
        bench.pgmux.wait_for("waiting", elsewhere.len() as u64);
        // More than the margin, with time to spare.
        holder.query("select pg_sleep(0.5)");
        for client in &mut late {
            client.send(&frontend::query(
                "select clock_timestamp()::text, pg_sleep(0.01)",
            ));
        }
        let all = elsewhere.len() + late.len();
        bench.pgmux.wait_for("waiting", all as u64);
        holder.query("commit");
        let answer = |client: &mut Session| {
            let replies = client.replies();
            let row = replies.iter().find(|message| message.tag == b'D');
            row.expect("a row").row()[0].clone().expect("a time")
        };
        let first: Vec<String> = elsewhere.iter_mut().map(answer).collect();
        let last: Vec<String> = late.iter_mut().map(answer).collect();
        let (latest_of_first, earliest_of_last) = (first.iter().max(), last.iter().min());
        assert!(latest_of_first < earliest_of_last, "{first:?} {last:?}");
    }
    bench.pgmux.stop();
}

fn nobody_waits_in_vain_while_a_server_is_idle_somewhere(shards: usize) {
    for servers in [1, 2] {
        let bench = bench(shards, |config| {
            config
                .servers(servers)
                .set("pool.connection_timeout", "10s")
        });
        // Three on the first shard, who leave its servers idle for moments only; one on each of the others.
        let mut clients = bench.clients(0, 3);
        clients.extend((1..shards).map(|shard| bench.client(shard)));
        ask_together(&mut clients, 200);
        let figures = bench.pgmux.figures();
        assert_eq!(figures["wait_timeouts"], 0, "{figures:?}");
        assert!(figures["servers_opened"] <= servers as u64, "{figures:?}");
        bench.pgmux.stop();
    }
}

fn prepare(client: &mut Session, name: &str, sql: &str) {
    let mut batch = frontend::parse(name, sql, &[]);
    batch.extend(frontend::sync());
    client.send(&batch);
    assert!(client.replies().iter().all(|message| message.tag != b'E'));
}

/// The first column of the first row, or the SQLSTATE.
fn execute(client: &mut Session, name: &str, values: &[&str]) -> String {
    let mut batch = frontend::bind_text("", name, values);
    batch.extend(frontend::execute("", 0));
    batch.extend(frontend::sync());
    client.send(&batch);
    let replies = client.replies();
    if let Some(error) = replies.iter().find(|message| message.tag == b'E') {
        return error.sqlstate();
    }
    let row = replies.iter().find(|message| message.tag == b'D');
    row.and_then(|message| message.row()[0].clone())
        .unwrap_or_default()
}

fn a_moved_server_has_its_statements_and_its_settings(shards: usize) {
    let mut bench = bench(shards, |config| config.servers(1));
    statements_and_settings(&mut bench);
    bench.pgmux.stop();
}

fn statements_and_settings(bench: &mut Bench) {
    bench.direct.run(
        "create table narrow(a int); insert into narrow values (1); grant all on narrow to app",
    );
    // Those who have set nothing must not get what the others have set, wherever the server comes from.
    let mut plain = bench.one_on_each();
    let default = bench.direct.text("show work_mem");
    let mut clients = bench.one_on_each();
    for (number, client) in clients.iter_mut().enumerate() {
        client.query(&format!("set work_mem = '{}MB'", 20 + number));
        prepare(client, "own", &format!("select $1::int + {number}"));
        prepare(client, "same", "select * from narrow");
        assert_eq!(execute(client, "same", &[]), "1");
    }
    for round in 0..20 {
        for (number, client) in clients.iter_mut().enumerate() {
            let sum = execute(client, "own", &[&round.to_string()]);
            assert_eq!(sum, (round + number).to_string());
            let expected = format!("{}MB", 20 + number);
            assert_eq!(client.value("show work_mem"), expected);
            let next = (number + 1) % bench.shards;
            assert_eq!(plain[next].value("show work_mem"), default);
        }
    }
    // The copy that the server has is of before the change, and PostgreSQL says so. Had it been made again after the
    // move, nobody would.
    let mover = bench.shards - 1;
    assert_eq!(execute(&mut clients[0], "same", &[]), "1");
    clients[mover].query("select 1");
    bench.direct.run("alter table narrow add b int default 2");
    assert_eq!(execute(&mut clients[0], "same", &[]), "0A000");
    let figures = bench.pgmux.figures();
    assert_eq!(figures["servers_opened"], 1, "{figures:?}");
    assert!(
        figures["handovers_taken"] >= (20 * bench.shards) as u64,
        "{figures:?}"
    );
}

fn cancel(pgmux: &Pgmux, (pid, key): &(i32, Vec<u8>)) {
    let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
    conn.send(&frontend::cancel_request(*pid, key))
        .expect("sent");
    let _ = conn.recv();
}

fn a_query_on_a_moved_server_is_cancelled(shards: usize) {
    let mut bench = bench(shards, |config| config.servers(1));
    cancelled_after_moving(&mut bench);
    bench.pgmux.stop();
}

fn cancelled_after_moving(bench: &mut Bench) {
    let mut clients = bench.one_on_each();
    for client in &mut clients {
        client.query("select 1");
        let key = client.key.clone().expect("a key");
        client.send(&frontend::query("select pg_sleep(60)"));
        bench.direct.expect_sleeper();
        cancel(&bench.pgmux, &key);
        let replies = client.replies();
        assert!(
            replies
                .iter()
                .any(|reply| reply.tag == b'E' && reply.sqlstate() == "57014")
        );
    }
    assert_eq!(bench.pgmux.figures()["servers_opened"], 1);
}

fn servers_of_a_clients_own_role_move_too(shards: usize) {
    let bench = bench(shards, |config| {
        config
            .servers(1)
            .set("backend.user", "passthrough")
            .unset("backend.password")
    });
    let mut clients = bench.one_on_each();
    for round in 0..10 {
        for client in &mut clients {
            let expected = format!("app {round}");
            let sql = format!("select current_user || ' ' || {round}");
            assert_eq!(client.value(&sql), expected);
        }
    }
    let figures = bench.pgmux.figures();
    // Who logs in may find the role's only server busy; nobody opens another.
    assert!(
        figures["handovers_taken"] >= (9 * shards) as u64,
        "{figures:?}"
    );
    // A role that nobody uses any more is forgotten, and its servers with it.
    drop(clients);
    bench.pgmux.stop();
}

fn servers_with_tls_move_too(shards: usize) {
    let authority = Authority::new("a CA of servers");
    let pair = authority.sign("a server", &["localhost"]);
    pair.give_to_server();
    let cluster = Cluster::start(&Options {
        settings: vec![
            "ssl = on".into(),
            format!("ssl_cert_file = '{}'", pair.cert.display()),
            format!("ssl_key_file = '{}'", pair.key.display()),
        ],
        ..Options::default()
    });
    let database = cluster.fresh_database();
    let config = Config::new(&cluster, &database)
        .set(&format!("databases.{database}.writer.host"), "localhost")
        .set("backend.server_sslmode", "verify-full")
        .set("backend.server_ca_file", authority.file().display())
        .servers(1)
        .shards(shards)
        .set("engine.balance", "off");
    let mut bench = Bench {
        pgmux: Pgmux::start(&config),
        direct: Direct::open(&cluster, &database),
        shards,
    };
    statements_and_settings(&mut bench);
    cancelled_after_moving(&mut bench);
    let mut clients = bench.one_on_each();
    for client in &mut clients {
        let sql = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        assert_eq!(client.value(sql), "t");
    }
    drop(clients);
    bench.pgmux.stop();
}

#[test]
fn pgmux_stops_while_servers_move() {
    for round in 0..5 {
        let mut bench = bench(4, |config| {
            config.servers(2).set("proxy.shutdown_timeout", "1s")
        });
        let clients: Vec<_> = (0..4).flat_map(|shard| bench.clients(shard, 2)).collect();
        std::thread::scope(|scope| {
            for mut client in clients {
                scope.spawn(move || {
                    // Until it is told to go.
                    while client.conn.send(&frontend::query("select 1")).is_ok()
                        && client.conn.recv_until(b'Z').is_ok()
                    {}
                });
            }
            std::thread::sleep(Duration::from_millis(20 * round));
            bench.pgmux.stop();
        });
        bench.direct.expect_servers(0);
    }
}
