//! How many clients may come: of a user, of a database, in all; counted exactly over all shards, and only those that
//! have proved who they are.

use std::sync::Barrier;

use tests::canary;
use tests::cluster::{Cluster, PASSWORD};
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux, yaml_string};
use tests::process::{PATIENCE, eventually};
use tests::wire::{Conn, Login, Session, frontend};

/// Makes three tests of each function that takes a number of shards: on 1, 2 and 4.
macro_rules! on_each_number_of_shards {
    ($($name:ident),* $(,)?) => {
        mod on_1_shard {
            $(#[test] fn $name() { super::$name(1); })*
        }
        mod on_2_shards {
            $(#[test] fn $name() { super::$name(2); })*
        }
        mod on_4_shards {
            $(#[test] fn $name() { super::$name(4); })*
        }
    };
}

on_each_number_of_shards!(
    of_two_hundred_clients_at_once_exactly_fifty_get_in,
    each_limit_holds_at_its_number_and_is_told_in_its_words,
    limits_of_users_and_databases_hold_side_by_side,
    who_has_not_proved_who_it_is_takes_no_place,
    refused_clients_cost_no_server_and_are_counted,
    places_of_clients_that_vanish_or_give_up_are_free_again,
    replication_connections_are_counted_too,
);

/// Everybody who is listed is let in at once: what is counted is shown, not how they prove who they are.
fn trusting(config: Config, limits: &[(&str, u32)]) -> Config {
    let config = config
        .set("auth.method", "trust")
        .set("connection_limits.enabled", true);
    limits
        .iter()
        .fold(config, |config, (key, limit)| config.set(key, limit))
}

const PER_USER: &str = "connection_limits.default_max_connections_per_user";
const PER_DATABASE: &str = "connection_limits.default_max_connections_per_database";

fn start(shards: usize, configure: impl FnOnce(Config) -> Config) -> Pgmux {
    let cluster = Cluster::shared();
    let config = Config::new(cluster, &cluster.fresh_database()).shards(shards);
    Pgmux::start(&configure(config))
}

fn refusal(pgmux: &Pgmux, login: &Login) -> String {
    match Session::try_open(&pgmux.endpoint(), login) {
        Ok(_) => panic!("{} is let in to {}", login.user, login.database),
        Err(refusal) => refusal.replace("\\\"", "\""),
    }
}

fn expect_full(pgmux: &Pgmux, login: &Login, words: &str) {
    let refusal = refusal(pgmux, login);
    for part in ["FATAL", "53300", words] {
        assert!(refusal.contains(part), "{part:?} expected in: {refusal}");
    }
}

/// A client that has left gives its place back soon, not at once.
fn eventually_in(pgmux: &Pgmux, login: &Login) -> Session {
    let opened = eventually(PATIENCE, || {
        Session::try_open(&pgmux.endpoint(), login).ok()
    });
    opened.expect("a place that is free again")
}

fn of_two_hundred_clients_at_once_exactly_fifty_get_in(shards: usize) {
    for key in [PER_USER, PER_DATABASE, "proxy.max_clients"] {
        let pgmux = start(shards, |config| trusting(config, &[(key, 50)]));
        let barrier = Barrier::new(200);
        for round in 0..2 {
            let outcomes: Vec<Result<Session, String>> = std::thread::scope(|scope| {
                let storm: Vec<_> = (0..200)
                    .map(|_| {
                        scope.spawn(|| {
                            barrier.wait();
                            let login = pgmux.login();
                            let outcome = Session::try_open(&pgmux.endpoint(), &login);
                            // Nobody leaves before all have come.
                            barrier.wait();
                            outcome
                        })
                    })
                    .collect();
                storm
                    .into_iter()
                    .map(|client| client.join().expect("a client"))
                    .collect()
            });
            let (inside, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
            assert_eq!(inside.len(), 50, "{key}, round {round}");
            for outcome in refused {
                let refusal = outcome.expect_err("a refusal");
                assert!(refusal.contains("53300"), "{key}: {refusal}");
            }
            assert_eq!(pgmux.figure("limit_refusals"), 150 * (round + 1));
            drop(inside);
            pgmux.wait_for("clients", 0);
        }
        pgmux.stop();
    }
}

fn each_limit_holds_at_its_number_and_is_told_in_its_words(shards: usize) {
    let cases = [
        (PER_USER, "too many connections for user \"app\" (limit: 3)"),
        (
            PER_DATABASE,
            "too many connections for database \"{}\" (limit: 3)",
        ),
        ("proxy.max_clients", "sorry, too many clients already"),
    ];
    for (key, words) in cases {
        let pgmux = start(shards, |config| trusting(config, &[(key, 3)]));
        let login = pgmux.login();
        let words = words.replace("{}", &login.database);
        let mut inside: Vec<Session> = (0..3).map(|_| pgmux.client()).collect();
        for _ in 0..3 {
            expect_full(&pgmux, &login, &words);
        }
        for client in &mut inside {
            canary::ask(client);
        }
        inside.pop().expect("a client").send(&frontend::terminate());
        inside.push(eventually_in(&pgmux, &login));
        expect_full(&pgmux, &login, &words);
        pgmux.stop();
    }
    // The same numbers limit nobody where the limits are off.
    let pgmux = start(shards, |config| {
        trusting(config, &[(PER_USER, 1), (PER_DATABASE, 1)])
            .set("connection_limits.enabled", false)
    });
    let _inside = [pgmux.client(), pgmux.client()];
    pgmux.stop();
}

fn limits_of_users_and_databases_hold_side_by_side(shards: usize) {
    let cluster = Cluster::shared();
    let (wide, narrow) = (cluster.fresh_database(), cluster.fresh_database());
    let users = "[{username: app}, {username: few, max_connections: 1}, {username: many, max_connections: 0}]";
    let config = Config::new(cluster, &wide)
        .database(&narrow, cluster.port())
        .shards(shards)
        .set("auth.users", users)
        .set(&format!("databases.{narrow}.max_connections"), 2)
        .set(&format!("databases.{wide}.max_connections"), 0);
    let pgmux = Pgmux::start(&trusting(config, &[(PER_USER, 3), (PER_DATABASE, 1)]));
    let login = |user: &str, database: &str| Login::new(user, PASSWORD, database);
    let enter = |user, database| Session::open(&pgmux.endpoint(), &login(user, database));
    let full_narrow = format!("too many connections for database \"{narrow}\" (limit: 2)");
    let (full_app, full_few) = (
        "too many connections for user \"app\" (limit: 3)",
        "too many connections for user \"few\" (limit: 1)",
    );
    let first = enter("app", &narrow);
    let _few = enter("few", &narrow);
    expect_full(&pgmux, &login("app", &narrow), &full_narrow);
    expect_full(&pgmux, &login("many", &narrow), &full_narrow);
    expect_full(&pgmux, &login("few", &wide), full_few);
    // Those that were refused have taken no place of the other kind.
    let _app = [enter("app", &wide), enter("app", &wide)];
    expect_full(&pgmux, &login("app", &wide), full_app);
    let _many: Vec<Session> = (0..8).map(|_| enter("many", &wide)).collect();
    drop(first);
    let last = eventually_in(&pgmux, &login("many", &narrow));
    expect_full(&pgmux, &login("app", &narrow), &full_narrow);
    drop(last);
    let _app = eventually_in(&pgmux, &login("app", &narrow));
    expect_full(&pgmux, &login("app", &wide), full_app);
    pgmux.stop();
}

fn who_has_not_proved_who_it_is_takes_no_place(shards: usize) {
    let pgmux = start(shards, |config| {
        config
            .set("connection_limits.enabled", true)
            .set(PER_USER, 2)
            .set(PER_DATABASE, 2)
            .set("proxy.max_clients", 2)
    });
    let login = pgmux.login();
    // Logins that stop half-way, in the name of a user that has no place to lose by them.
    let startup = frontend::startup(3, 0, &[("user", "app"), ("database", &login.database)]);
    let half_open: Vec<Conn> = (0..20)
        .map(|_| {
            let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
            conn.send(&startup).expect("a startup packet");
            assert_eq!(conn.recv().expect("a question").tag, b'R');
            conn
        })
        .collect();
    let mut wrong = login.clone();
    wrong.password = "wrong".into();
    for _ in 0..3 {
        assert!(refusal(&pgmux, &wrong).contains("28P01"));
    }
    let _inside = [pgmux.client(), pgmux.client()];
    expect_full(&pgmux, &login, "too many");
    // Whether there is room, only those hear who have proved who they are.
    assert!(refusal(&pgmux, &wrong).contains("28P01"));
    assert_eq!(pgmux.figure("limit_refusals"), 1);
    drop(half_open);
    pgmux.stop();
}

fn refused_clients_cost_no_server_and_are_counted(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database).shards(shards);
    let pgmux = Pgmux::start(&trusting(config, &[(PER_USER, 1)]));
    let mut direct = Direct::open(cluster, &database);
    let mut inside = pgmux.client();
    canary::ask(&mut inside);
    let before = pgmux.figure("servers_opened");
    for number in 0..20 {
        // A label that no server has reported yet would take one to learn it.
        let name = format!("n{number}");
        let login = pgmux.login().param("application_name", &name);
        expect_full(&pgmux, &login, "(limit: 1)");
    }
    let figures = pgmux.figures();
    assert_eq!(figures["servers_opened"], before);
    assert_eq!(figures["limit_refusals"], 20);
    assert_eq!(figures["clients"], 1);
    assert_eq!(direct.servers().len() as u64, before);
    pgmux.stop();
}

fn places_of_clients_that_vanish_or_give_up_are_free_again(shards: usize) {
    let pgmux = start(shards, |config| {
        trusting(config, &[(PER_USER, 2)])
            .servers(1)
            .set("proxy.login_timeout", "2s")
    });
    let mut holder = pgmux.client();
    // One after the other vanishes in a transaction, or while it waits for a server.
    for round in 0..6 {
        let mut guest = eventually_in(&pgmux, &pgmux.login());
        match round % 3 {
            0 => {
                guest.query("begin");
            }
            1 => guest.send(&frontend::query("select pg_sleep(60)")),
            _ => {}
        }
        guest.conn.reset();
    }
    holder.query("begin");
    // A login that needs a server to learn what it reports waits for it with its place, until its time is over.
    let late = pgmux.login().param("application_name", "late");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            eventually(PATIENCE, || {
                let refused = Session::try_open(&pgmux.endpoint(), &late).err()?;
                (!refused.contains("53300")).then_some(())
            })
        });
        let full = eventually(PATIENCE, || {
            let outcome = Session::try_open(&pgmux.endpoint(), &pgmux.login());
            outcome.err().filter(|refused| refused.contains("53300"))
        });
        assert!(full.is_some(), "who waits for a server has no place");
        assert!(waiting.join().expect("the late client").is_some());
    });
    let _guest = eventually_in(&pgmux, &pgmux.login());
    holder.query("commit");
    pgmux.wait_for("clients", 2);
    pgmux.stop();
}

fn replication_connections_are_counted_too(shards: usize) {
    let cluster = Cluster::shared();
    Direct::open(cluster, "postgres").run(
        "do $$ begin if not exists (select from pg_roles where rolname = 'limits_replicator') then \
         create role limits_replicator login replication password 'replicator'; end if; \
         exception when duplicate_object or unique_violation then null; end $$",
    );
    let config = Config::new(cluster, &cluster.fresh_database())
        .shards(shards)
        .set("proxy.allow_replication", true)
        .set("backend.user", "limits_replicator")
        .set("backend.password", yaml_string("replicator"));
    let pgmux = Pgmux::start(&trusting(config, &[(PER_USER, 2)]));
    let login = pgmux.login().param("replication", "database");
    let first = Session::open(&pgmux.endpoint(), &login);
    let _second = pgmux.client();
    expect_full(&pgmux, &login, "(limit: 2)");
    expect_full(&pgmux, &pgmux.login(), "(limit: 2)");
    drop(first);
    let _third = eventually_in(&pgmux, &login);
    pgmux.stop();
}
