//! Random operations on all shards of a pool, or of several pools that share a total, with a model engine that carries
//! the decisions out in random order and loses some of the mail.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pool::{
    Acquire, BreakerSettings, BreakerState, Budget, Fault, Moving, Placed, Pool, Settings, Target,
    Ticket, Total,
};
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
    LoginFails(usize, Fault, f64),
    CheckPasses(usize),
    CheckFails(usize),
    /// The target has news.
    NewsArrives(usize),
    /// Servers have served.
    Serves(u64),
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
    /// The mailbox was full.
    MailIsLost(usize),
    /// The shard is asked what it can spare, or told to.
    AskArrives(usize),
    AskIsLost(usize),
    Retire(usize),
    SetMax(u32),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let shard = 0..12_usize;
    let nth = 0..64_usize;
    prop_oneof![
        8 => shard.clone().prop_map(Step::Acquire),
        2 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::Cancel(s, n)),
        8 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::Release(s, n)),
        1 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::Die(s, n)),
        5 => (shard.clone(), 0.0..1.0).prop_map(|(s, j)| Step::LoginSucceeds(s, j)),
        1 => (shard.clone(), 0.0..1.0).prop_map(|(s, j)| Step::LoginFails(s, Fault::Pool, j)),
        2 => (shard.clone(), 0.0..1.0).prop_map(|(s, j)| Step::LoginFails(s, Fault::Target, j)),
        2 => shard.clone().prop_map(Step::CheckPasses),
        1 => shard.clone().prop_map(Step::CheckFails),
        4 => shard.clone().prop_map(Step::NewsArrives),
        1 => (0..4_u64).prop_map(Step::Serves),
        4 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::SocketCloses(s, n)),
        6 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::Leaves(s, n)),
        1 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::Breaks(s, n)),
        6 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::Arrives(s, n)),
        1 => (shard.clone(), nth.clone()).prop_map(|(s, n)| Step::ComesBack(s, n)),
        1 => (shard.clone(), nth).prop_map(|(s, n)| Step::IsLost(s, n)),
        4 => shard.clone().prop_map(Step::MailArrives),
        1 => shard.clone().prop_map(Step::MailIsLost),
        4 => shard.clone().prop_map(Step::AskArrives),
        1 => shard.clone().prop_map(Step::AskIsLost),
        1 => shard.prop_map(Step::Retire),
        1 => (1..6_u32).prop_map(Step::SetMax),
        8 => (0..40_u64).prop_map(Step::Pass),
    ]
}

/// One shard's engine for one pool.
struct Shard {
    pool: Pool<usize, Client>,
    leased: Vec<usize>,
    idle: BTreeSet<usize>,
    checking: Vec<usize>,
    closing: Vec<usize>,
    /// To be given away.
    leaving: Vec<usize>,
    /// In its mailbox, each with the shard that sent it and its key, which it keeps.
    arriving: Vec<(usize, usize, Moving)>,
    /// In the order in which they came: the order in which they must be served.
    waiting: VecDeque<(Client, Ticket, Instant)>,
    logins: u32,
    wakes: u32,
    /// It has not heard of the target's news.
    news: bool,
}

/// What a shard hears about the total.
#[derive(Clone, Copy)]
enum Ask {
    Offer,
    Evict,
}

struct World {
    /// One for each role.
    budgets: Vec<Arc<Budget>>,
    total: Option<Arc<Total>>,
    target: Arc<Target>,
    /// Where a login tries whether the target is well again.
    probe: Option<usize>,
    max_ever: u32,
    total_max: u32,
    settings: Settings,
    /// How many shards there are; of the pools of all roles, each role's stand together.
    width: usize,
    shards: Vec<Shard>,
    /// By shard.
    asks: Vec<VecDeque<Ask>>,
    now: Instant,
    next_client: Client,
    next_key: usize,
}

impl World {
    fn new(shards: usize, settings: Settings) -> Self {
        let (max, reserve) = (settings.max_connections, settings.reserve_connections);
        let budget = Budget::new(max, shards).with_reserve(reserve);
        Self::of(shards, settings, vec![Arc::new(budget)], None)
    }

    /// Several roles that share a total.
    fn of_roles(roles: u32, total_max: u32, shards: usize, settings: Settings) -> Self {
        let (max, reserve) = (settings.max_connections, settings.reserve_connections);
        let total = Arc::new(Total::new(total_max));
        let budget = |name| Budget::within(Arc::clone(&total), name, max, shards);
        let budgets = (0..roles).map(|name| Arc::new(budget(name).with_reserve(reserve)));
        let settings = Settings {
            min_connections: 0,
            ..settings
        };
        Self::of(
            shards,
            settings,
            budgets.collect(),
            Some((total_max, Arc::clone(&total))),
        )
    }

    fn of(
        width: usize,
        settings: Settings,
        budgets: Vec<Arc<Budget>>,
        total: Option<(u32, Arc<Total>)>,
    ) -> Self {
        let target = Arc::new(Target::default());
        let shard = |index: usize| Shard {
            pool: Pool::new(
                settings.clone(),
                Arc::clone(&budgets[index / width]),
                index % width,
            )
            .with_target(Arc::clone(&target)),
            leased: Vec::new(),
            idle: BTreeSet::new(),
            checking: Vec::new(),
            closing: Vec::new(),
            leaving: Vec::new(),
            arriving: Vec::new(),
            waiting: VecDeque::new(),
            logins: 0,
            wakes: 0,
            news: false,
        };
        let (total_max, total) = total.unzip();
        World {
            shards: (0..width * budgets.len()).map(shard).collect(),
            asks: vec![VecDeque::new(); width],
            width,
            max_ever: settings.max_connections + settings.reserve_connections,
            total_max: total_max.unwrap_or(u32::MAX),
            total,
            target,
            probe: None,
            budgets,
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
            Step::LoginSucceeds(s, _) | Step::LoginFails(s, ..) | Step::NewsArrives(s) => {
                s % shards
            }
            Step::CheckPasses(s) | Step::CheckFails(s) => s % shards,
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
            Step::MailIsLost(s) => s % shards,
            Step::AskArrives(s) | Step::AskIsLost(s) => s % self.width,
            Step::SetMax(_) | Step::Pass(_) | Step::Serves(_) => 0,
        };
        self.end_move(step, index);
        if let Step::AskArrives(_) = step {
            self.answer(index);
        }
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
            Step::LoginFails(_, fault, jitter) if shard.logins > 0 => {
                shard.logins -= 1;
                let failed = shard.pool.login_failed_by(fault, now, jitter);
                shard.fail(failed);
            }
            Step::CheckPasses(_) if !shard.checking.is_empty() => {
                let key = shard.checking.remove(0);
                let placed = shard.pool.checked(key, now);
                shard.placed(key, placed);
            }
            Step::CheckFails(_) if !shard.checking.is_empty() => {
                let key = shard.checking.remove(0);
                assert!(shard.pool.discard(key));
                if self.target.lost(now) {
                    self.shards.iter_mut().for_each(|shard| shard.news = true);
                }
            }
            Step::NewsArrives(_) if std::mem::take(&mut shard.news) => {
                let failed = shard.pool.hopeless(now);
                let condition = self.target.condition(now);
                assert!(
                    failed.is_empty()
                        || condition.is_unwell
                        || condition.breaker == Some(BreakerState::Open)
                );
                if condition.breaker != Some(BreakerState::Open) {
                    shard.fail(failed);
                } else {
                    shard.waiting.clear();
                }
            }
            Step::Serves(times) if self.target.served(times, now) => {
                self.shards.iter_mut().for_each(|shard| shard.news = true);
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
                        // The same role's pool of that shard.
                        let to = index / self.width * self.width + moving.to_shard();
                        assert_ne!(to, index);
                        self.shards[to].arriving.push((index, key, moving));
                    }
                }
            }
            Step::Breaks(_, nth) if !shard.leaving.is_empty() => {
                let key = shard.leaving.swap_remove(nth % shard.leaving.len());
                shard.closing.push(key);
            }
            Step::MailIsLost(_) => shard.wakes = shard.wakes.saturating_sub(1),
            Step::AskIsLost(_) => {
                self.asks[index].pop_front();
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
                let most = max + self.settings.reserve_connections;
                self.max_ever = self.max_ever.max(most);
                self.budgets.iter().for_each(|budget| budget.set_max(max));
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

    /// The shard reads what it was asked.
    fn answer(&mut self, shard: usize) {
        let (Some(ask), Some(total)) = (self.asks[shard].pop_front(), &self.total) else {
            return;
        };
        let pools = (0..self.budgets.len()).map(|role| role * self.width + shard);
        let richest = pools.max_by_key(|&at| self.shards[at].pool.idle()).unwrap();
        match ask {
            Ask::Offer => {
                if let Some(winner) = total.offer(shard, self.shards[richest].pool.idle()) {
                    self.asks[winner].push_back(Ask::Evict);
                }
            }
            Ask::Evict => {
                let pool = &mut self.shards[richest];
                if let Some(key) = pool.pool.spare_idle() {
                    assert!(pool.idle.remove(&key));
                    pool.closing.push(key);
                    if total.is_short() {
                        self.ask_all();
                    }
                }
            }
        }
    }

    fn ask_all(&mut self) {
        let Some(total) = &self.total else { return };
        if let Some(winner) = total.ask(self.width) {
            self.asks[winner].push_back(Ask::Evict);
        }
        let asks = self.asks.iter_mut();
        asks.for_each(|asks| asks.push_back(Ask::Offer));
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
        if let Some(key) = shard.pool.check_due(self.now) {
            assert!(shard.idle.remove(&key), "only idle servers are looked at");
            shard.checking.push(key);
        }
        let is_unwell = self.target.condition(self.now).is_unwell;
        let before = shard.logins;
        shard.logins += shard.pool.logins_wanted(self.now);
        if self.probe.is_some_and(|at| at == index && before == 0) || !is_unwell {
            self.probe = None;
        }
        if is_unwell && shard.logins > before {
            assert_eq!(shard.logins, 1, "an unwell target gets one login of a pool");
            assert_eq!(self.probe.replace(index), None, "and one of all pools");
        }
        assert!(shard.pool.take_warming() <= shard.logins - before);
        let news = shard.pool.take_news();
        if let Some(deadline) = shard.pool.next_deadline() {
            assert!(
                deadline > self.now,
                "a deadline that was served is not set again: that would spin"
            );
        }
        let asks = shard.pool.take_ask();
        let first = index / self.width * self.width;
        let own = std::iter::from_fn(|| shard.pool.next_wake());
        let mut wakes: Vec<usize> = own.map(|to| first + to).collect();
        let others = std::iter::from_fn(|| shard.pool.next_other_wake());
        wakes.extend(others.map(|wake| wake.name as usize * self.width + wake.shard));
        wakes.into_iter().for_each(|to| self.shards[to].wakes += 1);
        if asks {
            self.ask_all();
        }
        if news {
            self.shards.iter_mut().for_each(|shard| shard.news = true);
        }
    }

    fn check(&self) {
        let mut all = 0;
        for (budget, shards) in self.budgets.iter().zip(self.shards.chunks(self.width)) {
            let mut permits = budget.granted();
            for shard in shards {
                shard.check(&self.settings);
                permits += shard.pool.permits() + u32::try_from(shard.arriving.len()).unwrap();
            }
            assert_eq!(permits, budget.taken(), "no permit is lost or made up");
            assert!(
                permits <= self.max_ever,
                "the sum over shards never exceeds the limit"
            );
            all += permits;
        }
        if let Some(total) = &self.total {
            assert_eq!(all, total.taken(), "nor one of the total");
            assert!(all <= self.total_max);
        }
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
                    Step::NewsArrives(shard),
                    Step::CheckPasses(shard),
                    Step::Leaves(shard, 0),
                    Step::Arrives(shard, 0),
                    Step::AskArrives(shard),
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
    fn check(&self, settings: &Settings) {
        self.pool.check_invariants();
        assert_eq!(self.pool.leased() as usize, self.leased.len());
        assert_eq!(self.pool.idle() as usize, self.idle.len());
        assert_eq!(self.pool.waiting(), self.waiting.len());
        assert_eq!(self.pool.logins_in_flight(), self.logins);
        assert!(self.logins <= settings.logins_max);
        assert_eq!(
            self.pool.open() as usize,
            self.leased.len()
                + self.idle.len()
                + self.checking.len()
                + self.closing.len()
                + self.leaving.len()
        );
        assert!(self.checking.len() <= 1, "one at a time");
    }

    /// The pool has given its waiting clients up.
    fn fail(&mut self, failed: Vec<Client>) {
        if failed.is_empty() {
            return;
        }
        assert!(self.leased.is_empty() && self.idle.is_empty() && self.logins == 0);
        let waiting: Vec<_> = self.waiting.drain(..).map(|(client, ..)| client).collect();
        assert_eq!(failed, waiting, "all waiting clients fail, in their order");
    }

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
        (0..3_u32, timeout(60), timeout(60)),
    )
        .prop_map(
            |(
                min_connections,
                max_connections,
                idle_timeout,
                max_lifetime,
                connection_timeout,
                logins_max,
                (reserve_connections, reserve_timeout, check_interval),
            )| Settings {
                min_connections: min_connections.min(max_connections),
                max_connections,
                reserve_connections,
                reserve_timeout,
                idle_timeout,
                max_lifetime,
                connection_timeout,
                logins_max,
                check_interval,
                backoff_min: Duration::from_millis(5),
                backoff_max: Duration::from_millis(50),
            },
        )
}

const BREAKER: BreakerSettings = BreakerSettings {
    error_threshold: 0.5,
    open_duration: Duration::from_millis(100),
    half_open_max: 2,
    window_size: 4,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_operations_breaks_an_invariant_or_leaves_a_client_waiting(
        shards in 1..5_usize,
        settings in settings(),
        has_breaker in prop::bool::ANY,
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut world = World::new(shards, settings);
        world.target.set_breaker(has_breaker.then_some(BREAKER));
        steps.iter().for_each(|step| world.take(step));
        world.settle();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn roles_that_share_a_total_keep_to_it_and_leave_no_client_waiting_even_where_mail_is_lost(
        roles in 2..5_u32,
        total in 1..5_u32,
        shards in 1..4_usize,
        settings in settings(),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut world = World::of_roles(roles, total, shards, settings);
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
