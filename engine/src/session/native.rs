//! Names of prepared statements that SQL and the protocol share.
//!
//! The client's statements follow it under names of ours, which SQL does not
//! know. So when a text names statements, the server is made
//! [native](crate::server::Native): it is given those of the client's
//! statements that the text may mean, under their own names, and from then on
//! the messages of the protocol keep their names too. SQL finds what the
//! protocol made and the other way round, because PostgreSQL itself does.
//!
//! A statement may not be parsed any more, where a direct server would still
//! have its name. Nothing that the client asked for may fail by that: each is
//! parsed in a batch of its own, in an open transaction behind a savepoint,
//! and what is wrong is said when the client uses it. Only in the middle of a
//! batch, which no `Sync` of ours may end, does the error come at once.

use super::Session;
use super::body::Verdict;
use super::clock::News;
use super::prepare::text_of;
use crate::server::{Note, Server, Statement, fresh_number, internal_name, is_internal};
use protocol::backend::TransactionStatus;
use protocol::encode::EncodeError;
use protocol::frontend::{Bind, Close, Execute, Parse, ParseHead, Sync, Target};
use protocol::ledger::{Entry, Kind, Whose};
use protocol::list::List;
use router::effects::{Effect, Effects};
use router::scan::Options;
use router::statement::identifiers;
use std::collections::BTreeMap;
use std::rc::Rc;

impl Session {
    pub(super) fn is_native(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.native.is_some())
    }

    /// Makes sure that a text with these effects finds the names that it may
    /// use. True when it must wait: what earlier messages did to the names has
    /// to be known first.
    #[inline]
    pub(super) fn must_wait_for_names(
        &mut self,
        effects: Effects,
        text: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, EncodeError> {
        if !effects.intersects(Effects::NAMING) {
            return Ok(false);
        }
        self.provide_names(effects, text, out)
    }

    #[cold]
    fn provide_names(
        &mut self,
        effects: Effects,
        text: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, EncodeError> {
        // A Close that we answer is owed no more; nothing would wake us for it.
        self.answer_now();
        let named = self.named_by(effects, text);
        let Some(server) = &mut self.server else {
            return Ok(false);
        };
        // It would be an error there.
        if server.ledger.is_copy_in() {
            return Ok(false);
        }
        let hides = sees_all(effects) || text.windows(OURS.len()).any(|window| window == OURS);
        let hides = hides && !server.prepared.is_empty();
        let mut wanted = named.clone();
        wanted.retain(|statement| !server.has_own(statement));
        if (hides || !wanted.is_empty()) && server.ledger.owes_client() {
            self.wants_flush = true;
            return Ok(true);
        }
        let amid_batch = server.ledger.has_open_batch();
        server.go_native();
        for statement in &named {
            server.suspect = server.suspect.union(statement.definition.effects);
        }
        if hides || wanted.iter().any(|statement| is_internal(&statement.name)) {
            server.hide_copies(out)?;
        }
        match server.status {
            _ if wanted.is_empty() => {}
            // One that was refused before would end the batch for nothing.
            _ if amid_batch => {
                wanted.retain(|statement| !server.go_native().has_refused(statement));
                for statement in &wanted {
                    supply(server, statement, Whose::Behalf, out)?;
                }
            }
            TransactionStatus::Idle => {
                for statement in &wanted {
                    supply(server, statement, Whose::Ours, out)?;
                    sync(server, out)?;
                }
            }
            TransactionStatus::InTransaction => supply_in_transaction(server, &wanted, out)?,
            // Nothing can be parsed; nor will the text be carried out.
            TransactionStatus::Failed => {}
        }
        Ok(false)
    }

    /// The client's statements that a text may mean, and those that they in
    /// turn may mean (`EXECUTE` can be prepared too), oldest first.
    fn named_by(&self, effects: Effects, text: &[u8]) -> Vec<Rc<Statement>> {
        let Some(statements) = &self.statements else {
            return Vec::new();
        };
        let mut named = BTreeMap::new();
        let mut texts = vec![(effects, text)];
        while let Some((effects, text)) = texts.pop() {
            if sees_all(effects) {
                named.extend(statements.all().map(|known| (known.made, known)));
                break;
            }
            for name in identifiers(text, Options::default()) {
                if let Some(known) = statements.get(&name.folded())
                    && named.insert(known.made, known).is_none()
                    && known.definition.effects.intersects(Effects::NAMING)
                {
                    texts.push((known.definition.effects, text_of(known.definition.rest())));
                }
            }
        }
        named.into_values().cloned().collect()
    }

    /// The same for a use of the unnamed statement, which may be about names.
    pub(super) fn must_wait_for_unnamed(&mut self, out: &mut Vec<u8>) -> Result<bool, EncodeError> {
        let unnamed = self
            .statements
            .as_ref()
            .and_then(|statements| statements.unnamed.as_ref());
        let Some(unnamed) = unnamed.filter(|unnamed| unnamed.effects.intersects(Effects::NAMING))
        else {
            return Ok(false);
        };
        let (effects, text) = (unnamed.effects, text_of(&unnamed.rest).to_vec());
        self.must_wait_for_names(effects, &text, out)
    }

    /// The same for a use of a named one.
    pub(super) fn must_wait_for_named(
        &mut self,
        known: &Rc<Statement>,
        out: &mut Vec<u8>,
    ) -> Result<bool, EncodeError> {
        let definition = &known.definition;
        self.must_wait_for_names(definition.effects, text_of(definition.rest()), out)
    }

    /// The client's `Parse` of a named statement.
    pub(super) fn parse_natively(
        &mut self,
        statement: Rc<Statement>,
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        let known = self.known(&statement.name);
        let Some(server) = &mut self.server else {
            return Ok(Verdict::Drop);
        };
        // It may yet be another error, of what the text says; then that.
        if let Some(known) = known.filter(|known| !server.has_own(known)) {
            supply(server, &known, Whose::Behalf, out)?;
        }
        if is_internal(&statement.name) {
            server.hide_copies(out)?;
        }
        self.push(Kind::Parse, Some(Note::Makes(statement)));
        Ok(Verdict::Relay)
    }

    /// A `Bind` or `Describe` of a named statement.
    pub(super) fn use_natively(
        &mut self,
        kind: Kind,
        name: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        let known = self.known(name);
        let Some(server) = &mut self.server else {
            return Ok(Verdict::Drop);
        };
        match known {
            Some(known) if server.has_own(&known) => {}
            Some(known) => supply(server, &known, Whose::Behalf, out)?,
            None if is_internal(name) && !server.prepared.is_empty() => server.hide_copies(out)?,
            // It may be one of SQL's, which may do anything that EXECUTE may.
            None => server.suspect.insert(Effect::Execute),
        }
        self.push(kind, None);
        Ok(Verdict::Relay)
    }

    fn known(&self, name: &[u8]) -> Option<Rc<Statement>> {
        self.statements.as_ref()?.get(name).cloned()
    }

    /// A message has been carried out, of which the client's view of its
    /// statements waited to hear. To whom its answer goes.
    pub(super) fn confirmed(&mut self, server: &mut Server, entry: Entry<Note>) -> Whose {
        if entry.kind == Kind::Execute {
            self.news.note(News::ANSWERED);
        }
        match entry.note {
            Some(Note::Makes(statement)) => {
                if let Some(native) = &mut server.native {
                    native.insert(&statement);
                }
                self.statements_mut().insert(statement);
            }
            Some(Note::Unmakes(statement)) => {
                if let Some(native) = &mut server.native {
                    native.remove(&statement);
                }
                self.statements_mut().remove(&statement);
            }
            _ => {}
        }
        entry.whose
    }
}

/// Whether every name matters to a text: it lists them, or cannot be read.
fn sees_all(effects: Effects) -> bool {
    effects.intersects(Effects::of(&[
        Effect::PreparedNames,
        Effect::Unknown,
        Effect::Unterminated,
    ]))
}

/// Gives the server one of the client's statements.
fn supply(
    server: &mut Server,
    statement: &Rc<Statement>,
    whose: Whose,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if is_internal(&statement.name) {
        server.hide_copies(out)?;
    }
    ParseHead {
        name: &statement.name,
        rest: statement.definition.rest(),
    }
    .encode(out)?;
    let note = Note::Supplies(Rc::clone(statement));
    server.ledger.push(Kind::Parse, whose, Some(note));
    server.go_native().insert(statement);
    Ok(())
}

fn sync(server: &mut Server, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    Sync.encode(out)?;
    server.ledger.push(Kind::Sync, Whose::Ours, None);
    Ok(())
}

/// The same inside a transaction, which an error must not end. To roll back to
/// a savepoint takes no prepared statement away. Not by simple queries, which
/// would destroy the client's unnamed portal.
fn supply_in_transaction(
    server: &mut Server,
    wanted: &[Rc<Statement>],
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let point = internal_name(fresh_number());
    let [set, back, release] = ["SAVEPOINT", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT"]
        .map(|command| (format!("{command} \"{point}\""), fresh_number()))
        .map(|(text, number)| (text, internal_name(number)));
    for (text, name) in [&set, &back, &release] {
        Parse {
            name: name.as_bytes(),
            query: text.as_bytes(),
            param_types: List::empty(),
        }
        .encode(out)?;
        server.ledger.push(Kind::Parse, Whose::Ours, None);
    }
    for statement in wanted {
        run(server, &set.1, out)?;
        supply(server, statement, Whose::Ours, out)?;
        sync(server, out)?;
        run(server, &back.1, out)?;
        run(server, &release.1, out)?;
        sync(server, out)?;
    }
    for (_, name) in [&set, &back, &release] {
        close(server, Target::Statement, name, out)?;
    }
    sync(server, out)
}

/// Runs a command of ours that is prepared under this name.
fn run(server: &mut Server, name: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    Bind {
        portal: name.as_bytes(),
        statement: name.as_bytes(),
        param_formats: List::empty(),
        params: List::empty(),
        result_formats: List::empty(),
    }
    .encode(out)?;
    server.ledger.push(Kind::Bind, Whose::Ours, None);
    Execute {
        portal: name.as_bytes(),
        max_rows: 0,
    }
    .encode(out)?;
    server.ledger.push(Kind::Execute, Whose::Ours, None);
    close(server, Target::Portal, name, out)
}

fn close(
    server: &mut Server,
    kind: Target,
    name: &str,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let name = name.as_bytes();
    Close { kind, name }.encode(out)?;
    server.ledger.push(Kind::Close, Whose::Ours, None);
    Ok(())
}

/// How our names begin: a text that has this in it may name a copy.
const OURS: &[u8] = b"pgmux:";
