//! What is written beside an entry of a server's ledger.

use super::{Definition, Slot, Statement};
use router::effects::Effects;
use std::rc::Rc;

/// What a reply confirms, or what its absence takes back.
#[derive(Debug)]
pub enum Note {
    /// The client's `Parse` of a named statement.
    Defines(Rc<Statement>),
    /// The client's `Parse` of the unnamed statement, or something else that
    /// destroys it.
    Unnamed {
        /// How it was before, in case the message is skipped.
        before: Option<Box<UnnamedStatement>>,
        /// Which state that was.
        from: u64,
        /// Which state the message made. Only from there it is taken back: a
        /// later message may have changed it again.
        to: u64,
        /// What the server had then.
        slot: Slot,
    },
    /// A `Parse` of ours, so that the server has the client's statement.
    Prepares(Rc<Definition>),
    /// A `Parse` of ours of the client's statement under the client's name.
    Supplies(Rc<Statement>),
    /// The client's `Parse` of a named statement on a native server: the
    /// statement is there once the server has said so.
    Makes(Rc<Statement>),
    /// The client's `Close` of this statement on a native server.
    Unmakes(Rc<Statement>),
    /// The message names this statement, and an error may name it too.
    Uses(Rc<Statement>),
    /// The client's `Close` of this statement, answered by us.
    Closes(Rc<Statement>),
    /// Our `Close` of a server's copy.
    Drops {
        /// Whose copy.
        definition: Rc<Definition>,
        /// The copy's number.
        number: u64,
    },
    /// That it concerns no statement that we know: if it is skipped, there is
    /// nothing to take back.
    Nothing,
    /// Our question what the session holds, sent along with a request.
    Asks,
    /// Whatever error the server gives, this one is the answer.
    Fails(Box<[u8]>),
    /// A `DEALLOCATE` by SQL text of a statement of the protocol.
    Deallocates(Rc<Statement>),
}

/// A client's unnamed statement.
#[derive(Debug)]
pub struct UnnamedStatement {
    /// Never used twice in a shard.
    pub id: u64,
    /// The body of the `Parse` behind the name. Empty and `kept` false when
    /// it was too long to keep: then it lives only in its server.
    pub rest: Vec<u8>,
    /// Whether `rest` is the whole.
    pub kept: bool,
    /// What the text may do to the session.
    pub effects: Effects,
}
