//! Replication connections: a client, a server that is its alone, and what
//! they say to each other.
//!
//! ```text
//!   client ──▶ server      as it comes, while the server takes it
//!   client ◀── server      as it comes, while the client takes it
//! ```
//!
//! Nothing is booked and nothing is understood but what an orderly end takes:
//! where the server's messages begin, and whether it waits for a command or
//! streams. The server is closed with its client; it never sees a pool.

use crate::client::{Entered, fatal, say_and_close};
use crate::limits::{FAREWELL, LAST_WORDS, SERVER_CLOSING, SLICE_BYTES};
use crate::link::Link;
use crate::ring::task;
use crate::server::{Server, cancel};
use crate::shard::{Shard, ShardPool, Wishes, bump};
use ::pool::Budget;
use protocol::encode::EncodeError;
use protocol::error::SqlState;
use protocol::frame::Step;
use protocol::frontend::Terminate;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// One of `proxy.max_replication_connections`, given back when dropped.
pub struct Permit(Arc<Budget>);

impl Permit {
    /// One, if one is left.
    pub fn take(shard: &Shard) -> Option<Self> {
        let budget = Arc::clone(&shard.replications);
        budget.try_take().then_some(Self(budget))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// A server that has been logged in to for a client.
pub struct Logged {
    pool: Rc<ShardPool>,
    server: Server,
    permit: Permit,
}

impl Logged {
    /// Puts them together.
    pub fn new(pool: Rc<ShardPool>, server: Server, permit: Permit) -> Self {
        bump(&pool.shard.counters.replications);
        Self {
            pool,
            server,
            permit,
        }
    }

    /// What the server has reported, for the client.
    pub fn greeting(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        self.server.parameters.encode(&mut out)?;
        Ok(out)
    }

    /// The client is greeted.
    pub(crate) fn of(self, entered: Entered) -> Replication {
        Replication {
            entered,
            phase: Phase::Idle,
            status_next: false,
            logged: Some(self),
        }
    }
}

/// See the module's text.
pub struct Replication {
    entered: Entered,
    phase: Phase,
    /// The next byte of the server's is the status in a `ReadyForQuery`.
    status_next: bool,
    /// Until it is parted with.
    logged: Option<Logged>,
}

/// What the server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for a command, outside of a transaction.
    Idle,
    /// Carries one out, or has a transaction open.
    Busy,
    /// Both sides send as they like (`CopyBothResponse`), perhaps for ever.
    Streaming,
}

enum End {
    /// The client has left, or its connection broke.
    Client,
    /// The server has, and the client is owed what it said.
    Server,
    /// We are told to stop.
    Stop,
    /// The server does not speak PostgreSQL's protocol any more.
    Torn,
}

impl Replication {
    /// Serves the client until one side ends or the process does.
    pub(crate) async fn run(mut self, client: Link) {
        let end = std::future::poll_fn(|cx| match self.advance(&client, cx) {
            Ok(()) => Poll::Pending,
            Err(end) => Poll::Ready(end),
        })
        .await;
        let at_boundary = self.part_with_server();
        match end {
            End::Client | End::Torn => {}
            End::Server => {
                let deadline = Instant::now() + FAREWELL;
                let last = client.flushed();
                // Whether it takes the rest or not, the client is closed.
                let _ = client.ring().until(Some(deadline), last).await;
            }
            // In the middle of a message no other can begin.
            End::Stop if at_boundary => {
                let text = "terminating connection due to administrator command";
                say_and_close(&client, &fatal(SqlState::ADMIN_SHUTDOWN, text)).await;
            }
            End::Stop => {
                let deadline = Instant::now() + LAST_WORDS;
                let _ = client.ring().until(Some(deadline), client.flushed()).await;
            }
        }
    }

    fn advance(&mut self, client: &Link, cx: &Context<'_>) -> Result<(), End> {
        let Some(logged) = &mut self.logged else {
            return Err(End::Server);
        };
        let server = &mut logged.server;
        client.set_waker(cx.waker());
        server.socket.set_waker(cx.waker());
        *self.entered.control.waker.borrow_mut() = Some(cx.waker().clone());

        let mut left = SLICE_BYTES;
        while left > 0
            && !server.socket.is_full()
            && let Some(chunk) = client.take()
        {
            left = left.saturating_sub(chunk.len());
            if self.phase != Phase::Streaming {
                self.phase = Phase::Busy;
            }
            server.socket.send(chunk);
        }
        let mut more = left == 0;
        left = SLICE_BYTES;
        while left > 0
            && !client.is_full()
            && let Some(chunk) = server.socket.take()
        {
            left = left.saturating_sub(chunk.len());
            follow(server, &chunk, &mut self.phase, &mut self.status_next)?;
            client.send(chunk);
        }
        more |= left == 0;
        // Others have their turn first.
        if more {
            cx.waker().wake_by_ref();
        }
        if client.is_over() {
            return Err(End::Client);
        }
        // It may have broken with last words unread.
        if server.socket.is_over() && !server.socket.has_bytes() {
            return Err(End::Server);
        }
        self.obey(cx)
    }

    fn obey(&mut self, cx: &Context<'_>) -> Result<(), End> {
        let control = &self.entered.control;
        if control.wishes.get().has(Wishes::CHECK) {
            self.entered.check_user();
        }
        let wishes = control.wishes.get();
        if wishes.has(Wishes::STOP) || wishes.has(LEAVES) && self.phase != Phase::Busy {
            return Err(End::Stop);
        }
        if !control.cancel.borrow().is_empty() {
            let guards = control.cancel.take();
            if let Some(logged) = &self.logged
                && self.phase != Phase::Idle
            {
                let handle = logged.server.cancel_handle();
                cancel::send(&logged.pool, handle, Some(cx.waker().clone()), guards);
            }
        }
        Ok(())
    }

    /// Has the server closed; whether the client has whole messages of it.
    fn part_with_server(&mut self) -> bool {
        let Some(logged) = self.logged.take() else {
            return true;
        };
        let at_boundary = logged.server.frames.at_boundary();
        logged.server.socket.clear_waker();
        task::spawn(close(logged));
        at_boundary
    }
}

impl Drop for Replication {
    /// Reached with a server only by a panic.
    fn drop(&mut self) {
        self.part_with_server();
    }
}

/// Hops over what the server says, and notes what it does.
fn follow(
    server: &mut Server,
    mut bytes: &[u8],
    phase: &mut Phase,
    status_next: &mut bool,
) -> Result<(), End> {
    while !bytes.is_empty() {
        let step = server.frames.step(bytes).map_err(|error| {
            tracing::warn!(%error, "a server of a replication connection sent garbage");
            End::Torn
        })?;
        let consumed = match step {
            Step::Starved { consumed } => consumed,
            Step::Head(head) => {
                match head.tag {
                    b'W' => *phase = Phase::Streaming,
                    b'c' | b'C' => *phase = Phase::Busy,
                    _ => {}
                }
                *status_next = head.tag == b'Z';
                head.consumed
            }
            Step::Body { len, .. } => {
                if std::mem::take(status_next) {
                    *phase = match bytes {
                        [b'I', ..] => Phase::Idle,
                        _ => Phase::Busy,
                    };
                }
                len
            }
        };
        bytes = &bytes[consumed..];
    }
    Ok(())
}

/// The permit comes back when PostgreSQL has closed its end too, so that its
/// own count of walsenders is not exceeded.
async fn close(logged: Logged) {
    let socket = &logged.server.socket;
    let mut out = Vec::new();
    if Terminate.encode(&mut out).is_ok() {
        socket.write(&out);
    }
    let ended = async {
        while !socket.ended() {
            socket.readable().await;
            while socket.take().is_some() {}
        }
    };
    // One that does not listen is cut off.
    let deadline = Instant::now() + SERVER_CLOSING;
    let _ = logged.pool.shard.ring.until(Some(deadline), ended).await;
    drop(logged.permit);
}

/// What ends a connection that is at nothing. One whose database or user is
/// not in the configuration any more is told no more than one whose pgmux stops.
const LEAVES: Wishes = Wishes::LEAVE.or(Wishes::REMOVED);
