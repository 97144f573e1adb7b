//! The soak: many clients do random work for minutes and leave at random bytes, and nobody may ever see anything of
//! another; then nothing may be missing.
//!
//! Each client has a twin that talks to PostgreSQL itself, in a database of its own, and is asked the same: what it
//! is answered is what pgmux must answer. Whatever a client writes, names, sets or sends bears its own tag, and no
//! reply may bear another.
//!
//! `SOAK_SECONDS` says for how long (120; `make soak`: 600), `SOAK_SEED` repeats the choices of a run, `SOAK_CLIENTS` how many clients.

mod client;
mod extended;
mod session;
mod simple;
mod twins;
mod work;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tests::canary;
use tests::clean::{Inspector, Suspicions};
use tests::cluster::{Cluster, PASSWORD};
use tests::dice::number;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::process::{eventually, open_fds, rss_kib};
use tests::wire::{Endpoint, Login};

use client::{Passes, Scene};

const SHARDS: usize = 4;
const SERVERS: usize = 8;
/// Of these, how many may be kept by clients between transactions.
const KEPT: usize = 4;
/// A vanished client's work is cancelled after a moment, on a slow machine some time later.
const QUIET: Duration = Duration::from_secs(90);
/// What the second round may leave that the first has not: the allocators' arenas of four shards.
const GROWTH_KIB: u64 = 8 * 1024;

#[test]
fn nobody_sees_anything_of_another_and_nothing_is_missing_afterwards() {
    let seconds = number("SOAK_SECONDS").unwrap_or(GATE_SECONDS);
    let seed = number("SOAK_SEED").unwrap_or(GATE_SEED);
    println!("SOAK_SEED={seed}");
    let mut soak = Soak::start();
    let bare = soak.settled();
    let mut rounds = Vec::new();
    for round in 1..=2 {
        let lives = soak.round(seed, round, Duration::from_secs(seconds / 2));
        let lives = lives.unwrap_or_else(|error| panic!("SOAK_SEED={seed}\n{error}"));
        println!("round {round}: {lives} lives, {:?}", soak.pgmux.figures());
        let left = soak.settled();
        soak.expect_clean();
        assert_eq!(left.fds, bare.fds, "descriptors without the servers' own");
        rounds.push(left.memory_kib);
    }
    println!("memory: {} KiB at first, then {rounds:?}", bare.memory_kib);
    assert!(
        rounds[1] <= rounds[0] + GROWTH_KIB,
        "SOAK_SEED={seed}: {rounds:?} KiB after the rounds"
    );
    soak.pgmux.stop();
}

/// pgmux over one database, and the same database without it.
struct Soak {
    pgmux: Pgmux,
    direct: Direct,
    inspector: Inspector,
    endpoints: [Endpoint; 2],
    logins: [Login; 2],
}

/// What is left when all clients have gone.
struct Left {
    memory_kib: u64,
    fds: usize,
}

impl Soak {
    fn start() -> Self {
        let cluster = Cluster::shared();
        let (database, twin) = (cluster.fresh_database(), cluster.fresh_database());
        for name in [&database, &twin] {
            Direct::open(cluster, name).run(TABLES);
        }
        let config = Config::new(cluster, &database)
            .shards(SHARDS)
            .servers(SERVERS)
            .set("pool.max_prepared_statements", 6)
            .set("pool.connection_timeout", "120s");
        let pgmux = Pgmux::start(&config);
        Self {
            endpoints: [pgmux.endpoint(), Endpoint::local(cluster.port())],
            inspector: Inspector::new(cluster, &pgmux.endpoint(), &pgmux.login(), SERVERS),
            logins: [pgmux.login(), Login::new("app", PASSWORD, &twin)],
            direct: Direct::open(cluster, &database),
            pgmux,
        }
    }

    /// Lets the clients work; how often one was born.
    fn round(&mut self, seed: u64, round: u64, time: Duration) -> Result<u64, String> {
        let scene = Scene {
            endpoints: self.endpoints.clone(),
            logins: self.logins.clone(),
            seed,
            round,
            over: AtomicBool::new(false),
            passes: Passes::new(KEPT),
        };
        let failed = Mutex::new(false);
        let failure = Condvar::new();
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..number("SOAK_CLIENTS").unwrap_or(64))
                .map(|number| {
                    let (scene, failed, failure) = (&scene, &failed, &failure);
                    scope.spawn(move || {
                        let outcome = client::run(scene, number);
                        if outcome.is_err() {
                            *failed.lock().unwrap_or_else(PoisonError::into_inner) = true;
                            failure.notify_all();
                        }
                        outcome
                    })
                })
                .collect();
            let guard = failed.lock().unwrap_or_else(PoisonError::into_inner);
            drop(failure.wait_timeout_while(guard, time, |failed| !*failed));
            if *failed.lock().unwrap_or_else(PoisonError::into_inner) {
                println!(
                    "at the failure: {:?}\n{:#?}",
                    self.pgmux.figures(),
                    self.direct.activity()
                );
            }
            scene.over.store(true, Ordering::Relaxed);
            let ended = clients.into_iter().map(|client| client.join());
            ended
                .map(|outcome| outcome.unwrap_or_else(|_| Err("a client panicked".into())))
                .collect()
        });
        let errors: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| outcome.as_ref().err().cloned())
            .collect();
        if errors.is_empty() {
            Ok(outcomes.iter().flatten().sum())
        } else {
            Err(errors.join("\n\n"))
        }
    }

    /// Waits until no client, no work and no lease is left, and says what is.
    fn settled(&mut self) -> Left {
        let mut stats = BTreeMap::new();
        let settled = eventually(QUIET, || {
            stats = self.pgmux.figures();
            let of = |name: &str| stats[name];
            let servers = of("servers");
            let at_rest = ["clients", "logging_in", "waiting", "buffers_lent"]
                .iter()
                .all(|name| of(name) == 0)
                && of("servers_idle") == servers
                && of("sockets") == servers
                && self.direct.servers().len() as u64 == servers
                && self.direct.busy().is_empty();
            at_rest.then_some(usize::try_from(servers).expect("few"))
        });
        let Some(servers) = settled else {
            panic!("not at rest: {stats:?}, busy {:#?}", self.direct.busy());
        };
        assert!(servers <= SERVERS, "{servers} servers");
        for name in [
            "panics",
            "violations",
            "wait_timeouts",
            "server_login_failures",
        ] {
            assert_eq!(stats[name], 0, "{name}");
        }
        Left {
            memory_kib: rss_kib(self.pgmux.pid()),
            fds: open_fds(self.pgmux.pid()) - servers,
        }
    }

    /// No server holds anything of a client; fresh clients look through each.
    fn expect_clean(&mut self) {
        let (endpoint, login) = (self.pgmux.endpoint(), self.pgmux.login());
        self.inspector
            .expect_clean(&mut self.direct, &Suspicions::default());
        let temporary = "select count(*) from pg_class where relpersistence = 't'";
        assert_eq!(self.direct.number(temporary), 0, "temporary tables");
        canary::check(&endpoint, &login);
    }
}

const TABLES: &str = "create table soak(tag text, k int, v text, primary key (tag, k)); \
    create schema one; create schema two; \
    create table place(name text); insert into place values ('public'); \
    create table one.place(name text); insert into one.place values ('one'); \
    create table two.place(name text); insert into two.place values ('two'); \
    grant all on soak, place, one.place, two.place to public; \
    grant usage on schema one, two to public";

/// A gate makes the same choices every time; `make soak` makes others in each run.
const GATE_SEED: u64 = 1;
const GATE_SECONDS: u64 = 120;
