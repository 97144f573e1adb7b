//! What all of these tests do.

use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::wire::{Conn, Endpoint, Message, Session, frontend};
use tests::{canary, process::PATIENCE};

/// pgmux in front of a database, and a look past it.
pub struct Stand {
    pub pgmux: Pgmux,
    pub direct: Direct,
}

pub fn stand(shards: usize, configure: impl FnOnce(Config) -> Config) -> Stand {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = configure(Config::new(cluster, &database).shards(shards));
    Stand {
        pgmux: Pgmux::start(&config),
        direct: Direct::open(cluster, &database),
    }
}

impl Stand {
    /// Nothing is left of what was done, and fresh clients are served.
    pub fn end(mut self) {
        canary::check(&self.pgmux.endpoint(), &self.pgmux.login());
        self.direct.expect_idle();
        let figures = self.pgmux.figures();
        for name in ["panics", "violations", "cancels_under_way"] {
            assert_eq!(figures[name], 0, "{name}");
        }
        self.pgmux.stop();
    }

    /// Has a client sleep until it is cancelled.
    pub fn sleep(&mut self, client: &mut Session) {
        client.send(&frontend::query("select pg_sleep(60)"));
        self.direct.expect_sleeper();
    }
}

pub type Key = (i32, Vec<u8>);

pub fn key_of(client: &Session) -> Key {
    client.key.clone().expect("a key")
}

/// Sends a cancel request and waits for the end of its connection, which must bring nothing else.
pub fn cancel(pgmux: &Pgmux, key: &Key) {
    cancel_at(&pgmux.endpoint(), key);
}

pub fn cancel_at(endpoint: &Endpoint, key: &Key) {
    let conn = Conn::open(endpoint).expect("a connection");
    let conn = ask_to_cancel(conn, key);
    end_of(conn);
}

/// Sends a cancel request and does not wait.
pub fn ask_to_cancel(mut conn: Conn, (pid, key): &Key) -> Conn {
    conn.send(&frontend::cancel_request(*pid, key))
        .expect("CancelRequest");
    conn
}

/// Waits for the end of a cancel connection.
pub fn end_of(mut conn: Conn) {
    conn.patience = PATIENCE;
    let reply = conn.recv_to_end().expect("the end of the connection");
    assert!(reply.is_empty(), "a reply to CancelRequest: {reply:?}");
}

/// The SQLSTATE of the one error among replies, if there is one.
pub fn error_in(replies: &[Message]) -> Option<String> {
    let error = replies.iter().find(|message| message.tag == b'E');
    error.map(Message::sqlstate)
}

/// The types of replies, in order.
pub fn tags(replies: &[Message]) -> String {
    let tags = replies.iter().map(|message| char::from(message.tag));
    tags.collect()
}

pub fn expect_cancelled(client: &mut Session) {
    let replies = client.replies();
    assert_eq!(
        error_in(&replies).as_deref(),
        Some("57014"),
        "{}",
        tags(&replies)
    );
}

/// A batch of the extended protocol.
pub fn batch(sql: &str) -> Vec<u8> {
    [
        frontend::parse("", sql, &[]),
        frontend::bind_text("", "", &[]),
        frontend::describe(b'P', ""),
        frontend::execute("", 0),
        frontend::sync(),
    ]
    .concat()
}
