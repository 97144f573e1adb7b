//! Nanoseconds to tell what texts do to the session.
//!
//! `cargo run --release -p router --example scan`

use std::hint::black_box;
use std::time::Instant;

use router::effects::scan_effects;
use router::scan::{Options, Scanner};

const TEXTS: &[&str] = &[
    "SELECT abalance FROM pgbench_accounts WHERE aid = 123;",
    "UPDATE pgbench_accounts SET abalance = abalance + -4711 WHERE aid = 1234567;",
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 2, 3, 4, CURRENT_TIMESTAMP);",
    "SELECT \"users\".\"id\", \"users\".\"name\" FROM \"users\" WHERE \"users\".\"email\" = $1 ORDER BY \"users\".\"id\" ASC LIMIT $2",
    "BEGIN",
    "COMMIT",
    "SET search_path TO app, public",
    "SELECT set_config('app.tenant', $1, true), pg_advisory_xact_lock(42)",
];

const BATCHES: u32 = 50;
const ROUNDS: u32 = 40_000;

fn main() {
    println!("effects  tokens  bytes  text");
    for text in TEXTS {
        let effects =
            nanos(|| black_box(scan_effects(black_box(text.as_bytes()), Options::default())));
        let tokens = nanos(|| {
            black_box(Scanner::new(black_box(text.as_bytes()), Options::default()).count())
        });
        println!("{effects:4.0} ns {tokens:4.0} ns  {:5}  {text}", text.len());
    }
}

/// The best of the batches: what disturbs a measurement only makes it longer.
fn nanos<T>(mut work: impl FnMut() -> T) -> f64 {
    let batch = |_| {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            work();
        }
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    };
    (0..BATCHES).map(batch).fold(f64::INFINITY, f64::min)
}
