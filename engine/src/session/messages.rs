//! The messages that are looked at: what each becomes on its way to the
//! server, and what the ledger must know of it.
//!
//! A message that does not parse goes on as it is: the server raises the
//! error, as it would without us.

use super::body::Verdict;
use super::refuse::error;
use super::{End, Session};
use crate::server::{
    Definition, Note, Slot, Statement, UnnamedStatement, internal_name, is_internal,
};
use protocol::encode::EncodeError;
use protocol::error::SqlState;
use protocol::frame::Head;
use protocol::frontend::{Bind, BindHead, Close, Describe, Parse, ParseHead, Target};
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
        if head.tag == tag::CLOSE
            && self.server.is_none()
            && let Ok(close) = Close::decode(body)
        {
            return Ok(self.close_without_server(&close));
        }
        let kind = kind_of(head.tag, body);
        match self.need_server(cx, kind)? {
            Verdict::Relay => {}
            other => return Ok(other),
        }
        if self.must_wait_for_changes(kind, body) {
            return Ok(Verdict::Blocked);
        }
        let whole = head.body_len as usize == body.len();
        let verdict = match head.tag {
            tag::QUERY => self.query(body, whole, out),
            tag::PARSE => self.parse(body, whole, out),
            tag::BIND => self.bind(body, head, out),
            tag::DESCRIBE => self.describe(body, out),
            tag::CLOSE => Ok(self.close(body)),
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
            _ => Effects::of(&[Effect::Unknown]),
        };
        if let Some(text) = body.strip_suffix(&[0])
            && let Some(known) = self.deallocated(effects, text)
        {
            return self.deallocate(known, out);
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
        Ok(Verdict::Relay)
    }

    /// Notes what a text that is about to be sent may do.
    fn suspect(&mut self, effects: Effects) {
        if let Some(server) = &mut self.server
            && !effects.is_clean()
        {
            server.suspect = server.suspect.union(effects);
        }
    }

    fn parse(
        &mut self,
        body: &[u8],
        whole: bool,
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        let Ok(ParseHead { name, rest }) = Parse::split(body) else {
            self.push(Kind::Parse, None);
            return Ok(Verdict::Relay);
        };
        match (name.is_empty(), whole) {
            (true, _) => {
                let effects = effects_of(rest, whole);
                if !effects.is_clean() {
                    self.note_changes(effects);
                    self.note_custom(text_of(rest), effects);
                    if let Some(known) = self.deallocated(effects, text_of(rest)) {
                        return self.parse_deallocate(known, out);
                    }
                }
                Ok(self.parse_unnamed(rest, whole, effects))
            }
            (false, true) => self.parse_named(name, rest, out),
            (false, false) => self.fail(
                Kind::Parse,
                SqlState::OUT_OF_MEMORY,
                TOO_MANY_STATEMENTS,
                out,
            ),
        }
    }

    pub(super) fn parse_unnamed(&mut self, rest: &[u8], whole: bool, effects: Effects) -> Verdict {
        self.suspect(effects);
        let id = self.shard.fresh_id();
        let certain = self
            .server
            .as_ref()
            .is_none_or(|server| server.ledger.is_idle());
        let kept = if whole { rest } else { &[] };
        let statements = self.statements_mut();
        let note = match &mut statements.unnamed {
            // The usual case reuses the buffer of the statement before.
            Some(known) if certain => {
                known.rest.clear();
                known.rest.extend_from_slice(kept);
                (known.id, known.kept, known.effects) = (id, whole, effects);
                None
            }
            slot => {
                let fresh = UnnamedStatement {
                    id,
                    rest: kept.to_vec(),
                    kept: whole,
                    effects,
                };
                let before = slot.replace(fresh);
                before.map(|before| {
                    Note::Unnamed(Box::new(crate::server::Unnamed {
                        before: Some(before),
                    }))
                })
            }
        };
        if let Some(server) = &mut self.server {
            server.unnamed = Slot::Of(id);
        }
        self.push(Kind::Parse, note);
        Verdict::Relay
    }

    fn parse_named(
        &mut self,
        name: &[u8],
        rest: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        if let Some(known) = self.statements_mut().get(name).cloned() {
            return self.parse_again(known, out);
        }
        if !self.statements_mut().has_room(name.len() + rest.len()) {
            return self.fail(
                Kind::Parse,
                SqlState::OUT_OF_MEMORY,
                TOO_MANY_STATEMENTS,
                out,
            );
        }
        let definition = self.define(rest);
        self.suspect(definition.effects);
        if !definition.effects.is_clean() {
            self.note_custom(text_of(rest), definition.effects);
        }
        self.changes = true;
        let statement = Rc::new(Statement {
            name: name.into(),
            definition,
        });
        self.make_room(out)?;
        let Some(server) = &mut self.server else {
            return Ok(Verdict::Drop);
        };
        // Always parsed afresh, even where the server has a copy: it may be
        // older than a change of the tables, and then the client would get an
        // error, or columns, that it would not get directly.
        if let Some(number) = server.prepared.forget(statement.definition.id, None) {
            Close {
                kind: Target::Statement,
                name: internal_name(number).as_bytes(),
            }
            .encode(out)?;
            let note = Note::Drops {
                definition: Rc::clone(&statement.definition),
                number,
            };
            server.ledger.push(Kind::Close, Whose::Ours, Some(note));
        }
        let number = server.prepared.make(&statement.definition);
        ParseHead {
            name: internal_name(number).as_bytes(),
            rest,
        }
        .encode(out)?;
        server.ledger.push(
            Kind::Parse,
            Whose::Client,
            Some(Note::Defines(Rc::clone(&statement))),
        );
        self.statements_mut().insert(statement);
        Ok(Verdict::Replace)
    }

    /// The name is taken. The server says so itself when it is asked to parse
    /// under the name of its copy.
    fn parse_again(
        &mut self,
        known: Rc<Statement>,
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        let number = self.ensure_prepared(&known.definition, out)?;
        let rest = &known.definition.rest;
        ParseHead {
            name: internal_name(number).as_bytes(),
            rest,
        }
        .encode(out)?;
        self.push(Kind::Parse, Some(Note::Uses(Rc::clone(&known))));
        Ok(Verdict::Replace)
    }

    /// The definition shared by all who say the same under the settings that
    /// change what a text means.
    fn define(&self, rest: &[u8]) -> Rc<Definition> {
        let mut key = Vec::with_capacity(rest.len() + 16);
        for name in MEANING {
            key.extend_from_slice(self.label.get(name).unwrap_or_default());
            key.push(0);
        }
        key.extend_from_slice(rest);
        self.shard.definition(&key, rest, || effects_of(rest, true))
    }

    /// Closes the copy that was not used for the longest time when the server
    /// has as many as it may.
    fn make_room(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let limit = self.pool.group().pool.max_prepared_statements as usize;
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        while let Some((definition, number)) = server.prepared.evict(limit) {
            Close {
                kind: Target::Statement,
                name: internal_name(number).as_bytes(),
            }
            .encode(out)?;
            server.ledger.push(
                Kind::Close,
                Whose::Ours,
                Some(Note::Drops { definition, number }),
            );
        }
        Ok(())
    }

    /// The number of the server's copy, which is made if there is none.
    fn ensure_prepared(
        &mut self,
        definition: &Rc<Definition>,
        out: &mut Vec<u8>,
    ) -> Result<u64, EncodeError> {
        let known = self
            .server
            .as_mut()
            .and_then(|server| server.prepared.copy_of(definition));
        if let Some(number) = known {
            return Ok(number);
        }
        self.make_room(out)?;
        let Some(server) = &mut self.server else {
            return Ok(0);
        };
        let number = server.prepared.make(definition);
        ParseHead {
            name: internal_name(number).as_bytes(),
            rest: &definition.rest,
        }
        .encode(out)?;
        server.ledger.push(
            Kind::Parse,
            Whose::Behalf,
            Some(Note::Prepares(Rc::clone(definition))),
        );
        Ok(number)
    }

    fn bind(&mut self, body: &[u8], head: Head, out: &mut Vec<u8>) -> Result<Verdict, EncodeError> {
        let Ok(BindHead {
            portal,
            statement: name,
            rest,
        }) = Bind::split(body)
        else {
            self.push(Kind::Bind, None);
            return Ok(Verdict::Relay);
        };
        if name.is_empty() {
            let unnamed = self
                .statements
                .as_ref()
                .and_then(|statements| statements.unnamed.as_ref());
            if let Some(effects) = unnamed.map(|unnamed| unnamed.effects)
                && !effects.is_clean()
            {
                self.note_custom_parameters(body, effects);
            }
            self.ensure_unnamed(out)?;
            self.push(Kind::Bind, None);
            return Ok(Verdict::Relay);
        }
        let known = self
            .statements
            .as_ref()
            .and_then(|statements| statements.get(name).cloned());
        let Some(known) = known else {
            return self.unknown_statement(Kind::Bind, name, out);
        };
        let number = self.ensure_prepared(&known.definition, out)?;
        self.suspect(known.definition.effects);
        if !known.definition.effects.is_clean() {
            self.note_changes(known.definition.effects);
            self.note_custom_parameters(body, known.definition.effects);
        }
        let internal = internal_name(number);
        // Only the header and the names are written anew; a body that is
        // still coming follows as it comes.
        let length = head.body_len as usize + internal.len() - name.len() + 4;
        let Ok(length) = u32::try_from(length) else {
            return Err(EncodeError::TooLong);
        };
        out.push(tag::BIND);
        out.extend_from_slice(&length.to_be_bytes());
        for part in [portal, internal.as_bytes()] {
            out.extend_from_slice(part);
            out.push(0);
        }
        out.extend_from_slice(rest);
        self.push(Kind::Bind, Some(Note::Uses(known)));
        Ok(Verdict::Replace)
    }

    fn describe(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<Verdict, EncodeError> {
        let Ok(Describe {
            kind: Target::Statement,
            name,
        }) = Describe::decode(body)
        else {
            self.push(Kind::DescribePortal, None);
            return Ok(Verdict::Relay);
        };
        if name.is_empty() {
            self.ensure_unnamed(out)?;
            self.push(Kind::DescribeStatement, None);
            return Ok(Verdict::Relay);
        }
        let known = self
            .statements
            .as_ref()
            .and_then(|statements| statements.get(name).cloned());
        let Some(known) = known else {
            return self.unknown_statement(Kind::DescribeStatement, name, out);
        };
        let number = self.ensure_prepared(&known.definition, out)?;
        Describe {
            kind: Target::Statement,
            name: internal_name(number).as_bytes(),
        }
        .encode(out)?;
        self.push(Kind::DescribeStatement, Some(Note::Uses(known)));
        Ok(Verdict::Replace)
    }

    /// Puts the client's unnamed statement into the server's unnamed slot; or
    /// makes sure that nobody else's is there.
    fn ensure_unnamed(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let unnamed = self
            .statements
            .as_ref()
            .and_then(|statements| statements.unnamed.as_ref());
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        match unnamed {
            Some(unnamed) if server.unnamed == Slot::Of(unnamed.id) => {}
            Some(unnamed) if unnamed.kept => {
                ParseHead {
                    name: b"",
                    rest: &unnamed.rest,
                }
                .encode(out)?;
                server.ledger.push(Kind::Parse, Whose::Behalf, None);
                server.unnamed = Slot::Of(unnamed.id);
                if !unnamed.effects.is_clean() {
                    server.suspect = server.suspect.union(unnamed.effects);
                }
            }
            _ if server.unnamed == Slot::Empty => {}
            _ => {
                Close {
                    kind: Target::Statement,
                    name: b"",
                }
                .encode(out)?;
                server.ledger.push(Kind::Close, Whose::Ours, None);
                server.unnamed = Slot::Empty;
            }
        }
        Ok(())
    }

    /// A name that this client has not given to a statement by the protocol.
    /// It may be one that it gave by SQL (`PREPARE`), which the server knows.
    fn unknown_statement(
        &mut self,
        kind: Kind,
        name: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        if is_internal(name) {
            let text = format!(
                "prepared statement \"{}\" does not exist",
                String::from_utf8_lossy(name)
            );
            return self.fail(kind, SqlState::INVALID_SQL_STATEMENT_NAME, &text, out);
        }
        self.push(kind, None);
        Ok(Verdict::Relay)
    }

    /// Fails a message of a batch: the server is sent one that must fail, so
    /// that the error comes in its turn and ends what it must end, and its
    /// words are replaced by ours.
    fn fail(
        &mut self,
        kind: Kind,
        code: SqlState,
        text: &str,
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        Describe {
            kind: Target::Statement,
            name: internal_name(0).as_bytes(),
        }
        .encode(out)?;
        self.push(kind, Some(Note::Fails(error(code, text).into())));
        self.request = super::body::Body::Drop;
        Ok(Verdict::Drop)
    }

    fn close(&mut self, body: &[u8]) -> Verdict {
        let Ok(Close {
            kind: Target::Statement,
            name,
        }) = Close::decode(body)
        else {
            self.push(Kind::Close, None);
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
            (None, Some(_)) if !is_internal(name) => {
                self.push(Kind::Close, None);
                Verdict::Relay
            }
            (None, Some(server)) => {
                server.ledger.push(Kind::Close, Whose::Local, None);
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
        server.socket.write(FLUSH);
        true
    }

    /// A text that changes prepared statements by SQL.
    fn note_changes(&mut self, effects: Effects) {
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
    fn push(&mut self, kind: Kind, note: Option<Note>) {
        if let Some(server) = &mut self.server {
            server.ledger.push(kind, Whose::Client, note);
        }
    }
}

/// Whether a message is about a named statement.
fn names_statement(kind: Kind, body: &[u8]) -> bool {
    match kind {
        Kind::Parse => body.first().is_some_and(|&byte| byte != 0),
        Kind::Bind => {
            let mut names = body.split(|&byte| byte == 0);
            names.nth(1).is_some_and(|name| !name.is_empty())
        }
        Kind::DescribeStatement => body.get(1).is_some_and(|&byte| byte != 0),
        Kind::Close => matches!(body, [b'S', name, ..] if *name != 0),
        _ => false,
    }
}

/// The text in what follows the name in a `Parse`.
fn text_of(rest: &[u8]) -> &[u8] {
    rest.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn effects_of(rest: &[u8], whole: bool) -> Effects {
    match rest.iter().position(|&byte| byte == 0) {
        Some(end) if whole => scan_effects(&rest[..end], Options::default()),
        _ => Effects::of(&[Effect::Unknown]),
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
const FLUSH: &[u8] = b"H\0\0\0\x04";
/// The settings that change what a text means.
const MEANING: [&[u8]; 3] = [b"search_path", b"role", b"session_authorization"];
const TOO_MANY_STATEMENTS: &str =
    "the prepared statements of this session are larger than pgmux keeps (4 MiB)";
/// `CloseComplete`.
pub(super) const CLOSE_COMPLETE: &[u8] = b"3\0\0\0\x04";
/// Functions of large objects (catalog/pg_proc.dat), which is what FunctionCall
/// is used for: lo_open, lo_close, loread, lowrite, lo_lseek, lo_creat,
/// lo_tell, lo_unlink, lo_create, lo_truncate, and the 64-bit ones.
const LARGE_OBJECT_FUNCTIONS: [u32; 13] = [
    952, 953, 954, 955, 956, 957, 958, 964, 715, 1004, 3170, 3171, 3172,
];
