//! The health of targets and servers, told as stories with a clock of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pool::{Acquire, BreakerSettings, BreakerState, Budget, Fault, Placed, Pool, Settings, Target};

type TestPool = Pool<usize, char>;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn settings(min_connections: u32, max_connections: u32) -> Settings {
    Settings {
        min_connections,
        max_connections,
        idle_timeout: None,
        max_lifetime: None,
        connection_timeout: None,
        check_interval: None,
        ..Settings::default()
    }
}

/// The pools of so many shards, with one budget and one target.
fn shards(shards: usize, settings: &Settings, target: &Arc<Target>) -> Vec<TestPool> {
    let budget = Arc::new(Budget::new(settings.max_connections, shards));
    let pool = |shard| {
        Pool::new(settings.clone(), Arc::clone(&budget), shard).with_target(Arc::clone(target))
    };
    (0..shards).map(pool).collect()
}

fn wait_all(pool: &mut TestPool, waiters: &str, now: Instant) {
    for waiter in waiters.chars() {
        assert!(matches!(pool.acquire(waiter, now), Acquire::Wait(_)));
    }
}

fn open_idle(pool: &mut TestPool, keys: impl IntoIterator<Item = usize>, now: Instant) {
    for key in keys {
        let Acquire::Wait(ticket) = pool.acquire('-', now) else {
            panic!("an idle server is there already")
        };
        assert!(pool.logins_wanted(now) >= 1);
        assert!(pool.cancel_wait(ticket));
        assert_eq!(pool.connected(key, now, 0.0), Placed::Idle);
        // So that the next client finds none.
        assert_eq!(pool.acquire('-', now), Acquire::Lease(key));
    }
}

#[test]
fn five_thousand_clients_of_a_dead_target_are_one_login_at_a_time_over_all_shards() {
    let start = Instant::now();
    let target = Arc::new(Target::default());
    let mut pools = shards(4, &settings(0, 100), &target);
    let mut logins = 0;
    let mut in_flight = [0; 4];
    for round in 0..10_000_u64 {
        let now = start + ms(round);
        for (shard, pool) in pools.iter_mut().enumerate() {
            while pool.waiting() < 1250 {
                wait_all(pool, "w", now);
            }
            in_flight[shard] += pool.logins_wanted(now);
        }
        let all: u32 = in_flight.iter().sum();
        assert!(
            round == 0 || all <= 1,
            "{all} logins in flight at {round} ms"
        );
        logins += all;
        for (shard, pool) in pools.iter_mut().enumerate() {
            for _ in 0..std::mem::take(&mut in_flight[shard]) {
                pool.login_failed_by(Fault::Target, now, 0.0);
            }
            if pool.take_news() {
                assert!(pool.logins_in_flight() == 0);
            }
        }
    }
    // 8 at first, then after 100, 200, 400, 800 ms, and one in each second of the rest.
    assert!((16..=20).contains(&logins), "{logins} logins in 10 s");
}

#[test]
fn the_first_login_that_gets_an_answer_lets_all_shards_log_in_again() {
    let start = Instant::now();
    let target = Arc::new(Target::default());
    let mut pools = shards(2, &settings(0, 10), &target);
    for pool in &mut pools {
        wait_all(pool, "ab", start);
    }
    assert_eq!(pools[0].logins_wanted(start), 2);
    assert_eq!(pools[0].login_failed_by(Fault::Target, start, 0.0), []);
    assert!(pools[0].take_news());
    assert_eq!(pools[1].logins_wanted(start), 0, "the pause holds for all");
    assert_eq!(
        pools[1].next_deadline(),
        Some(start + ms(10)),
        "asks shards"
    );
    let back = start + ms(100);
    assert_eq!(pools[1].logins_wanted(back), 1);
    assert_eq!(pools[1].connected(7, back, 0.0), Placed::HandOff('a'));
    assert!(pools[1].take_news());
    assert_eq!(pools[1].logins_wanted(back), 1);
    assert!(!target.is_unwell());
}

#[test]
fn a_refused_password_pauses_its_own_pool_and_shows_that_the_target_lives() {
    let start = Instant::now();
    let target = Arc::new(Target::default());
    let mut wrong = shards(1, &settings(0, 10), &target).remove(0);
    let mut right = shards(1, &settings(0, 10), &target).remove(0);
    wait_all(&mut wrong, "ab", start);
    wait_all(&mut right, "c", start);
    assert_eq!(wrong.logins_wanted(start), 2);
    assert_eq!(wrong.login_failed_by(Fault::Target, start, 0.0), []);
    assert!(target.is_unwell());
    assert_eq!(wrong.login_failed_by(Fault::Pool, start, 0.0), ['a', 'b']);
    assert!(!target.is_unwell());
    assert_eq!(right.logins_wanted(start), 1);
    wait_all(&mut wrong, "d", start);
    assert_eq!(wrong.logins_wanted(start), 0);
}

#[test]
fn clients_are_given_up_when_nobody_is_let_in_unless_another_shard_has_a_server() {
    let start = Instant::now();
    let target = Arc::new(Target::default());
    let mut pools = shards(3, &settings(0, 10), &target);
    wait_all(&mut pools[0], "a", start);
    wait_all(&mut pools[1], "b", start);
    assert_eq!(pools[1].hopeless(start), [], "nothing is known yet");
    assert_eq!(pools[0].logins_wanted(start), 1);
    assert_eq!(pools[0].login_failed_by(Fault::Target, start, 0.0), ['a']);
    assert_eq!(pools[1].hopeless(start), ['b']);

    let later = start + ms(100);
    open_idle(&mut pools[2], [1], later);
    wait_all(&mut pools[0], "c", later);
    assert_eq!(pools[0].logins_wanted(later), 1);
    pools[0].login_failed_by(Fault::Target, later, 0.0);
    wait_all(&mut pools[1], "d", later);
    assert_eq!(pools[1].hopeless(later), [], "a server may come from there");
}

#[test]
fn an_open_breaker_refuses_whoever_would_wait_and_lets_few_try_when_it_is_half_open() {
    let start = Instant::now();
    let breaker = BreakerSettings {
        window_size: 2,
        half_open_max: 2,
        ..BreakerSettings::default()
    };
    let target = Arc::new(Target::new(Some(breaker)));
    let mut pools = shards(2, &settings(0, 10), &target);
    wait_all(&mut pools[0], "ab", start);
    wait_all(&mut pools[1], "cde", start);
    assert_eq!(pools[0].logins_wanted(start), 2);
    assert!(!target.refuses(start));
    pools[0].login_failed_by(Fault::Target, start, 0.0);
    pools[0].login_failed_by(Fault::Target, start, 0.0);
    assert!(target.refuses(start));
    assert_eq!(pools[1].hopeless(start), ['c', 'd', 'e']);

    let half = start + breaker.open_duration;
    wait_all(&mut pools[0], "fghi", half);
    wait_all(&mut pools[1], "jkl", half);
    assert!(!target.refuses(half));
    assert_eq!(pools[0].logins_wanted(half), 1, "it is unwell too");
    assert_eq!(pools[0].connected(1, half, 0.0), Placed::HandOff('f'));
    assert_eq!(pools[0].logins_wanted(half), 2, "half_open_max at once");
    assert_eq!(pools[1].logins_wanted(half), 0, "of all shards");
    assert_eq!(pools[0].connected(2, half, 0.0), Placed::HandOff('g'));
    let closed = target.condition(half).breaker;
    assert_eq!(closed, Some(BreakerState::Closed));
    assert_eq!(pools[1].logins_wanted(half), 2);
}

#[test]
fn a_half_open_breaker_gives_up_no_client_whom_a_trial_may_serve() {
    let start = Instant::now();
    let target = Arc::new(Target::new(Some(BreakerSettings {
        window_size: 1,
        ..BreakerSettings::default()
    })));
    let mut pool = shards(1, &settings(0, 10), &target).remove(0);
    target.lost(start);
    let half = start + BreakerSettings::default().open_duration;
    wait_all(&mut pool, "a", half);
    assert!(target.is_unwell() && !target.lets_nobody_in());
    assert_eq!(pool.hopeless(half), []);
    assert_eq!(pool.logins_wanted(half), 1);
}

#[test]
fn logins_to_a_target_that_a_reload_has_replaced_say_nothing_of_either() {
    let start = Instant::now();
    let (old, new) = (Arc::new(Target::default()), Arc::new(Target::default()));
    let mut pool = shards(1, &settings(0, 10), &old).remove(0);
    let mut other = shards(1, &settings(0, 10), &old).remove(0);
    wait_all(&mut pool, "ab", start);
    assert_eq!(pool.logins_wanted(start), 2);
    pool.login_failed_by(Fault::Target, start, 0.0);
    pool.set_target(Arc::clone(&new));
    pool.renew();
    wait_all(&mut pool, "c", start);
    assert_eq!(pool.logins_wanted(start), 1, "the new one may be well");
    pool.login_abandoned();
    assert!(!new.is_unwell() && old.is_unwell());
    assert_eq!(pool.connected(1, start, 0.0), Placed::HandOff('a'));
    wait_all(&mut other, "d", start);
    assert_eq!(other.logins_wanted(start + ms(100)), 1, "nor is it a probe");
}

#[test]
fn a_half_open_breaker_closes_by_what_servers_have_served_too() {
    let start = Instant::now();
    let target = Target::new(Some(BreakerSettings {
        window_size: 1,
        half_open_max: 3,
        open_duration: ms(50),
        ..BreakerSettings::default()
    }));
    assert!(target.lost(start), "news");
    assert!(target.refuses(start) && !target.refuses(start + ms(50)));
    assert!(!target.served(2, start + ms(50)));
    assert!(target.served(1, start + ms(50)), "news");
    let condition = target.condition(start + ms(50));
    assert_eq!(condition.breaker, Some(BreakerState::Closed));
    assert_eq!(condition.opened, 1);
}

#[test]
fn servers_that_die_among_many_that_serve_open_no_breaker() {
    let now = Instant::now();
    let target = Target::new(Some(BreakerSettings::default()));
    for _ in 0..1000 {
        target.served(50, now);
        assert!(!target.lost(now));
    }
    assert!(!target.is_unwell());
}

#[test]
fn the_minimum_is_opened_for_nobody_and_counted_as_that() {
    let now = Instant::now();
    let target = Arc::new(Target::default());
    let mut pools = shards(2, &settings(5, 10), &target);
    let mut opened = 0;
    for key in 0.. {
        let pool = &mut pools[key % 2];
        let wanted = pool.logins_wanted(now);
        assert_eq!(pool.take_warming(), wanted);
        if pool.logins_in_flight() > 0 {
            assert_eq!(pool.connected(key, now, 0.0), Placed::Idle);
            opened += 1;
        }
        if key > 20 {
            break;
        }
    }
    assert_eq!(opened, 5);
    assert_eq!((pools[0].idle(), pools[1].idle()), (3, 2));
}

#[test]
fn with_a_minimum_of_zero_nothing_is_opened_and_nothing_is_due() {
    let now = Instant::now();
    let mut pool = shards(1, &settings(0, 10), &Arc::default()).remove(0);
    assert_eq!((pool.logins_wanted(now), pool.next_deadline()), (0, None));
}

#[test]
fn a_minimum_that_other_shards_have_the_permits_of_is_tried_again_after_half_of_idle_timeout() {
    let start = Instant::now();
    let settings = Settings {
        idle_timeout: Some(ms(1000)),
        ..settings(2, 2)
    };
    let mut pools = shards(2, &settings, &Arc::default());
    open_idle(&mut pools[0], [1, 2], start);
    assert_eq!(pools[0].release(1, start), Placed::Idle);
    assert_eq!(pools[0].release(2, start), Placed::Idle);
    assert_eq!(pools[1].logins_wanted(start), 0);
    let again = start + ms(500);
    assert_eq!(pools[1].next_deadline(), Some(again));
    assert_eq!(pools[1].logins_wanted(again), 0);
    let expired = pools[0].expire(start + ms(1000));
    assert_eq!(expired.servers.len(), 1, "its share is one");
    assert!(pools[0].discard(expired.servers[0].0));
    let again = pools[1].next_deadline().expect("it looks again");
    assert_eq!(again, start + ms(1000));
    assert_eq!(pools[1].logins_wanted(again), 1);
}

#[test]
fn a_server_of_the_minimum_that_is_lost_is_replaced_at_once() {
    let now = Instant::now();
    let mut pool = shards(1, &settings(1, 10), &Arc::default()).remove(0);
    assert_eq!(pool.logins_wanted(now), 1);
    assert_eq!(pool.connected(3, now, 0.0), Placed::Idle);
    assert_eq!(pool.logins_wanted(now), 0);
    assert!(pool.discard(3));
    assert_eq!(pool.logins_wanted(now), 1);
}

#[test]
fn warming_ends_when_it_is_told_to_and_clients_still_get_servers() {
    let now = Instant::now();
    let mut pool = shards(1, &settings(2, 10), &Arc::default()).remove(0);
    pool.stop_warming();
    assert_eq!((pool.logins_wanted(now), pool.next_deadline()), (0, None));
    wait_all(&mut pool, "a", now);
    assert_eq!(pool.logins_wanted(now), 1);
}

fn with_checks() -> TestPool {
    let settings = Settings {
        check_interval: Some(ms(100)),
        idle_timeout: Some(ms(250)),
        ..settings(0, 10)
    };
    shards(1, &settings, &Arc::default()).remove(0)
}

#[test]
fn idle_servers_are_looked_at_one_after_the_other_once_an_interval_and_only_those() {
    let start = Instant::now();
    let mut pool = with_checks();
    open_idle(&mut pool, 1..=4, start);
    assert_eq!(pool.release(1, start), Placed::Idle);
    assert_eq!(pool.release(2, start + ms(10)), Placed::Idle);
    assert_eq!(pool.release(3, start + ms(50)), Placed::Idle);
    assert_eq!(pool.next_deadline(), Some(start + ms(100)));
    assert_eq!(pool.check_due(start + ms(99)), None);
    let due = start + ms(110);
    assert_eq!(pool.check_due(due), Some(1));
    assert_eq!(pool.check_due(due), None, "one at a time");
    assert_eq!(pool.checked(1, due), Placed::Idle);
    assert_eq!(pool.check_due(due), Some(2));
    assert_eq!(pool.checked(2, due), Placed::Idle);
    assert_eq!(pool.check_due(due), None, "3 has not been idle for long");
    assert_eq!(pool.next_deadline(), Some(start + ms(150)));
    pool.check_invariants();
}

#[test]
fn a_check_is_no_use_of_a_server_which_grows_old_and_stays_behind_the_others() {
    let start = Instant::now();
    let mut pool = with_checks();
    open_idle(&mut pool, 1..=2, start);
    assert_eq!(pool.release(1, start), Placed::Idle);
    assert_eq!(pool.release(2, start + ms(60)), Placed::Idle);
    assert_eq!(pool.check_due(start + ms(100)), Some(1));
    assert_eq!(pool.checked(1, start + ms(120)), Placed::Idle);
    pool.check_invariants();
    assert_eq!(pool.acquire('a', start + ms(130)), Acquire::Lease(2));
    let expired = pool.expire(start + ms(250));
    assert_eq!(expired.servers.len(), 1);
    assert_eq!(expired.servers[0].0, 1, "idle for 250 ms all the same");
}

#[test]
fn a_client_that_comes_during_a_check_gets_the_server_when_it_has_passed() {
    let start = Instant::now();
    let mut pool = with_checks();
    open_idle(&mut pool, [1], start);
    assert_eq!(pool.release(1, start), Placed::Idle);
    let due = start + ms(100);
    assert_eq!(pool.check_due(due), Some(1));
    wait_all(&mut pool, "a", due);
    assert_eq!(pool.logins_wanted(due), 1, "it may be dead");
    assert_eq!(pool.checked(1, due), Placed::HandOff('a'));
}

#[test]
fn a_server_that_does_not_pass_frees_its_permit_and_one_that_was_retired_meanwhile_goes() {
    let start = Instant::now();
    let mut pool = with_checks();
    open_idle(&mut pool, [1, 2], start);
    assert_eq!(pool.release(1, start), Placed::Idle);
    assert_eq!(pool.release(2, start), Placed::Idle);
    let due = start + ms(100);
    assert_eq!(pool.check_due(due), Some(1));
    assert!(pool.discard(1));
    assert_eq!(pool.permits(), 1);
    assert_eq!(pool.check_due(due), Some(2));
    assert_eq!(pool.retire_some(|key| key == 2), []);
    assert!(matches!(pool.checked(2, due), Placed::Close(_)));
}

#[test]
fn only_servers_that_are_meant_are_retired() {
    let now = Instant::now();
    let mut pool = shards(1, &settings(0, 10), &Arc::default()).remove(0);
    open_idle(&mut pool, 1..=4, now);
    for key in 1..=3 {
        assert_eq!(pool.release(key, now), Placed::Idle);
    }
    assert_eq!(pool.retire_some(|key| key % 2 == 0), [2]);
    assert!(pool.discard(2));
    assert!(matches!(pool.release(4, now), Placed::Close(_)));
    assert_eq!(pool.acquire('a', now), Acquire::Lease(3));
    assert_eq!(pool.acquire('a', now), Acquire::Lease(1));
}
