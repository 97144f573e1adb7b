//! How long the hot parts of this crate take, without a framework: the best of several rounds.
//!
//! `cargo bench -p protocol` prints one line for each.

use std::hint::black_box;
use std::time::Instant;

use protocol::auth::scram::salted_password;
use protocol::backend::{CommandComplete, DataRow, ReadyForQuery, TransactionStatus};
use protocol::frame::{Deframer, Side, Step};
use protocol::frontend::{Bind, BindHead};
use protocol::list::List;

fn main() {
    deframe("deframe DataRow of 100 bytes", &rows(10_000, 100), READ_LEN);
    deframe("deframe DataRow of 10 bytes", &rows(10_000, 10), READ_LEN);
    deframe(
        "deframe DataRow of 100 bytes, cut every 61",
        &rows(10_000, 100),
        61,
    );
    deframe(
        "deframe replies of pgbench -S",
        &select_replies(10_000),
        READ_LEN,
    );
    split_bind();
    measure("SCRAM salted password, 4096 iterations", 1, || {
        black_box(salted_password(b"pencil", b"0123456789abcdef", 4096));
    });
}

/// Hops over a stream that comes in reads of at most `read_len` bytes.
fn deframe(name: &str, stream: &[u8], read_len: usize) {
    let count = hop(stream, read_len);
    measure(name, count, || {
        black_box(hop(black_box(stream), read_len));
    });
}

fn hop(stream: &[u8], read_len: usize) -> u32 {
    let mut deframer = Deframer::new(Side::Backend);
    let mut messages = 0;
    for mut read in stream.chunks(read_len) {
        loop {
            let used = match deframer.step(read) {
                Ok(Step::Head(head)) => {
                    messages += u32::from(black_box(head.tag) != 0);
                    head.consumed
                }
                Ok(Step::Body { len, .. }) => len,
                Ok(Step::Starved { .. }) | Err(_) => break,
            };
            read = &read[used..];
        }
    }
    messages
}

fn split_bind() {
    let mut wire = Vec::new();
    let bind = Bind {
        portal: b"",
        statement: b"S_1",
        param_formats: List::new(&[1]),
        params: List::new(&[Some(b"\0\0\0\x2a")]),
        result_formats: List::new(&[1]),
    };
    bind.encode(&mut wire).expect("encodes");
    let body = &wire[5..];
    let mut out = Vec::with_capacity(256);
    measure("Bind split and renamed", 1_000, || {
        for _ in 0..1_000 {
            out.clear();
            let head = Bind::split(black_box(body)).expect("splits");
            let renamed = BindHead {
                statement: b"_pgmux_12345",
                ..head
            };
            renamed.encode(&mut out).expect("encodes");
            black_box(&out);
        }
    });
}

fn rows(count: usize, value_len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let value = vec![b'x'; value_len];
    for _ in 0..count {
        let columns = [Some(&value[..])];
        DataRow {
            columns: List::new(&columns),
        }
        .encode(&mut out)
        .expect("encodes");
    }
    out
}

fn select_replies(count: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..count {
        out.extend_from_slice(
            b"T\0\0\0\x21\0\x01abalance\0\0\0\x40\x02\0\x03\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0",
        );
        DataRow {
            columns: List::new(&[Some(b"12345")]),
        }
        .encode(&mut out)
        .expect("encodes");
        CommandComplete { tag: b"SELECT 1" }
            .encode(&mut out)
            .expect("encodes");
        ReadyForQuery {
            status: TransactionStatus::Idle,
        }
        .encode(&mut out)
        .expect("encodes");
    }
    out
}

/// Prints the best time of some rounds, for one of the `count` things that a round does.
fn measure(name: &str, count: u32, mut round: impl FnMut()) {
    let best = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed()
        })
        .min()
        .unwrap_or_default();
    let nanoseconds = best.as_secs_f64() * 1e9 / f64::from(count);
    println!("{name:<45} {nanoseconds:>12.1} ns");
}

const ROUNDS: u32 = 50;

/// As much as one receive buffer of the engine holds.
const READ_LEN: usize = 16 * 1024;
