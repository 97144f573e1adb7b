//! How many servers a database has: the reserve of its pool, and the limit over all its pools.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tests::cluster::{Cluster, PASSWORD};
use tests::direct::Direct;
use tests::on_shards;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually};
use tests::wire::{Login, Session, frontend};

on_shards!(
    reserve_is_opened_for_clients_that_have_waited_and_leaves_again,
    no_reserve_is_opened_before_its_time_nor_more_than_there_is,
    database_keeps_to_its_limit_whatever_its_pool_may_have,
    roles_of_a_database_keep_to_its_limit_and_all_are_served,
    idle_server_makes_way_for_another_role,
);

struct Bench {
    pgmux: Pgmux,
    direct: Direct,
    database: String,
}

/// `limit` is `databases.X.max_server_connections`.
fn bench(shards: usize, limit: Option<u32>, configure: impl FnOnce(Config) -> Config) -> Bench {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let mut config = configure(Config::new(cluster, &database).shards(shards));
    if let Some(limit) = limit {
        let key = format!("databases.{database}.max_server_connections");
        config = config.set(&key, limit);
    }
    Bench {
        pgmux: Pgmux::start(&config),
        direct: Direct::open(cluster, &database),
        database,
    }
}

impl Bench {
    fn client(&self, user: &str) -> Session {
        let login = Login::new(user, PASSWORD, &self.database);
        Session::open(&self.pgmux.endpoint(), &login)
    }

    /// The most servers that PostgreSQL sees while something is done.
    fn most_servers_during(&mut self, act: impl FnOnce(&Pgmux, &str)) -> usize {
        let done = AtomicBool::new(false);
        let (pgmux, database, direct) = (&self.pgmux, &self.database, &mut self.direct);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = 0;
                while !done.load(Ordering::SeqCst) {
                    most = most.max(direct.servers().len());
                }
                most
            });
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                act(pgmux, database);
            }));
            done.store(true, Ordering::SeqCst);
            let most = watch.join().expect("the watch");
            if let Err(panic) = outcome {
                std::panic::resume_unwind(panic);
            }
            most
        })
    }
}

fn begin(client: &mut Session) {
    assert_eq!(client.query("begin").last().expect("a reply").body, b"T");
}

fn reserve_is_opened_for_clients_that_have_waited_and_leaves_again(shards: usize) {
    let timeout = Duration::from_secs(2);
    let mut bench = bench(shards, None, |config| {
        config
            .servers(2)
            .set("pool.reserve_connections", 2)
            .set("pool.reserve_timeout", "2s")
    });
    let mut clients: Vec<Session> = (0..5).map(|_| bench.pgmux.client()).collect();
    let started = Instant::now();
    for client in &mut clients {
        client.send(&frontend::query("begin"));
    }
    // Two at once, two more after the timeout, and one never.
    bench.direct.expect_servers(4);
    assert!(
        started.elapsed() >= timeout,
        "the reserve was used after {:?}",
        started.elapsed()
    );
    let served = eventually(PATIENCE, || {
        let begun = "select count(*) from pg_stat_activity \
            where state = 'idle in transaction' and datname = current_database()";
        (bench.direct.number(begun) == 4).then_some(())
    });
    assert!(served.is_some(), "{:#?}", bench.direct.activity());
    // All leave; the fifth is served on the way.
    for client in &mut clients {
        client.send(&frontend::query("commit"));
    }
    drop(clients);
    let shrunk = eventually(PATIENCE, || {
        (bench.direct.servers().len() <= 2).then_some(())
    });
    assert!(shrunk.is_some(), "{:#?}", bench.direct.activity());
    let mut client = bench.pgmux.client();
    assert_eq!(client.value("select 1"), "1");
    bench.pgmux.stop();
}

fn no_reserve_is_opened_before_its_time_nor_more_than_there_is(shards: usize) {
    let mut quick = bench(shards, None, |config| {
        config
            .servers(2)
            .set("pool.reserve_connections", 3)
            .set("pool.reserve_timeout", "0s")
    });
    let busy = |pgmux: &Pgmux, _: &str| {
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let mut client = pgmux.client();
                    for _ in 0..20 {
                        begin(&mut client);
                        client.query("commit");
                    }
                });
            }
        });
    };
    let most = quick.most_servers_during(busy);
    assert!(most <= 5, "{most} servers for 2 and a reserve of 3");
    quick.pgmux.stop();
    // Clients that come and go quickly never wait so long.
    let mut slow = bench(shards, None, |config| {
        config
            .servers(2)
            .set("pool.reserve_connections", 3)
            .set("pool.reserve_timeout", "1h")
    });
    let most = slow.most_servers_during(busy);
    assert!(most <= 2, "{most} servers though nobody waited for an hour");
    slow.pgmux.stop();
}

fn database_keeps_to_its_limit_whatever_its_pool_may_have(shards: usize) {
    let mut bench = bench(shards, Some(2), |config| {
        config
            .servers(9)
            .set("pool.reserve_connections", 9)
            .set("pool.reserve_timeout", "0s")
    });
    let most = bench.most_servers_during(|pgmux, _| {
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    let mut client = pgmux.client();
                    for _ in 0..10 {
                        begin(&mut client);
                        client.query("commit");
                    }
                });
            }
        });
    });
    assert!((1..=2).contains(&most), "{most} servers for a limit of 2");
    bench.pgmux.stop();
}

const ROLES: [&str; 3] = ["app", "other", "app_trust"];

fn passthrough(config: Config) -> Config {
    config
        .set("backend.user", "passthrough")
        .unset("backend.password")
        .users(&ROLES)
}

fn roles_of_a_database_keep_to_its_limit_and_all_are_served(shards: usize) {
    let mut bench = bench(shards, Some(2), passthrough);
    let most = bench.most_servers_during(|pgmux, database| {
        let endpoint = pgmux.endpoint();
        std::thread::scope(|scope| {
            for number in 0..12 {
                let role = ROLES[number % 3];
                let (login, endpoint) = (Login::new(role, PASSWORD, database), &endpoint);
                scope.spawn(move || {
                    let mut client = Session::open(endpoint, &login);
                    for _ in 0..10 {
                        begin(&mut client);
                        assert_eq!(client.value("select current_user"), role);
                        client.query("commit");
                    }
                });
            }
        });
    });
    assert!((1..=2).contains(&most), "{most} servers for a limit of 2");
    assert_eq!(bench.pgmux.figure("wait_timeouts"), 0);
    bench.pgmux.stop();
}

fn idle_server_makes_way_for_another_role(shards: usize) {
    let mut bench = bench(shards, Some(3), passthrough);
    for _ in 0..3 {
        // Two servers of one role and one of another, all idle.
        let mut pair = [bench.client("app"), bench.client("app")];
        pair.iter_mut().for_each(begin);
        let mut other = bench.client("other");
        begin(&mut other);
        for client in pair.iter_mut().chain([&mut other]) {
            client.query("commit");
        }
        let mut third = bench.client("app_trust");
        assert_eq!(third.value("select current_user"), "app_trust");
        if shards == 1 {
            // The one with more to spare has given one up.
            let left = bench.direct.text(
                "select string_agg(distinct usename, ' ' order by usename) from pg_stat_activity \
                 where datname = current_database() and usename in ('app', 'other', 'app_trust')",
            );
            assert_eq!(left, "app app_trust other");
        }
        assert!(bench.direct.servers().len() <= 3);
    }
    bench.pgmux.stop();
}
