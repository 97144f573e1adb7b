//! A client that is logged in, until it leaves.
//!
//! The session is one task that is woken by whatever concerns it: bytes from
//! the client, bytes from its server, a server granted, a word from another
//! shard. Woken, it looks at everything and goes on until nothing moves:
//!
//! ```text
//!   client ──▶ requests ──▶ [lease] ──▶ server
//!   client ◀── replies ◀── [ledger] ◀── server ──▶ [release]
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `requests` | frames what the client sends, decides what is looked at |
//! | `messages` | Query, Close, FunctionCall, and who looks at the rest |
//! | `prepare` | Parse, Bind, Describe: the statements' copies on servers |
//! | `statements` | the client's prepared statements, and what an error takes back |
//! | `deallocate` | `DEALLOCATE` of such a statement by a simple query |
//! | `native` | names that SQL and the protocol share |
//! | `returning` | `RESET`, which returns to the startup packet |
//! | `ask` | the question what the session holds, together with a request |
//! | `custom` | the names of custom settings in texts and parameters |
//! | `cancel` | what a cancel request is for |
//! | `clock` | what the session is at, and since when |
//! | `patience` | how long what may take, and what comes when its time is up |
//! | `maintenance` | who is sent away, and what others may see of a client |
//! | `moving` | a client that goes on on another shard |
//! | `lease` | getting a server, giving it back, what it must be asked before |
//! | `replies` | frames what the server sends, books it in the ledger |
//! | `refuse` | errors of our own, in the order and shape that PostgreSQL has |

mod ask;
mod body;
mod cancel;
mod clock;
mod custom;
mod deallocate;
mod lease;
mod maintenance;
mod messages;
mod moving;
mod native;
mod patience;
mod prepare;
mod refuse;
mod replies;
mod requests;
mod returning;
mod settle;
mod statements;
mod window;

use crate::client::{Entered, fatal, say_and_close};
use crate::limits::OWED_SILENCE;
use crate::link::Link;
use crate::server::clean::{self, Departure};
use crate::server::{Parameters, Server};
use crate::settings::{Entries, Label};
use crate::shard::{Refusal, Seat, Shard, ShardPool, Wishes, bump};
use ::pool::config::PoolMode;
use ask::Ending;
use body::Body;
use clock::{Clock, News};
use custom::CustomNames;
pub use moving::Guest;
use protocol::error::SqlState;
use protocol::frame::{Deframer, Side};
use returning::Returning;
use router::effects::{Effect, Effects};
use settle::Settling;
use statements::Statements;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// See the module's text. Small, because most clients are idle: what only a
/// busy one needs is boxed or belongs to the server.
pub struct Session {
    shard: Rc<Shard>,
    pool: Rc<ShardPool>,
    /// Of the pool when the client logged in.
    mode: PoolMode,
    socket: Link,
    entered: Entered,
    /// The server, while leased.
    server: Option<Box<Server>>,
    /// Where it waits for a server.
    seat: Option<Seat>,
    /// The server is being asked what the last transaction left in it.
    settling: Option<Rc<Settling>>,
    /// The settings that the client expects.
    label: Rc<Label>,
    /// The settings of its startup packet, to which RESET returns.
    startup: Rc<Label>,
    statements: Option<Box<Statements>>,
    /// Where the client's messages begin and end.
    frames: Deframer,
    request: Body,
    reply: Body,
    /// No server was to be had: the next message is answered with this.
    refusal: Option<Box<Refusal>>,
    /// We have refused a message of a batch: the rest of it is dropped, as
    /// PostgreSQL would.
    skipping: bool,
    /// The batch at hand has defined or closed a statement.
    changes: bool,
    /// A `ReadyForQuery` is held back until the session is settled.
    withheld: bool,
    /// A change of the client's statements is under way of which the outcome
    /// is not certain: nothing that names a statement may be sent before it is.
    barrier: bool,
    /// What the statements that the batch at hand has bound do.
    batch: Effects,
    /// How the request that was read last ends.
    ending: Ending,
    /// An error has come since the server was asked along.
    erred: bool,
    /// What was sent is to be answered before the client's next message can be
    /// understood.
    wants_flush: bool,
    /// Custom settings (`app.user`) that the client's texts have named. The
    /// server does not list them, so they are asked for by name.
    custom: Option<Box<CustomNames>>,
    /// Settings that the server has reported during this lease.
    reported: Option<Box<Entries>>,
    /// A portal that returns settings to those of the startup packet.
    returning: Option<Box<Returning>>,
    /// What the client was told of the reported settings, while a change of
    /// them is held back because it may be taken back.
    told: Option<Box<Parameters>>,
    /// So many cancel requests wait until a request of ours, which is ahead of
    /// what they are for, is answered.
    cancels_bound: u32,
    /// The client will say no more.
    goodbye: bool,
    /// Where something is limited in time.
    clock: Option<Box<Clock>>,
    /// What the clock has not heard of.
    news: News,
    /// The time that the statement bound last asks for, in milliseconds.
    bound_hint: u32,
    /// The server has sent something; see [`Session::take_leave`].
    relayed: bool,
    /// The client has broken the protocol, or has said goodbye: after what it is owed it gets this
    /// and goes.
    fate: Option<Vec<u8>>,
}

/// How a session ends.
enum End {
    /// The client said goodbye, and has got what it was owed.
    Goodbye,
    /// It will say no more, but is owed replies. Not an end yet: it has some
    /// time to get them. `asked`: by Terminate, so its work is to be done.
    Leaving { asked: bool },
    /// The client has gone.
    Gone,
    /// The client goes on on another shard, which has counted it already. Not
    /// an end, if that comes to nothing.
    Moving(usize),
    /// It is told something and goes.
    Saying(Vec<u8>),
    /// The server is of no use any more; the client is told so, unless that
    /// would stand in the middle of a message.
    Torn(Option<Vec<u8>>),
    /// Its time is up: what it has under way is given up.
    Cut(Option<Vec<u8>>),
}

impl Session {
    /// A session of a client that has just been greeted.
    pub(crate) fn new(
        shard: Rc<Shard>,
        socket: Link,
        pool: Rc<ShardPool>,
        label: Rc<Label>,
        entered: Entered,
    ) -> Box<Self> {
        let mut session = Box::new(Self {
            shard,
            mode: pool.mode(),
            pool,
            socket,
            entered,
            server: None,
            seat: None,
            settling: None,
            startup: Rc::clone(&label),
            label,
            statements: None,
            frames: Deframer::new(Side::Frontend),
            request: Body::Relay,
            reply: Body::Relay,
            refusal: None,
            skipping: false,
            changes: false,
            withheld: false,
            barrier: false,
            batch: Effects::NONE,
            ending: Ending::Unknown,
            erred: false,
            wants_flush: false,
            custom: None,
            reported: None,
            returning: None,
            told: None,
            cancels_bound: 0,
            goodbye: false,
            clock: None,
            news: News::default(),
            bound_hint: 0,
            relayed: false,
            fate: None,
        });
        session.follow_limits();
        session
    }

    /// Serves the client until it leaves or must leave, or moves to another
    /// shard: then true.
    pub async fn run(mut self: Box<Self>) -> bool {
        let mut end = loop {
            std::future::poll_fn(|cx| {
                self.listen_to(cx);
                Poll::Ready(())
            })
            .await;
            match std::future::poll_fn(|cx| self.poll(cx)).await {
                End::Moving(to) => {
                    if Box::pin(self.move_to(to)).await {
                        return true;
                    }
                }
                end => break end,
            }
        };
        if let End::Leaving { asked } = end {
            end = Box::pin(self.take_leave(asked)).await;
        }
        // Boxed, so that the task of an idle client has no room for it.
        Box::pin(self.finish(end)).await;
        false
    }

    /// The client gets what it is owed, as from PostgreSQL. Whether somebody is
    /// still there to read it nobody can tell before it is sent, and a server
    /// must not work for long for a client that was killed: so not for ever
    /// while nothing comes.
    async fn take_leave(&mut self, asked: bool) -> End {
        let ring = self.shard.ring.clone();
        loop {
            self.relayed = false;
            let deadline = Instant::now() + OWED_SILENCE;
            let owed = std::future::poll_fn(|cx| self.poll(cx));
            match ring.until(Some(deadline), owed).await {
                Ok(end) => return end,
                Err(_) if self.relayed => {}
                Err(_) if asked => return End::Goodbye,
                Err(_) => return End::Gone,
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        match self.advance(cx) {
            Ok(()) => Poll::Pending,
            Err(end) => Poll::Ready(end),
        }
    }

    /// Has everything that concerns the session wake this task. Once: a task
    /// has one waker all its life.
    fn listen_to(&self, cx: &Context<'_>) {
        self.socket.set_waker(cx.waker());
        let mut waker = self.entered.control.waker.borrow_mut();
        if waker.is_none() {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Replies first: they may give the server back, and what the client has
    /// sent meanwhile finds everything settled. One pass is enough: nothing
    /// that `requests` does brings replies before the next turn.
    fn advance(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let waited = self.is_waiting();
        if waited {
            self.take_grant(cx)?;
        }
        if self.settling.is_some() {
            self.take_settled(cx)?;
        }
        if self.server.is_some() {
            self.replies(cx)?;
            if self.awaits_answer() && !self.is_amid_something() && !self.is_being_cancelled() {
                self.settle(cx);
            }
            // One that was granted just now is for the request that waits.
            if !waited {
                self.release_if_free(cx);
            }
        }
        if self.cancels_bound > 0 {
            self.heed_bound_cancels();
        }
        self.requests(cx)?;
        if waited {
            self.release_if_free(cx);
        }
        self.obey(cx)?;
        self.stand();
        self.notice_the_end()?;
        self.mind_time(cx)
    }

    /// What others want of this session.
    fn obey(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let control = &self.entered.control;
        if !control.cancel.borrow().is_empty() {
            self.heed_cancels(cx);
        }
        if !self.entered.control.wishes.get().is_none() {
            self.heed_wishes(cx)?;
        }
        Ok(())
    }

    #[cold]
    fn heed_wishes(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let wishes = self.entered.control.wishes.get();
        if wishes.has(Wishes::STOP) || wishes.has(Wishes::LEAVE) && self.is_idle() {
            let words = fatal(
                SqlState::ADMIN_SHUTDOWN,
                "terminating connection due to administrator command",
            );
            return Err(End::Saying(words));
        }
        if wishes.has(Wishes::CHECK) {
            self.entered.check_user();
        }
        let wishes = self.entered.control.wishes.get();
        if wishes.has(Wishes::REMOVED) && self.is_idle() {
            return Err(End::Saying(self.removed()));
        }
        if wishes.has(Wishes::LIMITS) {
            self.entered.control.unwant(Wishes::LIMITS);
            self.follow_limits();
        }
        if wishes.has(Wishes::SHED) {
            self.be_shed()?;
        }
        self.move_if_wanted(cx)
    }

    /// What a client is told that the configuration does not know any more.
    fn removed(&self) -> Vec<u8> {
        if self.pool.is_removed() {
            let text = format!(
                "terminating connection because database \"{}\" is not in the configuration any more",
                self.pool.group().name
            );
            return fatal(SqlState::DATABASE_DROPPED, &text);
        }
        let user = String::from_utf8_lossy(self.entered.user().unwrap_or_default()).into_owned();
        let text = format!(
            "terminating connection because user \"{user}\" is not in the configuration any more"
        );
        fatal(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, &text)
    }

    /// Memory is short, and this client is one of those that are to leave as
    /// soon as they have no transaction; if it still is by then.
    fn be_shed(&mut self) -> Result<(), End> {
        if !self.shard.memory.is_tight() {
            self.entered.control.unwant(Wishes::SHED);
            return Ok(());
        }
        let server = self.server.as_ref();
        let at_rest = server.is_none_or(|server| server.is_at_rest());
        if !at_rest || self.is_waiting() || self.settling.is_some() {
            return Ok(());
        }
        bump(&self.shard.counters.clients_shed);
        let text = "terminating connection because pgmux is short of memory";
        Err(End::Saying(fatal(SqlState::ADMIN_SHUTDOWN, text)))
    }

    /// Between transactions, with nothing asked. A server that is kept from one
    /// transaction to the next does not count.
    fn is_idle(&self) -> bool {
        let at_rest = match &self.server {
            None => true,
            Some(server) => {
                (self.mode == PoolMode::Session || server.pinned) && server.is_at_rest()
            }
        };
        at_rest
            && !self.is_waiting()
            && self.settling.is_none()
            && !self.socket.has_bytes()
            && !self.skipping
    }

    fn notice_the_end(&mut self) -> Result<(), End> {
        if self.socket.is_broken() {
            return Err(if self.goodbye {
                End::Goodbye
            } else {
                End::Gone
            });
        }
        if self.fate.is_none() && self.socket.is_over() && !self.is_about_to_ask() {
            self.goodbye(false)?;
        }
        let Some(words) = &mut self.fate else {
            return Ok(());
        };
        // Its bytes are not read any more, so it may be gone with some unread.
        if !self.goodbye && self.socket.ended() {
            return Err(End::Gone);
        }
        let server = self.server.as_ref();
        // Data that COPY waits for will not come any more.
        let server = server.filter(|server| !server.ledger.is_copy_in());
        if server.is_some_and(|server| server.ledger.will_be_sent()) {
            return Ok(());
        }
        Err(if self.goodbye {
            End::Goodbye
        } else {
            End::Saying(std::mem::take(words))
        })
    }

    /// Nothing more will come from the client, by Terminate or because it has
    /// closed its side. What was asked before is still answered, as far as it
    /// would be.
    fn goodbye(&mut self, asked: bool) -> Result<(), End> {
        self.goodbye = true;
        self.fate = Some(Vec::new());
        Err(match self.server {
            Some(_) => End::Leaving { asked },
            None => End::Goodbye,
        })
    }

    /// The client's last message waits for something of ours.
    fn is_about_to_ask(&self) -> bool {
        let waits = matches!(&self.request, Body::Collect(collected) if collected.is_complete());
        waits || self.is_waiting() || self.settling.is_some()
    }

    async fn finish(mut self: Box<Self>, end: End) {
        self.seat = None;
        let departure = match &end {
            End::Goodbye | End::Saying(_) => Departure::Polite,
            End::Leaving { .. } | End::Gone | End::Moving(_) => Departure::Abrupt,
            End::Cut(_) => Departure::Abrupt,
            End::Torn(_) => Departure::Lost,
        };
        self.part_with_server(departure);
        let words = match end {
            End::Leaving { .. } | End::Gone | End::Moving(_) => return,
            End::Saying(words) => {
                self.shard.faults.note_own(&words);
                words
            }
            // What has been relayed still has to leave.
            End::Goodbye => Vec::new(),
            End::Torn(words) | End::Cut(words) => {
                let words = words.unwrap_or_default();
                self.shard.faults.note_own(&words);
                words
            }
        };
        say_and_close(&self.socket, &words).await;
    }

    fn part_with_server(&mut self, departure: Departure) {
        if let Some(settling) = self.settling.take() {
            settling.abandon(&self.pool);
        }
        let Some(mut server) = self.server.take() else {
            return;
        };
        server.socket.clear_waker();
        // A setting has been reported that no release has put into the label.
        if self.reported.take().is_some() {
            server.suspect.insert(Effect::SetSession);
        }
        // Half a message has been sent: only the client could finish it.
        let torn = matches!(self.request, Body::Relay) && self.frames.body_remaining() > 0;
        if self.mode == PoolMode::Session {
            server.pinned = true;
        }
        clean::spawn(
            Rc::clone(&self.pool),
            server,
            if torn { Departure::Lost } else { departure },
        );
    }
}

impl Drop for Session {
    /// Reached with a server only by a panic: nobody knows what state it is in.
    fn drop(&mut self) {
        self.part_with_server(Departure::Lost);
    }
}
