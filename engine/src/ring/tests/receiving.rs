//! Receives: pauses, limits, and too few buffers.

use super::super::{RxEnd, Sizes, Socket};
use super::support::{
    Random, bytes, eventually, exactly, next, shard, small, start, tcp, thread_cpu, writer,
};
use std::io::Write;
use std::time::Duration;

fn few(buffers: u16) -> Sizes {
    Sizes {
        buffers,
        buffer_bytes: 512,
        ..small()
    }
}

async fn to_the_end(socket: Socket) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match next(&socket).await {
            Ok(chunk) => all.extend_from_slice(&chunk),
            Err(RxEnd::Eof) => return all,
            Err(end) => panic!("{end:?}"),
        }
    }
}

#[test]
fn pause_and_resume_keep_every_byte() {
    shard(small(), |ring| async move {
        let (ours, peer) = tcp();
        let socket = ring.socket(ours);
        let input = bytes(3, 2_000_000);
        writer(peer, input.clone(), Random(3));
        let mut random = Random(4);
        let mut all = Vec::new();
        let mut paused = 0;
        while let Ok(chunk) = next(&socket).await {
            all.extend_from_slice(&chunk);
            match random.below(8) {
                // At once again: the cancel and the new receive meet.
                0 => {
                    socket.pause();
                    socket.resume();
                }
                1 if paused < 50 => {
                    paused += 1;
                    socket.pause();
                    ring.sleep(Duration::from_micros(700)).await;
                    socket.resume();
                }
                _ => {}
            }
        }
        assert!(paused > 0);
        assert!(all == input, "{} of {} bytes", all.len(), input.len());
        assert_eq!(socket.end(), Some(RxEnd::Eof));
    });
}

#[test]
fn a_paused_socket_receives_nothing() {
    shard(small(), |ring| async move {
        let (ours, mut peer) = tcp();
        let socket = ring.socket(ours);
        socket.pause();
        ring.sleep(Duration::from_millis(5)).await;
        peer.write_all(b"later").expect("written");
        ring.sleep(Duration::from_millis(20)).await;
        assert_eq!(socket.unread(), 0);
        socket.resume();
        assert_eq!(exactly(&socket, 5).await, b"later");
    });
}

#[test]
fn unread_bytes_stop_the_receive_until_they_are_taken() {
    shard(small(), |ring| async move {
        let (ours, peer) = tcp();
        let socket = ring.socket(ours);
        let input = bytes(5, 4_000_000);
        writer(peer, input.clone(), Random(5));
        let mut all = Vec::new();
        for _ in 0..3 {
            eventually(&ring, "the receive has ended", || {
                socket.unread() > 64 << 10
            })
            .await;
            ring.sleep(Duration::from_millis(20)).await;
            // One turn's worth may come on top: all the buffers.
            assert!(
                socket.unread() <= (64 << 10) + 64 * 4096,
                "{} unread",
                socket.unread()
            );
            while let Some(chunk) = socket.take() {
                all.extend_from_slice(&chunk);
            }
        }
        all.extend(to_the_end(socket).await);
        assert!(all == input);
    });
}

#[test]
fn unread_bytes_leave_the_buffers_to_others() {
    shard(few(8), |ring| async move {
        let (lazy, mut lazy_peer) = tcp();
        let lazy = ring.socket(lazy);
        lazy_peer.write_all(&bytes(1, 8 * 512)).expect("written");
        eventually(&ring, "the bytes came", || lazy.unread() == 8 * 512).await;
        eventually(&ring, "the buffers are back", || ring.free_buffers() == 8).await;
        let (other, mut other_peer) = tcp();
        let other = ring.socket(other);
        other_peer.write_all(b"hello").expect("written");
        assert_eq!(exactly(&other, 5).await, b"hello");
        assert!(exactly(&lazy, 8 * 512).await == bytes(1, 8 * 512));
    });
}

#[test]
fn too_few_buffers_delay_but_lose_nothing() {
    shard(few(4), |ring| async move {
        let mut ends = Vec::new();
        for seed in 0..50 {
            let (ours, peer) = tcp();
            writer(peer, bytes(seed, 40_000), Random(seed));
            ends.push(start(to_the_end(ring.socket(ours))));
        }
        for (seed, end) in ends.into_iter().enumerate() {
            assert!(end.await == bytes(seed as u64, 40_000), "socket {seed}");
        }
        assert!(ring.stats().no_buffers > 0, "there were too few");
        assert_eq!(ring.free_buffers(), 4);
    });
}

#[test]
fn a_task_that_holds_all_buffers_makes_nothing_spin() {
    shard(few(2), |ring| async move {
        let (greedy, mut greedy_peer) = tcp();
        let greedy = ring.socket(greedy);
        let mut held = Vec::new();
        for _ in 0..2 {
            greedy_peer.write_all(&[1; 512]).expect("written");
            held.push(next(&greedy).await.expect("bytes"));
        }
        assert_eq!(ring.free_buffers(), 0);
        let (other, mut other_peer) = tcp();
        let other = ring.socket(other);
        other_peer.write_all(b"hello").expect("written");
        eventually(&ring, "it found no buffer", || ring.stats().no_buffers > 0).await;
        let (enters, cpu) = (ring.stats().enters, thread_cpu());
        ring.sleep(Duration::from_millis(200)).await;
        let (enters, cpu) = (ring.stats().enters - enters, thread_cpu() - cpu);
        assert!(
            enters < 8 && cpu < Duration::from_millis(50),
            "{enters} enters, {cpu:?}"
        );
        held.pop();
        assert_eq!(exactly(&other, 5).await, b"hello");
    });
}

#[test]
fn the_end_comes_after_the_last_bytes() {
    shard(small(), |ring| async move {
        let (ours, mut peer) = tcp();
        let socket = ring.socket(ours);
        peer.write_all(b"bye").expect("written");
        drop(peer);
        eventually(&ring, "the end is known", || socket.ended()).await;
        assert_eq!(socket.end(), None, "bytes wait");
        assert_eq!(exactly(&socket, 3).await, b"bye");
        assert_eq!(socket.end(), Some(RxEnd::Eof));
    });
}
