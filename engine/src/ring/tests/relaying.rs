//! Bytes through a relay: all of them, in order.

use super::super::{Chunk, Ring, RxEnd, Sizes, Socket};
use super::support::{
    Random, bytes, eventually, exactly, joined, next, reader, shard, shrink, small, start, tcp,
    writer,
};
use std::future::poll_fn;
use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::rc::Rc;
use std::task::Poll;

/// Moves bytes from one socket to the other as the kernel delivered them,
/// until the end; waits while the target is full.
async fn relay(source: Rc<Socket>, target: Rc<Socket>, shut: TcpStream, ring: Ring) {
    loop {
        // Sockets wake one owner; two relays share them, so this one looks
        // again by the clock.
        while target.is_full() {
            ring.sleep(std::time::Duration::from_micros(200)).await;
        }
        let next = poll_fn(|cx| {
            source.set_waker(cx.waker());
            match source.take() {
                Some(chunk) => Poll::Ready(Some(chunk)),
                None if source.end().is_some() => Poll::Ready(None),
                None => Poll::Pending,
            }
        });
        match next.await {
            Some(chunk) => target.send(chunk),
            None => break,
        }
    }
    eventually(&ring, "the relay is flushed", || target.queued() == 0).await;
    shut.shutdown(Shutdown::Write).expect("half-closed");
}

#[test]
fn a_relay_conserves_bytes_and_their_order_in_both_directions() {
    for seed in 1..=4 {
        shard(small(), move |ring| async move {
            let (left, left_peer) = tcp();
            let (right, right_peer) = tcp();
            let shut_left = TcpStream::from(left.try_clone().expect("a copy"));
            let shut_right = TcpStream::from(right.try_clone().expect("a copy"));
            if seed % 2 == 0 {
                shrink(&left);
                shrink(&left_peer);
                shrink(&right);
                shrink(&right_peer);
            }
            let (there, back) = (bytes(seed, 1_500_000), bytes(seed + 100, 1_000_000));
            writer(
                left_peer.try_clone().expect("a copy"),
                there.clone(),
                Random(seed),
            );
            writer(
                right_peer.try_clone().expect("a copy"),
                back.clone(),
                Random(seed + 1),
            );
            let read_there = reader(right_peer, Random(seed + 2));
            let read_back = reader(left_peer, Random(seed + 3));
            let (left, right) = (Rc::new(ring.socket(left)), Rc::new(ring.socket(right)));
            let first = start(relay(
                Rc::clone(&left),
                Rc::clone(&right),
                shut_right,
                ring.clone(),
            ));
            let second = start(relay(
                Rc::clone(&right),
                Rc::clone(&left),
                shut_left,
                ring.clone(),
            ));
            first.await;
            second.await;
            drop((left, right));
            assert!(
                joined(&ring, read_there).await == there,
                "there, seed {seed}"
            );
            assert!(joined(&ring, read_back).await == back, "back, seed {seed}");
            assert!(
                seed % 2 == 1 || ring.stats().short_sends > 0,
                "the slow way was taken"
            );
            eventually(&ring, "all buffers are back", || ring.free_buffers() == 64).await;
            eventually(&ring, "both are closed", || ring.open_sockets() == 0).await;
        });
    }
}

#[test]
fn gathered_sends_keep_the_order_of_slices_and_heap() {
    shard(
        Sizes {
            buffers: 256,
            buffer_bytes: 2048,
            ..small()
        },
        |ring| async move {
            for tiny in [false, true] {
                let (source, source_peer) = tcp();
                let (target, target_peer) = tcp();
                if tiny {
                    shrink(&target);
                    shrink(&target_peer);
                }
                let (source, target) = (ring.socket(source), ring.socket(target));
                let input = bytes(7, 200_000);
                writer(source_peer, input.clone(), Random(7));
                let read = reader(target_peer, Random(8));
                let mut expected = Vec::new();
                let mut random = Random(9);
                // Queued in one poll per chunk of input: hundreds of parts.
                let mut parts = Vec::new();
                let mut taken = 0;
                while taken < input.len() {
                    let mut chunk = next(&source).await.expect("input");
                    taken += chunk.len();
                    while !chunk.is_empty() {
                        let at = 1 + random.below(chunk.len());
                        parts.push(chunk.split_to(at));
                        parts.push(Chunk::heap(bytes(random.next(), random.below(1500))));
                    }
                    if parts.len() > 150 || taken == input.len() {
                        for part in parts.drain(..) {
                            expected.extend_from_slice(&part);
                            target.send(part);
                        }
                    }
                }
                target.flushed().await.expect("sent");
                drop((source, target));
                assert!(joined(&ring, read).await == expected, "tiny: {tiny}");
            }
            assert!(ring.stats().short_sends > 0);
        },
    );
}

#[test]
fn a_received_buffer_can_go_to_two_peers() {
    shard(small(), |ring| async move {
        let (source, mut source_peer) = tcp();
        let (one, mut one_peer) = tcp();
        let (two, mut two_peer) = tcp();
        let [source, one, two] = [source, one, two].map(|fd| ring.socket(fd));
        std::io::Write::write_all(&mut source_peer, b"left|right").expect("written");
        let mut chunk = next(&source).await.expect("bytes");
        one.send(chunk.split_to(5));
        two.send(chunk);
        let mut read = [0; 5];
        one.flushed().await.expect("sent");
        two.flushed().await.expect("sent");
        one_peer.read_exact(&mut read).expect("bytes");
        assert_eq!(&read, b"left|");
        two_peer.read_exact(&mut read).expect("bytes");
        assert_eq!(&read, b"right");
        assert_eq!(ring.free_buffers(), 64);
    });
}

#[test]
fn a_socket_goes_quick_then_slow_then_quick_again() {
    shard(small(), |ring| async move {
        let (ours, mut peer) = tcp();
        shrink(&ours);
        shrink(&peer);
        let socket = ring.socket(ours);
        for round in 0..3 {
            let before = ring.stats().short_sends;
            socket.write(b"quick");
            socket.flushed().await.expect("sent");
            assert_eq!(ring.stats().short_sends, before, "round {round}: at once");
            let large = bytes(round, 300_000);
            socket.send(Chunk::heap(large.clone()));
            eventually(&ring, "the window is full", || {
                ring.stats().short_sends > before
            })
            .await;
            // Queued behind the patient send.
            socket.write(b"behind");
            let reading = peer.try_clone().expect("a copy");
            let thread = std::thread::spawn(move || {
                let mut read = vec![0; 5 + 300_000 + 6];
                (&reading).read_exact(&mut read).expect("bytes");
                read
            });
            socket.flushed().await.expect("sent");
            eventually(&ring, "read", || thread.is_finished()).await;
            let read = joined(&ring, thread).await;
            assert!(
                read == [&b"quick"[..], &large, b"behind"].concat(),
                "round {round}"
            );
        }
        std::io::Write::write_all(&mut peer, b"bye").expect("written");
        assert_eq!(exactly(&socket, 3).await, b"bye");
        drop(peer);
        assert_eq!(next(&socket).await.err(), Some(RxEnd::Eof));
    });
}
