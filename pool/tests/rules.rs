//! One test for each rule of a pool, told as a story with a clock of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pool::{
    Acquire, Budget, CloseReason, MARGIN, PATIENCE, Placed, Pool, SETTLING, Settings, Ticket, Total,
};

type TestPool = Pool<usize, char>;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// No minimum and no timeouts: each test switches on what it is about.
fn settings(max_connections: u32) -> Settings {
    Settings {
        min_connections: 0,
        max_connections,
        idle_timeout: None,
        max_lifetime: None,
        connection_timeout: None,
        check_interval: None,
        ..Settings::default()
    }
}

fn lone(settings: Settings) -> TestPool {
    let budget = Arc::new(Budget::new(settings.max_connections, 1));
    Pool::new(settings, budget, 0)
}

/// Two shards with one budget.
fn pair(settings: Settings) -> (TestPool, TestPool) {
    let budget = Arc::new(Budget::new(settings.max_connections, 2));
    let first = Pool::new(settings.clone(), Arc::clone(&budget), 0);
    (first, Pool::new(settings, budget, 1))
}

fn wait(pool: &mut TestPool, waiter: char, now: Instant) -> Ticket {
    match pool.acquire(waiter, now) {
        Acquire::Wait(ticket) => ticket,
        Acquire::Lease(key) => panic!("{waiter} got server {key}, nobody should be idle"),
    }
}

fn wait_all(pool: &mut TestPool, waiters: &str, now: Instant) {
    for waiter in waiters.chars() {
        wait(pool, waiter, now);
    }
}

/// Opens one server for a client and lets it become idle.
fn open_idle(pool: &mut TestPool, key: usize, now: Instant) {
    let ticket = wait(pool, '-', now);
    assert_eq!(pool.logins_wanted(now), 1);
    assert!(pool.cancel_wait(ticket));
    assert_eq!(pool.connected(key, now, 0.0), Placed::Idle);
}

/// Opens one server that `waiter` leases.
fn open_leased(pool: &mut TestPool, key: usize, waiter: char, now: Instant) {
    wait(pool, waiter, now);
    assert!(pool.logins_wanted(now) >= 1);
    assert_eq!(pool.connected(key, now, 0.0), Placed::HandOff(waiter));
}

#[test]
fn the_server_that_was_released_last_is_leased_first() {
    let now = Instant::now();
    let mut pool = lone(settings(3));
    for (key, waiter) in [(0, 'a'), (1, 'b'), (2, 'c')] {
        open_leased(&mut pool, key, waiter, now);
    }
    for key in [1, 2, 0] {
        assert_eq!(pool.release(key, now), Placed::Idle);
    }
    for key in [0, 2, 1] {
        assert_eq!(pool.acquire('x', now), Acquire::Lease(key));
        pool.check_invariants();
    }
}

#[test]
fn a_released_server_goes_to_the_client_that_waited_the_longest() {
    let now = Instant::now();
    let mut pool = lone(settings(1));
    open_leased(&mut pool, 7, 'a', now);
    let tickets: Vec<_> = "bcd"
        .chars()
        .map(|waiter| wait(&mut pool, waiter, now))
        .collect();
    assert!(pool.cancel_wait(tickets[1]));
    assert_eq!(pool.release(7, now), Placed::HandOff('b'));
    assert_eq!(pool.release(7, now), Placed::HandOff('d'));
    assert_eq!(pool.release(7, now), Placed::Idle);
    assert!(
        !pool.cancel_wait(tickets[0]),
        "a served client no longer waits"
    );
}

#[test]
fn logins_are_started_for_waiting_clients_only_two_at_a_time_and_within_the_budget() {
    let now = Instant::now();
    for (waiters, max, logins) in [
        (0, 9, 0),
        (1, 9, 1),
        (2, 9, 2),
        (5, 9, 2),
        (5, 1, 1),
        (5, 0, 0),
    ] {
        let mut pool = lone(settings(max));
        wait_all(&mut pool, &"w".repeat(waiters), now);
        assert_eq!(
            pool.logins_wanted(now),
            logins,
            "{waiters} waiters, {max} servers"
        );
        assert_eq!(pool.logins_wanted(now), 0, "those in flight are counted");
        pool.check_invariants();
    }
}

#[test]
fn a_pool_opens_its_minimum_without_clients() {
    let now = Instant::now();
    let mut pool = lone(Settings {
        min_connections: 3,
        ..settings(9)
    });
    assert_eq!(pool.logins_wanted(now), 2);
    for key in [0, 1] {
        assert_eq!(pool.connected(key, now, 0.0), Placed::Idle);
    }
    assert_eq!(pool.logins_wanted(now), 1);
    assert_eq!(pool.connected(2, now, 0.0), Placed::Idle);
    assert_eq!(pool.logins_wanted(now), 0);
}

#[test]
fn a_login_that_fails_without_any_server_fails_every_waiting_client_and_pauses() {
    let now = Instant::now();
    let mut pool = lone(Settings {
        backoff_min: ms(100),
        ..settings(9)
    });
    wait_all(&mut pool, "abc", now);
    assert_eq!(pool.logins_wanted(now), 2);
    assert_eq!(
        pool.login_failed(now, 0.0),
        [],
        "the other login may still succeed"
    );
    assert_eq!(pool.login_failed(now, 0.0), ['a', 'b', 'c']);
    wait(&mut pool, 'd', now);
    assert_eq!(pool.logins_wanted(now), 0);
    let end = now + ms(200);
    assert_eq!(
        pool.next_deadline(),
        Some(end),
        "two failures: 100 ms doubled"
    );
    assert_eq!(pool.logins_wanted(end - ms(1)), 0);
    assert_eq!(pool.logins_wanted(end), 1);
    assert_eq!(pool.connected(0, end, 0.0), Placed::HandOff('d'));
    assert_eq!(pool.permits(), 1, "failed logins gave their permits back");
}

#[test]
fn a_login_that_fails_beside_a_live_server_fails_nobody() {
    let now = Instant::now();
    let mut pool = lone(settings(2));
    open_leased(&mut pool, 0, 'a', now);
    wait(&mut pool, 'b', now);
    assert_eq!(pool.logins_wanted(now), 1);
    assert_eq!(pool.login_failed(now, 0.0), []);
    assert_eq!(pool.release(0, now), Placed::HandOff('b'));
}

#[test]
fn a_server_is_closed_on_release_when_its_lifetime_is_over_less_up_to_a_tenth() {
    for (jitter, end) in [(0.0, 1000), (0.5, 950), (1.0, 900)] {
        let now = Instant::now();
        let mut pool = lone(Settings {
            max_lifetime: Some(ms(1000)),
            ..settings(1)
        });
        wait(&mut pool, 'a', now);
        assert_eq!(pool.logins_wanted(now), 1);
        assert_eq!(pool.connected(0, now, jitter), Placed::HandOff('a'));
        assert_eq!(pool.release(0, now + ms(end - 1)), Placed::Idle);
        assert_eq!(pool.acquire('b', now + ms(end - 1)), Acquire::Lease(0));
        wait(&mut pool, 'c', now + ms(end - 1));
        assert_eq!(
            pool.release(0, now + ms(end)),
            Placed::Close(CloseReason::Lifetime)
        );
        assert_eq!(
            pool.logins_wanted(now + ms(end)),
            0,
            "it holds its permit until it is discarded"
        );
        assert!(pool.discard(0));
        assert_eq!(
            pool.logins_wanted(now + ms(end)),
            1,
            "the waiting client gets a fresh one"
        );
    }
}

#[test]
fn idle_servers_expire_by_idle_timeout_down_to_the_minimum_and_by_lifetime_below_it() {
    let now = Instant::now();
    let mut pool = lone(Settings {
        min_connections: 1,
        idle_timeout: Some(ms(100)),
        max_lifetime: Some(ms(1000)),
        ..settings(3)
    });
    wait_all(&mut pool, "abc", now);
    for key in 0..3 {
        pool.logins_wanted(now);
        assert!(matches!(pool.connected(key, now, 0.0), Placed::HandOff(_)));
    }
    for key in 0..3 {
        assert_eq!(pool.release(key, now + ms(key as u64)), Placed::Idle);
    }
    assert_eq!(pool.next_deadline(), Some(now + ms(100)));
    assert_eq!(
        pool.expire(now + ms(100)).servers,
        [(0, CloseReason::IdleTimeout)]
    );
    assert_eq!(
        pool.expire(now + ms(500)).servers,
        [(1, CloseReason::IdleTimeout)]
    );
    assert_eq!(pool.expire(now + ms(999)).servers, [], "the minimum stays");
    assert_eq!(pool.next_deadline(), Some(now + ms(1000)));
    assert_eq!(
        pool.expire(now + ms(1000)).servers,
        [(2, CloseReason::Lifetime)]
    );
    assert_eq!(
        (pool.idle(), pool.open()),
        (0, 3),
        "all three are being closed"
    );
    assert!(pool.discard(0) && pool.discard(1) && pool.discard(2) && !pool.discard(2));
    assert_eq!((pool.open(), pool.permits()), (0, 0));
    pool.check_invariants();
}

#[test]
fn clients_expire_in_their_order_and_zero_is_no_time_at_all() {
    let now = Instant::now();
    let mut pool = lone(Settings {
        connection_timeout: Some(ms(50)),
        ..settings(0)
    });
    wait(&mut pool, 'a', now);
    wait(&mut pool, 'b', now + ms(10));
    assert_eq!(pool.next_deadline(), Some(now + ms(50)));
    assert_eq!(pool.expire(now + ms(49)).waiters, []);
    assert_eq!(pool.expire(now + ms(59)).waiters, ['a']);
    assert_eq!(pool.expire(now + ms(60)).waiters, ['b']);

    let mut pool = lone(Settings {
        connection_timeout: Some(Duration::ZERO),
        ..settings(1)
    });
    wait(&mut pool, 'a', now);
    assert_eq!(pool.logins_wanted(now), 1);
    assert_eq!(pool.expire(now).waiters, ['a'], "nobody waits");
    assert_eq!(
        pool.connected(0, now, 0.0),
        Placed::Idle,
        "but the next client finds a server"
    );
    assert_eq!(pool.acquire('b', now), Acquire::Lease(0));

    let mut pool = lone(settings(0));
    wait(&mut pool, 'a', now);
    assert_eq!(
        (pool.next_deadline(), pool.expire(now + ms(1 << 40)).waiters),
        (None, vec![]),
        "None is for ever"
    );
}

#[test]
fn a_server_that_dies_leaves_the_idle_list_and_gives_its_permit_back() {
    let now = Instant::now();
    let mut pool = lone(settings(3));
    (0..3).for_each(|key| open_leased(&mut pool, key, 'a', now));
    (0..3).for_each(|key| assert_eq!(pool.release(key, now), Placed::Idle));
    for (dead, left) in [(1, 2), (2, 1), (0, 0)] {
        assert!(pool.discard(dead));
        pool.check_invariants();
        assert_eq!((pool.idle(), pool.permits()), (left, left));
    }
}

#[test]
#[should_panic(expected = "was not leased")]
fn a_server_cannot_be_released_twice() {
    let now = Instant::now();
    let mut pool = lone(settings(1));
    open_leased(&mut pool, 0, 'a', now);
    assert_eq!(pool.release(0, now), Placed::Idle);
    let _ = pool.release(0, now);
}

#[test]
fn retired_servers_go_at_once_when_idle_and_at_release_when_leased() {
    let now = Instant::now();
    let mut pool = lone(settings(3));
    open_leased(&mut pool, 0, 'a', now);
    open_idle(&mut pool, 1, now);
    assert_eq!(pool.retire(), [1]);
    open_leased(&mut pool, 2, 'b', now);
    assert_eq!(pool.release(0, now), Placed::Close(CloseReason::Retired));
    assert_eq!(pool.release(2, now), Placed::Idle, "it came after");
}

#[test]
fn a_lowered_maximum_closes_what_is_too_much_and_no_more() {
    let now = Instant::now();
    let budget = Arc::new(Budget::new(4, 1));
    let mut pool = Pool::<usize, char>::new(settings(4), Arc::clone(&budget), 0);
    (0..4).for_each(|key| open_leased(&mut pool, key, 'a', now));
    assert_eq!(pool.release(0, now), Placed::Idle);
    budget.set_max(2);
    assert_eq!(pool.expire(now).servers, [(0, CloseReason::Shrunk)]);
    assert_eq!(pool.release(1, now), Placed::Close(CloseReason::Shrunk));
    assert_eq!(pool.release(2, now), Placed::Idle);
    assert!(pool.discard(0) && pool.discard(1));
    assert_eq!(pool.release(3, now), Placed::Idle);
    assert_eq!((pool.idle(), budget.taken()), (2, 2));
}

#[test]
fn a_starving_shard_gets_the_longest_idle_server_of_another_with_its_permit_and_its_age() {
    let now = Instant::now();
    let aging = Settings {
        max_lifetime: Some(ms(1000)),
        ..settings(2)
    };
    let (mut rich, mut poor) = pair(aging);
    for key in 0..2 {
        open_leased(&mut rich, key, 'r', now);
    }
    for key in 0..2 {
        assert_eq!(rich.release(key, now), Placed::Idle);
    }
    let later = now + ms(20);
    wait(&mut poor, 'a', later);
    assert_eq!(
        (
            poor.logins_wanted(later),
            poor.next_wake(),
            poor.next_wake()
        ),
        (0, Some(0), None)
    );
    assert_eq!(rich.give_up_idle(), Some(0));
    assert_eq!(
        rich.give_up_idle(),
        None,
        "one was asked for, one is promised"
    );
    let moving = rich.hand_over(0).expect("it may go");
    assert_eq!((moving.to_shard(), rich.permits()), (1, 1));
    assert_eq!((poor.logins_wanted(later), rich.next_wake()), (0, None));
    assert_eq!(poor.arrived(7, moving, later), Placed::HandOff('a'));
    assert_eq!((poor.permits(), rich.permits()), (1, 1));
    assert!(!poor.is_expecting());
    assert_eq!(
        poor.release(7, now + ms(1000)),
        Placed::Close(CloseReason::Lifetime)
    );
}

#[test]
fn a_promised_server_that_breaks_sends_its_permit_instead() {
    let now = Instant::now();
    let (mut rich, mut poor) = pair(settings(1));
    open_idle(&mut rich, 0, now);
    wait(&mut poor, 'a', now);
    assert_eq!(poor.logins_wanted(now), 0);
    assert_eq!(rich.give_up_idle(), Some(0));
    assert_eq!(
        poor.logins_wanted(now),
        0,
        "the permit is out until the socket is closed"
    );
    assert!(rich.discard(0));
    assert_eq!((rich.next_wake(), rich.next_wake()), (Some(1), None));
    assert_eq!(poor.logins_wanted(now), 1);
    assert_eq!(poor.connected(0, now, 0.0), Placed::HandOff('a'));
}

#[test]
fn a_server_that_cannot_be_sent_is_where_it_was_and_the_other_shard_asks_again() {
    let now = Instant::now();
    let (mut rich, mut poor) = pair(settings(1));
    open_idle(&mut rich, 0, now);
    wait(&mut poor, 'a', now);
    assert_eq!((poor.logins_wanted(now), poor.next_wake()), (0, Some(0)));
    assert_eq!(rich.give_up_idle(), Some(0));
    let moving = rich.hand_over(0).expect("it may go");
    assert_eq!(rich.arrived(0, moving, now), Placed::Idle);
    assert_eq!((rich.next_wake(), rich.next_wake()), (Some(1), None));
    assert_eq!((poor.logins_wanted(now), poor.next_wake()), (0, None));
    let later = now + PATIENCE;
    assert_eq!(poor.next_deadline(), Some(later));
    assert_eq!((poor.logins_wanted(later), poor.next_wake()), (0, Some(0)));
    assert_eq!(rich.give_up_idle(), Some(0));
    let moving = rich.hand_over(0).expect("it may go");
    assert_eq!(poor.arrived(0, moving, later), Placed::HandOff('a'));
}

#[test]
fn a_server_that_is_lost_on_its_way_frees_its_permit() {
    let now = Instant::now();
    let (mut rich, mut poor) = pair(settings(1));
    open_idle(&mut rich, 0, now);
    wait(&mut poor, 'a', now);
    assert_eq!(poor.logins_wanted(now), 0);
    assert_eq!(rich.give_up_idle(), Some(0));
    drop(rich.hand_over(0));
    assert_eq!(poor.logins_wanted(now), 1);
}

#[test]
fn a_server_whose_clients_have_left_stays_or_goes_on_to_who_still_starves() {
    for starves in [false, true] {
        let now = Instant::now();
        let (mut rich, mut poor) = pair(settings(1));
        open_idle(&mut rich, 0, now);
        let ticket = wait(&mut poor, 'p', now);
        assert_eq!(poor.logins_wanted(now), 0);
        assert_eq!(rich.give_up_idle(), Some(0));
        let moving = rich.hand_over(0).expect("it may go");
        assert!(poor.cancel_wait(ticket));
        if starves {
            wait(&mut rich, 'r', now);
            assert_eq!(rich.logins_wanted(now), 0);
        }
        let expected = match starves {
            true => Placed::GiveAway { to_shard: 0 },
            false => Placed::Idle,
        };
        assert_eq!(poor.arrived(0, moving, now), expected);
    }
}

#[test]
fn a_server_that_was_retired_while_it_left_is_closed() {
    let now = Instant::now();
    let (mut rich, mut poor) = pair(settings(1));
    open_idle(&mut rich, 0, now);
    wait(&mut poor, 'a', now);
    assert_eq!(poor.logins_wanted(now), 0);
    assert_eq!(rich.give_up_idle(), Some(0));
    assert_eq!(rich.retire(), []);
    assert!(rich.hand_over(0).is_none());
    assert!(rich.discard(0));
    assert_eq!(poor.logins_wanted(now), 1);
}

#[test]
#[should_panic(expected = "promised to nobody")]
fn a_server_is_handed_over_only_where_it_was_promised() {
    let now = Instant::now();
    let (mut rich, _poor) = pair(settings(1));
    open_idle(&mut rich, 0, now);
    let _ = rich.hand_over(0);
}

#[test]
fn a_shard_whose_logins_fail_gets_a_server_that_is_idle_elsewhere() {
    let now = Instant::now();
    let (mut rich, mut poor) = pair(settings(9));
    open_idle(&mut rich, 0, now);
    wait(&mut poor, 'a', now);
    assert_eq!(poor.logins_wanted(now), 1);
    assert_eq!(poor.login_failed(now, 0.0), ['a']);
    wait(&mut poor, 'b', now);
    assert_eq!((poor.logins_wanted(now), poor.next_wake()), (0, Some(0)));
    assert_eq!(rich.give_up_idle(), Some(0));
    let moving = rich.hand_over(0).expect("it may go");
    assert_eq!(poor.arrived(0, moving, now), Placed::HandOff('b'));
}

#[test]
fn a_released_server_goes_to_a_shard_that_starves_for_longer_than_its_own_clients() {
    let now = Instant::now();
    let since = now + PATIENCE;
    // How much later than the starving client the releasing shard's own one came; whether the server goes.
    let margins = [
        (None, true),
        (Some(ms(0)), false),
        (Some(MARGIN), false),
        (Some(MARGIN + ms(1)), true),
    ];
    for (own, gives) in margins {
        let (mut rich, mut poor) = pair(settings(1));
        open_leased(&mut rich, 0, 'r', now);
        wait(&mut poor, 'p', since);
        assert_eq!(poor.logins_wanted(since), 0);
        let expected = match own {
            _ if gives => Placed::GiveAway { to_shard: 1 },
            _ => Placed::HandOff('s'),
        };
        if let Some(own) = own {
            wait(&mut rich, 's', since + own);
        }
        assert_eq!(
            rich.release(0, since + ms(100)),
            expected,
            "own client came {own:?} later"
        );
    }
}

#[test]
fn a_server_that_has_just_moved_stays_for_a_while_if_clients_wait_there() {
    for waits in [true, false] {
        let now = Instant::now();
        let (mut rich, mut poor) = pair(settings(1));
        open_idle(&mut rich, 0, now);
        wait(&mut poor, 'p', now);
        assert_eq!(poor.logins_wanted(now), 0);
        assert_eq!(rich.give_up_idle(), Some(0));
        let moving = rich.hand_over(0).expect("it may go");
        let arrives = now + MARGIN + ms(50);
        assert_eq!(poor.arrived(0, moving, arrives), Placed::HandOff('p'));
        wait(&mut rich, 'r', now);
        assert_eq!(rich.logins_wanted(arrives), 0);
        let back = Placed::GiveAway { to_shard: 0 };
        if waits {
            wait(&mut poor, 'q', arrives);
            let early = arrives + SETTLING - Duration::from_micros(1);
            assert_eq!(poor.release(0, early), Placed::HandOff('q'));
            wait(&mut poor, 's', arrives);
            assert_eq!(poor.release(0, arrives + SETTLING), back);
        } else {
            assert_eq!(poor.release(0, arrives), back);
        }
    }
}

#[test]
fn a_shard_whose_servers_are_all_in_use_gets_every_idle_one_of_the_others_one_after_the_other() {
    let now = Instant::now();
    let (mut rich, mut busy) = pair(settings(4));
    open_leased(&mut busy, 0, 'a', now);
    for key in 0..3 {
        open_leased(&mut rich, key, 'r', now);
    }
    (0..3).for_each(|key| assert_eq!(rich.release(key, now), Placed::Idle));
    wait_all(&mut busy, "bcde", now);
    for (key, waiter) in [(0, 'b'), (1, 'c'), (2, 'd')] {
        assert_eq!((busy.logins_wanted(now), busy.next_wake()), (0, Some(0)));
        assert_eq!(rich.give_up_idle(), Some(key));
        let moving = rich.hand_over(key).expect("it may go");
        assert_eq!(
            busy.arrived(key + 1, moving, now),
            Placed::HandOff(waiter),
            "without any delay"
        );
    }
}

#[test]
fn a_shard_that_asks_in_vain_asks_ever_more_slowly_however_many_clients_come_and_go() {
    let now = Instant::now();
    let (mut rich, mut busy) = pair(settings(2));
    open_leased(&mut busy, 0, 'a', now);
    open_leased(&mut rich, 0, 'r', now);
    let mut asked = Vec::new();
    for tick in 0..200 {
        let now = now + ms(tick);
        wait(&mut busy, 'b', now);
        assert_eq!(busy.logins_wanted(now), 0);
        if busy.next_wake().is_some() {
            asked.push(tick);
        }
        assert_eq!(busy.release(0, now), Placed::HandOff('b'));
    }
    assert_eq!(asked, [0, 10, 30, 70, 150]);
}

#[test]
fn a_permit_for_a_client_that_has_left_goes_on() {
    let now = Instant::now();
    let (mut rich, mut poor) = pair(settings(1));
    open_idle(&mut rich, 0, now);
    let ticket = wait(&mut poor, 'p', now);
    assert_eq!(poor.logins_wanted(now), 0);
    assert_eq!(rich.give_up_idle(), Some(0));
    assert!(poor.cancel_wait(ticket));
    wait(&mut rich, 'r', now);
    assert_eq!(rich.logins_wanted(now), 0);
    assert!(rich.discard(0));
    assert_eq!(
        rich.logins_wanted(now),
        0,
        "the other shard holds the permit"
    );
    assert_eq!((poor.logins_wanted(now), poor.next_wake()), (0, Some(0)));
    assert_eq!(rich.logins_wanted(now), 1);
}

#[test]
fn a_pool_that_is_dropped_leaves_no_permit_and_no_hunger_behind() {
    let now = Instant::now();
    let budget = Arc::new(Budget::new(3, 2));
    let mut gone = Pool::<usize, char>::new(settings(3), Arc::clone(&budget), 0);
    let mut stays = Pool::<usize, char>::new(settings(3), Arc::clone(&budget), 1);
    open_leased(&mut gone, 0, 'a', now);
    open_idle(&mut gone, 1, now);
    assert_eq!(gone.acquire('a', now), Acquire::Lease(1));
    wait(&mut gone, 'b', now);
    assert_eq!(gone.logins_wanted(now), 1);
    let later = now + PATIENCE;
    wait(&mut stays, 'c', later);
    assert_eq!(stays.logins_wanted(later), 0);
    drop(gone);
    assert_eq!(budget.taken(), 0);
    assert_eq!(stays.logins_wanted(later), 1);
}

/// Two servers and two more for clients that have waited for 100 ms.
fn with_reserve() -> Settings {
    Settings {
        reserve_connections: 2,
        reserve_timeout: Some(ms(100)),
        ..settings(2)
    }
}

fn reserved(shards: usize) -> (Arc<Budget>, Vec<TestPool>) {
    let budget = Arc::new(Budget::new(2, shards).with_reserve(2));
    let pool = |shard| Pool::new(with_reserve(), Arc::clone(&budget), shard);
    (Arc::clone(&budget), (0..shards).map(pool).collect())
}

#[test]
fn the_reserve_is_for_clients_that_have_waited_for_its_timeout_one_server_each() {
    let start = Instant::now();
    let (budget, mut pools) = reserved(1);
    let pool = &mut pools[0];
    open_leased(pool, 0, 'a', start);
    open_leased(pool, 1, 'b', start);
    wait(pool, 'c', start);
    wait(pool, 'd', start + ms(60));
    assert_eq!(pool.logins_wanted(start + ms(99)), 0);
    assert_eq!(pool.next_deadline(), Some(start + ms(100)));
    assert_eq!(pool.logins_wanted(start + ms(100)), 1, "for c");
    assert_eq!(pool.next_deadline(), Some(start + ms(160)));
    assert_eq!(pool.logins_wanted(start + ms(160)), 1, "for d");
    wait(pool, 'e', start + ms(160));
    assert_eq!(pool.logins_wanted(start + ms(999)), 0, "no more than that");
    assert_eq!((budget.taken(), pool.next_deadline()), (4, None));
    pool.check_invariants();
}

#[test]
fn servers_of_the_reserve_leave_when_they_have_been_idle_for_a_second() {
    let start = Instant::now();
    let (budget, mut pools) = reserved(1);
    let pool = &mut pools[0];
    for (key, waiter) in [(0, 'a'), (1, 'b')] {
        open_leased(pool, key, waiter, start);
    }
    wait_all(pool, "cd", start);
    assert_eq!(pool.logins_wanted(start + ms(100)), 2);
    for (key, waiter) in [(2, 'c'), (3, 'd')] {
        let placed = pool.connected(key, start + ms(100), 0.0);
        assert_eq!(placed, Placed::HandOff(waiter));
    }
    for key in 0..4 {
        assert_eq!(pool.release(key, start + ms(200)), Placed::Idle);
    }
    assert_eq!(pool.idle_end(start + ms(200)), Some(start + ms(1200)));
    assert_eq!(pool.next_deadline(), Some(start + ms(1200)));
    assert!(pool.expire(start + ms(1199)).servers.is_empty());
    let expired = pool.expire(start + ms(1200));
    let reasons: Vec<_> = expired.servers.iter().map(|(_, reason)| *reason).collect();
    assert!(reasons.len() >= 2, "{reasons:?}");
    assert!(reasons.iter().all(|reason| *reason == CloseReason::Reserve));
    for (key, _) in expired.servers {
        assert!(pool.discard(key));
    }
    assert!(budget.taken() <= 2);
    assert_eq!(pool.next_deadline(), None);
}

#[test]
fn a_permit_of_the_reserve_that_comes_back_is_for_no_client_that_has_only_just_come() {
    let start = Instant::now();
    let (budget, mut pools) = reserved(2);
    let (first, second) = pools.split_at_mut(1);
    let (first, second) = (&mut first[0], &mut second[0]);
    for (key, waiter) in [(0, 'a'), (1, 'b')] {
        open_leased(first, key, waiter, start);
    }
    wait(first, 'c', start);
    assert_eq!(first.logins_wanted(start + ms(100)), 1);
    assert_eq!(
        first.connected(2, start + ms(100), 0.0),
        Placed::HandOff('c')
    );
    wait(second, 'd', start + ms(100));
    assert_eq!(second.logins_wanted(start + ms(100)), 0);
    assert!(first.discard(2), "it dies in use");
    assert_eq!((budget.taken(), budget.granted()), (2, 0));
    assert_eq!(second.logins_wanted(start + ms(110)), 0);
    assert_eq!(
        second.logins_wanted(start + ms(200)),
        1,
        "once it has waited"
    );
}

/// Roles that share a total: one pool each, on one shard.
fn roles(total: u32, max: u32, number: u32) -> (Arc<Total>, Vec<TestPool>) {
    let total = Arc::new(Total::new(total));
    let budget = |name| Arc::new(Budget::within(Arc::clone(&total), name, max, 1));
    let pool = |name| Pool::new(settings(max), budget(name), 0);
    (Arc::clone(&total), (0..number).map(pool).collect())
}

#[test]
fn a_role_without_a_permit_asks_until_it_has_one_and_is_told_whose_turn_it_is() {
    let start = Instant::now();
    let (total, mut pools) = roles(1, 5, 2);
    open_idle(&mut pools[0], 0, start);
    wait(&mut pools[1], 'b', start);
    assert_eq!(pools[1].logins_wanted(start), 0);
    assert!(pools[1].take_ask() && !pools[1].take_ask());
    // The question is lost.
    let again = pools[1].next_deadline().expect("it asks again");
    assert_eq!(again, start + PATIENCE);
    assert_eq!(pools[1].logins_wanted(again), 0);
    assert!(pools[1].take_ask());
    assert_eq!(pools[0].spare_idle(), Some(0));
    assert_eq!(pools[0].spare_idle(), None);
    assert!(!total.is_short());
    assert!(pools[0].discard(0));
    let wake = pools[0].next_other_wake().expect("a wake");
    assert_eq!((wake.name, wake.shard), (1, 0));
    assert_eq!(pools[1].logins_wanted(again), 1);
    assert_eq!(pools[1].connected(0, again, 0.0), Placed::HandOff('b'));
    assert_eq!((total.taken(), total.wanted()), (1, 0));
}

#[test]
fn a_busy_role_gives_a_server_to_one_that_has_waited_for_longer_than_its_own_clients() {
    let start = Instant::now();
    let (total, mut pools) = roles(1, 5, 2);
    open_leased(&mut pools[0], 0, 'a', start);
    wait(&mut pools[1], 'z', start);
    assert_eq!(pools[1].logins_wanted(start), 0);
    let late = start + MARGIN;
    wait(&mut pools[0], 'b', late);
    assert_eq!(
        pools[0].release(0, late),
        Placed::HandOff('b'),
        "not by enough"
    );
    wait(&mut pools[0], 'c', late + ms(1));
    assert_eq!(
        pools[0].release(0, late + ms(1)),
        Placed::Close(CloseReason::Evicted)
    );
    assert!(pools[0].discard(0));
    assert_eq!(
        pools[0].logins_wanted(late + ms(1)),
        0,
        "c waits in its turn"
    );
    assert_eq!(pools[1].logins_wanted(late + ms(1)), 1);
    assert_eq!((total.taken(), total.wanted()), (1, 1));
}

#[test]
fn a_role_whose_clients_have_given_up_costs_nobody_a_server() {
    let start = Instant::now();
    let (total, mut pools) = roles(1, 5, 2);
    open_idle(&mut pools[0], 0, start);
    let ticket = wait(&mut pools[1], 'b', start);
    assert_eq!(pools[1].logins_wanted(start), 0);
    assert!(pools[1].cancel_wait(ticket));
    assert_eq!((total.wanted(), pools[0].spare_idle()), (0, None));
    wait(&mut pools[1], 'b', start);
    assert_eq!(pools[1].logins_wanted(start), 0);
    pools.pop();
    assert_eq!((total.wanted(), pools[0].spare_idle()), (0, None));
}
