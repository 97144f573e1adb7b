//! Links with TLS that move from ring to ring.

use super::{DetachedLink, Emptied, Handshakes, Link, Records, handshake};
use crate::ring::Ring;
use crate::ring::tests::support::{Post, Random, bytes, tcp, two_shards};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, ServerConnection, Stream, SupportedProtocolVersion,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// Both ends' settings for a certificate made for the occasion.
fn configs(version: &'static SupportedProtocolVersion) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).expect("a root");
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .expect("a pair");
    (Arc::new(client), Arc::new(server))
}

/// A link with TLS.
async fn connect(ring: &Ring, fd: OwnedFd, config: Arc<ClientConfig>) -> Link {
    let name = ServerName::try_from("localhost").expect("a name");
    let machine = UnbufferedClientConnection::new(config, name).expect("a machine");
    let mut link = Link::plain(ring.socket(fd));
    let proof: Emptied = link.emptied().expect("nothing has come");
    let gate = Handshakes::default();
    let secured = handshake(link.raw(), proof, Records::client(machine), &[], &gate).await;
    link.secure(secured.expect("TLS"));
    link
}

/// The other end: it says `output` in pieces of random length, hears exactly
/// as much, and says goodbye. Gives what it heard.
fn peer(mut tcp: TcpStream, config: Arc<ServerConfig>, output: Vec<u8>, seed: u64) -> Vec<u8> {
    let mut tls = ServerConnection::new(config).expect("a machine");
    let mut random = Random(seed);
    let mut heard = vec![0; output.len()];
    let mut at = 0;
    while at < output.len() {
        let mut stream = Stream::new(&mut tls, &mut tcp);
        let end = output.len().min(at + 1 + random.below(30_000));
        stream.write_all(&output[at..end]).expect("written");
        // It answers a part before it goes on, so that neither end's windows
        // fill up for ever.
        stream.read_exact(&mut heard[at..end]).expect("an echo");
        at = end;
    }
    tls.send_close_notify();
    while tls.wants_write() {
        tls.write_tls(&mut tcp).expect("written");
    }
    heard
}

type Moved = Option<DetachedLink>;

/// Has the link, echoes parts of what comes, and moves it to the other shard
/// whenever it may go. Gives how often it went.
async fn relay(ring: &Ring, post: &Post<Moved>, first: Option<Link>) -> u32 {
    let mut random = Random(u64::from(post.is_first));
    let mut held = first;
    let mut moves = 0;
    loop {
        let link = match held.take() {
            Some(link) => link,
            None => match post.receive(ring).await {
                Some(detached) => Link::attach(ring, detached),
                None => return moves,
            },
        };
        for _ in 0..1 + random.below(3) {
            link.readable().await;
            if let Some(mut chunk) = link.take() {
                let head = chunk.split_to(1 + random.below(chunk.len()));
                link.put_back(chunk);
                link.write(&head);
            } else if link.is_over() {
                assert!(!link.is_broken());
                post.send(None);
                return moves;
            }
            if random.below(2) == 0 {
                // What is left, decrypted or not, goes along.
                break;
            }
        }
        link.flushed().await.expect("a peer");
        match link.detach().await {
            Ok(detached) => {
                moves += 1;
                post.send(Some(detached));
            }
            Err(link) => held = Some(link),
        }
    }
}

#[test]
fn a_link_with_tls_moves_with_all_that_was_received() {
    for (seed, version) in [(1, &TLS12), (2, &TLS13), (3, &TLS13)] {
        let (client, server) = configs(version);
        let (ours, theirs) = tcp();
        let output = bytes(seed, 600_000);
        let said = output.clone();
        let heard = std::thread::spawn(move || peer(theirs, server, said, seed));
        let ours = Arc::new(Mutex::new(Some(ours)));
        let moves = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&moves);
        two_shards::<Moved, _>(move |ring, post| {
            let (ours, client) = (Arc::clone(&ours), Arc::clone(&client));
            let counted = Arc::clone(&counted);
            async move {
                let mut first = None;
                if post.is_first {
                    let ours = ours.lock().expect("no panic").take();
                    first = Some(connect(&ring, ours.expect("ours"), client).await);
                }
                let moves = relay(&ring, &post, first).await;
                *counted.lock().expect("no panic") += moves;
            }
        });
        assert!(heard.join().expect("a peer") == output, "seed {seed}");
        let moves = *moves.lock().expect("no panic");
        assert!(moves > 10, "it moved {moves} times");
    }
}

#[test]
fn what_is_opened_and_what_has_not_come_whole_moves_along() {
    let (client, server) = configs(&TLS13);
    let (ours, mut theirs) = tcp();
    let peer = std::thread::spawn(move || {
        let mut tls = ServerConnection::new(server).expect("a machine");
        Stream::new(&mut tls, &mut theirs)
            .write_all(b"whole")
            .expect("written");
        let mut records = Vec::new();
        tls.writer().write_all(b"in two").expect("room");
        tls.write_tls(&mut records).expect("a record");
        let (head, tail) = records.split_at(9);
        theirs.write_all(head).expect("written");
        // It moves when both have come; the rest follows when it has moved.
        let mut heard = [0; 5];
        Stream::new(&mut tls, &mut theirs)
            .read_exact(&mut heard)
            .expect("a word");
        theirs.write_all(tail).expect("written");
        heard
    });
    let ours = Arc::new(Mutex::new(Some(ours)));
    two_shards::<Moved, _>(move |ring, post| {
        let (ours, client) = (Arc::clone(&ours), Arc::clone(&client));
        async move {
            if post.is_first {
                let ours = ours.lock().expect("no panic").take();
                let link = connect(&ring, ours.expect("ours"), client).await;
                while !link.has_bytes() || link.socket.unread() < 9 && !amid(&link) {
                    ring.sleep(std::time::Duration::from_millis(1)).await;
                }
                let detached = link.detach().await.unwrap_or_else(|_| panic!("at rest"));
                return post.send(Some(detached));
            }
            let moved = post.receive(&ring).await.expect("a link");
            let link = Link::attach(&ring, moved);
            assert_eq!(link.take().as_deref(), Some(&b"whole"[..]));
            link.write(b"moved");
            link.readable().await;
            assert_eq!(link.take().as_deref(), Some(&b"in two"[..]));
        }
    });
    assert_eq!(&peer.join().expect("a peer"), b"moved");
}

fn amid(link: &Link) -> bool {
    link.tls.as_ref().is_some_and(|tls| tls.is_amid_record())
}

#[test]
fn a_link_with_something_to_seal_stays() {
    let (client, server) = configs(&TLS13);
    let (ours, theirs) = tcp();
    let heard = std::thread::spawn(move || peer(theirs, server, b"word".to_vec(), 1));
    let ours = Arc::new(Mutex::new(Some(ours)));
    two_shards::<Moved, _>(move |ring, post| {
        let (ours, client) = (Arc::clone(&ours), Arc::clone(&client));
        async move {
            if !post.is_first {
                return;
            }
            let ours = ours.lock().expect("no panic").take();
            let link = connect(&ring, ours.expect("ours"), client).await;
            link.write(b"word");
            let Err(link) = link.detach().await else {
                panic!("it has moved with bytes in hand")
            };
            link.readable().await;
            assert_eq!(link.take().as_deref(), Some(&b"word"[..]));
        }
    });
    assert_eq!(heard.join().expect("a peer"), b"word");
}
