//! Sockets that move from ring to ring while bytes come, and while peers leave.

use super::super::{Chunk, Detached, Ring, RxEnd, Socket};
use super::support::{
    Post, Random, alone, bytes, descriptors, eventually, exactly, joined, next, reader, shard,
    shrink, small, tcp, two_shards, writer,
};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

/// What one shard sends the other: the socket, or that all is over.
type Moved = Option<Detached>;

/// Has the socket, reads from it and answers what it has read, and moves it to
/// the other shard whenever it may go, until it ends.
async fn relay(ring: Ring, post: Post<Moved>, read: Arc<Mutex<Vec<u8>>>, first: Option<Socket>) {
    let mut random = Random(u64::from(post.is_first));
    let mut held = first;
    loop {
        let mut socket = match held.take() {
            Some(socket) => socket,
            None => match post.receive(&ring).await {
                Some(detached) => ring.attach(detached),
                None => return,
            },
        };
        for _ in 0..random.below(3) {
            match next(&socket).await {
                Ok(mut chunk) => {
                    let head = chunk.split_to(1 + random.below(chunk.len()));
                    socket.put_back(chunk);
                    read.lock().expect("no panic").extend_from_slice(&head);
                    socket.write(&head);
                }
                Err(end) => {
                    assert_eq!(end, RxEnd::Eof);
                    socket.flushed().await.expect("a reader");
                    return post.send(None);
                }
            }
        }
        socket.flushed().await.expect("a reader");
        match socket.detach().await {
            Some(detached) => post.send(Some(detached)),
            None => held = Some(socket),
        }
    }
}

#[test]
fn bytes_that_come_while_a_socket_moves_arrive_once_and_in_order() {
    for seed in 0..20 {
        let (ours, peer) = tcp();
        let input = bytes(seed, 400_000);
        let read = Arc::new(Mutex::new(Vec::new()));
        let echoed = reader(peer.try_clone().expect("a copy"), Random(seed));
        writer(peer, input.clone(), Random(seed));
        let (ours, seen) = (Arc::new(Mutex::new(Some(ours))), Arc::clone(&read));
        two_shards(move |ring, post| {
            let ours = post.is_first.then(|| ours.lock().expect("no panic").take());
            let first = ours.flatten().map(|fd| ring.socket(fd));
            relay(ring, post, Arc::clone(&seen), first)
        });
        assert!(*read.lock().expect("no panic") == input, "seed {seed}");
        assert!(echoed.join().expect("a reader") == input, "seed {seed}");
    }
}

#[test]
fn a_peer_that_closes_while_a_socket_moves_is_noticed() {
    for round in 0..200 {
        let (ours, mut peer) = tcp();
        let closing = std::thread::spawn(move || {
            peer.write_all(b"so long").expect("written");
            for _ in 0..50 * (round % 40) {
                std::hint::spin_loop();
            }
        });
        let ours = Arc::new(Mutex::new(Some(ours)));
        two_shards::<Moved, _>(move |ring, post| {
            let ours = Arc::clone(&ours);
            async move {
                let socket = if post.is_first {
                    let ours = ours.lock().expect("no panic").take();
                    let mut socket = ring.socket(ours.expect("ours"));
                    match socket.detach().await {
                        Some(detached) => return post.send(Some(detached)),
                        None => post.send(None),
                    }
                    socket
                } else {
                    match post.receive(&ring).await {
                        Some(detached) => ring.attach(detached),
                        None => return,
                    }
                };
                assert_eq!(exactly(&socket, 7).await, b"so long");
                assert_eq!(next(&socket).await.err(), Some(RxEnd::Eof));
            }
        });
        closing.join().expect("closed");
    }
}

#[test]
fn ten_thousand_moves_leak_no_descriptor_and_no_buffer() {
    alone(
        concat!(
            module_path!(),
            "::ten_thousand_moves_leak_no_descriptor_and_no_buffer"
        ),
        || {
            two_shards::<Moved, _>(|ring, post| async move {
                // Both have all that they need before anyone counts.
                post.send(None);
                assert!(post.receive(&ring).await.is_none());
                let open = descriptors();
                let mut peer = None;
                let mut held = post.is_first.then(|| {
                    let (ours, theirs) = tcp();
                    peer = Some(theirs);
                    ring.socket(ours)
                });
                for _ in 0..5_000 {
                    let mut socket = match held.take() {
                        Some(socket) => socket,
                        None => ring.attach(post.receive(&ring).await.expect("a socket")),
                    };
                    // A byte now and then, read here or after the move.
                    if let Some(peer) = &mut peer {
                        peer.write_all(b"x").expect("written");
                    } else if socket.has_bytes() {
                        drop(socket.take());
                    }
                    post.send(Some(socket.detach().await.expect("at rest")));
                }
                if post.is_first {
                    drop(post.receive(&ring).await);
                    drop(peer);
                    eventually(&ring, "all is closed", || descriptors() == open).await;
                    post.send(None);
                } else {
                    // Only then may this ring's own descriptors go.
                    assert!(post.receive(&ring).await.is_none());
                }
                assert_eq!((ring.open_sockets(), ring.free_buffers()), (0, 64));
            });
        },
    );
}

#[test]
fn a_socket_with_something_to_send_stays_and_loses_nothing() {
    shard(small(), |ring| async move {
        let (ours, mut peer) = tcp();
        shrink(&ours);
        let mut socket = ring.socket(ours);
        let output = bytes(3, 4 << 20);
        socket.write(b"just written");
        assert!(socket.detach().await.is_none(), "not handed over yet");
        socket.send(Chunk::heap(output.clone()));
        eventually(&ring, "it waits", || ring.stats().short_sends > 0).await;
        assert!(socket.detach().await.is_none(), "the peer does not read");
        peer.write_all(b"heard").expect("written");
        assert_eq!(exactly(&socket, 5).await, b"heard", "it still receives");
        let mut heard = peer.try_clone().expect("a copy");
        let heard = std::thread::spawn(move || {
            let mut all = vec![0; 12 + (4 << 20)];
            heard.read_exact(&mut all).expect("bytes");
            all
        });
        let heard = joined(&ring, heard).await;
        assert!(heard[..12] == *b"just written" && heard[12..] == output);
        socket.flushed().await.expect("sent");
        assert!(socket.detach().await.is_some(), "now it may go");
        drop(socket);
        assert_eq!(ring.open_sockets(), 0);
    });
}

#[test]
fn a_refused_move_leaves_the_socket_receiving() {
    shard(small(), |ring| async move {
        let (ours, mut peer) = tcp();
        let mut socket = ring.socket(ours);
        ring.sleep(std::time::Duration::from_millis(1)).await;
        // The end comes in the very turn in which the kernel lets go of it, or
        // has come before: refused in both cases.
        peer.write_all(b"last").expect("written");
        peer.shutdown(std::net::Shutdown::Write).expect("shut");
        eventually(&ring, "the end", || socket.ended()).await;
        assert!(socket.detach().await.is_none());
        assert_eq!(exactly(&socket, 4).await, b"last");
        assert_eq!(next(&socket).await.err(), Some(RxEnd::Eof));
    });
}

#[test]
fn a_paused_socket_moves_and_receives_again() {
    shard(small(), |ring| async move {
        let (ours, mut peer) = tcp();
        let mut socket = ring.socket(ours);
        socket.pause();
        peer.write_all(b"later").expect("written");
        let detached = socket.detach().await.expect("at rest");
        let socket = ring.attach(detached);
        assert_eq!(exactly(&socket, 5).await, b"later");
    });
}
