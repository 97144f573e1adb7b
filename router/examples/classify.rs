//! What it costs to look at a text, to find its verdict in the cache, and to come to one.
//!
//! `cargo run --release -p router --example classify`

use std::hint::black_box;
use std::time::Instant;

use router::cache::VerdictCache;
use router::classify::{Caps, Classifier, by_tree, by_words};
use router::functions::Builtin;
use router::scan::{Options, Scanner};
use router::shape::ShapeKey;
use router::survey::survey;
use router::verdict::{Class, Verdict};

/// About 200 bytes each, as drivers and mappers send them.
const TEXTS: &[&str] = &[
    "SELECT \"users\".\"id\", \"users\".\"name\", \"users\".\"email\", \"users\".\"created_at\" FROM \"users\" WHERE \"users\".\"account_id\" = $1 AND \"users\".\"deleted_at\" IS NULL ORDER BY \"users\".\"id\" ASC LIMIT $2",
    "SELECT o.id, o.total, c.name, c.email FROM orders o JOIN customers c ON c.id = o.customer_id WHERE o.status = 'paid' AND o.created_at > '2026-01-01' AND o.total BETWEEN 10 AND 5000 ORDER BY o.created_at DESC LIMIT 50",
    "SELECT count(*), date_trunc('day', created_at) AS day FROM page_views WHERE site_id = 123456 AND path LIKE '/blog/%' AND created_at >= now() - interval '30 days' GROUP BY day HAVING count(*) > 10 ORDER BY day",
    "SELECT p.id, p.title, (SELECT count(*) FROM comments WHERE comments.post_id = p.id) AS comments FROM posts p WHERE p.author_id IN (1, 2, 3, 5, 8, 13, 21) AND p.body ILIKE '%a longer literal with some words in it%'",
    "SELECT abalance, bbalance, filler FROM pgbench_accounts INNER JOIN pgbench_branches ON pgbench_accounts.bid = pgbench_branches.bid WHERE pgbench_accounts.aid = 1234567 AND pgbench_branches.bbalance >= -4711",
];

fn main() {
    let options = Options::default();
    let key = ShapeKey::new([
        0x1234_5678_9abc_def1,
        0x0fed_cba9_8765_4321,
        0x5555_aaaa_1111_9999,
        0x1357_9bdf_0246_8ace,
    ]);
    let bytes: usize = TEXTS.iter().map(|text| text.len()).sum();
    let tokens: usize = TEXTS
        .iter()
        .map(|text| Scanner::new(text.as_bytes(), options).count())
        .sum();
    let each = |name: &str, rounds: u32, work: &mut dyn FnMut(&[u8])| {
        let nanos = nanos(rounds, || {
            TEXTS
                .iter()
                .for_each(|text| work(black_box(text.as_bytes())))
        });
        let one = nanos / TEXTS.len() as f64;
        println!(
            "{name:24} {one:8.0} ns a text {:6.2} GB/s {:5.1} ns a token",
            bytes as f64 / nanos,
            nanos / tokens as f64
        );
    };
    println!(
        "{} texts of {} bytes and {} tokens on average",
        TEXTS.len(),
        bytes / TEXTS.len(),
        tokens / TEXTS.len()
    );
    each("tokens", 20_000, &mut |text| {
        black_box(Scanner::new(text, options).fold(0, |sum, token| sum + token.end));
    });
    each("survey", 20_000, &mut |text| {
        black_box(survey(text, options, &key));
    });
    let mut classifier = Classifier::new(true, 1 << 20, Caps::DEFAULT, [1, 2, 3, 4]);
    each("verdict, cached", 20_000, &mut |text| {
        black_box(classifier.judge(text, options, &Builtin));
    });
    each("verdict by words", 5_000, &mut |text| {
        black_box(by_words(text, options, &Builtin));
    });
    each("verdict by tree", 200, &mut |text| {
        black_box(by_tree(text, options, &Builtin)).ok();
    });
    each("  of that, the parser", 200, &mut |text| {
        black_box(pg_query::parse(
            std::str::from_utf8(text).unwrap_or_default(),
            0,
        ))
        .ok();
    });
    lookups(&key, options);
}

/// Hits alone, among shapes that fill the cache of a shard.
fn lookups(key: &ShapeKey, options: Options) {
    for (bytes, count) in [(1 << 20, 10), (1 << 20, 10_000), (16 << 20, 300_000)] {
        let shapes: Vec<_> = (0..count)
            .map(|at| survey(format!("select c{at} from t").as_bytes(), options, key).shape)
            .collect();
        let mut cache = VerdictCache::new(bytes);
        shapes
            .iter()
            .for_each(|&shape| cache.insert(shape, Verdict::of(Class::Read)));
        let rounds = (1_000_000 / count).max(1) as u32;
        let nanos = nanos(rounds, || {
            for &shape in &shapes {
                black_box(cache.get(black_box(shape)));
            }
        });
        println!(
            "a look at {:7} verdicts in {:5} KiB: {:4.1} ns",
            cache.len(),
            cache.bytes() >> 10,
            nanos / count as f64
        );
    }
}

/// The best of the batches: what disturbs a measurement only makes it longer.
fn nanos(rounds: u32, mut work: impl FnMut()) -> f64 {
    let batch = |_| {
        let start = Instant::now();
        for _ in 0..rounds {
            work();
        }
        start.elapsed().as_nanos() as f64 / f64::from(rounds)
    };
    (0..30).map(batch).fold(f64::INFINITY, f64::min)
}
