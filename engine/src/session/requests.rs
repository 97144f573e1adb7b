//! What the client sends: framed, and sent on or looked at.
//!
//! Only the messages that name a statement, carry SQL text, or end a batch
//! are looked at; all others go on in the buffer in which they came.

use super::ask::Ending;
use super::body::{Body, Collected, Verdict};
use super::clock::News;
use super::messages::FLUSH;
use super::window::Window;
use super::{End, Session};
use crate::client::fatal;
use crate::limits::{INSPECT_BYTES, LEDGER_ENTRIES, SLICE_BYTES, STATEMENT_BYTES};
use crate::shard::add;
use protocol::error::SqlState;
use protocol::frame::{FrameError, Head, Step};
use protocol::ledger::{Kind, Whose};
use protocol::tag::frontend_tag as tag;
use std::task::Context;

/// Whether reading can go on.
#[derive(PartialEq, Eq)]
enum Progress {
    /// All of the chunk has been read.
    Drained,
    /// The message at the front must wait.
    Blocked,
}

impl Session {
    /// Reads what has come.
    pub(super) fn requests(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        self.heed_maintenance()?;
        let mut read = 0;
        let mut all = 0;
        while self.may_read() {
            if matches!(self.request, Body::Collect(_)) && !self.finish_collected(cx)? {
                break;
            }
            self.ask_ahead(cx)?;
            if self.is_waiting() {
                break;
            }
            let Some(chunk) = self.socket.take() else {
                break;
            };
            self.news.note(News::HEARD);
            let before = chunk.len();
            let mut window = Window::new(chunk);
            let progress = self.read_requests(cx, &mut window);
            // What came before a Terminate is carried out all the same.
            self.send_passed(&mut window);
            let progress = progress?;
            let rest = window.into_rest();
            let done = before - rest.len();
            self.socket.put_back(rest);
            all += done;
            if progress == Progress::Blocked || !self.socket.has_bytes() {
                break;
            }
            read += done;
            if read >= SLICE_BYTES {
                // Others have their turn; this task is in the queue again.
                cx.waker().wake_by_ref();
                break;
            }
        }
        add(&self.shard.counters.bytes_from_clients, all);
        self.answer_now();
        self.ask_along();
        if std::mem::take(&mut self.wants_flush)
            && let Some(server) = &self.server
        {
            // Behind all that has been sent.
            server.socket.write(FLUSH);
        }
        Ok(())
    }

    /// Back-pressure: what a client sends is not read while its server, its
    /// own output or the ledger is full. Nor while a cancel request is on its
    /// way, which PostgreSQL delivers by two signals: the second must not hit
    /// the client's next query.
    pub(super) fn may_read(&self) -> bool {
        if self.is_waiting()
            || self.settling.is_some()
            || self.withheld
            || self.fate.is_some()
            || self.socket.is_full()
        {
            return false;
        }
        match &self.server {
            Some(server) => {
                server.cancels.under_way() == 0
                    && server.ledger.len() < LEDGER_ENTRIES
                    && !server.socket.is_full()
            }
            None => true,
        }
    }

    fn read_requests(
        &mut self,
        cx: &mut Context<'_>,
        window: &mut Window,
    ) -> Result<Progress, End> {
        loop {
            if window.rest().is_empty() {
                return Ok(Progress::Drained);
            }
            if let Body::Collect(collected) = &self.request
                && collected.is_complete()
            {
                return Ok(Progress::Blocked);
            }
            let saved = self.frames;
            match self.frames.step(window.rest()) {
                Ok(Step::Starved { consumed }) => {
                    if consumed > 0 {
                        self.skip(window, consumed);
                    }
                    return Ok(Progress::Drained);
                }
                Ok(Step::Head(head)) => {
                    if !self.on_request(cx, window, head)? {
                        self.frames = saved;
                        return Ok(Progress::Blocked);
                    }
                }
                Ok(Step::Body { len, .. }) => {
                    if !self.on_request_body(cx, window, len)? {
                        return Ok(Progress::Blocked);
                    }
                }
                Err(error) => {
                    self.skip(window, window.rest().len());
                    return self.misframed(error);
                }
            }
            if self.fate.is_some() {
                self.skip(window, window.rest().len());
                return Ok(Progress::Blocked);
            }
        }
    }

    /// PostgreSQL closes without a word when a length makes no sense, and
    /// says FATAL when a type is unknown.
    fn misframed(&mut self, error: FrameError) -> Result<Progress, End> {
        match error {
            FrameError::Length { .. } => {
                self.fate = Some(Vec::new());
                Ok(Progress::Blocked)
            }
            FrameError::UnknownTag(tag) | FrameError::WrongDirection(tag) => {
                self.doom(&format!("invalid frontend message type {tag}"));
                Ok(Progress::Blocked)
            }
        }
    }

    /// The client has broken the protocol. It still gets what it is owed.
    pub(super) fn doom(&mut self, text: &str) {
        self.fate = Some(fatal(SqlState::PROTOCOL_VIOLATION, text));
    }

    /// Decides on a message by its header. False when it must wait.
    fn on_request(
        &mut self,
        cx: &mut Context<'_>,
        window: &mut Window,
        head: Head,
    ) -> Result<bool, End> {
        let skipping = self.is_skipping();
        // What is known of the end is known of the last message only.
        self.ending = Ending::Unknown;
        match head.tag {
            tag::SYNC if head.body_len == 0 => self.on_sync(window, head),
            tag::TERMINATE => {
                self.drop_message(window, head);
                self.goodbye(true)?;
            }
            tag::PASSWORD => self.doom("invalid frontend message type 112"),
            // As PostgreSQL does after an error in a batch.
            _ if skipping => self.drop_message(window, head),
            tag::QUERY
            | tag::PARSE
            | tag::BIND
            | tag::DESCRIBE
            | tag::CLOSE
            | tag::FUNCTION_CALL => {
                return self.on_inspected(cx, window, head);
            }
            tag::EXECUTE if self.returning.is_some() => return self.on_inspected(cx, window, head),
            tag::EXECUTE | tag::SYNC => return self.on_execute(cx, window, head),
            // With a body it is an error that the server raises.
            tag::FLUSH if head.body_len > 0 => return self.on_execute(cx, window, head),
            tag::FLUSH => match &mut self.server {
                Some(server) => {
                    server.ledger.flush();
                    self.relay_message(window, head);
                }
                None => self.drop_message(window, head),
            },
            tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => self.on_copy(window, head),
            other => self.doom(&format!("invalid frontend message type {other}")),
        }
        Ok(true)
    }

    /// Whether the rest of a batch is dropped, as PostgreSQL does after an
    /// error.
    pub(super) fn is_skipping(&self) -> bool {
        let server = self.server.as_ref();
        self.skipping || server.is_some_and(|server| server.ledger.is_skipping())
    }

    /// `Sync` ends a batch. Without a server there is nothing to end.
    fn on_sync(&mut self, window: &mut Window, head: Head) {
        self.skipping = false;
        self.foresee_batch();
        match &mut self.server {
            None => {
                self.drop_message(window, head);
                self.socket.write(READY_IDLE);
            }
            Some(server) => {
                if server.ledger.is_copy_in() {
                    server.ledger.sync_in_copy();
                } else {
                    server.ledger.push(Kind::Sync, Whose::Client, None);
                    self.barrier |= std::mem::take(&mut self.changes);
                }
                self.relay_message(window, head);
            }
        }
    }

    /// `Execute` needs no look. (A `Sync` with a body is an error that the
    /// server raises.)
    fn on_execute(
        &mut self,
        cx: &mut Context<'_>,
        window: &mut Window,
        head: Head,
    ) -> Result<bool, End> {
        let kind = if head.tag == tag::SYNC {
            Kind::Sync
        } else {
            Kind::Execute
        };
        match self.need_server(cx, kind)? {
            Verdict::Relay => {
                if let Some(server) = &mut self.server {
                    server.ledger.push(kind, Whose::Client, None);
                    if self.bound_hint != 0 && kind == Kind::Execute {
                        server.ledger.mark(self.bound_hint);
                    }
                }
                self.relay_message(window, head);
            }
            Verdict::Blocked => return Ok(false),
            Verdict::Drop | Verdict::Replace => self.drop_message(window, head),
        }
        Ok(true)
    }

    /// Stray COPY messages are ignored by PostgreSQL, so they go nowhere.
    fn on_copy(&mut self, window: &mut Window, head: Head) {
        match &mut self.server {
            Some(server) if server.ledger.is_copy_in() || !server.ledger.is_empty() => {
                if head.tag != tag::COPY_DATA {
                    server.ledger.push(Kind::CopyEnd, Whose::Client, None);
                }
                self.relay_message(window, head);
            }
            _ => self.drop_message(window, head),
        }
    }

    /// A message of which the beginning must be read.
    fn on_inspected(
        &mut self,
        cx: &mut Context<'_>,
        window: &mut Window,
        head: Head,
    ) -> Result<bool, End> {
        let need = inspected_bytes(head);
        let rest = window.rest();
        if head.carried > 0 || rest.len() < head.consumed + need {
            self.skip(window, head.consumed);
            self.request = Collected::body(head, need);
            if need == 0 {
                // If it must wait, it does so gathered: its header is read.
                self.finish_collected(cx)?;
            }
            return Ok(true);
        }
        let mut out = self.shard.take_scratch();
        let verdict = self.message(
            cx,
            head,
            &rest[head.consumed..head.consumed + need],
            &mut out,
        )?;
        if verdict != Verdict::Blocked {
            if need > 0 {
                // The deframer must know what has been read; it cannot fail
                // inside a body.
                let _ = self.frames.step(&rest[head.consumed..head.consumed + need]);
            }
            self.settle_verdict(window, verdict, head.consumed + need, &out);
        }
        self.shard.put_scratch(out);
        Ok(verdict != Verdict::Blocked)
    }

    fn settle_verdict(&mut self, window: &mut Window, verdict: Verdict, read: usize, out: &[u8]) {
        if !out.is_empty() {
            self.send_passed(window);
            if let Some(server) = &self.server {
                server.socket.write(out);
            }
        }
        match verdict {
            Verdict::Relay => window.pass(read),
            Verdict::Replace | Verdict::Drop => self.skip(window, read),
            Verdict::Blocked => {}
        }
        self.request = if verdict == Verdict::Drop {
            Body::Drop
        } else {
            Body::Relay
        };
    }

    /// A piece of a body. False when the message must wait.
    fn on_request_body(
        &mut self,
        cx: &mut Context<'_>,
        window: &mut Window,
        len: usize,
    ) -> Result<bool, End> {
        match &mut self.request {
            Body::Relay => {
                window.pass(len);
                Ok(true)
            }
            Body::Drop => {
                self.skip(window, len);
                Ok(true)
            }
            Body::Collect(collected) => {
                let wanted = collected.need - collected.bytes.len();
                let piece = &window.rest()[..len];
                let taken = wanted.min(len);
                collected.bytes.extend_from_slice(&piece[..taken]);
                self.skip(window, taken);
                let beyond = len - taken;
                let done = self.finish_collected(cx)?;
                if beyond == 0 {
                    return Ok(done);
                }
                self.beyond_collected(window, beyond, done)
            }
        }
    }

    /// More of the body came with the last piece of what is looked at.
    fn beyond_collected(
        &mut self,
        window: &mut Window,
        beyond: usize,
        done: bool,
    ) -> Result<bool, End> {
        if !done {
            // The deframer has counted these bytes as read: gather them too.
            if let Body::Collect(collected) = &mut self.request {
                collected.bytes.extend_from_slice(&window.rest()[..beyond]);
            }
            self.skip(window, beyond);
            return Ok(false);
        }
        match self.request {
            Body::Drop => self.skip(window, beyond),
            _ => window.pass(beyond),
        }
        Ok(true)
    }

    /// Looks at a message that has been gathered, once enough of it is there.
    /// False when it must wait.
    fn finish_collected(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let Body::Collect(collected) = &mut self.request else {
            return Ok(true);
        };
        if !collected.is_complete() {
            return Ok(true);
        }
        let Body::Collect(collected) = std::mem::take(&mut self.request) else {
            return Ok(true);
        };
        let mut out = self.shard.take_scratch();
        let verdict = self.message(
            cx,
            collected.head,
            &collected.bytes[..collected.need],
            &mut out,
        )?;
        let beyond = &collected.bytes[collected.need..];
        match (verdict, &self.server) {
            (Verdict::Blocked, _) => self.request = Body::Collect(collected),
            (Verdict::Drop, server) => {
                if let Some(server) = server {
                    server.socket.write(&out);
                }
                self.request = Body::Drop;
            }
            (Verdict::Relay, Some(server)) => {
                server.socket.write(&out);
                server.socket.write(&collected.head.bytes());
                server.socket.write(&collected.bytes);
            }
            (Verdict::Replace, Some(server)) => {
                server.socket.write(&out);
                server.socket.write(beyond);
            }
            (Verdict::Relay | Verdict::Replace, None) => {}
        }
        self.shard.put_scratch(out);
        Ok(verdict != Verdict::Blocked)
    }

    /// The message goes on as it is.
    fn relay_message(&mut self, window: &mut Window, head: Head) {
        if head.carried == 0 {
            window.pass(head.consumed);
        } else {
            self.skip(window, head.consumed);
            if let Some(server) = &self.server {
                server.socket.write(&head.bytes());
            }
        }
        self.request = Body::Relay;
    }

    /// Nobody gets the message.
    fn drop_message(&mut self, window: &mut Window, head: Head) {
        self.skip(window, head.consumed);
        self.request = Body::Drop;
    }

    fn skip(&self, window: &mut Window, n: usize) {
        self.send_passed(window);
        window.skip(n);
    }

    fn send_passed(&self, window: &mut Window) {
        if window.has_passed()
            && let Some(server) = &self.server
        {
            window.forward(&server.socket);
        }
    }
}

/// How much of a message's body is looked at.
fn inspected_bytes(head: Head) -> usize {
    let limit = if head.tag == tag::PARSE {
        STATEMENT_BYTES
    } else {
        INSPECT_BYTES
    };
    (head.body_len as usize).min(limit)
}

/// `ReadyForQuery`, idle.
pub(super) const READY_IDLE: &[u8] = b"Z\0\0\0\x05I";
