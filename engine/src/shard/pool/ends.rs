//! Servers that come and go: each is told to the pool, even after a panic.

use super::ShardPool;
use crate::limits::SERVER_CLOSING;
use crate::link::Link;
use crate::server::Server;
use crate::server::login::{LoginError, login};
use crate::shard::bump;
use crate::signal::Signal;
use ::pool::Moving;
use std::rc::Rc;
use std::time::Instant;

/// A server on its way out. Its permit comes back even if this panics.
pub(super) struct Closing {
    pub(super) pool: Rc<ShardPool>,
    pub(super) server: Option<Box<Server>>,
}

impl Closing {
    pub(super) async fn run(self) {
        if let Some(server) = &self.server {
            say_goodbye(&server.socket).await;
        }
    }
}

/// Waits until PostgreSQL has closed its end, too.
async fn say_goodbye(link: &Link) {
    let mut out = Vec::new();
    if protocol::frontend::Terminate.encode(&mut out).is_ok() {
        link.write(&out);
    }
    let ended = async {
        while !link.ended() {
            link.readable().await;
            while link.take().is_some() {}
        }
    };
    // One that does not listen is cut off.
    let _ = link
        .ring()
        .until(Some(Instant::now() + SERVER_CLOSING), ended)
        .await;
}

/// A server that has come from another shard and is of no use. Its permit is
/// free when PostgreSQL has closed its end.
pub(super) async fn see_off(pool: Option<Rc<ShardPool>>, link: Link, moving: Moving) {
    say_goodbye(&link).await;
    drop(link);
    drop(moving);
    if let Some(pool) = pool {
        bump(&pool.shard.counters.servers_closed);
        pool.start_logins();
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.pool.forget(server);
            self.pool.start_logins();
        }
    }
}

/// Reports the login's end to the pool even if the login panics.
pub(super) struct LoginGuard {
    pool: Rc<ShardPool>,
    open: bool,
    /// No client waits for it.
    warms: bool,
    /// The pool's generation when it was begun.
    generation: u64,
    /// Given when nobody wants what comes of it.
    given_up: Rc<Signal>,
}

impl LoginGuard {
    pub(super) fn new(pool: &Rc<ShardPool>, warms: bool) -> Self {
        let (generation, given_up) = pool.begin_login();
        Self {
            pool: Rc::clone(pool),
            open: true,
            warms,
            generation,
            given_up,
        }
    }

    pub(super) async fn run(mut self) {
        let shard = &self.pool.shard;
        let begun = shard.ring.micros();
        let given_up = async {
            self.given_up.wait().await;
            None
        };
        let login = async { Some(login(&self.pool).await) };
        let result = futures_lite::future::or(login, given_up).await;
        self.open = false;
        if matches!(result, Some(Ok(_))) {
            let took = shard.ring.micros().saturating_sub(begun);
            shard.times.server_login.record(took);
        }
        if self.warms {
            let counters = &shard.counters;
            match result {
                Some(Ok(_)) => bump(&counters.pool_warm_connections),
                Some(Err(_)) => bump(&counters.pool_warm_errors),
                None => {}
            }
        }
        let is_late = self.pool.generation() != self.generation;
        match result {
            Some(Ok(server)) if is_late => self.pool.connected_late(server),
            Some(Ok(server)) => self.pool.connected(server),
            Some(Err(error)) if !is_late => self.pool.login_failed(&error),
            Some(Err(_)) | None => self.pool.login_abandoned(),
        }
    }
}

impl Drop for LoginGuard {
    fn drop(&mut self) {
        if self.open {
            self.pool.login_failed(&LoginError::Late);
        }
    }
}
