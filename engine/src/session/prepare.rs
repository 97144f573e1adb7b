//! The messages about prepared statements: Parse, Bind, Describe. Their
//! headers are written anew, with the name of the server's copy; a copy that
//! the server lacks is made first.

use super::Session;
use super::body::Verdict;
use super::refuse::error;
use crate::server::{
    Definition, Note, Slot, Statement, UnnamedStatement, internal_name, is_internal, timeout_hint,
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

impl Session {
    pub(super) fn parse(
        &mut self,
        body: &[u8],
        whole: bool,
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        let Ok(ParseHead { name, rest }) = Parse::split(body) else {
            self.push(Kind::Parse, None);
            return Ok(Verdict::Relay);
        };
        if self.shard.memory.is_tight() && (!name.is_empty() || rest.len() > SMALL_TEXT) {
            let text = "pgmux is short of memory and keeps no more prepared statements for now";
            return self.fail(Kind::Parse, SqlState::OUT_OF_MEMORY, text, out);
        }
        match (name.is_empty(), whole) {
            (true, _) => {
                let effects = effects_of(rest, whole);
                if self.must_wait_to_name(effects)
                    || self.must_wait_for_names(effects, text_of(rest), out)?
                {
                    return Ok(Verdict::Blocked);
                }
                if !effects.is_clean() {
                    self.note_changes(effects);
                    self.note_custom(text_of(rest), effects);
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
        let slot = self.unnamed_slot();
        let statements = self.statements_mut();
        let before = match &mut statements.unnamed {
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
                slot.replace(fresh)
            }
        };
        let note = Some(statements.unnamed_changed(before, slot));
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
        let native = self.is_native();
        let known = self.statements_mut().get(name).cloned();
        if let Some(known) = known.filter(|_| !native) {
            return self.parse_again(known, name, rest, out);
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
        if self.must_wait_to_name(definition.effects)
            || self.must_wait_for_names(definition.effects, text_of(rest), out)?
        {
            return Ok(Verdict::Blocked);
        }
        self.suspect(definition.effects);
        if !definition.effects.is_clean() {
            self.note_custom(text_of(rest), definition.effects);
        }
        let statement = Rc::new(Statement {
            name: name.into(),
            definition,
            made: self.shard.fresh_id(),
        });
        if self.is_native() {
            return self.parse_natively(statement, out);
        }
        self.changes = true;
        self.have_name_read(name, out)?;
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
    /// under the name of its copy; it looks at the text first
    /// (`exec_parse_message`), so a text that is wrong is told as such.
    fn parse_again(
        &mut self,
        known: Rc<Statement>,
        name: &[u8],
        rest: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        self.have_name_read(name, out)?;
        let number = self.ensure_prepared(&known.definition, out)?;
        ParseHead {
            name: internal_name(number).as_bytes(),
            rest,
        }
        .encode(out)?;
        self.push(Kind::Parse, Some(Note::Uses(called(known, name))));
        Ok(Verdict::Replace)
    }

    /// PostgreSQL refuses a name that is wrong in the client's encoding, which
    /// nobody sees of a copy under a name of ours. Whether it is wrong only the
    /// server knows, so it is shown one that may be: to close what it does not
    /// have changes nothing.
    fn have_name_read(&mut self, name: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if let Some(server) = &mut self.server
            && !is_surely_readable(name)
        {
            let kind = Target::Statement;
            Close { kind, name }.encode(out)?;
            server.ledger.push(Kind::Close, Whose::Behalf, None);
        }
        Ok(())
    }

    /// The definition shared by all who say the same under the settings that
    /// change what a text means.
    fn define(&self, rest: &[u8]) -> Rc<Definition> {
        let mut key = Vec::with_capacity(rest.len() + 16);
        for name in MEANING {
            key.extend_from_slice(self.label.get(name).unwrap_or_default());
            key.push(0);
        }
        let rest_at = key.len();
        key.extend_from_slice(rest);
        self.shard
            .definition(&key, rest_at, || effects_of(rest, true))
    }

    /// Closes the copy that was not used for the longest time when the server
    /// has as many as it may.
    fn make_room(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let limit = self.pool.statements_max();
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
        // If an earlier message of the batch fails, the copy is never made:
        // the next batch must know before it uses it.
        self.changes = true;
        let Some(server) = &mut self.server else {
            return Ok(0);
        };
        let number = server.prepared.make(definition);
        ParseHead {
            name: internal_name(number).as_bytes(),
            rest: definition.rest(),
        }
        .encode(out)?;
        server.ledger.push(
            Kind::Parse,
            Whose::Behalf,
            Some(Note::Prepares(Rc::clone(definition))),
        );
        Ok(number)
    }

    pub(super) fn bind(
        &mut self,
        body: &[u8],
        head: Head,
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
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
            let effects = unnamed.map_or(Effects::NONE, |unnamed| unnamed.effects);
            self.batch = self.batch.union(effects);
            if !effects.is_clean() {
                self.note_custom_parameters(body, effects);
            }
            if self.must_wait_for_unnamed(out)? {
                return Ok(Verdict::Blocked);
            }
            self.note_temp_schema(body, effects);
            if self.may_return(effects) {
                let rest = self.statements_mut().unnamed.as_ref();
                let rest = rest.map_or_else(Vec::new, |unnamed| unnamed.rest.clone());
                self.bind_returning(portal, text_of(&rest), effects);
            }
            self.ensure_unnamed(out)?;
            self.push(Kind::Bind, None);
            let unnamed = self.statements.as_ref();
            let unnamed = unnamed.and_then(|statements| statements.unnamed.as_ref());
            let hint = unnamed.map_or(0, |unnamed| timeout_hint(text_of(&unnamed.rest)));
            self.note_bound_hint(hint);
            return Ok(Verdict::Relay);
        }
        let known = self
            .statements
            .as_ref()
            .and_then(|statements| statements.get(name).cloned());
        let Some(known) = known else {
            return self.unknown_statement(Kind::Bind, name, out);
        };
        if self.must_wait_for_named(&known, out)? {
            return Ok(Verdict::Blocked);
        }
        if self.may_return(known.definition.effects) {
            let text = text_of(known.definition.rest());
            self.bind_returning(portal, text, known.definition.effects);
        }
        self.batch = self.batch.union(known.definition.effects);
        self.suspect(known.definition.effects);
        self.note_temp_schema(body, known.definition.effects);
        if !known.definition.effects.is_clean() {
            self.note_changes(known.definition.effects);
            self.note_custom_parameters(body, known.definition.effects);
        }
        if self.is_native() {
            let verdict = self.use_natively(Kind::Bind, name, out);
            self.note_bound_hint(known.definition.hint);
            return verdict;
        }
        let internal = internal_name(self.ensure_prepared(&known.definition, out)?);
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
        let hint = known.definition.hint;
        self.push(Kind::Bind, Some(Note::Uses(called(known, name))));
        self.note_bound_hint(hint);
        Ok(Verdict::Replace)
    }

    pub(super) fn describe(
        &mut self,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        let Ok(Describe {
            kind: Target::Statement,
            name,
        }) = Describe::decode(body)
        else {
            self.push(Kind::DescribePortal, None);
            return Ok(Verdict::Relay);
        };
        if name.is_empty() {
            if self.must_wait_for_unnamed(out)? {
                return Ok(Verdict::Blocked);
            }
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
        if self.must_wait_for_named(&known, out)? {
            return Ok(Verdict::Blocked);
        }
        if self.is_native() {
            return self.use_natively(Kind::DescribeStatement, name, out);
        }
        let number = self.ensure_prepared(&known.definition, out)?;
        Describe {
            kind: Target::Statement,
            name: internal_name(number).as_bytes(),
        }
        .encode(out)?;
        self.push(
            Kind::DescribeStatement,
            Some(Note::Uses(called(known, name))),
        );
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
                // As for a named copy; what the server has otherwise may be
                // another client's.
                self.changes = true;
                server.unnamed = Slot::Of(unnamed.id);
                let effects = unnamed.effects;
                self.suspect(effects);
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
        if self.is_native() {
            return self.use_natively(kind, name, out);
        }
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
}

/// A statement by the name that a message has for it, which an error repeats:
/// names that are the same to PostgreSQL may differ behind 63 bytes.
fn called(known: Rc<Statement>, name: &[u8]) -> Rc<Statement> {
    if *known.name == *name {
        return known;
    }
    Rc::new(Statement {
        name: name.into(),
        definition: Rc::clone(&known.definition),
        made: known.made,
    })
}

/// Whether a name is right in every encoding that a client may have. All of
/// them have ASCII in them, and disagree about the rest.
pub(super) fn is_surely_readable(name: &[u8]) -> bool {
    name.is_ascii()
}

/// The text in what follows the name in a `Parse`.
pub(super) fn text_of(rest: &[u8]) -> &[u8] {
    rest.split(|&byte| byte == 0).next().unwrap_or_default()
}

pub(super) fn effects_of(rest: &[u8], whole: bool) -> Effects {
    match rest.iter().position(|&byte| byte == 0) {
        Some(end) if whole => scan_effects(&rest[..end], Options::default()),
        _ => Effects::of(&[Effect::Unknown]),
    }
}

/// The unnamed statement may be as long as this when memory is short.
const SMALL_TEXT: usize = 16 * 1024;
const TOO_MANY_STATEMENTS: &str =
    "the prepared statements of this session are larger than pgmux keeps (4 MiB)";
/// The settings that change what a text means.
const MEANING: [&[u8]; 3] = [b"search_path", b"role", b"session_authorization"];
