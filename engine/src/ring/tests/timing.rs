//! Timers.

use super::super::{Elapsed, task};
use super::support::{Random, eventually, shard, small, start, thread_cpu};
use std::cell::RefCell;
use std::future::pending;
use std::rc::Rc;
use std::time::{Duration, Instant};

#[test]
fn timers_end_in_the_order_of_their_deadlines() {
    shard(small(), |ring| async move {
        let ended = Rc::new(RefCell::new(Vec::new()));
        for delay in [30, 10, 50, 20, 40] {
            let (ring, ended) = (ring.clone(), Rc::clone(&ended));
            task::spawn(async move {
                ring.sleep(Duration::from_millis(delay)).await;
                ended.borrow_mut().push(delay);
            });
        }
        ring.sleep(Duration::from_millis(80)).await;
        assert_eq!(*ended.borrow(), [10, 20, 30, 40, 50]);
    });
}

#[test]
fn a_timer_is_never_early_and_seldom_late() {
    shard(small(), |ring| async move {
        let mut late = Vec::new();
        for delay in [0, 1, 2, 5, 10, 20, 1, 2, 5] {
            let deadline = Instant::now() + Duration::from_millis(delay);
            ring.sleep_until(deadline).await;
            let now = Instant::now();
            assert!(now >= deadline, "{delay} ms is early");
            late.push(now - deadline);
        }
        late.sort();
        // Not the median: a build may share the machine.
        assert!(late[late.len() / 4] < Duration::from_millis(10), "{late:?}");
    });
}

#[test]
fn an_earlier_timer_goes_first_though_the_kernel_waits_for_a_later_one() {
    shard(small(), |ring| async move {
        let begin = Instant::now();
        let rings = ring.clone();
        let far = start(async move { rings.sleep(Duration::from_secs(3600)).await });
        ring.sleep(Duration::from_millis(5)).await;
        ring.sleep(Duration::from_millis(5)).await;
        assert!(begin.elapsed() < Duration::from_secs(20));
        drop(far);
    });
}

#[test]
fn short_timers_before_a_long_one_heap_up_nothing_in_the_kernel() {
    shard(small(), |ring| async move {
        let rings = ring.clone();
        task::spawn(async move { rings.sleep(Duration::from_millis(500)).await });
        for _ in 0..100 {
            ring.sleep(Duration::from_millis(1)).await;
        }
        ring.sleep(Duration::from_millis(500)).await;
        let completions = ring.stats().completions;
        assert!(completions < 150, "one tick a timer: {completions}");
    });
}

#[test]
fn a_dropped_timer_is_forgotten() {
    shard(small(), |ring| async move {
        for _ in 0..10_000 {
            let deadline = Some(Instant::now() + Duration::from_secs(60));
            assert_eq!(ring.until(deadline, std::future::ready(1)).await, Ok(1));
            let mut sleep = std::pin::pin!(ring.sleep(Duration::from_secs(60)));
            assert!(
                futures_lite::future::poll_once(sleep.as_mut())
                    .await
                    .is_none()
            );
        }
        let (entries, live) = ring.0.timers.borrow().held();
        assert!(entries < 200 && live < 10, "{entries} entries, {live} live");
    });
}

#[test]
fn a_deadline_ends_what_takes_too_long() {
    shard(small(), |ring| async move {
        let soon = Some(Instant::now() + Duration::from_millis(5));
        assert_eq!(ring.until(soon, pending::<()>()).await, Err(Elapsed));
        assert_eq!(ring.until(None, std::future::ready(2)).await, Ok(2));
    });
}

#[test]
fn ten_thousand_timers_all_end() {
    shard(small(), |ring| async move {
        let left = Rc::new(std::cell::Cell::new(10_000));
        let mut random = Random(1);
        for _ in 0..10_000 {
            let (ring, left) = (ring.clone(), Rc::clone(&left));
            let delay = Duration::from_micros(random.below(100_000) as u64);
            task::spawn(async move {
                ring.sleep(delay).await;
                left.set(left.get() - 1);
            });
        }
        let cpu = thread_cpu();
        eventually(&ring, "all ended", || left.get() == 0).await;
        assert!(thread_cpu() - cpu < Duration::from_secs(3));
        assert_eq!(
            ring.0.timers.borrow().held().1,
            1,
            "only the test's own limit"
        );
    });
}
