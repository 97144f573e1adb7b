//! Where clients wait for a server, and why they may get none.

use super::{ShardPool, id};
use crate::server::Server;
use crate::server::login::LoginError;
use ::pool::Ticket;
use protocol::error::SqlState;
use std::rc::Rc;
use std::task::Waker;

/// A client that waits, and what it was granted.
pub(super) struct Waiter {
    pub(super) waker: Waker,
    pub(super) granted: Option<Result<Box<Server>, Refusal>>,
    /// Since when, by the ring's `micros`.
    pub(super) since: u64,
}

/// Why a client gets no server.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// For the client.
    pub code: SqlState,
    /// For the client: names neither hosts nor secrets.
    pub message: String,
}

impl Refusal {
    /// What a client is told of a login that failed.
    pub fn of(database: &str, error: &LoginError) -> Self {
        let (code, reason) = reason(error);
        Self::because(database, code, reason)
    }

    /// The same in other words.
    pub(super) fn because(database: &str, code: SqlState, reason: &str) -> Self {
        Refusal {
            code,
            message: format!("no server for database \"{database}\": {reason}"),
        }
    }
}

/// What a client is told of a login that failed, without names of hosts or secrets.
pub(super) fn reason(error: &LoginError) -> (SqlState, &str) {
    match error {
        LoginError::Refused {
            code: Some(code),
            message,
        } => (*code, message.as_str()),
        LoginError::Refused {
            code: None,
            message,
        } => (SqlState::CONNECTION_FAILURE, message.as_str()),
        LoginError::Unreachable(_) => (SqlState::CONNECTION_FAILURE, "it cannot be reached"),
        LoginError::Tls(_) => (
            SqlState::CONNECTION_FAILURE,
            "there is no TLS connection to it",
        ),
        LoginError::Downgrade(_) | LoginError::NoPassword => {
            (SqlState::CONNECTION_FAILURE, "pgmux cannot log in")
        }
        LoginError::NoKey(text) => (SqlState::INVALID_AUTHORIZATION_SPECIFICATION, *text),
        LoginError::Broken(_) => (
            SqlState::CONNECTION_FAILURE,
            "the connection broke during login",
        ),
        LoginError::Late => (SqlState::CONNECTION_FAILURE, "it did not answer in time"),
    }
}

/// Where a client waits when no server is idle. It is kept from one wait to
/// the next: on a busy pool nearly every transaction waits. Dropping it gives
/// up the place in the queue, and a server that was already granted goes back.
pub struct Seat {
    pub(super) pool: Rc<ShardPool>,
    pub(super) waiter: u32,
    /// The place in the queue, while the client waits.
    pub(super) ticket: Option<Ticket>,
}

impl Seat {
    pub(super) fn new(pool: &Rc<ShardPool>, waker: &Waker) -> Self {
        let waiter = pool.waiters.borrow_mut().insert(Waiter {
            waker: waker.clone(),
            granted: None,
            since: 0,
        });
        Self {
            pool: Rc::clone(pool),
            waiter: id(waiter),
            ticket: None,
        }
    }

    /// Whether the client waits, or has been granted something.
    pub fn is_taken(&self) -> bool {
        self.ticket.is_some()
    }

    /// What was granted, once something was; with that the wait is over.
    pub fn take(&mut self) -> Option<Result<Box<Server>, Refusal>> {
        let granted = self.pool.waiters.borrow_mut()[self.waiter as usize]
            .granted
            .take()?;
        self.stand_up();
        Some(granted)
    }

    fn stand_up(&mut self) -> Option<Ticket> {
        let ticket = self.ticket.take()?;
        let waiting = &self.pool.shard.waiting;
        waiting.set(waiting.get() - 1);
        Some(ticket)
    }

    /// The client does not wait any more. True if it did.
    pub fn leave(&mut self) -> bool {
        let granted = self.take();
        match granted {
            Some(Ok(server)) if server.is_at_rest() => self.pool.release(server),
            Some(Ok(server)) => self.pool.discard(server),
            Some(Err(_)) => {}
            None => {
                let Some(ticket) = self.stand_up() else {
                    return false;
                };
                self.pool.decide.borrow_mut().cancel_wait(ticket);
                self.pool.send_wakes();
            }
        }
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
        self.pool.waiters.borrow_mut().remove(self.waiter as usize);
    }
}
