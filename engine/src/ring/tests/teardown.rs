//! A ring that ends while the kernel still has its memory.

use super::super::sys::{Event, Outgoing, Sys};
use super::super::{Chunk, Ring, Sizes};
use super::support::{alone, descriptors, small, tcp};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// A ring with one received slice, a receive armed and a send that waits.
fn busy(sizes: Sizes) -> (Sys, super::super::Slice, OwnedFd, TcpStream, OwnedFd) {
    let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
    let mut sys = Sys::new(sizes, wake.as_raw_fd()).expect("a ring");
    let (ours, mut peer) = tcp();
    sys.recv(0, ours.as_raw_fd());
    sys.send(
        0,
        ours.as_raw_fd(),
        Outgoing::One(Chunk::heap(vec![1; 64 << 20])),
        false,
    );
    peer.write_all(b"first").expect("written");
    sys.enter(true).expect("entered");
    let mut events = Vec::new();
    while let Some(event) = sys.next_event().expect("reaped") {
        events.push(event);
    }
    match events.pop() {
        Some(Event::Recv {
            bytes: Ok(Some(slice)),
            more: true,
            ..
        }) => (sys, slice, ours, peer, wake),
        _ => panic!("bytes come"),
    }
}

#[test]
fn nothing_is_received_or_sent_once_the_ring_is_gone() {
    let (sys, slice, ours, mut peer, _wake) = busy(small());
    drop(sys);
    // The receive is no more: bytes stay in the socket for others to read.
    peer.write_all(b"second").expect("written");
    std::thread::sleep(Duration::from_millis(20));
    let mut stream = TcpStream::from(ours);
    let mut read = [0; 6];
    stream.read_exact(&mut read).expect("bytes");
    assert_eq!(&read, b"second");
    assert_eq!(&*slice, b"first", "a slice outlives the ring");
    // The send is no more: what the peer reads ends with what went before.
    drop(stream);
    let mut sent = Vec::new();
    peer.set_read_timeout(Some(Duration::from_secs(2)))
        .expect("an option");
    peer.read_to_end(&mut sent).expect("the connection ended");
    assert!(sent.len() < 64 << 20 && sent.iter().all(|&byte| byte == 1));
}

#[test]
fn a_ring_takes_its_sockets_with_it() {
    alone(
        concat!(module_path!(), "::a_ring_takes_its_sockets_with_it"),
        || {
            let baseline = descriptors();
            for _ in 0..10 {
                let ring = Ring::new(small()).expect("a ring");
                let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
                let listener = ring.listener(listener.into());
                let mut peers = Vec::new();
                for _ in 0..50 {
                    let (ours, peer) = tcp();
                    let socket = ring.socket(ours);
                    socket.write(b"never sent");
                    peers.push(peer);
                }
                ring.turn(false).expect("a turn");
                drop((listener, ring));
                for mut peer in peers {
                    let _ = peer.read_to_end(&mut Vec::new());
                }
                assert_eq!(descriptors(), baseline);
            }
        },
    );
}
