//! Connects: made, refused, given up.

use super::support::{alone, descriptors, eventually, next, shard, small};
use socket2::{Domain, SockAddr, Socket, Type};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

fn fresh() -> OwnedFd {
    Socket::new(Domain::IPV4, Type::STREAM, None)
        .expect("a socket")
        .into()
}

fn listen(backlog: i32) -> (Socket, SockAddr) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    listener
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .expect("bound");
    listener.listen(backlog).expect("listens");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

#[test]
fn a_connection_is_made_and_carries_bytes() {
    shard(small(), |ring| async move {
        let (listener, address) = listen(8);
        let socket = ring.connect(fresh(), address).await.expect("connected");
        let (peer, _) = listener.accept().expect("accepted");
        peer.send(b"welcome").expect("sent");
        assert_eq!(&*next(&socket).await.expect("bytes"), b"welcome");
        assert!(ring.0.ops.borrow().is_empty());
    });
}

#[test]
fn a_refused_connection_says_so() {
    shard(small(), |ring| async move {
        let gone = TcpListener::bind("127.0.0.1:0")
            .expect("a port")
            .local_addr()
            .expect("an address");
        let error = ring
            .connect(fresh(), gone.into())
            .await
            .err()
            .expect("refused");
        assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
        assert!(ring.0.ops.borrow().is_empty());
    });
}

#[test]
fn a_missing_unix_socket_says_so() {
    shard(small(), |ring| async move {
        let fd = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        let nowhere = SockAddr::unix("/nowhere/.s.PGSQL.5432").expect("a path");
        let error = ring
            .connect(fd.into(), nowhere)
            .await
            .err()
            .expect("missing");
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    });
}

#[test]
fn a_connect_given_up_leaves_nothing_behind() {
    alone(
        concat!(module_path!(), "::a_connect_given_up_leaves_nothing_behind"),
        || {
            shard(small(), |ring| async move {
                // A backlog that is full lets no handshake through.
                let (_listener, address) = listen(0);
                let _filler = ring
                    .connect(fresh(), address.clone())
                    .await
                    .expect("connected");
                ring.sleep(Duration::from_millis(5)).await;
                let baseline = descriptors();
                for round in 0..50 {
                    let soon = Some(Instant::now() + Duration::from_millis(round % 3));
                    let attempt = ring.connect(fresh(), address.clone());
                    assert!(
                        ring.until(soon, attempt).await.is_err(),
                        "it hangs, round {round}"
                    );
                }
                eventually(&ring, "no operation is left", || {
                    ring.0.ops.borrow().is_empty()
                })
                .await;
                eventually(&ring, "descriptors are back", || descriptors() == baseline).await;
            });
        },
    );
}
