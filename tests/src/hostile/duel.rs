//! A pgmux between a scripted server and a client, and what the client may see of it.

use std::io;

use super::{FakeServer, Peer};
use crate::canary;
use crate::cluster::{Cluster, PASSWORD};
use crate::pgmux::{Config, Pgmux};
use crate::wire::{Login, Session, WireError, describe, frontend};

/// A pgmux with a scripted server in the database `fake` and a real one beside it.
#[derive(Debug)]
pub struct Duel {
    /// The scripted server.
    pub server: FakeServer,
    /// The pgmux between.
    pub pgmux: Pgmux,
    /// A login to the real database beside the scripted one.
    pub real: Login,
}

impl Duel {
    /// Starts a duel on so many shards.
    pub fn start<F>(shards: usize, script: F) -> Self
    where
        F: Fn(&mut Peer, usize) -> io::Result<()> + Send + Sync + 'static,
    {
        Self::configured(shards, |config| config, script)
    }

    /// Starts a duel with changes to the configuration.
    pub fn configured<F>(shards: usize, configure: impl FnOnce(Config) -> Config, script: F) -> Self
    where
        F: Fn(&mut Peer, usize) -> io::Result<()> + Send + Sync + 'static,
    {
        let cluster = Cluster::shared();
        let database = cluster.fresh_database();
        let server = FakeServer::start(script);
        let config = Config::fake(server.port())
            .database(&database, cluster.port())
            .shards(shards)
            .servers(1)
            // Long enough for a busy machine, short enough to wait for where it must run out.
            .set("pool.connection_timeout", "10s");
        Self {
            pgmux: Pgmux::start(&configure(config)),
            server,
            real: Login::new("app", PASSWORD, &database),
        }
    }

    /// The client's request must fail by an ErrorResponse with a proper SQLSTATE, at the login or after it; then the
    /// neighbour must be served.
    pub fn must_fail(&self, what: &str) -> String {
        let refusal = match Session::try_open(&self.pgmux.endpoint(), &self.pgmux.login()) {
            Err(refusal) => refusal,
            Ok(mut session) => {
                session.send(&frontend::query("select 'fake'"));
                let seen = read_all(&mut session);
                let error = seen.iter().find(|line| line.starts_with("ErrorResponse"));
                error
                    .unwrap_or_else(|| panic!("{what}: no error but {seen:?}"))
                    .clone()
            }
        };
        let sqlstate = refusal.split(' ').nth(2).unwrap_or_default();
        let class = sqlstate.get(..2).unwrap_or_default();
        assert!(
            ["08", "28", "53", "57", "58"].contains(&class),
            "{what}: {refusal}"
        );
        assert!(
            !refusal.contains("127.0.0.1") && !refusal.contains(PASSWORD),
            "{what}: {refusal}"
        );
        self.check();
        refusal
    }

    /// The neighbour must be served.
    pub fn check(&self) {
        canary::check(&self.pgmux.endpoint(), &self.real);
    }
}

/// The messages up to ReadyForQuery or the end, as lines.
pub fn read_all(session: &mut Session) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match session.conn.recv() {
            Ok(message) => {
                lines.push(describe(&message));
                if message.tag == b'Z' {
                    return lines;
                }
            }
            Err(WireError::Closed | WireError::Partial(_)) => {
                lines.push("<closed>".into());
                return lines;
            }
            Err(error) => panic!("{error} after {lines:?}"),
        }
    }
}

/// What an honest scripted server answers to a Query, when its value is `fake`.
pub const HONEST: [&str; 4] = [
    "RowDescription \"value\":25",
    "DataRow \"fake\"",
    "CommandComplete \"SELECT 1\"",
    "ReadyForQuery I",
];
