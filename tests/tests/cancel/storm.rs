//! No stranger is ever cancelled: cancel requests at random moments, by the own instance and through a peer, against
//! queries that end at about the same time on servers that all share.
//!
//! `CANCELS` says how many (the gate sends two thousand and, to clients that move, fewer), `CANCEL_SEED` which.

use super::support::{ask_to_cancel, batch, end_of, error_in, key_of};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tests::canary;
use tests::cluster::Cluster;
use tests::dice::Dice;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually, free_port};
use tests::wire::{Conn, Endpoint, Message, Session, frontend};

const SHARDS: usize = 4;
/// Fewer than there are clients, so that servers change hands all the time.
const SERVERS: usize = 10;
const CANCELLED: usize = 10;
const BYSTANDERS: usize = 6;

struct Storm {
    /// The own instance and its peer.
    endpoints: [Endpoint; 2],
    pgmux: Pgmux,
    left: AtomicUsize,
    over: AtomicBool,
    /// In a hundred.
    long: usize,
    seed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    cancels: usize,
    hits: usize,
    long: usize,
}

#[test]
fn no_stranger_is_ever_cancelled() {
    storm(&[], 1, 2000);
}

/// Every client moves on after each transaction, and servers follow, while requests look for them.
#[test]
fn no_stranger_is_ever_cancelled_while_clients_move() {
    let figures = storm(&[("engine.balance", "restless")], 1, 600);
    // Each transaction ends with a move, but for those that a request holds up.
    assert!(figures["clients_moved"] > figures["transactions"] / 4);
    assert!(figures["handovers_taken"] > 0);
}

/// The same where hardly any message finds room: clients and servers stay, requests come later, and none is lost.
#[test]
fn no_cancel_is_lost_where_mailboxes_are_full() {
    let settings = [("engine.balance", "restless"), ("engine.mailbox", "1")];
    // A request comes late there, so what shows that none is lost are the queries that wait for it.
    let figures = storm(&settings, 30, 150);
    assert!(figures["mail_refused"] > 0);
}

/// So many cancels, unless `CANCELS` says otherwise; `long` in a hundred are of queries that end by nothing else. The figures of the instance that has the clients.
fn storm(settings: &[(&str, &str)], long: usize, cancels: usize) -> BTreeMap<String, u64> {
    let cancels = number("CANCELS").unwrap_or(cancels);
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let ports = [free_port(), free_port()];
    let peers = format!(
        "[{{id: 1, address: '127.0.0.1:{}'}}, {{id: 2, address: '127.0.0.1:{}'}}]",
        ports[0], ports[1]
    );
    let start = |at: usize| {
        let config = Config::new(cluster, &database)
            .shards(SHARDS)
            .servers(SERVERS)
            .set("pool.connection_timeout", "120s")
            .set("engine.instance_id", at + 1)
            .set("peers", &peers)
            .port(ports[at]);
        let set = |config: Config, (key, value): &(&str, &str)| config.set(key, value);
        Pgmux::start(&settings.iter().fold(config, set))
    };
    let (pgmux, peer) = (start(0), start(1));
    let storm = Storm {
        endpoints: [pgmux.endpoint(), peer.endpoint()],
        pgmux,
        left: AtomicUsize::new(cancels),
        over: AtomicBool::new(false),
        long,
        seed: number("CANCEL_SEED").unwrap_or(1) as u64,
    };
    let (tally, served) = storm.rage();
    println!("{tally:?}, {served} queries of bystanders");
    assert!(
        tally.hits > tally.cancels / 20,
        "hardly any was in time: {tally:?}"
    );
    assert!(tally.hits < tally.cancels, "none was late: {tally:?}");
    for pgmux in [&storm.pgmux, &peer] {
        let figures = pgmux.figures();
        for name in ["panics", "violations", "wait_timeouts", "cancels_under_way"] {
            assert_eq!(figures[name], 0, "{name}");
        }
        assert_eq!(figures["cancels_dropped"], 0);
        canary::check(&pgmux.endpoint(), &pgmux.login());
    }
    assert!(peer.figures()["cancels_forwarded"] > 0);
    Direct::open(cluster, &database).expect_idle();
    let figures = storm.pgmux.figures();
    println!("{settings:?}: {figures:?}");
    storm.pgmux.stop();
    peer.stop();
    figures
}

impl Storm {
    fn rage(&self) -> (Tally, usize) {
        std::thread::scope(|scope| {
            let bystanders: Vec<_> = (0..BYSTANDERS)
                .map(|number| scope.spawn(move || self.stand_by(number)))
                .collect();
            let cancelled: Vec<_> = (0..CANCELLED)
                .map(|number| scope.spawn(move || self.be_cancelled(number)))
                .collect();
            let mut all = Tally::default();
            let ended: Vec<_> = cancelled.into_iter().map(|client| client.join()).collect();
            self.over.store(true, Ordering::SeqCst);
            let served = bystanders.into_iter().map(|client| client.join());
            let served: usize = served.map(|served| served.expect("a bystander")).sum();
            for tally in ended {
                let tally = tally.expect("a client that is cancelled");
                all.cancels += tally.cancels;
                all.hits += tally.hits;
                all.long += tally.long;
            }
            (all, served)
        })
    }

    /// Asks again and again, and is never cancelled.
    fn stand_by(&self, number: usize) -> usize {
        let mut dice = Dice::new(&[self.seed, 1, number as u64]);
        let mut client = self.client(number);
        let mut served = 0;
        while !self.over.load(Ordering::SeqCst) {
            let request = request(&mut dice, 4000);
            client.send(&request);
            let replies = client.replies();
            assert_eq!(error_in(&replies), None, "a stranger was cancelled");
            served += 1;
        }
        served
    }

    /// Is cancelled at random moments of its queries, by nobody but itself.
    fn be_cancelled(&self, number: usize) -> Tally {
        let mut dice = Dice::new(&[self.seed, 2, number as u64]);
        let mut client = self.client(number);
        let key = key_of(&client);
        let mut tally = Tally::default();
        while self.is_one_left() {
            let long = dice.chance(self.long);
            let endpoint = &self.endpoints[usize::from(dice.chance(25))];
            let conn = Conn::open(endpoint).expect("a connection");
            match long {
                true => self.sleep(&mut client, number),
                false => client.send(&request(&mut dice, 6000)),
            }
            let moment = dice.below(8000);
            std::thread::sleep(Duration::from_micros(moment as u64));
            let conn = ask_to_cancel(conn, &key);
            // Its end first, or that of the query first.
            let early = dice.chance(50);
            let conn = match early {
                true => {
                    end_of(conn);
                    None
                }
                false => Some(conn),
            };
            let hit = self.outcome(&client.replies());
            conn.into_iter().for_each(end_of);
            assert!(hit || !long, "a query that slept was not ended");
            tally.cancels += 1;
            tally.hits += usize::from(hit);
            tally.long += usize::from(long);
            // What it asks behind the end is not hit.
            if dice.chance(30) {
                client.send(&frontend::query("select pg_sleep(0.001)"));
                assert_eq!(
                    error_in(&client.replies()),
                    None,
                    "a later query was cancelled"
                );
            }
        }
        tally
    }

    /// Runs a query that takes long, and waits until it runs: a signal that comes before PostgreSQL has read a request
    /// does nothing to it.
    fn sleep(&self, client: &mut Session, number: usize) {
        client.send(&frontend::query(&format!(
            "select pg_sleep(30), 'of {number}'"
        )));
        let sql = format!(
            "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and query like '%30), ''of {number}''%'"
        );
        let mut direct = Direct::open(Cluster::shared(), &self.pgmux.login().database);
        let asleep = eventually(PATIENCE, || (direct.number(&sql) > 0).then_some(()));
        assert!(asleep.is_some(), "it does not run");
    }

    fn is_one_left(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
            .is_ok()
    }

    fn outcome(&self, replies: &[Message]) -> bool {
        match error_in(replies).as_deref() {
            None => false,
            Some("57014") => true,
            Some(other) => panic!("{other}"),
        }
    }

    /// Every other one has settings of its own, which are set ahead of its requests.
    fn client(&self, number: usize) -> Session {
        let mut login = self
            .pgmux
            .login()
            .minor(if number.is_multiple_of(3) { 2 } else { 0 });
        if number.is_multiple_of(2) {
            login = login.param("application_name", &format!("client {number}"));
        }
        Session::open(&self.endpoints[0], &login)
    }
}

/// A query that takes up to so many microseconds.
fn request(dice: &mut Dice, micros: usize) -> Vec<u8> {
    let seconds = dice.below(micros) as f64 / 1e6;
    match dice.pick(&[0, 1, 2, 2]) {
        0 => batch(&format!("select pg_sleep({seconds})")),
        1 => frontend::query(&format!("select 1; select pg_sleep({seconds}); select 2")),
        _ => frontend::query(&format!("select pg_sleep({seconds})")),
    }
}

fn number(variable: &str) -> Option<usize> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}: a number")),
    )
}
