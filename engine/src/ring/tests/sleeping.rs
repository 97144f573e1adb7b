//! When the driver sleeps, and what wakes it.

use super::super::task;
use super::support::{exactly, next, shard, small, tcp, thread_cpu};
use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

#[test]
fn an_idle_shard_uses_no_cpu() {
    shard(small(), |ring| async move {
        // Connected and silent.
        let _idle: Vec<_> = (0..100)
            .map(|_| tcp())
            .map(|(ours, peer)| (ring.socket(ours), peer))
            .collect();
        ring.sleep(Duration::from_millis(20)).await;
        let (enters, cpu) = (ring.stats().enters, thread_cpu());
        ring.sleep(Duration::from_secs(1)).await;
        let (enters, cpu) = (ring.stats().enters - enters, thread_cpu() - cpu);
        assert!(enters <= 4, "{enters} enters");
        assert!(cpu < Duration::from_millis(10), "{cpu:?}");
    });
}

#[test]
fn a_hop_costs_one_enter() {
    shard(small(), |ring| async move {
        let (left, mut client) = tcp();
        let (right, mut server) = tcp();
        let (left, right) = (Rc::new(ring.socket(left)), Rc::new(ring.socket(right)));
        for (source, target) in [(Rc::clone(&left), Rc::clone(&right)), (right, left)] {
            task::spawn(async move {
                while let Ok(chunk) = next(&source).await {
                    target.send(chunk);
                }
            });
        }
        ring.sleep(Duration::from_millis(20)).await;
        let enters = ring.stats().enters;
        const ROUNDS: u64 = 500;
        let peers = std::thread::spawn(move || {
            for _ in 0..ROUNDS {
                client.write_all(b"request").expect("written");
                server.read_exact(&mut [0; 7]).expect("the request");
                server.write_all(b"response").expect("written");
                client.read_exact(&mut [0; 8]).expect("the response");
            }
            (client, server)
        });
        // The wait itself must not enter: one timer, no polling.
        let begin = Instant::now();
        let mut waits = 0;
        while !peers.is_finished() && begin.elapsed() < Duration::from_secs(20) {
            waits += 1;
            ring.sleep(Duration::from_millis(100)).await;
        }
        let enters = ring.stats().enters - enters;
        let (least, most) = (2 * ROUNDS, 2 * ROUNDS + 2 * waits + 2);
        assert!(
            (least - 2..=most).contains(&enters),
            "{enters} enters for {} hops",
            2 * ROUNDS
        );
        drop(peers.join().expect("the peers"));
    });
}

#[test]
fn another_thread_wakes_a_sleeping_shard() {
    shard(small(), |ring| async move {
        let handle = ring.wake_handle();
        for _ in 0..3 {
            let handle = handle.clone();
            let begin = Instant::now();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                handle.wake();
            });
            ring.woken().await;
            assert!(begin.elapsed() >= Duration::from_millis(20));
            assert!(begin.elapsed() < Duration::from_secs(20));
        }
        // A call that nobody waits for is remembered.
        handle.wake();
        ring.sleep(Duration::from_millis(10)).await;
        ring.woken().await;
    });
}

#[test]
fn a_busy_task_never_starves_io() {
    shard(small(), |ring| async move {
        let (ours, mut peer) = tcp();
        let socket = ring.socket(ours);
        let stop = Rc::new(Cell::new(false));
        for _ in 0..3 {
            let stop = Rc::clone(&stop);
            task::spawn(async move {
                while !stop.get() {
                    futures_lite::future::yield_now().await;
                }
            });
        }
        let begin = Instant::now();
        for _ in 0..200 {
            peer.write_all(b"ping").expect("written");
            assert_eq!(exactly(&socket, 4).await, b"ping");
            ring.sleep(Duration::from_micros(10)).await;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{:?}",
            begin.elapsed()
        );
        stop.set(true);
    });
}

#[test]
fn a_task_that_panics_takes_only_itself() {
    shard(small(), |ring| async move {
        let (ours, mut peer) = tcp();
        let (other, mut other_peer) = tcp();
        let (socket, other) = (ring.socket(ours), ring.socket(other));
        let panics = task::panics();
        task::spawn(async move {
            let _chunk = next(&socket).await;
            panic!("by intention, in a test");
        });
        peer.write_all(b"boom").expect("written");
        let end = super::support::reader(peer, super::support::Random(1));
        super::support::joined(&ring, end).await;
        assert_eq!(task::panics(), panics + 1);
        other_peer.write_all(b"alive").expect("written");
        assert_eq!(exactly(&other, 5).await, b"alive");
        assert_eq!(ring.open_sockets(), 1);
    });
}

#[test]
fn what_was_just_spawned_runs_before_the_shard_sleeps() {
    shard(small(), |ring| async move {
        let (ran, done) = (Rc::new(Cell::new(false)), ring.wake_handle());
        let flag = Rc::clone(&ran);
        // Spawned by a task that is itself the last one to run.
        task::spawn(async move {
            task::spawn(async move {
                flag.set(true);
                done.wake();
            });
        });
        ring.woken().await;
        assert!(ran.get());
    });
}

#[test]
fn a_waker_that_another_thread_uses_wakes_its_task() {
    shard(small(), |ring| async move {
        let shared: Arc<Mutex<(bool, Option<Waker>)>> = Arc::default();
        let other = Arc::clone(&shared);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            let mut shared = other.lock().expect("a lock");
            shared.0 = true;
            shared.1.take().expect("one who waits").wake();
        });
        // The shard sleeps now. Nothing but the other thread ends that again.
        let far = Some(Instant::now() + Duration::from_secs(10));
        let awake = std::future::poll_fn(|cx| {
            let mut shared = shared.lock().expect("a lock");
            shared.1 = Some(cx.waker().clone());
            if shared.0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        assert!(ring.until(far, awake).await.is_ok());
    });
}

#[test]
fn a_waker_that_outlives_its_task_wakes_nobody() {
    shard(small(), |ring| async move {
        let kept: Rc<RefCell<Option<Waker>>> = Rc::default();
        let keeper = Rc::clone(&kept);
        task::spawn(std::future::poll_fn(move |cx| {
            *keeper.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        }));
        ring.sleep(Duration::from_millis(1)).await;
        // In the place of the one that has ended.
        let polled = Rc::new(Cell::new(0));
        let count = Rc::clone(&polled);
        task::spawn(std::future::poll_fn(move |_| {
            count.set(count.get() + 1);
            Poll::Pending
        }));
        ring.sleep(Duration::from_millis(1)).await;
        kept.take().expect("a waker").wake();
        ring.sleep(Duration::from_millis(1)).await;
        assert_eq!(polled.get(), 1);
    });
}

#[test]
fn a_task_may_start_others_while_all_are_dropped() {
    struct Last(Rc<Cell<u32>>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            if self.0.get() < 5 {
                let last = Last(Rc::clone(&self.0));
                task::spawn(async move {
                    let _last = last;
                    std::future::pending::<()>().await;
                });
            }
        }
    }
    shard(small(), |_| async {
        let count = Rc::new(Cell::new(0));
        let last = Last(Rc::clone(&count));
        task::spawn(async move {
            let _last = last;
            std::future::pending::<()>().await;
        });
        task::drop_all();
        assert_eq!(count.get(), 5);
    });
}
