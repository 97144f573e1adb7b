//! Accepts: many, none left, none wanted.

use super::super::{Listener, Ring, Sizes, task};
use super::support::{alone, descriptors, eventually, joined, next, shard, small};
use socket2::{Domain, SockRef, Socket, Type};
use std::cell::Cell;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn limit_descriptors(count: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = Rlimit {
        current: Some(count),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).expect("a limit");
}

#[test]
fn out_of_descriptors_the_shard_waits_and_then_accepts_on() {
    alone(
        concat!(
            module_path!(),
            "::out_of_descriptors_the_shard_waits_and_then_accepts_on"
        ),
        || {
            // The kernel notes the limit when the accept is armed.
            limit_descriptors(200);
            shard(small(), |ring| async move {
                let (listener, address) = listen();
                let listener = ring.listener(listener.into());
                let first = TcpStream::connect(address).expect("connected");
                let served = ring.socket(listener.accept().await.expect("accepted"));
                let late = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
                let mut hoard = Vec::new();
                while let Ok(copy) = first.try_clone() {
                    hoard.push(copy);
                }
                let accepted = Rc::new(Cell::new(false));
                task::spawn(accept_at_last(ring.clone(), listener, Rc::clone(&accepted)));
                late.connect(&address.into())
                    .expect("the kernel shakes hands by itself");
                let enters = ring.stats().enters;
                ring.sleep(Duration::from_millis(300)).await;
                let enters = ring.stats().enters - enters;
                assert!(enters < 100, "{enters} enters");
                assert!(ring.stats().accept_failures > 1, "it tried");
                // Those who are in are served.
                std::io::Write::write_all(&mut &first, b"x").expect("written");
                assert_eq!(&*next(&served).await.expect("bytes"), b"x");
                assert!(!accepted.get());
                drop(hoard);
                eventually(&ring, "the late one is accepted", || accepted.get()).await;
            });
        },
    );
}

async fn accept_at_last(ring: Ring, listener: Listener, accepted: Rc<Cell<bool>>) {
    let begin = Instant::now();
    loop {
        match listener.accept().await {
            Ok(_) => return accepted.set(true),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EMFILE)),
        }
        assert!(begin.elapsed() < Duration::from_secs(5));
        // Callers that give up and try again at once do not spin either.
        let soon = Instant::now() + Duration::from_millis(1);
        let _ = ring.until(Some(soon), std::future::pending::<()>()).await;
    }
}

#[test]
fn ten_thousand_connects_leave_no_descriptor_behind() {
    alone(
        concat!(
            module_path!(),
            "::ten_thousand_connects_leave_no_descriptor_behind"
        ),
        || {
            shard(
                Sizes {
                    submissions: 256,
                    ..small()
                },
                |ring| async move {
                    let (listener, address) = listen();
                    let listener = ring.listener(listener.into());
                    ring.sleep(Duration::from_millis(5)).await;
                    let baseline = descriptors();
                    let accepting = ring.clone();
                    task::spawn(async move {
                        loop {
                            let socket =
                                accepting.socket(listener.accept().await.expect("accepted"));
                            task::spawn(async move {
                                while let Ok(chunk) = next(&socket).await {
                                    socket.send(chunk);
                                }
                            });
                        }
                    });
                    let clients = std::thread::spawn(move || {
                        for round in 0..100 {
                            let clients: Vec<_> = (0..100)
                                .map(|_| TcpStream::connect(address).expect("connected"))
                                .collect();
                            for (number, client) in clients.iter().enumerate() {
                                // No TIME_WAIT: the ports are needed again.
                                SockRef::from(client)
                                    .set_linger(Some(Duration::ZERO))
                                    .expect("an option");
                                if (number + round) % 2 == 0 {
                                    std::io::Write::write_all(&mut &*client, b"ping")
                                        .expect("written");
                                    std::io::Read::read_exact(&mut &*client, &mut [0; 4])
                                        .expect("the echo");
                                }
                            }
                        }
                    });
                    joined(&ring, clients).await;
                    eventually(&ring, "all is closed", || ring.open_sockets() == 0).await;
                    eventually(&ring, "descriptors are back", || descriptors() == baseline).await;
                    assert_eq!(ring.free_buffers(), 64);
                },
            );
        },
    );
}

#[test]
fn a_dropped_listener_accepts_no_more() {
    shard(small(), |ring| async move {
        let (listener, address) = listen();
        let listener = ring.listener(listener.into());
        let first = TcpStream::connect(address).expect("connected");
        let _first = (listener.accept().await.expect("accepted"), first);
        // One that nobody took is closed with it.
        let untaken = TcpStream::connect(address).expect("connected");
        ring.sleep(Duration::from_millis(5)).await;
        drop(listener);
        let refused = || TcpStream::connect(address).is_err();
        eventually(&ring, "the port is closed", refused).await;
        untaken
            .set_read_timeout(Some(Duration::from_secs(2)))
            .expect("an option");
        assert!(
            matches!(std::io::Read::read(&mut &untaken, &mut [0]), Ok(0) | Err(_)),
            "closed"
        );
        assert!(ring.0.listeners.borrow().is_empty());
    });
}

#[test]
fn giving_up_an_accept_loses_no_connection() {
    shard(small(), |ring| async move {
        let (listener, address) = listen();
        let listener = ring.listener(listener.into());
        for _ in 0..20 {
            let soon = Some(Instant::now() + Duration::from_micros(300));
            assert!(ring.until(soon, listener.accept()).await.is_err());
        }
        let _clients: Vec<_> = (0..10)
            .map(|_| TcpStream::connect(address).expect("connected"))
            .collect();
        for _ in 0..10 {
            listener.accept().await.expect("accepted");
        }
    });
}
