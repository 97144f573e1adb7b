//! Random operations on all shards of a pool, with a model engine that carries the decisions out in random order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pool::{Acquire, Budget, Moving, Placed, Pool, Settings, Ticket};
use proptest::prelude::*;

type Client = u32;

/// What may happen next; the numbers choose a shard and one of what it has.
#[derive(Clone, Debug)]
enum Step {
    Acquire(usize),
    Cancel(usize, usize),
    Release(usize, usize),
    Die(usize, usize),
    LoginSucceeds(usize, f64),
    LoginFails(usize, f64),
    SocketCloses(usize, usize),
    MailArrives(usize),
    /// A server that was to be given away has left its ring.
    Leaves(usize, usize),
    /// It has broken before that.
    Breaks(usize, usize),
    /// A server that another shard has sent is there.
    Arrives(usize, usize),
    /// The other shard's mailbox was full.
    ComesBack(usize, usize),
    /// The other shard ended with the server in its mailbox.
    IsLost(usize, usize),
    Retire(usize),
    SetMax(u32),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let shard = 0..4_usize;
    let nth = 0..64_usize;
    prop_oneof![
        8 => shard.clone().prop_map(Step::Acquire),
        2 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::Cancel(s, n)),
        8 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::Release(s, n)),
        1 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::Die(s, n)),
        5 => (shard.clone(), 0.0..1.0).prop_map(|(s, j)| Step::LoginSucceeds(s, j)),
        1 => (shard.clone(), 0.0..1.0).prop_map(|(s, j)| Step::LoginFails(s, j)),
        4 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::SocketCloses(s, n)),
        6 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::Leaves(s, n)),
        1 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::Breaks(s, n)),
        6 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::Arrives(s, n)),
        1 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::ComesBack(s, n)),
        1 => (shard.clone(), nth).prop_map(|(s, n)| Step::IsLost(s, n)),
        4 => shard.clone().prop_map(Step::MailArrives),
        1 => shard.prop_map(Step::Retire),
        1 => (1..6_u32).prop_map(Step::SetMax),
        4 => (0..40_u64).prop_map(Step::Pass),
    ]
}

/// One shard's engine.
struct Shard {
    pool: Pool<usize, Client>,
    leased: Vec<usize>,
    idle: BTreeSet<usize>,
    closing: Vec<usize>,
    /// To be given away.
    leaving: Vec<usize>,
    /// In its mailbox, each with the shard that sent it and its key, which it keeps.
    arriving: Vec<(usize, usize, Moving)>,
    /// In the order in which they came: the order in which they must be served.
    waiting: VecDeque<(Client, Ticket, Instant)>,
    logins: u32,
    wakes: u32,
}

struct World {
    budget: Arc<Budget>,
    max_ever: u32,
    settings: Settings,
    shards: Vec<Shard>,
    now: Instant,
    next_client: Client,
    next_key: usize,
}

impl World {
    fn new(shards: usize, settings: Settings) -> Self {
        let budget = Arc::new(Budget::new(settings.max_connections, shards));
        let shard = |shard| Shard {
            pool: Pool::new(settings.clone(), Arc::clone(&budget), shard),
            leased: Vec::new(),
            idle: BTreeSet::new(),
            closing: Vec::new(),
            leaving: Vec::new(),
            arriving: Vec::new(),
            waiting: VecDeque::new(),
            logins: 0,
            wakes: 0,
        };
        World {
            shards: (0..shards).map(shard).collect(),
            max_ever: settings.max_connections,
            budget,
            settings,
            now: Instant::now(),
            next_client: 0,
            next_key: 0,
        }
    }

    fn take(&mut self, step: &Step) {
        let (now, shards) = (self.now, self.shards.len());
        let index = match *step {
            Step::Acquire(s) | Step::Cancel(s, _) | Step::Release(s, _) | Step::Die(s, _) => {
                s % shards
            }
            Step::LoginSucceeds(s, _) | Step::LoginFails(s, _) => s % shards,
            Step::SocketCloses(s, _) | Step::MailArrives(s) | Step::Retire(s) => s % shards,
            Step::Leaves(s, _) | Step::Breaks(s, _) => s % shards,
            Step::Arrives(s, _) | Step::IsLost(s, _) => s % shards,
            // At the shard that sent it.
            Step::ComesBack(s, n) => {
                let arriving = &self.shards[s % shards].arriving;
                arriving
                    .get(n % arriving.len().max(1))
                    .map_or(0, |&(from, ..)| from)
            }
            Step::SetMax(_) | Step::Pass(_) => 0,
        };
        self.end_move(step, index);
        let shard = &mut self.shards[index];
        match *step {
            Step::Acquire(_) => {
                let client = self.next_client;
                self.next_client += 1;
                match shard.pool.acquire(client, now) {
                    Acquire::Lease(key) => {
                        assert!(shard.waiting.is_empty() && shard.idle.remove(&key));
                        shard.leased.push(key);
                    }
                    Acquire::Wait(ticket) => shard.waiting.push_back((client, ticket, now)),
                }
            }
            Step::Cancel(_, nth) if !shard.waiting.is_empty() => {
                let nth = nth % shard.waiting.len();
                let (_, ticket, _) = shard.waiting.remove(nth).unwrap();
                assert!(shard.pool.cancel_wait(ticket) && !shard.pool.cancel_wait(ticket));
            }
            Step::Release(_, nth) if !shard.leased.is_empty() => {
                let key = shard.leased.swap_remove(nth % shard.leased.len());
                let placed = shard.pool.release(key, now);
                shard.placed(key, placed);
            }
            Step::Die(_, nth) => {
                let all: Vec<_> = shard.leased.iter().chain(&shard.idle).copied().collect();
                if let Some(&key) = all.get(nth % all.len().max(1)) {
                    shard.leased.retain(|&leased| leased != key);
                    shard.idle.remove(&key);
                    assert!(shard.pool.discard(key) && !shard.pool.discard(key));
                }
            }
            Step::LoginSucceeds(_, jitter) if shard.logins > 0 => {
                shard.logins -= 1;
                let key = self.next_key;
                self.next_key += 1;
                let placed = shard.pool.connected(key, now, jitter);
                shard.placed(key, placed);
            }
            Step::LoginFails(_, jitter) if shard.logins > 0 => {
                shard.logins -= 1;
                let failed = shard.pool.login_failed(now, jitter);
                if !failed.is_empty() {
                    assert!(shard.leased.is_empty() && shard.idle.is_empty() && shard.logins == 0);
                    let waiting: Vec<_> =
                        shard.waiting.drain(..).map(|(client, ..)| client).collect();
                    assert_eq!(failed, waiting, "all waiting clients fail, in their order");
                }
            }
            Step::SocketCloses(_, nth) if !shard.closing.is_empty() => {
                let key = shard.closing.swap_remove(nth % shard.closing.len());
                assert!(shard.pool.discard(key));
            }
            Step::MailArrives(_) if shard.wakes > 0 => {
                shard.wakes -= 1;
                while let Some(key) = shard.pool.give_up_idle() {
                    assert!(shard.idle.remove(&key));
                    shard.leaving.push(key);
                }
            }
            Step::Leaves(_, nth) if !shard.leaving.is_empty() => {
                let key = shard.leaving.swap_remove(nth % shard.leaving.len());
                match shard.pool.hand_over(key) {
                    None => shard.closing.push(key),
                    Some(moving) => {
                        let to = moving.to_shard();
                        assert_ne!(to, index);
                        self.shards[to].arriving.push((index, key, moving));
                    }
                }
            }
            Step::Breaks(_, nth) if !shard.leaving.is_empty() => {
                let key = shard.leaving.swap_remove(nth % shard.leaving.len());
                shard.closing.push(key);
            }
            Step::Retire(_) => {
                let retired = shard.pool.retire();
                assert_eq!(
                    std::mem::take(&mut shard.idle),
                    retired.iter().copied().collect()
                );
                shard.closing.extend(retired);
            }
            Step::SetMax(max) => {
                self.max_ever = self.max_ever.max(max);
                self.budget.set_max(max);
            }
            Step::Pass(ms) => self.now += Duration::from_millis(ms),
            _ => {}
        }
        self.end_turn(index);
        if matches!(step, Step::Pass(_) | Step::SetMax(_)) {
            (1..shards).for_each(|shard| self.end_turn(shard));
        }
        self.check();
    }

    /// A server that is on its way to a shard gets there, or back to `index`, or nowhere.
    fn end_move(&mut self, step: &Step, index: usize) {
        let (Step::Arrives(s, nth) | Step::ComesBack(s, nth) | Step::IsLost(s, nth)) = *step else {
            return;
        };
        let to = s % self.shards.len();
        let arriving = &mut self.shards[to].arriving;
        if arriving.is_empty() {
            return;
        }
        let (_, key, moving) = arriving.swap_remove(nth % arriving.len());
        if matches!(step, Step::IsLost(..)) {
            return drop(moving);
        }
        let shard = &mut self.shards[index];
        let placed = shard.pool.arrived(key, moving, self.now);
        shard.placed(key, placed);
    }

    fn end_turn(&mut self, index: usize) {
        let shard = &mut self.shards[index];
        let expired = shard.pool.expire(self.now);
        for client in expired.waiters {
            let (oldest, _, since) = shard
                .waiting
                .pop_front()
                .expect("an expired client was waiting");
            assert_eq!(client, oldest);
            assert!(since + self.settings.connection_timeout.unwrap() <= self.now);
        }
        for (key, _) in expired.servers {
            assert!(shard.idle.remove(&key), "only idle servers expire");
            shard.closing.push(key);
        }
        shard.logins += shard.pool.logins_wanted(self.now);
        if let Some(deadline) = shard.pool.next_deadline() {
            assert!(
                deadline > self.now,
                "a deadline that was served is not set again: that would spin"
            );
        }
        let wakes: Vec<_> = std::iter::from_fn(|| shard.pool.next_wake()).collect();
        wakes.into_iter().for_each(|to| self.shards[to].wakes += 1);
    }

    fn check(&self) {
        let mut permits = self.budget.granted();
        for shard in &self.shards {
            shard.pool.check_invariants();
            assert_eq!(shard.pool.leased() as usize, shard.leased.len());
            assert_eq!(shard.pool.idle() as usize, shard.idle.len());
            assert_eq!(shard.pool.waiting(), shard.waiting.len());
            assert_eq!(shard.pool.logins_in_flight(), shard.logins);
            assert!(shard.logins <= self.settings.logins_max);
            assert_eq!(
                shard.pool.open() as usize,
                shard.leased.len() + shard.idle.len() + shard.closing.len() + shard.leaving.len()
            );
            permits += shard.pool.permits() + u32::try_from(shard.arriving.len()).unwrap();
        }
        assert_eq!(permits, self.budget.taken(), "no permit is lost or made up");
        assert!(
            permits <= self.max_ever,
            "the sum over shards never exceeds the limit"
        );
    }

    /// From here on everything works and every client is quick: nobody may be left waiting.
    fn settle(&mut self) {
        for _ in 0..3000 {
            if self.shards.iter().all(|shard| shard.waiting.is_empty()) {
                return;
            }
            for shard in 0..self.shards.len() {
                for step in [
                    Step::MailArrives(shard),
                    Step::Leaves(shard, 0),
                    Step::Arrives(shard, 0),
                    Step::SocketCloses(shard, 0),
                    Step::LoginSucceeds(shard, 0.5),
                    Step::Release(shard, 0),
                ] {
                    self.take(&step);
                }
            }
            self.take(&Step::Pass(1));
        }
        panic!(
            "clients wait for ever: {:?}",
            self.shards
                .iter()
                .map(|s| s.pool.waiting())
                .collect::<Vec<_>>()
        );
    }
}

impl Shard {
    fn placed(&mut self, key: usize, placed: Placed<Client>) {
        match placed {
            Placed::Idle => assert!(self.idle.insert(key)),
            Placed::HandOff(client) => {
                let (oldest, ..) = self
                    .waiting
                    .pop_front()
                    .expect("a served client was waiting");
                assert_eq!(
                    client, oldest,
                    "the client that waited the longest is served first"
                );
                self.leased.push(key);
            }
            Placed::Close(_) => self.closing.push(key),
            Placed::GiveAway { .. } => self.leaving.push(key),
        }
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let timeout = |max_ms: u64| {
        prop_oneof![
            Just(None),
            (0..max_ms).prop_map(|ms| Some(Duration::from_millis(ms)))
        ]
    };
    (
        0..4_u32,
        1..6_u32,
        timeout(100),
        timeout(300),
        timeout(200),
        1..4_u32,
    )
        .prop_map(
            |(
                min_connections,
                max_connections,
                idle_timeout,
                max_lifetime,
                connection_timeout,
                logins_max,
            )| Settings {
                min_connections: min_connections.min(max_connections),
                max_connections,
                idle_timeout,
                max_lifetime,
                connection_timeout,
                logins_max,
                backoff_min: Duration::from_millis(5),
                backoff_max: Duration::from_millis(50),
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_operations_breaks_an_invariant_or_leaves_a_client_waiting(
        shards in 1..5_usize,
        settings in settings(),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut world = World::new(shards, settings);
        steps.iter().for_each(|step| world.take(step));
        world.settle();
    }
}

#[test]
fn with_one_server_and_four_busy_shards_every_client_is_served_in_turn() {
    let settings = Settings {
        min_connections: 0,
        max_connections: 1,
        connection_timeout: None,
        ..Settings::default()
    };
    let mut world = World::new(4, settings);
    let mut served = BTreeMap::<usize, u32>::new();
    for _ in 0..4000 {
        for shard in 0..4 {
            while world.shards[shard].waiting.len() + world.shards[shard].leased.len() < 3 {
                world.take(&Step::Acquire(shard));
            }
            world.take(&Step::MailArrives(shard));
            world.take(&Step::Leaves(shard, 0));
            world.take(&Step::Arrives(shard, 0));
            world.take(&Step::LoginSucceeds(shard, 0.5));
            *served.entry(shard).or_default() +=
                u32::try_from(world.shards[shard].leased.len()).unwrap();
            world.take(&Step::Release(shard, 0));
        }
        world.take(&Step::Pass(1));
        for shard in &world.shards {
            let longest = shard
                .waiting
                .front()
                .map_or(Duration::ZERO, |&(.., since)| world.now - since);
            assert!(
                longest < Duration::from_millis(150),
                "a client has waited for {longest:?}"
            );
        }
    }
    let (least, most) = (
        served.values().min().unwrap(),
        served.values().max().unwrap(),
    );
    assert!(
        *least > 500 && most - least < most / 4,
        "served by shard: {served:?}"
    );
}
