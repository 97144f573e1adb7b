//! A simple query that is `DEALLOCATE` of a statement which the client prepared
//! by the protocol, and which the server knows by a name of ours. Drivers send
//! it, so it gets by without a native server ([`super::native`]).
//!
//! The server gets a `DEALLOCATE` of an empty statement made for the purpose,
//! so that tag, status and errors are its own; the client's statement goes
//! when the server has confirmed.

use super::Session;
use super::body::Verdict;
use crate::server::{Note, Slot, Statement, fresh_number, internal_name};
use protocol::encode::EncodeError;
use protocol::frontend::{ParseHead, Query};
use protocol::ledger::{Kind, Whose};
use router::effects::{Effect, Effects};
use router::scan::Options;
use router::statement::{Kind as Said, statements};
use std::rc::Rc;

impl Session {
    /// The client's statement that a text deallocates, if that is all that
    /// the text does.
    pub(super) fn deallocated(&self, effects: Effects, text: &[u8]) -> Option<Rc<Statement>> {
        if !effects.contains(Effect::Deallocate) || self.is_native() {
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

    /// Deallocates it.
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

    /// Makes the server prepare an empty statement under a fresh name; the
    /// text that deallocates it.
    fn stand_in(&mut self, out: &mut Vec<u8>) -> Result<String, EncodeError> {
        self.barrier = true;
        if let Some(server) = &mut self.server {
            server.suspect.insert(Effect::Deallocate);
        }
        let name = internal_name(fresh_number());
        ParseHead {
            name: name.as_bytes(),
            rest: b"\0\0\0",
        }
        .encode(out)?;
        Ok(format!("DEALLOCATE \"{name}\""))
    }
}
