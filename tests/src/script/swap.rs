//! Changing the server under a client: helpers hold the server that the client had, so that its next transaction
//! must take another one.

use crate::direct::Direct;
use crate::wire::{Endpoint, Login, Session};

/// Two helper clients, of which at most one holds a server between changes.
#[derive(Debug)]
pub struct Swapper {
    helpers: [Session; 2],
    holding: Option<usize>,
}

impl Swapper {
    /// Logs the helpers in.
    pub fn new(endpoint: &Endpoint, login: &Login) -> Self {
        Self {
            helpers: [
                Session::open(endpoint, login),
                Session::open(endpoint, login),
            ],
            holding: None,
        }
    }

    /// Takes the server `last` (or any one, if that is gone) out of reach until the next change. The pool must have
    /// two servers more than others hold now.
    pub fn hold(&mut self, last: Option<i32>) {
        self.release();
        let first = self.begin(0);
        if last.is_none() || first == last {
            self.holding = Some(0);
            return;
        }
        self.begin(1);
        self.rollback(0);
        self.holding = Some(1);
    }

    /// Gives the held server back.
    pub fn release(&mut self) {
        if let Some(helper) = self.holding.take() {
            self.rollback(helper);
        }
    }

    fn begin(&mut self, helper: usize) -> Option<i32> {
        let session = &mut self.helpers[helper];
        session.query("begin");
        session.value("select pg_backend_pid()").parse().ok()
    }

    fn rollback(&mut self, helper: usize) {
        self.helpers[helper].query("rollback");
    }
}

/// Which server the client that has just become idle had.
pub fn server_of_last_reply(direct: &mut Direct) -> Option<i32> {
    direct.last_used()
}
