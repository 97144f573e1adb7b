//! What following a client's settings costs on the wire: a relay between pgmux and PostgreSQL counts what pgmux writes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tests::cluster::Cluster;
use tests::pgmux::{Config, Pgmux};
use tests::wire::{Session, frontend};

/// Relays to PostgreSQL, and counts the pieces that come from pgmux: it writes one and waits for the answer, so each
/// write is a piece.
struct Counter {
    port: u16,
    pieces: Arc<AtomicUsize>,
}

impl Counter {
    fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let pieces = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&pieces);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let server = TcpStream::connect(("127.0.0.1", port)).expect("PostgreSQL");
                for stream in [&client, &server] {
                    stream.set_nodelay(true).expect("an option");
                }
                let back = [&server, &client].map(|stream| stream.try_clone().expect("a copy"));
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || relay(client, server, &counted));
                let [from, to] = back;
                std::thread::spawn(move || relay(from, to, &AtomicUsize::new(0)));
            }
        });
        Self { port: own, pieces }
    }

    fn count(&self, work: impl FnOnce()) -> usize {
        let before = self.pieces.load(Ordering::SeqCst);
        work();
        self.pieces.load(Ordering::SeqCst) - before
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, pieces: &AtomicUsize) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        pieces.fetch_add(1, Ordering::SeqCst);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// A pgmux with one server, and two clients that both have logged in and asked something.
fn two_clients() -> (Counter, Pgmux, [Session; 2]) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let counter = Counter::before(cluster.port());
    let config = Config::new(cluster, &database)
        .database(&database, counter.port)
        .servers(1);
    let pgmux = Pgmux::start(&config);
    let mut clients = [pgmux.client(), pgmux.client()];
    for client in &mut clients {
        assert_eq!(client.value("select 1"), "1");
    }
    (counter, pgmux, clients)
}

const ROUNDS: usize = 20;

#[test]
fn setting_in_each_transaction_by_two_clients_of_one_server_costs_no_write_more() {
    let (counter, pgmux, mut clients) = two_clients();
    let pieces = counter.count(|| {
        for round in 1..=ROUNDS {
            for (number, client) in clients.iter_mut().enumerate() {
                let kib = 100 * round + number + 64;
                client.query(&format!("set work_mem = {kib}"));
                client.query(&format!("select set_config('app.tenant', '{kib}', false)"));
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let kib = 100 * round + number + 64;
                assert_eq!(client.value("show work_mem"), format!("{kib}kB"));
                assert_eq!(client.value("show app.tenant"), kib.to_string());
            }
        }
    });
    assert_eq!(pieces, 8 * ROUNDS, "one for each of the clients' requests");
    pgmux.stop();
}

#[test]
fn setting_at_the_end_of_a_transaction_costs_no_write_more() {
    let (counter, pgmux, mut clients) = two_clients();
    let pieces = counter.count(|| {
        for round in 1..=ROUNDS {
            let [client, other] = &mut clients;
            client.query("begin");
            client.query(&format!("set work_mem = {}", 100 * round));
            client.query("commit");
            assert_ne!(other.value("show work_mem"), format!("{}kB", 100 * round));
        }
    });
    assert_eq!(pieces, 4 * ROUNDS);
    pgmux.stop();
}

#[test]
fn setting_by_the_extended_protocol_costs_no_write_more() {
    let (counter, pgmux, mut clients) = two_clients();
    let pieces = counter.count(|| {
        for round in 1..=ROUNDS {
            let [client, other] = &mut clients;
            let text = format!("set statement_timeout = {}", 100_000 + round);
            let mut batch = frontend::parse("", &text, &[]);
            batch.extend(frontend::bind_text("", "", &[]));
            batch.extend(frontend::execute("", 0));
            batch.extend(frontend::sync());
            client.send(&batch);
            client.replies();
            assert_eq!(other.value("show statement_timeout"), "0");
        }
    });
    assert_eq!(pieces, 2 * ROUNDS);
    pgmux.stop();
}
