//! The client's prepared statements.
//!
//! They belong to the client: a name means what this client's `Parse` said,
//! whatever server it meets. A server has copies under names of its own. The
//! client's view is changed as its messages are sent, since later messages of
//! the same batch build on it; when the server skips a message, its note in
//! the ledger takes the change back.

use super::Session;
use crate::limits::STATEMENT_BYTES;
use crate::server::{Meaning, Note, Server, Slot, Statement, UnnamedStatement, statement_key};
use crate::shard::Shard;
use protocol::ledger::{Entry, Kind};
use router::effects::Effects;
use std::collections::HashMap;
use std::rc::Rc;

/// See the module's text.
#[derive(Default)]
pub(super) struct Statements {
    named: HashMap<Box<[u8]>, Rc<Statement>, foldhash::fast::RandomState>,
    named_bytes: usize,
    pub(super) unnamed: Option<UnnamedStatement>,
    /// Counts the changes of the unnamed statement.
    changes: u64,
    /// The change that made it what it is.
    state: u64,
}

impl Statements {
    pub(super) fn get(&self, name: &[u8]) -> Option<&Rc<Statement>> {
        self.named.get(statement_key(name))
    }

    /// All that have a name, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Rc<Statement>> {
        self.named.values()
    }

    /// Whether another statement of this size may be kept.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.named_bytes + bytes <= STATEMENT_BYTES
    }

    pub(super) fn insert(&mut self, statement: Rc<Statement>) {
        self.named_bytes += cost(&statement);
        let key = statement_key(&statement.name).into();
        if let Some(replaced) = self.named.insert(key, statement) {
            self.named_bytes -= cost(&replaced);
        }
    }

    /// Removes this statement, unless its name means another one by now.
    pub(super) fn remove(&mut self, statement: &Rc<Statement>) {
        if self
            .named
            .get(statement_key(&statement.name))
            .is_some_and(|known| Rc::ptr_eq(known, statement))
        {
            self.named.remove(statement_key(&statement.name));
            self.named_bytes -= cost(statement);
        }
    }

    /// The unnamed statement has changed; the note that takes it back.
    /// `slot`: what the server has had.
    pub(super) fn unnamed_changed(&mut self, before: Option<UnnamedStatement>, slot: Slot) -> Note {
        let from = self.state;
        self.changes += 1;
        self.state = self.changes;
        Note::Unnamed {
            before: before.map(Box::new),
            from,
            to: self.state,
            slot,
        }
    }

    /// All of them, for another shard. Only while none is being changed.
    pub(super) fn pack(&self) -> PackedStatements {
        let mut named: Vec<_> = self.named.values().collect();
        named.sort_unstable_by_key(|statement| statement.made);
        let named = named.into_iter().map(|statement| PackedStatement {
            name: statement.name.clone(),
            meaning: statement.definition.meaning.clone(),
            effects: statement.definition.effects,
        });
        let unnamed = self.unnamed.as_ref();
        PackedStatements {
            named: named.collect(),
            unnamed: unnamed.map(|unnamed| (unnamed.rest.clone(), unnamed.effects)),
        }
    }

    /// Those of a client that has come to this shard.
    pub(super) fn unpack(packed: PackedStatements, shard: &Shard) -> Self {
        let mut statements = Self::default();
        for statement in packed.named {
            let PackedStatement {
                name,
                meaning,
                effects,
            } = statement;
            statements.insert(Rc::new(Statement {
                name,
                definition: shard.adopt_definition(&meaning, effects),
                made: shard.fresh_id(),
            }));
        }
        statements.unnamed = packed.unnamed.map(|(rest, effects)| UnnamedStatement {
            id: shard.fresh_id(),
            rest,
            kept: true,
            effects,
        });
        statements
    }

    pub(super) fn clear(&mut self) {
        self.named.clear();
        self.named_bytes = 0;
    }

    /// The unnamed statement was too long to keep and lives only in its
    /// server, which must therefore stay.
    pub(super) fn unnamed_is_unkept(&self) -> bool {
        self.unnamed.as_ref().is_some_and(|unnamed| !unnamed.kept)
    }
}

/// A client's statements on their way to another shard, those first that were
/// made first.
pub(super) struct PackedStatements {
    named: Vec<PackedStatement>,
    /// The body of the `Parse` behind the name, and what the text may do.
    unnamed: Option<(Vec<u8>, Effects)>,
}

struct PackedStatement {
    name: Box<[u8]>,
    meaning: Meaning,
    effects: Effects,
}

/// What a statement takes of its client's budget: the text counts in full,
/// though clients that say the same share it.
fn cost(statement: &Statement) -> usize {
    statement.name.len() + statement.definition.rest().len() + size_of::<Statement>()
}

impl Session {
    /// The client's statements, made when it first has one.
    pub(super) fn statements_mut(&mut self) -> &mut Statements {
        self.statements.get_or_insert_default()
    }

    /// Takes the unnamed statement away, and says how to bring it back in
    /// case the message at hand is skipped. Nothing can be skipped where
    /// nothing is owed.
    pub(super) fn displace_unnamed(&mut self) -> Option<Note> {
        let certain = self
            .server
            .as_ref()
            .is_none_or(|server| server.ledger.is_idle());
        let slot = self.unnamed_slot();
        let statements = self.statements.as_mut()?;
        let before = statements.unnamed.take();
        let note = statements.unnamed_changed(before, slot);
        (!certain).then_some(note)
    }

    /// What the server has for an unnamed statement.
    pub(super) fn unnamed_slot(&self) -> Slot {
        let server = self.server.as_ref();
        server.map_or(Slot::Unknown, |server| server.unnamed)
    }

    /// Takes back what a message would have done that was never carried out.
    /// `is_cause`: it is the one that failed; a failed `Parse` has destroyed
    /// the unnamed statement all the same (`exec_parse_message`).
    pub(super) fn undo(&mut self, server: &mut Server, entry: Entry<Note>, is_cause: bool) {
        match entry.note {
            Some(Note::Defines(statement)) => {
                self.statements_mut().remove(&statement);
                server.prepared.forget(statement.definition.id, None);
            }
            Some(Note::Closes(statement)) => self.statements_mut().insert(statement),
            Some(Note::Unnamed {
                before,
                from,
                to,
                slot,
            }) => {
                let statements = self.statements_mut();
                if statements.state == to {
                    statements.state = from;
                    let before = before.filter(|_| !is_cause);
                    statements.unnamed = before.map(|before| *before);
                    server.unnamed = if is_cause { Slot::Unknown } else { slot };
                }
            }
            // One of ours, or of a client that had no statements.
            None if matches!(entry.kind, Kind::Parse | Kind::Close | Kind::Query) => {
                server.unnamed = Slot::Unknown;
            }
            note => server.undo(note),
        }
    }
}
