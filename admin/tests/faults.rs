//! The API over an engine that panics, is silent or refuses: each request has
//! its answer, and the next one too.

use admin::access::Access;
use admin::handle::{
    Cancelled, Changed, Connections, Figures, Handle, Maintenance, Order, Ordered, Page, Readiness,
    Reloaded, ShardFigures, Unclear, Unknown, Wanted,
};
use admin::thread::{Listening, Thread};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// Of two shards the second is silent; what it is asked about health it dies of.
struct Broken;

impl Handle for Broken {
    fn access(&self) -> Arc<Access> {
        Arc::default()
    }

    fn has_database(&self, _: &str) -> bool {
        true
    }

    async fn figures(&self) -> Figures {
        let answered = ShardFigures {
            answered: true,
            ..ShardFigures::default()
        };
        Figures {
            shards: vec![answered, ShardFigures::default()],
            ..Figures::default()
        }
    }

    async fn readiness(&self, _: Option<&str>) -> Readiness {
        Readiness::NotReady("on purpose".to_owned())
    }

    async fn health(&self) -> Value {
        panic!("on purpose")
    }

    fn config(&self) -> Value {
        Value::Null
    }

    async fn reload(&self) -> Reloaded {
        Reloaded::Unavailable
    }

    fn connections(&self) -> Connections {
        Connections::default()
    }

    async fn sessions(&self, _: Wanted) -> Result<Page, Unclear> {
        Ok(Page {
            silent_shards: vec![1],
            ..Page::default()
        })
    }

    async fn cancel(&self, _: u32) -> Cancelled {
        Cancelled::Silent
    }

    fn maintenance(&self) -> Maintenance {
        Maintenance::default()
    }

    async fn set_maintenance(&self, _: Option<&str>, _: bool) -> Result<Changed, Unknown> {
        Ok(Changed {
            changed: true,
            silent_shards: vec![1],
        })
    }

    async fn order(&self, _: Order, _: Option<&str>) -> Result<Ordered, Unknown> {
        Err(Unknown)
    }
}

fn start() -> (Thread, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let listening = Listening {
        listener,
        metrics: true,
        admin: true,
    };
    let thread = Thread::start(Arc::new(Broken), vec![listening]).expect("a thread");
    (thread, address)
}

/// The status, and the body.
fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("a status");
    (status.parse().expect("a number"), body.to_owned())
}

#[test]
fn a_request_that_panics_is_answered_and_counted_and_the_next_is_served() {
    let (thread, address) = start();
    for _ in 0..3 {
        let (status, body) = ask(address, "GET", "/admin/health");
        assert_eq!(
            (status, body.as_str()),
            (500, "{\"error\":\"internal error\"}\n")
        );
    }
    let (status, page) = ask(address, "GET", "/metrics");
    assert_eq!(status, 200);
    assert!(page.contains("\npgmux_admin_panics_total 3\n"), "{page}");
    thread.stop();
    assert!(
        TcpStream::connect(address).is_err(),
        "nobody listens any more"
    );
}

#[test]
fn a_silent_shard_makes_an_answer_that_says_so() {
    let (thread, address) = start();
    let (_, page) = ask(address, "GET", "/metrics");
    for line in [
        "pgmux_shard_up{shard=\"0\"} 1",
        "pgmux_shard_up{shard=\"1\"} 0",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} in {page}");
    }
    for (method, path, status, part) in [
        ("GET", "/admin/stats", 200, "\"answered\":false"),
        ("GET", "/admin/sessions", 200, "\"silent_shards\":[1]"),
        ("POST", "/admin/maintenance", 200, "\"silent_shards\":[1]"),
        ("POST", "/admin/sessions/7/cancel", 503, "has not answered"),
        ("POST", "/admin/reload", 503, "nothing is read again"),
        ("GET", "/readyz", 503, "on purpose"),
        ("GET", "/healthz", 200, "ok"),
    ] {
        let (told, body) = ask(address, method, path);
        assert_eq!(told, status, "{path}: {body}");
        assert!(body.contains(part), "{path}: {body}");
    }
    thread.stop();
}
