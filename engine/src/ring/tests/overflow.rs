//! Queues far too small for what goes on.

use super::super::sys::{Event, Outgoing, Sys};
use super::super::{Chunk, RxEnd, Sizes};
use super::support::{Random, bytes, joined, next, shard, small, start, tcp, writer};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

/// `sockets` peers that write, wait for the echo, and so on.
fn echo(sizes: Sizes, sockets: u64) {
    shard(sizes, move |ring| async move {
        let mut peers = Vec::new();
        for seed in 0..sockets {
            let (ours, peer) = tcp();
            peers.push((seed, peer));
            let socket = ring.socket(ours);
            super::super::task::spawn(async move {
                while let Ok(chunk) = next(&socket).await {
                    socket.send(chunk);
                }
                let _ = socket.flushed().await;
            });
        }
        // All write before any reads, so that all are busy in one turn.
        let peers = std::thread::spawn(move || {
            for round in 0..20 {
                for (seed, peer) in &mut peers {
                    peer.write_all(&bytes(*seed + round, 300)).expect("written");
                }
                for (seed, peer) in &mut peers {
                    let mut back = vec![0; 300];
                    peer.read_exact(&mut back).expect("the echo");
                    assert!(
                        back == bytes(*seed + round, 300),
                        "socket {seed}, round {round}"
                    );
                }
            }
        });
        joined(&ring, peers).await;
        super::support::eventually(&ring, "all is closed", || ring.open_sockets() == 0).await;
    });
}

#[test]
fn a_completion_queue_of_eight_loses_nothing_of_200_sockets() {
    echo(
        Sizes {
            submissions: 8,
            completions: 8,
            ..small()
        },
        200,
    );
}

#[test]
fn a_submission_queue_of_two_loses_nothing_of_200_sockets() {
    echo(
        Sizes {
            submissions: 2,
            ..small()
        },
        200,
    );
}

#[test]
fn a_receive_that_the_kernel_ended_for_want_of_completions_is_armed_again() {
    shard(
        Sizes {
            submissions: 2,
            completions: 2,
            ..small()
        },
        |ring| async move {
            let mut ends = Vec::new();
            for seed in 0..20 {
                let (ours, peer) = tcp();
                writer(peer, bytes(seed, 100_000), Random(seed));
                let socket = ring.socket(ours);
                ends.push(start(async move {
                    let mut all = Vec::new();
                    loop {
                        match next(&socket).await {
                            Ok(chunk) => all.extend_from_slice(&chunk),
                            Err(end) => return (all, end),
                        }
                    }
                }));
            }
            for (seed, end) in ends.into_iter().enumerate() {
                let (all, end) = end.await;
                assert!(all == bytes(seed as u64, 100_000), "socket {seed}");
                assert_eq!(end, RxEnd::Eof);
            }
        },
    );
}

#[test]
fn a_failed_quick_send_is_no_success_when_the_completion_queue_is_full() {
    let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
    let mut sys = Sys::new(
        Sizes {
            submissions: 64,
            completions: 64,
            ..small()
        },
        wake.as_raw_fd(),
    )
    .expect("a ring");
    let dead: Vec<OwnedFd> = (0..200)
        .map(|_| OwnedFd::from(std::os::unix::net::UnixStream::pair().expect("a pair").0))
        .collect();
    for (id, fd) in (0..).zip(&dead) {
        sys.send(
            id,
            fd.as_raw_fd(),
            Outgoing::One(Chunk::heap(vec![1])),
            true,
        );
    }
    sys.enter(false).expect("entered");
    let mut events = Vec::new();
    while let Some(event) = sys.next_event().expect("reaped") {
        events.push(event);
    }
    let broken = |event: &&Event| {
        matches!(
            event,
            Event::Sent {
                sent: 0,
                error: Some(libc::EPIPE),
                ..
            }
        )
    };
    assert_eq!(
        events.iter().filter(broken).count(),
        dead.len(),
        "each failure is known"
    );
}
