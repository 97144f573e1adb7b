//! `DEALLOCATE` by SQL text of a statement that the client prepared by the
//! protocol, and that the server knows by a name of ours.
//!
//! The server gets a `DEALLOCATE` of an empty statement made for the purpose,
//! so that tag, status and errors are its own; the client's statement goes
//! when the server has confirmed.

use super::Session;
use super::body::Verdict;
use crate::server::{Note, Slot, Statement, internal_name};
use protocol::encode::EncodeError;
use protocol::frontend::{Parse, ParseHead, Query};
use protocol::ledger::{Kind, Whose};
use protocol::list::List;
use router::effects::{Effect, Effects};
use router::scan::Options;
use router::statement::{Kind as Said, statements};
use std::rc::Rc;

impl Session {
    /// The client's statement that a text deallocates, if that is all that
    /// the text does.
    pub(super) fn deallocated(&self, effects: Effects, text: &[u8]) -> Option<Rc<Statement>> {
        if !effects.contains(Effect::Deallocate) {
            return None;
        }
        let mut said = statements(text, Options::default());
        let (first, more) = (said.next()?, said.next());
        if first.kind != Said::Deallocate || more.is_some() {
            return None;
        }
        let name = first.name?.folded();
        self.statements.as_ref()?.get(&name).cloned()
    }

    /// By a simple query.
    pub(super) fn deallocate(
        &mut self,
        known: Rc<Statement>,
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        let text = self.stand_in(out)?;
        Query {
            text: text.as_bytes(),
        }
        .encode(out)?;
        let note = self.displace_unnamed();
        if let Some(server) = &mut self.server {
            // The note about the unnamed statement goes with our own Parse:
            // where that is skipped, so is the query.
            server.ledger.push(Kind::Parse, Whose::Ours, note);
            server
                .ledger
                .push(Kind::Query, Whose::Client, Some(Note::Deallocates(known)));
            server.unnamed = Slot::Empty;
        }
        Ok(Verdict::Replace)
    }

    /// By a `Parse` of the unnamed statement. Which statement it was about is
    /// remembered until the server says `DEALLOCATE`.
    pub(super) fn parse_deallocate(
        &mut self,
        known: Rc<Statement>,
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        let text = self.stand_in(out)?;
        if let Some(server) = &mut self.server {
            server.ledger.push(Kind::Parse, Whose::Ours, None);
        }
        let mut parse = Vec::new();
        Parse {
            name: b"",
            query: text.as_bytes(),
            param_types: List::empty(),
        }
        .encode(&mut parse)?;
        // Behind the header and the empty name.
        let verdict = self.parse_unnamed(&parse[6..], true, Effects::of(&[Effect::Deallocate]));
        debug_assert_eq!(verdict, Verdict::Relay);
        out.extend_from_slice(&parse);
        self.statements_mut().deallocating = Some(known);
        Ok(Verdict::Replace)
    }

    /// Makes the server prepare an empty statement under a fresh name; the
    /// text that deallocates it.
    fn stand_in(&mut self, out: &mut Vec<u8>) -> Result<String, EncodeError> {
        self.barrier = true;
        let number = self.server.as_mut().map_or(0, |server| {
            server.suspect.insert(Effect::Deallocate);
            server.prepared.fresh()
        });
        let name = internal_name(number);
        ParseHead {
            name: name.as_bytes(),
            rest: b"\0\0\0",
        }
        .encode(out)?;
        Ok(format!("DEALLOCATE \"{name}\""))
    }
}
