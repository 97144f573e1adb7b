//! What the server sends: booked in the ledger, and relayed or swallowed.

use super::ask::is_answer_next;
use super::body::{Body, Collected};
use super::clock::News;
use super::messages::CLOSE_COMPLETE;
use super::requests::READY_IDLE;
use super::window::Window;
use super::{End, Session};
use crate::client::{fatal, made_fatal};
use crate::limits::{INSPECT_BYTES, SLICE_BYTES};
use crate::server::{Note, Parameters, Server};
use crate::shard::{Maker, add, bump};
use ::pool::config::PoolMode;
use protocol::backend::TransactionStatus;
use protocol::error::{Fields, SqlState};
use protocol::frame::{Head, Step};
use protocol::ledger::{Ledger, Reply, Whose};
use protocol::tag::backend_tag as tag;
use std::rc::Rc;
use std::task::Context;

impl Session {
    /// Reads what the server has sent.
    pub(super) fn replies(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let mut read = 0;
        while let Some(mut server) = self.server.take() {
            if self.socket.is_full() {
                self.server = Some(server);
                break;
            }
            let Some(chunk) = server.socket.take() else {
                let ended = server.socket.ended();
                self.server = Some(server);
                if ended {
                    return Err(self.server_lost());
                }
                break;
            };
            read += chunk.len();
            add(&self.shard.counters.bytes_from_servers, chunk.len());
            self.relayed = true;
            let mut window = Window::new(chunk);
            let outcome = self.read_replies(&mut server, &mut window);
            self.server = Some(server);
            outcome?;
            window.forward(&self.socket);
            if let Some(server) = &self.server
                && is_answer_next(server)
            {
                // For who asks, see `settle`.
                server.socket.put_back(window.into_rest());
                return Ok(());
            }
            if read >= SLICE_BYTES {
                // Others have their turn; this task is in the queue again.
                cx.waker().wake_by_ref();
                return Ok(());
            }
        }
        Ok(())
    }

    fn read_replies(&mut self, server: &mut Server, window: &mut Window) -> Result<(), End> {
        loop {
            if server.frames.at_boundary() {
                self.give_local_replies(server, window);
            }
            if window.rest().is_empty() || is_answer_next(server) {
                return Ok(());
            }
            if let Some(head) = server.frames.whole(window.rest()) {
                self.on_whole_reply(server, window, head)?;
                continue;
            }
            let step = server.frames.step(window.rest()).map_err(|error| {
                tracing::error!(%error, "a server sent garbage");
                self.violation(window)
            })?;
            match step {
                Step::Starved { consumed } => {
                    if consumed > 0 {
                        self.swallow(window, consumed);
                    }
                    return Ok(());
                }
                Step::Head(head) => self.on_reply(server, window, head)?,
                Step::Body { len, .. } => self.on_reply_body(server, window, len)?,
            }
        }
    }

    /// Answers that are ours to give, where it is their turn.
    fn give_local_replies(&mut self, server: &mut Server, window: &mut Window) {
        while server.ledger.take_local().is_some() {
            window.forward(&self.socket);
            // Only Close is answered by us.
            self.socket.write(CLOSE_COMPLETE);
        }
    }

    /// The same right after a request, when nothing stands before it.
    pub(super) fn answer_now(&mut self) {
        while self
            .server
            .as_mut()
            .is_some_and(|server| server.ledger.take_local().is_some())
        {
            self.socket.write(CLOSE_COMPLETE);
        }
    }

    /// A message that is here in one piece, as nearly all are.
    fn on_whole_reply(
        &mut self,
        server: &mut Server,
        window: &mut Window,
        head: Head,
    ) -> Result<(), End> {
        if server.ledger.is_rows(head.tag) {
            pass_rows(server, window);
            return Ok(());
        }
        let total = head.total();
        let fate = if self.is_looked_at(server, head.tag) {
            let body = &window.rest()[head.consumed..total];
            let fate = self.inspect(server, head, body);
            fate.map_err(|violated| {
                window.forward(&self.socket);
                self.violated(violated)
            })?
        } else {
            Fate::of(self.book(server, window, head.tag)?)
        };
        match fate {
            Fate::Relay => window.pass(total),
            Fate::Swallow => self.swallow(window, total),
            Fate::Replace(bytes) => {
                self.swallow(window, total);
                self.socket.write(&bytes);
            }
        }
        Ok(())
    }

    /// Books a message that is not looked at.
    fn book(
        &mut self,
        server: &mut Server,
        window: &mut Window,
        tag_byte: u8,
    ) -> Result<Whose, End> {
        match server.ledger.reply(tag_byte) {
            Ok(Reply::Part(whose)) => Ok(whose),
            Ok(Reply::Done(entry)) => Ok(self.confirmed(server, entry)),
            // Whatever is asked meanwhile, it is the client that listens.
            Ok(Reply::Async(_)) if tag_byte == tag::NOTIFICATION_RESPONSE => Ok(Whose::Client),
            Ok(Reply::Async(whose)) => Ok(whose.unwrap_or(Whose::Client)),
            Ok(Reply::Ready(_) | Reply::Failed(_) | Reply::Unsolicited) | Err(_) => {
                Err(self.violation(window))
            }
        }
    }

    /// The header of a message of which the rest is still coming.
    fn on_reply(
        &mut self,
        server: &mut Server,
        window: &mut Window,
        head: Head,
    ) -> Result<(), End> {
        if self.is_looked_at(server, head.tag) {
            let need = (head.body_len as usize).min(INSPECT_BYTES);
            self.swallow(window, head.consumed);
            self.reply = Collected::body(head, need);
            // Without a body that is all of it.
            return if need == 0 {
                self.finish_reply(server)
            } else {
                Ok(())
            };
        }
        if self.book(server, window, head.tag)? == Whose::Client {
            self.relay(window, head);
        } else {
            self.swallow(window, head.consumed);
            self.reply = Body::Drop;
        }
        Ok(())
    }

    fn is_looked_at(&self, server: &Server, tag_byte: u8) -> bool {
        match tag_byte {
            tag::READY_FOR_QUERY
            | tag::ERROR_RESPONSE
            | tag::PARAMETER_STATUS
            | tag::NOTICE_RESPONSE => true,
            tag::COMMAND_COMPLETE => !server.suspect.is_clean(),
            _ => false,
        }
    }

    fn on_reply_body(
        &mut self,
        server: &mut Server,
        window: &mut Window,
        len: usize,
    ) -> Result<(), End> {
        match &mut self.reply {
            Body::Relay => window.pass(len),
            Body::Drop => self.swallow(window, len),
            Body::Collect(collected) => {
                let taken = (collected.need - collected.bytes.len()).min(len);
                collected.bytes.extend_from_slice(&window.rest()[..taken]);
                self.swallow(window, taken);
                self.finish_reply(server)?;
                let beyond = len - taken;
                match self.reply {
                    Body::Drop => self.swallow(window, beyond),
                    _ => window.pass(beyond),
                }
            }
        }
        Ok(())
    }

    /// Looks at a message that has been gathered, once enough of it is there.
    fn finish_reply(&mut self, server: &mut Server) -> Result<(), End> {
        let Body::Collect(collected) = &self.reply else {
            return Ok(());
        };
        if !collected.is_complete() {
            return Ok(());
        }
        let Body::Collect(collected) = std::mem::replace(&mut self.reply, Body::Drop) else {
            return Ok(());
        };
        match self.inspect(server, collected.head, &collected.bytes) {
            Ok(Fate::Relay) => {
                self.socket.write(&collected.head.bytes());
                self.socket.write(&collected.bytes);
                self.reply = Body::Relay;
            }
            Ok(Fate::Swallow) => {}
            Ok(Fate::Replace(bytes)) => self.socket.write(&bytes),
            Err(violated) => return Err(self.violated(violated)),
        }
        Ok(())
    }

    /// Books a message that is looked at.
    fn inspect(&mut self, server: &mut Server, head: Head, body: &[u8]) -> Result<Fate, Violated> {
        match head.tag {
            tag::ERROR_RESPONSE => self.on_error(server, head, body),
            tag::READY_FOR_QUERY => {
                let &[status] = body else {
                    return Err(Violated::Server);
                };
                let status = TransactionStatus::from_byte(status).map_err(|_| Violated::Server)?;
                let Ok(Reply::Ready(entry)) = server.ledger.reply(head.tag) else {
                    return Err(Violated::Server);
                };
                server.status = status;
                if entry.whose == Whose::Client {
                    self.answered(server);
                    self.news.note(News::ANSWERED);
                    if status == TransactionStatus::Idle {
                        self.news.note(News::ENDED);
                    }
                }
                let open = status != TransactionStatus::Idle && entry.whose == Whose::Client;
                if open && self.mode == PoolMode::Statement {
                    return Err(Violated::Forbidden);
                }
                if entry.whose == Whose::Client && self.must_withhold(server) {
                    self.withheld = true;
                    return Ok(Fate::Swallow);
                }
                match self.told.take_if(|_| entry.whose == Whose::Client) {
                    Some(told) => Ok(Fate::Replace(ready_and_changes(server, &told, body))),
                    None => Ok(Fate::of(entry.whose)),
                }
            }
            tag::PARAMETER_STATUS => Ok(self.on_parameter(server, body)),
            tag::NOTICE_RESPONSE => Ok(self.on_notice(server, head, body)),
            _ => {
                let whose = match server
                    .ledger
                    .reply(head.tag)
                    .map_err(|_| Violated::Server)?
                {
                    Reply::Part(whose) => {
                        let about = server.ledger.head().and_then(|entry| entry.note.as_ref());
                        let about = if let Some(Note::Deallocates(known)) = about {
                            Some(known.clone())
                        } else {
                            None
                        };
                        self.on_command(server, body, about);
                        whose
                    }
                    Reply::Done(entry) => {
                        self.news.note(News::ANSWERED);
                        self.on_command(server, body, None);
                        entry.whose
                    }
                    _ => return Err(Violated::Server),
                };
                Ok(Fate::of(whose))
            }
        }
    }

    /// A query or a batch of the client's is over. What was sent behind it has
    /// begun by now.
    #[inline]
    fn answered(&self, server: &mut Server) {
        bump(&self.shard.counters.queries);
        let now = self.shard.ring.micros();
        if let Some(asked) = server.asked.replace(now) {
            self.shard.times.query.record(now.saturating_sub(asked));
        }
    }

    /// A reported setting has changed. After a RESET it may be put back before
    /// the client gets its `ReadyForQuery`: then there is nothing to tell.
    fn on_parameter(&mut self, server: &mut Server, body: &[u8]) -> Fate {
        let whose = server.ledger.head().map(|entry| entry.whose);
        if matches!(whose, Some(Whose::Ours)) {
            server.parameters.read(body);
            return Fate::Swallow;
        }
        let held = self.may_put_back(server);
        if held && self.told.is_none() {
            self.told = Some(Box::new(server.parameters.clone()));
        }
        server.parameters.read(body);
        self.note_reported(body);
        if held { Fate::Swallow } else { Fate::Relay }
    }

    /// A client that asks to see more (`client_min_messages`) is told which
    /// statements are parsed, bound and executed: by the names that it gave.
    fn on_notice(&self, server: &Server, head: Head, body: &[u8]) -> Fate {
        let about = server.ledger.head();
        let whose = about.map_or(Whose::Client, |entry| entry.whose);
        if whose != Whose::Client || head.body_len as usize != body.len() {
            return Fate::of(whose);
        }
        let called = match about.and_then(|entry| entry.note.as_ref()) {
            Some(Note::Uses(known) | Note::Defines(known)) => Some(&*known.name),
            _ => None,
        };
        let name_of = |number| {
            let definition = server.prepared.definition_of(number)?;
            let statements = self.statements.as_ref();
            let named = statements.and_then(|statements| {
                let mut all = statements.all();
                all.find(|statement| Rc::ptr_eq(&statement.definition, definition))
            });
            Some(called.or(named.map(|named| &*named.name)).unwrap_or(CLOSED))
        };
        super::refuse::renamed_all(body, name_of).map_or(Fate::Relay, Fate::Replace)
    }

    /// A command that concerns prepared statements has been carried out.
    fn on_command(
        &mut self,
        server: &mut Server,
        body: &[u8],
        about: Option<Rc<crate::server::Statement>>,
    ) {
        match body.strip_suffix(&[0]).unwrap_or(body) {
            b"DEALLOCATE ALL" | b"DISCARD ALL" => {
                server.prepared.clear();
                if let Some(native) = &mut server.native {
                    native.clear();
                }
                if let Some(statements) = &mut self.statements {
                    statements.clear();
                }
            }
            b"DEALLOCATE" => {
                if let (Some(statements), Some(known)) = (&mut self.statements, about) {
                    statements.remove(&known);
                }
            }
            _ => {}
        }
    }

    /// An error: what was announced and will not happen is taken back.
    fn on_error(&mut self, server: &mut Server, head: Head, body: &[u8]) -> Result<Fate, Violated> {
        let reply = server
            .ledger
            .reply(head.tag)
            .map_err(|_| Violated::Server)?;
        server.said_goodbye = super::refuse::is_fatal(body);
        if server.said_goodbye {
            self.pool.on_death(Some(body));
        }
        let mut undone: Vec<_> = server.ledger.take_undone().collect();
        // The oldest is the one that failed; it comes last.
        let cause = undone.pop();
        for entry in undone {
            self.undo(server, entry, false);
        }
        let note = cause.as_ref().and_then(|cause| cause.note.as_ref());
        let asks = server.ledger.head();
        let asks = asks.is_some_and(|entry| matches!(entry.note, Some(Note::Asks)));
        self.erred |= !asks;
        let fate = match reply {
            Reply::Failed(Whose::Ours) if asks => Fate::Swallow,
            Reply::Failed(Whose::Ours) if let Some(Note::Supplies(statement)) = note => {
                if let Some(native) = &mut server.native {
                    native.refuse(statement, body);
                }
                Fate::Swallow
            }
            // In a batch of the client's, which fails as a whole: the client
            // has had it cancelled.
            Reply::Failed(Whose::Ours)
                if is_cancelled(body) && ends_with_clients(&server.ledger) =>
            {
                Fate::Relay
            }
            Reply::Failed(Whose::Ours) => {
                // Settings that were accepted before are refused now: the
                // client must not believe that its request ran under them.
                return Err(Violated::Ours(made_fatal(body)));
            }
            Reply::Failed(_) => match note {
                Some(Note::Fails(words)) => Fate::Replace(words.to_vec()),
                Some(Note::Uses(known) | Note::Defines(known))
                    if head.body_len as usize == body.len() =>
                {
                    super::refuse::renamed(body, &known.name).map_or(Fate::Relay, Fate::Replace)
                }
                _ => server
                    .native
                    .as_ref()
                    .and_then(|native| native.instead(body))
                    .map_or(Fate::Relay, Fate::Replace),
            },
            _ => Fate::Relay,
        };
        let fate = match fate {
            Fate::Relay if is_cancelled(body) => {
                self.timed_out().map_or(Fate::Relay, Fate::Replace)
            }
            fate => fate,
        };
        if let Some(cause) = cause {
            self.undo(server, cause, true);
        }
        if !matches!(fate, Fate::Swallow) {
            self.shard.faults.note(Maker::Server, body);
        }
        Ok(fate)
    }

    fn relay(&mut self, window: &mut Window, head: Head) {
        if head.carried == 0 {
            window.pass(head.consumed);
        } else {
            self.swallow(window, head.consumed);
            self.socket.write(&head.bytes());
        }
        self.reply = Body::Relay;
    }

    fn swallow(&self, window: &mut Window, n: usize) {
        window.forward(&self.socket);
        window.skip(n);
    }

    /// The server said something that answers nothing. Whose bytes come next
    /// nobody knows: both connections end.
    fn violation(&self, window: &mut Window) -> End {
        window.forward(&self.socket);
        self.violated(Violated::Server)
    }

    fn violated(&self, violated: Violated) -> End {
        let words = match violated {
            Violated::Forbidden => return self.forbid_transaction(),
            Violated::Ours(words) => words,
            Violated::Server => {
                bump(&self.shard.counters.violations);
                self.pool.on_death(None);
                tracing::error!(database = %self.pool.group().name, "a server broke the protocol; its client is disconnected");
                let text = "the server broke the protocol; the connection is closed";
                fatal(SqlState::CONNECTION_FAILURE, text)
            }
        };
        End::Torn(Some(words))
    }

    /// The server is gone while it was ours. If it has said why, that has
    /// been relayed; half a message is never made whole.
    fn server_lost(&mut self) -> End {
        let amid_message = self
            .server
            .as_ref()
            .is_none_or(|server| !server.frames.at_boundary());
        if amid_message
            || self
                .server
                .as_ref()
                .is_some_and(|server| server.said_goodbye)
        {
            if amid_message {
                self.pool.on_death(None);
            }
            return End::Torn(None);
        }
        self.pool.on_death(None);
        End::Torn(Some(fatal(
            SqlState::CONNECTION_FAILURE,
            "the connection to the server was lost",
        )))
    }
}

/// Whether an error says that a request was cancelled.
fn is_cancelled(body: &[u8]) -> bool {
    Fields::new(body).code() == Some(SqlState::QUERY_CANCELED)
}

/// Whether the batch in which an error has come is ended by the client.
fn ends_with_clients(ledger: &Ledger<Note>) -> bool {
    ledger.is_skipping()
        || ledger
            .head()
            .is_some_and(|entry| entry.whose == Whose::Client)
}

/// Passes the rows at the front, which may be thousands.
fn pass_rows(server: &Server, window: &mut Window) {
    let rest = window.rest();
    let mut passed = 0;
    while let Some(head) = server.frames.whole(&rest[passed..])
        && server.ledger.is_rows(head.tag)
    {
        passed += head.total();
    }
    window.pass(passed);
}

/// What the client was not told yet, then a `ReadyForQuery` with this body.
fn ready_and_changes(server: &Server, told: &Parameters, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // As long as what the server sent.
    let _ = server.parameters.encode_changes(told, &mut out);
    out.extend_from_slice(&READY_IDLE[..5]);
    out.extend_from_slice(body);
    out
}

/// What a statement is called that its client has closed.
const CLOSED: &[u8] = b"<unnamed>";

/// What becomes of a message that was looked at.
enum Fate {
    Relay,
    Swallow,
    Replace(Vec<u8>),
}

impl Fate {
    fn of(whose: Whose) -> Self {
        if whose == Whose::Client {
            Fate::Relay
        } else {
            Fate::Swallow
        }
    }
}

/// Why both connections must end.
enum Violated {
    /// See [`protocol::ledger::Violation`].
    Server,
    /// The server refused something of ours on which the client's request
    /// was built.
    Ours(Vec<u8>),
    /// A transaction stays open in statement mode.
    Forbidden,
}
