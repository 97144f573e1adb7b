//! Nanoseconds for the steps of a pool that happen once per transaction.
//!
//! `cargo run --release -p pool --example hot`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use pool::{Acquire, Budget, Placed, Pool, Settings};

const SERVERS: u32 = 20;
const ROUNDS: u32 = 20_000_000;

fn main() {
    let settings = Settings {
        min_connections: SERVERS,
        max_connections: SERVERS,
        ..Settings::default()
    };
    let budget = Arc::new(Budget::new(SERVERS, 4));
    let mut pool = Pool::<u32, u32>::new(settings, Arc::clone(&budget), 0);
    // A minimum of 20 over 4 shards is 5 for this one.
    let now = Instant::now();
    let mut key = 0;
    while pool.logins_wanted(now) > 0 {
        while pool.logins_in_flight() > 0 {
            assert_eq!(pool.connected(key, now, 0.5), Placed::Idle);
            key += 1;
        }
    }

    report("acquire + release of an idle server", || {
        for client in 0..ROUNDS {
            let Acquire::Lease(key) = pool.acquire(black_box(client), now) else {
                unreachable!()
            };
            assert_eq!(pool.release(black_box(key), now), Placed::Idle);
        }
    });

    let mut leased = Vec::new();
    while let Acquire::Lease(key) = pool.acquire(0, now) {
        leased.push(key);
    }
    for client in 0..64 {
        assert!(matches!(pool.acquire(client, now), Acquire::Wait(_)));
    }
    report("acquire (queued) + release (hand-off), 64 waiting", || {
        for client in 0..ROUNDS {
            let key = leased[client as usize % leased.len()];
            assert!(matches!(
                pool.acquire(black_box(client), now),
                Acquire::Wait(_)
            ));
            assert!(matches!(
                pool.release(black_box(key), now),
                Placed::HandOff(_)
            ));
        }
    });
}

fn report(what: &str, mut work: impl FnMut()) {
    let start = Instant::now();
    work();
    println!(
        "{what}: {:.1} ns",
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    );
}
