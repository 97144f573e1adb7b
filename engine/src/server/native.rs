//! A server that has its client's statements under the client's own names.
//!
//! Mostly a server has copies under names of ours. A client that names
//! prepared statements by SQL (`EXECUTE s`, `PREPARE p`, a look at
//! `pg_prepared_statements`) needs its own names there. From then on its
//! messages go through with the names that it gave, until a look at the server
//! ([`super::probe`]) shows that SQL has left none: then the client's own are
//! closed, and the server is like any other.

use super::dialog::Broken;
use super::{Note, Server, Statement, internal_name, statement_key};
use protocol::backend::ErrorResponse;
use protocol::encode::EncodeError;
use protocol::error::SqlState;
use protocol::frontend::{Close, Sync, Target};
use protocol::ledger::{Kind, Ledger, Whose};
use protocol::tag::backend_tag as tag;
use router::effects::Effect;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// What is known of such a server.
#[derive(Debug, Default)]
pub struct Native {
    /// The client's statements that it has. What SQL has made or deallocated
    /// since it was last looked at is not in here.
    own: HashMap<Box<[u8]>, Rc<Statement>, foldhash::fast::RandomState>,
    /// Statements that it was to be given and would not take, because a table
    /// has gone, say; with the body of its error.
    refused: Vec<(Rc<Statement>, Box<[u8]>)>,
}

/// A prepared statement that a server was found to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundStatement {
    /// Its name.
    pub name: Box<[u8]>,
    /// Whether SQL's `PREPARE` made it.
    pub from_sql: bool,
}

impl Native {
    /// The server has this one.
    pub fn insert(&mut self, statement: &Rc<Statement>) {
        self.refused
            .retain(|(refused, _)| !Rc::ptr_eq(refused, statement));
        let key = statement_key(&statement.name).into();
        self.own.insert(key, Rc::clone(statement));
    }

    /// It does not have it after all, or not any more.
    pub fn remove(&mut self, statement: &Rc<Statement>) {
        if self.has(statement) {
            self.own.remove(statement_key(&statement.name));
        }
    }

    /// It has none of them any more.
    pub fn clear(&mut self) {
        self.own.clear();
        self.refused.clear();
    }

    /// Whether it has this very one.
    pub fn has(&self, statement: &Rc<Statement>) -> bool {
        self.own
            .get(statement_key(&statement.name))
            .is_some_and(|own| Rc::ptr_eq(own, statement))
    }

    /// It would not take this one.
    pub fn refuse(&mut self, statement: &Rc<Statement>, error: &[u8]) {
        self.remove(statement);
        self.refused
            .retain(|(refused, _)| !Rc::ptr_eq(refused, statement));
        self.refused.push((Rc::clone(statement), error.into()));
    }

    /// Whether it would not take this one when it was last given it.
    pub fn has_refused(&self, statement: &Rc<Statement>) -> bool {
        let mut refused = self.refused.iter();
        refused.any(|(refused, _)| Rc::ptr_eq(refused, statement))
    }

    /// The error that takes the place of one that says of a statement that it
    /// does not exist, when it is one that the server would not take: its
    /// client has prepared it, and would hear what is wrong with it.
    pub fn instead(&self, error: &[u8]) -> Option<Vec<u8>> {
        if self.refused.is_empty() {
            return None;
        }
        let error = ErrorResponse::decode(error).ok()?;
        if error.code() != Some(SqlState::INVALID_SQL_STATEMENT_NAME) {
            return None;
        }
        let message = error.message()?;
        let (_, words) = self.refused.iter().find(|(statement, _)| {
            let quoted = [b"\"", &*statement.name, b"\""].concat();
            message
                .windows(quoted.len())
                .any(|window| window == quoted.as_slice())
        })?;
        let length = u32::try_from(words.len() + 4).ok()?;
        let mut out = vec![tag::ERROR_RESPONSE];
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(words);
        Some(out)
    }

    /// Forgets those that the server was not found to have, which SQL has
    /// deallocated, and tells which they were.
    fn reconcile(&mut self, found: &[FoundStatement]) -> Vec<Rc<Statement>> {
        let there: HashSet<&[u8]> = found
            .iter()
            .filter(|found| !found.from_sql)
            .map(|found| &*found.name)
            .collect();
        let gone: Vec<_> = self
            .own
            .iter()
            .filter(|(name, _)| !there.contains(&***name))
            .map(|(_, statement)| Rc::clone(statement))
            .collect();
        gone.iter().for_each(|statement| self.remove(statement));
        gone
    }
}

impl Server {
    /// From now on, names of prepared statements are the client's own. The
    /// server will be looked at before it serves another.
    pub fn go_native(&mut self) -> &mut Native {
        self.suspect.insert(Effect::Prepare);
        self.native.get_or_insert_default()
    }

    /// Whether it is native and has this statement.
    pub fn has_own(&self, statement: &Rc<Statement>) -> bool {
        self.native
            .as_ref()
            .is_some_and(|native| native.has(statement))
    }

    /// Closes the copies under names of ours, which the client must not find.
    pub fn hide_copies(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        for (definition, number) in self.prepared.take_all() {
            let note = Note::Drops { definition, number };
            let name = internal_name(number);
            close_ours(name.as_bytes(), Some(note), &mut self.ledger, out)?;
        }
        Ok(())
    }

    /// Takes in what a native server was found to have; the client's
    /// statements that SQL has deallocated.
    pub fn reconcile(&mut self, found: &[FoundStatement]) -> Vec<Rc<Statement>> {
        let gone = match &mut self.native {
            Some(native) => native.reconcile(found),
            None => Vec::new(),
        };
        let there: HashSet<&[u8]> = found.iter().map(|found| &*found.name).collect();
        self.prepared
            .retain(|number| there.contains(internal_name(number).as_bytes()));
        gone
    }

    /// Closes all that it was found to have but the copies, so that it is
    /// native no more.
    pub async fn renounce(&mut self, found: &[FoundStatement]) -> Result<(), Broken> {
        self.native = None;
        let copies: HashSet<_> = self.prepared.numbers().map(internal_name).collect();
        let mut out = Vec::new();
        for FoundStatement { name, .. } in found {
            let is_copy = std::str::from_utf8(name).is_ok_and(|name| copies.contains(name));
            if !is_copy {
                close_ours(name, None, &mut self.ledger, &mut out)
                    .map_err(|_| Broken::Unexpected(b'C'))?;
            }
        }
        if out.is_empty() {
            return Ok(());
        }
        Sync.encode(&mut out)
            .map_err(|_| Broken::Unexpected(b'S'))?;
        self.ledger.push(Kind::Sync, Whose::Ours, None);
        self.socket.write(&out);
        match self.settle().await?.error {
            Some(_) => Err(Broken::Unexpected(b'E')),
            None => Ok(()),
        }
    }
}

fn close_ours(
    name: &[u8],
    note: Option<Note>,
    ledger: &mut Ledger<Note>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    Close {
        kind: Target::Statement,
        name,
    }
    .encode(out)?;
    ledger.push(Kind::Close, Whose::Ours, note);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Definition;
    use super::*;
    use protocol::error::ErrorFields;
    use router::effects::Effects;

    fn statement(name: &str) -> Rc<Statement> {
        let definition = Definition {
            id: 1,
            meaning: super::super::Meaning {
                key: Default::default(),
                rest_at: 0,
            },
            effects: Effects::NONE,
            hint: 0,
        };
        Rc::new(Statement {
            name: name.as_bytes().into(),
            definition: Rc::new(definition),
            made: 1,
        })
    }

    fn found(name: &str, from_sql: bool) -> FoundStatement {
        FoundStatement {
            name: name.as_bytes().into(),
            from_sql,
        }
    }

    /// The body of an error.
    fn error(code: SqlState, message: &str) -> Vec<u8> {
        let mut out = Vec::new();
        ErrorFields::error(code, message)
            .encode(&mut out)
            .expect("short");
        out.split_off(5)
    }

    #[test]
    fn what_sql_has_deallocated_or_made_anew_is_gone() {
        let mut native = Native::default();
        let all = ["a", "b", "c"].map(statement);
        all.iter().for_each(|statement| native.insert(statement));
        let gone = native.reconcile(&[found("a", false), found("c", true)]);
        assert!(gone.iter().all(|gone| !Rc::ptr_eq(gone, &all[0])));
        assert_eq!(gone.len(), 2);
        assert!(native.has(&all[0]) && !native.has(&all[1]) && !native.has(&all[2]));
    }

    #[test]
    fn a_name_longer_than_postgresql_keeps_is_found_by_what_it_keeps() {
        let mut native = Native::default();
        let long = "x".repeat(70);
        native.insert(&statement(&long));
        assert!(native.reconcile(&[found(&long[..63], false)]).is_empty());
    }

    #[test]
    fn a_statement_that_the_server_would_not_take_fails_with_what_is_wrong_with_it() {
        let mut native = Native::default();
        let wrong = error(SqlState::INTERNAL_ERROR, "the table has gone");
        let s = statement("s");
        native.insert(&s);
        native.refuse(&s, &wrong);
        assert!(!native.has(&s));
        let missing = |name: &str| {
            let message = format!("prepared statement \"{name}\" does not exist");
            error(SqlState::INVALID_SQL_STATEMENT_NAME, &message)
        };
        let instead = native.instead(&missing("s")).expect("another error");
        assert_eq!(&instead[5..], wrong);
        assert_eq!(native.instead(&missing("t")), None);
        assert_eq!(native.instead(&wrong), None);
        native.insert(&s);
        assert_eq!(native.instead(&missing("s")), None);
    }
}
