//! The messages that are looked at: what each becomes on its way to the
//! server, and what the ledger must know of it.
//!
//! A message that does not parse goes on as it is: the server raises the
//! error, as it would without us.

use super::body::Verdict;
use super::prepare::is_surely_readable;
use super::{End, Session};
use crate::server::{Note, Slot, is_internal, timeout_hint};
use protocol::encode::EncodeError;
use protocol::frame::Head;
use protocol::frontend::{Close, Target};
use protocol::ledger::{Kind, Whose};
use protocol::tag::frontend_tag as tag;
use router::effects::{Effect, Effects, scan_effects};
use router::scan::Options;
use std::rc::Rc;
use std::task::Context;

impl Session {
    /// Decides on a message of which the beginning, `body`, is at hand.
    /// `out` takes what goes to the server before it, or instead of it.
    pub(super) fn message(
        &mut self,
        cx: &mut Context<'_>,
        head: Head,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Verdict, End> {
        // An error may have come while the message was being gathered.
        if self.is_skipping() {
            return Ok(Verdict::Drop);
        }
        if head.tag == tag::CLOSE
            && self.server.is_none()
            && let Ok(close) = Close::decode(body)
            && is_surely_readable(close.name)
        {
            return Ok(self.close_without_server(&close));
        }
        let kind = kind_of(head.tag, body);
        match self.need_server(cx, kind)? {
            Verdict::Relay => {}
            other => return Ok(other),
        }
        if self.must_wait_for_changes(kind, body) || self.must_wait_for_return() {
            return Ok(Verdict::Blocked);
        }
        let whole = head.body_len as usize == body.len();
        let verdict = match head.tag {
            tag::QUERY => self.query(body, whole, out),
            tag::PARSE => self.parse(body, whole, out),
            tag::BIND => self.bind(body, head, out),
            tag::DESCRIBE => self.describe(body, out),
            tag::CLOSE => Ok(self.close(body)),
            tag::EXECUTE => self.execute_returning(body, out),
            _ => Ok(self.function_call(body)),
        };
        // Nothing that we write is longer than what it is made of allows.
        verdict.map_err(|_| End::Torn(None))
    }

    fn query(
        &mut self,
        body: &[u8],
        whole: bool,
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        let effects = match body.split_last() {
            Some((0, text)) if whole && !text.contains(&0) => {
                scan_effects(text, Options::default())
            }
            // It may be a long EXECUTE.
            _ if !whole => {
                scan_effects(body, Options::default()).union(Effects::of(&[Effect::Unknown]))
            }
            _ => Effects::of(&[Effect::Unknown]),
        };
        if self.must_wait_to_name(effects) {
            return Ok(Verdict::Blocked);
        }
        if let Some(text) = body.strip_suffix(&[0])
            && let Some(known) = self.deallocated(effects, text)
        {
            return self.deallocate(known, out);
        }
        if self.must_wait_for_names(effects, body, out)? {
            return Ok(Verdict::Blocked);
        }
        if let Some(text) = body.strip_suffix(&[0])
            && whole
            && let Some(verdict) = self.query_returning(text, effects, out)?
        {
            return Ok(verdict);
        }
        let text = body.strip_suffix(&[0]);
        if self
            .server
            .as_ref()
            .is_some_and(|server| !server.suspect.is_clean())
            || !effects.is_clean()
        {
            self.foresee(text.unwrap_or_default(), effects);
        }
        self.suspect(effects);
        if !effects.is_clean() {
            self.note_changes(effects);
            self.note_custom(body, effects);
        }
        // A simple query destroys the unnamed statement (exec_simple_query).
        let note = self.displace_unnamed();
        if let Some(server) = &mut self.server {
            server.unnamed = Slot::Empty;
            server.ledger.push(Kind::Query, Whose::Client, note);
        }
        let hint = timeout_hint(body);
        if hint != 0 {
            self.note_hint(hint);
        }
        Ok(Verdict::Relay)
    }

    /// Notes what a text that is about to be sent may do.
    pub(super) fn suspect(&mut self, mut effects: Effects) {
        let Some(server) = &mut self.server else {
            return;
        };
        // It may be a temporary object that keeps the server.
        if server.pinned && effects.contains(Effect::Drop) {
            effects.insert(Effect::DiscardTemp);
        }
        if !effects.is_clean() {
            server.suspect = server.suspect.union(effects);
        }
    }

    fn close(&mut self, body: &[u8]) -> Verdict {
        let Ok(Close {
            kind: Target::Statement,
            name,
        }) = Close::decode(body)
        else {
            self.push(Kind::Close, Some(Note::Nothing));
            return Verdict::Relay;
        };
        if name.is_empty() {
            let note = self.displace_unnamed();
            if let Some(server) = &mut self.server {
                server.unnamed = Slot::Empty;
            }
            self.push(Kind::Close, note);
            return Verdict::Relay;
        }
        let known = self
            .statements
            .as_ref()
            .and_then(|statements| statements.get(name).cloned());
        match (known, &mut self.server) {
            (Some(known), Some(server)) if server.has_own(&known) => {
                self.push(Kind::Close, Some(Note::Unmakes(known)));
                Verdict::Relay
            }
            // The server's copy stays, for others who say the same.
            (Some(known), Some(server)) => {
                server.ledger.push(
                    Kind::Close,
                    Whose::Local,
                    Some(Note::Closes(Rc::clone(&known))),
                );
                self.changes = true;
                self.statements_mut().remove(&known);
                Verdict::Drop
            }
            // It may be a statement of SQL's PREPARE; otherwise the server
            // says that all is well, too.
            (None, Some(server))
                if !is_internal(name) || server.native.is_some() && server.prepared.is_empty() =>
            {
                if server.native.is_some() {
                    server.suspect.insert(Effect::Deallocate);
                }
                self.push(Kind::Close, Some(Note::Nothing));
                Verdict::Relay
            }
            (None, Some(server)) => {
                server
                    .ledger
                    .push(Kind::Close, Whose::Local, Some(Note::Nothing));
                Verdict::Drop
            }
            (_, None) => Verdict::Drop,
        }
    }

    /// Without a server there is no portal, and a statement is the client's
    /// own affair.
    fn close_without_server(&mut self, close: &Close<'_>) -> Verdict {
        let statement = close.kind == Target::Statement;
        if statement && close.name.is_empty() {
            self.displace_unnamed();
        } else if statement && let Some(known) = self.statements_mut().get(close.name).cloned() {
            self.statements_mut().remove(&known);
        }
        self.socket.write(CLOSE_COMPLETE);
        Verdict::Drop
    }

    /// What a name means may depend on a message of an earlier batch that has
    /// not been answered: within a batch a failure is followed by skipping, so
    /// the client's view may run ahead; beyond it nobody knows. The server is
    /// asked to answer what it can.
    fn must_wait_for_changes(&mut self, kind: Kind, body: &[u8]) -> bool {
        let Some(server) = &self.server else {
            return false;
        };
        if server.ledger.is_empty() {
            (self.barrier, self.changes) = (false, false);
        }
        if !self.barrier || server.ledger.is_copy_in() || !names_statement(kind, body) {
            return false;
        }
        self.wants_flush = true;
        true
    }

    /// The same for a name in a text.
    pub(super) fn must_wait_to_name(&mut self, effects: Effects) -> bool {
        let server = self.server.as_ref();
        let waits = self.barrier
            && effects.intersects(Effects::NAMING)
            && server
                .is_some_and(|server| !server.ledger.is_empty() && !server.ledger.is_copy_in());
        self.wants_flush |= waits;
        waits
    }

    /// A text that changes prepared statements by SQL.
    pub(super) fn note_changes(&mut self, effects: Effects) {
        self.barrier |= effects.intersects(CHANGES);
    }

    fn function_call(&mut self, body: &[u8]) -> Verdict {
        let oid = body
            .first_chunk()
            .map_or(0, |bytes| u32::from_be_bytes(*bytes));
        if !LARGE_OBJECT_FUNCTIONS.contains(&oid) {
            self.suspect(Effects::of(&[Effect::SessionFunction]));
        }
        self.push(Kind::FunctionCall, None);
        Verdict::Relay
    }

    /// Notes that the client's message goes to the server.
    pub(super) fn push(&mut self, kind: Kind, note: Option<Note>) {
        if let Some(server) = &mut self.server {
            server.ledger.push(kind, Whose::Client, note);
        }
    }
}

/// Whether a message is about a statement whose copy on the server matters.
fn names_statement(kind: Kind, body: &[u8]) -> bool {
    match kind {
        Kind::Parse => body.first().is_some_and(|&byte| byte != 0),
        // The unnamed statement too: it may have to be made on the server.
        Kind::Bind | Kind::DescribeStatement => true,
        Kind::Close => matches!(body, [b'S', name, ..] if *name != 0),
        _ => false,
    }
}

fn kind_of(tag_byte: u8, body: &[u8]) -> Kind {
    match (tag_byte, body.first()) {
        (tag::QUERY, _) => Kind::Query,
        (tag::PARSE, _) => Kind::Parse,
        (tag::BIND, _) => Kind::Bind,
        (tag::DESCRIBE, Some(b'S')) => Kind::DescribeStatement,
        (tag::DESCRIBE, _) => Kind::DescribePortal,
        (tag::CLOSE, _) => Kind::Close,
        (tag::EXECUTE, _) => Kind::Execute,
        _ => Kind::FunctionCall,
    }
}

/// SQL that changes which prepared statements there are.
const CHANGES: Effects = Effects::of(&[
    Effect::Deallocate,
    Effect::DeallocateAll,
    Effect::DiscardAll,
    Effect::Unknown,
]);
/// `Flush`.
pub(super) const FLUSH: &[u8] = b"H\0\0\0\x04";
/// `CloseComplete`.
pub(super) const CLOSE_COMPLETE: &[u8] = b"3\0\0\0\x04";
/// Functions of large objects (catalog/pg_proc.dat), which is what FunctionCall
/// is used for: lo_open, lo_close, loread, lowrite, lo_lseek, lo_creat,
/// lo_tell, lo_unlink, lo_create, lo_truncate, and the 64-bit ones.
const LARGE_OBJECT_FUNCTIONS: [u32; 13] = [
    952, 953, 954, 955, 956, 957, 958, 964, 715, 1004, 3170, 3171, 3172,
];
