//! Sends: short ones, failed ones, peers that never read.

use super::super::sys::{Event, Outgoing, Sys};
use super::super::{Chunk, RxEnd};
use super::support::{bytes, eventually, exactly, next, shard, shrink, small, start, tcp};
use socket2::SockRef;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

fn sys() -> (Sys, OwnedFd) {
    let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
    (Sys::new(small(), wake.as_raw_fd()).expect("a ring"), wake)
}

/// One quick send and what the kernel made of it: how much, and which error.
fn send_quick(sys: &mut Sys, fd: &OwnedFd, chunks: Outgoing) -> (usize, Option<i32>) {
    sys.send(0, fd.as_raw_fd(), chunks, true);
    sys.enter(false).expect("entered");
    let mut events = Vec::new();
    while let Some(event) = sys.next_event().expect("reaped") {
        events.push(event);
    }
    match events.pop() {
        Some(Event::Sent { sent, error, .. }) => (sent, error),
        _ => panic!("a quick send is over after one turn"),
    }
}

fn one(chunk: Vec<u8>) -> Outgoing {
    Outgoing::One(Chunk::heap(chunk))
}

fn many(chunk: &[u8]) -> Outgoing {
    Outgoing::Many(
        chunk
            .chunks(10_000)
            .map(|part| Chunk::heap(part.to_vec()))
            .collect(),
    )
}

/// All that waits at the peer.
fn drain(peer: &std::net::TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    peer.set_read_timeout(Some(Duration::from_millis(30)))
        .expect("an option");
    let error = (&*peer)
        .read_to_end(&mut all)
        .expect_err("the connection stays open");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    all
}

#[test]
fn a_quick_send_reports_exactly_what_went_out() {
    let (mut sys, _wake) = sys();
    let (ours, peer) = tcp();
    let input = bytes(1, 8 << 20);
    for gathered in [false, true] {
        let chunks = if gathered {
            many(&input[..640_000])
        } else {
            one(input.clone())
        };
        if gathered {
            shrink(&ours);
        }
        let total = if gathered { 640_000 } else { input.len() };
        let (sent, error) = send_quick(&mut sys, &ours, chunks);
        assert_eq!(error, None);
        assert!(0 < sent && sent < total, "part of it: {sent}");
        // Once the window is full, nothing goes, which is no error.
        let mut expected = input[..sent].to_vec();
        loop {
            let (sent, error) = send_quick(&mut sys, &ours, one(vec![7; 1 << 20]));
            assert_eq!(error, None);
            if sent == 0 {
                break;
            }
            expected.resize(expected.len() + sent, 7);
        }
        let read = drain(&peer);
        assert!(
            read == expected,
            "what was reported, and nothing else: {} {sent}",
            read.len()
        );
    }
}

#[test]
fn a_quick_send_that_fits_needs_no_completion() {
    let (mut sys, _wake) = sys();
    let (ours, peer) = tcp();
    assert_eq!(
        send_quick(&mut sys, &ours, one(b"fits".to_vec())),
        (4, None)
    );
    assert_eq!(
        send_quick(&mut sys, &ours, many(&[7; 25_000])),
        (25_000, None)
    );
    assert_eq!(sys.entered(), 2);
    assert_eq!(drain(&peer).len(), 25_004);
}

#[test]
fn a_quick_send_to_nobody_reports_the_error() {
    let (mut sys, _wake) = sys();
    let (ours, peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
    drop(peer);
    assert_eq!(
        send_quick(&mut sys, &ours.into(), one(b"x".to_vec())),
        (0, Some(libc::EPIPE))
    );
}

#[test]
fn what_is_flushed_is_known_without_any_other_event() {
    shard(small(), |ring| async move {
        let (ours, peer) = tcp();
        let socket = ring.socket(ours);
        // Only the turn itself can end the wait: no timer, no peer's answer.
        let begin = Instant::now();
        for _ in 0..10 {
            socket.write(b"last words");
            socket.flushed().await.expect("sent");
        }
        assert!(begin.elapsed() < Duration::from_secs(20));
        drop(peer);
    });
}

#[test]
fn a_peer_that_never_reads_costs_little_and_stops_nobody() {
    shard(small(), |ring| async move {
        let (deaf, deaf_peer) = tcp();
        let (source, source_peer) = tcp();
        let (echo, mut echo_peer) = tcp();
        shrink(&deaf);
        let [deaf, source, echo] = [deaf, source, echo].map(|fd| ring.socket(fd));
        let (deaf, source) = (Rc::new(deaf), Rc::new(source));
        super::support::writer(source_peer, vec![1; 50 << 20], super::support::Random(1));
        let (to, from) = (Rc::clone(&deaf), Rc::clone(&source));
        task_relay(from, to);
        eventually(&ring, "the queue is full", || deaf.is_full()).await;
        for round in 0..200_u32 {
            std::io::Write::write_all(&mut echo_peer, &round.to_ne_bytes()).expect("written");
            let bytes = exactly(&echo, 4).await;
            echo.write(&bytes);
            echo.flushed().await.expect("sent");
            let mut back = [0; 4];
            echo_peer.read_exact(&mut back).expect("bytes");
            assert_eq!(back, round.to_ne_bytes());
            assert!(deaf.queued() < 400 << 10, "{} queued", deaf.queued());
            assert!(source.unread() < 400 << 10, "{} unread", source.unread());
        }
        ring.sleep(Duration::from_millis(5)).await;
        assert!(
            ring.free_buffers() >= 31,
            "{} buffers are free",
            ring.free_buffers()
        );
        let enters = ring.stats().enters;
        ring.sleep(Duration::from_millis(200)).await;
        assert!(ring.stats().enters - enters < 20, "nothing spins");
        drop(deaf_peer);
    });
}

/// Relays until the target is full, and then waits for it.
fn task_relay(source: Rc<super::super::Socket>, target: Rc<super::super::Socket>) {
    super::super::task::spawn(std::future::poll_fn(move |cx| {
        source.set_waker(cx.waker());
        target.set_waker(cx.waker());
        while !target.is_full()
            && let Some(chunk) = source.take()
        {
            target.send(chunk);
        }
        if target.ended() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    }));
}

#[test]
fn a_reset_by_the_peer_is_reported_and_never_loops() {
    shard(small(), |ring| async move {
        let (ours, peer) = tcp();
        let socket = ring.socket(ours);
        socket.pause();
        ring.sleep(Duration::from_millis(5)).await;
        SockRef::from(&peer)
            .set_linger(Some(Duration::ZERO))
            .expect("an option");
        drop(peer);
        ring.sleep(Duration::from_millis(5)).await;
        socket.write(b"into the void");
        let error = socket
            .flushed()
            .await
            .expect_err("the peer is gone")
            .raw_os_error();
        assert!(
            matches!(error, Some(libc::ECONNRESET | libc::EPIPE)),
            "{error:?}"
        );
        assert_eq!(socket.send_error(), error);
        assert!(socket.ended());
        assert_eq!(
            next(&socket).await.err(),
            error.map(RxEnd::Error),
            "paused: the send's error is the end"
        );
        socket.write(b"more");
        assert_eq!(socket.queued(), 0, "nothing is queued any more");
        let enters = ring.stats().enters;
        ring.sleep(Duration::from_millis(100)).await;
        assert!(ring.stats().enters - enters < 8, "nothing spins");
    });
}

#[test]
fn a_patient_send_reports_the_reset() {
    shard(small(), |ring| async move {
        let (ours, peer) = tcp();
        let socket = Rc::new(ring.socket(ours));
        socket.send(Chunk::heap(vec![1; 16 << 20]));
        eventually(&ring, "the window is full", || ring.stats().short_sends > 0).await;
        let waiting = Rc::clone(&socket);
        let end = start(async move {
            waiting
                .flushed()
                .await
                .map_err(|error| error.raw_os_error())
        });
        ring.sleep(Duration::from_millis(5)).await;
        SockRef::from(&peer)
            .set_linger(Some(Duration::ZERO))
            .expect("an option");
        drop(peer);
        assert!(matches!(
            end.await,
            Err(Some(libc::ECONNRESET | libc::EPIPE))
        ));
        assert_eq!(ring.stats().short_sends, 1);
    });
}

#[test]
fn words_of_a_peer_that_left_are_heard_although_a_send_failed() {
    shard(small(), |ring| async move {
        let (ours, peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let socket = ring.socket(ours.into());
        socket.pause();
        ring.sleep(Duration::from_millis(5)).await;
        std::io::Write::write_all(&mut &peer, b"FATAL").expect("written");
        drop(peer);
        socket.resume();
        socket.write(b"query");
        assert!(socket.flushed().await.is_err());
        assert_eq!(exactly(&socket, 5).await, b"FATAL");
        assert_eq!(next(&socket).await.err(), Some(RxEnd::Eof));
    });
}
