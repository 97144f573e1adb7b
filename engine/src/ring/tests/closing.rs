//! Sockets that are dropped in the middle of something.

use super::super::{Chunk, Ring};
use super::support::{
    Random, alone, bytes, descriptors, eventually, exactly, next, reader, shard, small, tcp, writer,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

async fn closes(ring: &Ring, what: &str, mut peer: TcpStream, baseline: usize) {
    eventually(ring, what, || {
        ring.open_sockets() == 0 && descriptors() == baseline
    })
    .await;
    peer.set_read_timeout(Some(Duration::from_secs(2)))
        .expect("an option");
    let mut rest = Vec::new();
    if let Err(error) = peer.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{what}");
    }
}

#[test]
fn a_dropped_socket_closes_whatever_is_in_flight() {
    alone(
        concat!(
            module_path!(),
            "::a_dropped_socket_closes_whatever_is_in_flight"
        ),
        || {
            shard(small(), |ring| async move {
                ring.sleep(Duration::from_millis(5)).await;
                for round in 0..20_u64 {
                    let open = descriptors();
                    let what = [
                        "at once",
                        "idle",
                        "unread",
                        "just written",
                        "a send waits",
                        "paused",
                        "flooded",
                    ];
                    for (case, what) in what.into_iter().enumerate() {
                        let (ours, mut peer) = tcp();
                        let with_peer = open + 1;
                        let socket = ring.socket(ours);
                        if case > 0 {
                            ring.sleep(Duration::from_micros(300)).await;
                        }
                        match case {
                            2 => {
                                peer.write_all(&[1; 9000]).expect("written");
                                socket.readable().await;
                            }
                            3 => socket.write(b"gone"),
                            4 => {
                                let before = ring.stats().short_sends;
                                socket.send(Chunk::heap(vec![1; 16 << 20]));
                                eventually(&ring, "it waits", || ring.stats().short_sends > before)
                                    .await;
                                if round % 2 == 0 {
                                    ring.sleep(Duration::from_millis(1)).await;
                                }
                            }
                            5 => socket.pause(),
                            6 => {
                                writer(
                                    peer.try_clone().expect("a copy"),
                                    vec![1; 1 << 20],
                                    Random(round),
                                );
                                socket.readable().await;
                            }
                            _ => {}
                        }
                        drop(socket);
                        closes(&ring, what, peer, with_peer).await;
                        eventually(&ring, "the peer is gone", || descriptors() == open).await;
                    }
                    assert_eq!(ring.free_buffers(), 64);
                }
            });
        },
    );
}

#[test]
fn a_peer_sees_the_end_though_nothing_else_happens() {
    shard(small(), |ring| async move {
        let (ours, peer) = tcp();
        let socket = ring.socket(ours);
        socket.write(b"bye");
        socket.flushed().await.expect("sent");
        let (end, call) = (reader(peer, Random(1)), ring.wake_handle());
        let end = std::thread::spawn(move || {
            let read = end.join().expect("a reader");
            call.wake();
            read
        });
        drop(socket);
        // Nothing else wakes the shard: the close must not wait for that.
        let far = Some(std::time::Instant::now() + Duration::from_secs(10));
        assert!(ring.until(far, ring.woken()).await.is_ok());
        assert_eq!(end.join().expect("a reader"), b"bye");
    });
}

#[test]
fn a_late_completion_never_meets_a_stranger() {
    shard(small(), |ring| async move {
        let mut random = Random(11);
        for round in 0..300 {
            // The first leaves in the middle of much, the second takes its
            // entry over and must see its own bytes only.
            let (first, first_peer) = tcp();
            let first = ring.socket(first);
            writer(first_peer, vec![0xee; 100_000], Random(round));
            first.send(Chunk::heap(vec![0xdd; 50_000 * random.below(40)]));
            for _ in 0..random.below(4) {
                let _ = next(&first).await;
            }
            if random.below(2) == 0 {
                first.pause();
            }
            drop(first);
            let (second, mut second_peer) = tcp();
            let second = ring.socket(second);
            let input = bytes(round, 2000);
            second_peer.write_all(&input).expect("written");
            second.write(&input);
            assert!(exactly(&second, 2000).await == input, "round {round}");
            second.flushed().await.expect("sent");
            let mut back = vec![0; 2000];
            second_peer.read_exact(&mut back).expect("bytes");
            assert!(back == input, "round {round}");
            assert_eq!(second.end(), None);
        }
        eventually(&ring, "all is closed", || ring.open_sockets() == 0).await;
    });
}

#[test]
fn last_words_to_a_peer_that_is_gone_are_said_once() {
    shard(small(), |ring| async move {
        for _ in 0..50 {
            let (ours, peer) = tcp();
            // Closing resets: what we say meets nobody.
            socket2::SockRef::from(&peer)
                .set_linger(Some(Duration::ZERO))
                .expect("an option");
            drop(peer);
            let socket = ring.socket(ours);
            socket.write(b"last words");
            socket.linger();
        }
        eventually(&ring, "all closed", || ring.open_sockets() == 0).await;
    });
}

#[test]
fn last_words_to_a_peer_that_listens_arrive() {
    shard(small(), |ring| async move {
        let (ours, mut peer) = tcp();
        let socket = ring.socket(ours);
        socket.write(b"last words");
        socket.linger();
        drop(socket);
        eventually(&ring, "closed", || ring.open_sockets() == 0).await;
        let mut heard = Vec::new();
        peer.read_to_end(&mut heard).expect("read");
        assert_eq!(heard, b"last words");
    });
}
