//! A connection to PostgreSQL.

pub mod cancel;
pub mod clean;
pub mod dialog;
mod keys;
pub mod login;
mod moving;
mod native;
mod note;
mod parameters;
pub mod probe;
pub mod secure;
mod statements;

pub use cancel::Cancels;
pub use keys::Keys;
pub use moving::Packed;
pub use native::{FoundStatement, Native};
pub use note::{Note, UnnamedStatement};
pub use parameters::Parameters;
pub use statements::{
    Definition, Meaning, PREFIX, Prepared, Statement, fresh_number, internal_name, is_internal,
    statement_key, timeout_hint,
};

use crate::link::Link;
use crate::settings::Label;
use protocol::backend::TransactionStatus;
use protocol::frame::Deframer;
use protocol::ledger::Ledger;
use router::effects::Effects;
use socket2::SockAddr;
use std::rc::Rc;

/// A logged-in server. Owned by exactly one of: its pool, a session, a task
/// that cleans it.
pub struct Server {
    /// The connection.
    pub socket: Link,
    /// Where its messages begin and end.
    pub frames: Deframer,
    /// What it owes.
    pub ledger: Ledger<Note>,
    /// As its last `ReadyForQuery` said.
    pub status: TransactionStatus,
    /// Which settings it has.
    pub label: Rc<Label>,
    /// The error with which it ended while it was asked something of ours.
    pub last_words: Option<Box<[u8]>>,
    /// What it reported last of each reported setting.
    pub parameters: Parameters,
    /// Which prepared statements it has.
    pub prepared: Prepared,
    /// It has its client's statements under the client's own names.
    pub native: Option<Box<Native>>,
    /// What is in its unnamed slot.
    pub unnamed: Slot,
    /// What texts sent since it was last clean may have done to the session.
    pub suspect: Effects,
    /// It holds something for its client that cannot be moved.
    pub pinned: bool,
    /// It has loaded a library, which nothing unloads: it serves one client
    /// and is closed.
    pub tainted: bool,
    /// Its last error was FATAL, or worse: nothing comes behind it.
    pub said_goodbye: bool,
    /// For cancelling; some servers give none.
    pub cancel_key: Option<Rc<CancelKey>>,
    /// Cancel requests on their way to it.
    pub cancels: Rc<Cancels>,
    /// Its place in the pool.
    pub slot: u32,
    /// When it was leased, by its ring's [`micros`](crate::ring::Ring::micros).
    pub leased: u64,
    /// When the request began that it is at, by the same.
    pub asked: Option<u64>,
}

/// What a server's unnamed statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// There is none.
    Empty,
    /// A client's, by the number of its definition.
    Of(u64),
    /// There may be one, of somebody else.
    Unknown,
}

/// What a server gave us to cancel its queries with.
#[derive(Clone)]
pub struct CancelKey {
    /// The process id.
    pub pid: u32,
    /// 4 to 256 secret bytes.
    pub key: Box<[u8]>,
    /// Where the server is: its name may mean another one by now.
    pub address: SockAddr,
}

impl Server {
    /// Nothing is owed, unread, unsent or on its way, and no transaction is
    /// open. What it still has of its client is a matter of label and pins.
    pub fn is_at_rest(&self) -> bool {
        self.is_between_requests() && self.socket.is_quiet()
    }

    /// Nothing is owed and no transaction is open; something that nobody has
    /// asked for may have come.
    pub fn is_between_requests(&self) -> bool {
        self.ledger.is_idle() && self.status == TransactionStatus::Idle && self.frames.at_boundary()
    }

    /// Whether a text was sent that may have changed the session in a way
    /// that outlives its transaction.
    pub fn is_suspect(&self) -> bool {
        !self.suspect.is_clean() || self.pinned || self.tainted || self.native.is_some()
    }

    /// Reads what came while nobody used the server. False when it must go:
    /// only N, A and S are harmless.
    pub fn check_idle(&mut self) -> bool {
        if self.socket.is_quiet() {
            return true;
        }
        while let Some(mut chunk) = self.socket.take() {
            if !self.read_idle(&mut chunk) {
                return false;
            }
        }
        self.frames.at_boundary() && !self.socket.ended()
    }

    fn read_idle(&mut self, chunk: &mut crate::ring::Chunk) -> bool {
        use protocol::frame::Step;
        while !chunk.is_empty() {
            let Ok(Step::Head(head)) = self.frames.step(chunk) else {
                return false;
            };
            let length = head.body_len as usize;
            // Part of a message: rather than wait for the rest with the
            // server out of reach, let it go. It happens next to never.
            if !matches!(head.tag, b'N' | b'A' | b'S') || chunk.len() < head.consumed + length {
                return false;
            }
            if head.tag == b'S' {
                self.parameters
                    .read(&chunk[head.consumed..head.consumed + length]);
            }
            chunk.advance(head.consumed);
            if length > 0 {
                if self.frames.step(chunk).is_err() {
                    return false;
                }
                chunk.advance(length);
            }
        }
        true
    }
}
