//! The ledger of a server: the replies that it still owes, and to whom.
//!
//! Every message sent to a server pushes what must come back; every reply
//! pops it. Counting `Sync` and `Query` on the way in would be wrong: a server
//! in COPY mode eats `Sync`, and one that skips to `Sync` after an error
//! drops whatever came before it. So the ledger is driven by the replies:
//!
//! ```text
//!             E (extended)                      G
//!   Normal ───────────────▶ Skipping   Normal ────▶ CopyIn
//!     ▲                        │         ▲             │
//!     └──────── Sync ◀─────────┘         └── C, E ◀────┘
//! ```
//!
//! | sent | owed, in order |
//! |---|---|
//! | `Query` | any of T D C I G H d c E; ends with Z |
//! | `FunctionCall` | V or E; then Z |
//! | `Parse`, `Bind`, `Close` | 1, 2, 3; or E |
//! | `Describe` statement | t, then T or n; or E |
//! | `Describe` portal | T or n; or E |
//! | `Execute` | D*, then C, I or s; G or H come before; or E |
//! | `Sync` | Z; nothing while the server is in COPY mode |
//! | `CopyDone`, `CopyFail` | nothing; they end COPY mode |
//!
//! W belongs to replication, which never comes this way, so it answers nothing.
//! N, A and S may come at any time and are not counted.
//!
//! `Note` is what the owner wants back with a reply: how to undo a statement's
//! definition, which name to put into an error text, and so on.
//!
//! PROTOCOL: "Message Flow" (simple, extended, function call, COPY,
//! asynchronous operations).

mod reply;
#[cfg(test)]
mod tests;

pub use reply::{Reply, Violation};

use std::collections::VecDeque;

/// A frontend message that has a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Simple query.
    Query,
    /// Function call.
    FunctionCall,
    /// Parse.
    Parse,
    /// Bind.
    Bind,
    /// Close, of a statement or a portal.
    Close,
    /// Describe a statement.
    DescribeStatement,
    /// Describe a portal.
    DescribePortal,
    /// Execute.
    Execute,
    /// Sync.
    Sync,
    /// CopyDone or CopyFail sent before the server was known to be in COPY
    /// mode. Owes nothing.
    CopyEnd,
}

impl Kind {
    /// Whether it has something carried out, or ends a batch.
    pub fn is_request(self) -> bool {
        matches!(
            self,
            Kind::Query | Kind::FunctionCall | Kind::Execute | Kind::Sync
        )
    }

    /// Whether an error reply to it makes the server skip to `Sync`.
    fn is_extended(self) -> bool {
        !matches!(
            self,
            Kind::Query | Kind::FunctionCall | Kind::Sync | Kind::CopyEnd
        )
    }
}

/// To whom a reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The client asked: relay.
    Client,
    /// We asked: swallow, errors too.
    Ours,
    /// We asked on the client's behalf (a statement prepared again): swallow
    /// success, relay an error, which stands for the one that the client's
    /// next message would have met.
    Behalf,
    /// The client asked and we answer; the server never saw it.
    Local,
}

/// A reply that is owed.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry<Note> {
    /// What was asked.
    pub kind: Kind,
    /// To whom the reply goes.
    pub whose: Whose,
    /// The owner's note.
    pub note: Option<Note>,
    /// A `Flush` was sent behind it: its reply is not held back.
    flushed: bool,
    /// The owner's number for it, 0 for none.
    mark: u32,
}

impl<Note> Entry<Note> {
    fn new(kind: Kind, whose: Whose, note: Option<Note>) -> Self {
        Self {
            kind,
            whose,
            note,
            flushed: false,
            mark: 0,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Ledger<Note> {
    queue: VecDeque<Entry<Note>>,
    mode: Mode,
    /// Extended messages were sent that no `Sync` has closed yet.
    batch_open: bool,
    /// `t` has come for the `Describe` at the head.
    described: bool,
    /// `Sync`s sent while the server was known to be in COPY mode, which it
    /// eats unless an error ends that mode first.
    eaten: u32,
    /// `Sync`s of which nobody can tell whether the server ate them.
    uncertain: u32,
    /// Entries that an error has removed, oldest first.
    undone: Vec<Entry<Note>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Normal,
    /// The server discards all until `Sync`, which has not been sent yet.
    Skipping,
    /// The head is in COPY-in mode and the client has not ended it.
    CopyIn,
}

impl<Note> Default for Ledger<Note> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            mode: Mode::Normal,
            batch_open: false,
            described: false,
            eaten: 0,
            uncertain: 0,
            undone: Vec::new(),
        }
    }
}

impl<Note> Ledger<Note> {
    /// Records a message as it is sent (or, for [`Whose::Local`], answered).
    /// Must not be called while [`Ledger::is_skipping`], except for `Sync`,
    /// nor for a `Sync` in COPY mode: see [`Ledger::sync_in_copy`].
    pub fn push(&mut self, kind: Kind, whose: Whose, note: Option<Note>) {
        debug_assert!(self.mode != Mode::Skipping || kind == Kind::Sync);
        match kind {
            Kind::Sync => {
                self.batch_open = false;
                if self.mode == Mode::Skipping {
                    self.mode = Mode::Normal;
                }
            }
            Kind::Query | Kind::FunctionCall => self.batch_open = false,
            Kind::CopyEnd => {
                if self.mode == Mode::CopyIn {
                    self.mode = Mode::Normal;
                    return;
                }
                if self.queue.is_empty() {
                    return;
                }
            }
            _ => self.batch_open = true,
        }
        self.queue.push_back(Entry::new(kind, whose, note));
    }

    /// The client sent `Flush`: what is owed now will be sent, `Sync` or not.
    pub fn flush(&mut self) {
        if let Some(last) = self.queue.back_mut() {
            last.flushed = true;
        }
    }

    /// Gives what was pushed last a number.
    pub fn mark(&mut self, number: u32) {
        if let Some(last) = self.queue.back_mut() {
            last.mark = number;
        }
    }

    /// The number of the request that is being answered: of a batch, up to its
    /// next `Execute`.
    pub fn marked(&self) -> Option<u32> {
        for entry in &self.queue {
            if entry.mark != 0 {
                return Some(entry.mark);
            }
            if entry.kind.is_request() {
                return None;
            }
        }
        None
    }

    /// The client sent `Sync` while the server takes COPY data: the server
    /// eats it.
    pub fn sync_in_copy(&mut self) {
        debug_assert_eq!(self.mode, Mode::CopyIn);
        self.eaten = self.eaten.saturating_add(1);
    }

    /// Whether the server takes COPY data now.
    pub fn is_copy_in(&self) -> bool {
        self.mode == Mode::CopyIn
    }

    /// Whether all but `Sync` and `Terminate` is to be dropped, as the server
    /// would do.
    pub fn is_skipping(&self) -> bool {
        self.mode == Mode::Skipping
    }

    /// Nothing is owed and nothing is half-said: with a `ReadyForQuery(I)` as
    /// the last reply, the server may go.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.mode == Mode::Normal
            && !self.batch_open
            && self.uncertain == 0
    }

    /// Whether extended messages were sent that no `Sync` has closed: what
    /// they did is not committed.
    pub fn has_open_batch(&self) -> bool {
        self.batch_open && self.mode != Mode::Skipping
    }

    /// Replies owed.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no reply is owed. See [`Ledger::is_idle`] for more.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Nobody can tell any more how many `ReadyForQuery` will come. Such a
    /// server must never serve another client.
    pub fn is_uncertain(&self) -> bool {
        self.uncertain > 0
    }

    /// The client has asked something of which the answer is not complete.
    pub fn owes_client(&self) -> bool {
        self.queue
            .iter()
            .any(|entry| entry.whose != Whose::Ours && entry.kind != Kind::CopyEnd)
    }

    /// Whether the server is at a request of ours that ends before the
    /// client's begins.
    pub fn is_at_ours(&self) -> bool {
        let ours = self.queue.iter();
        ours.take_while(|entry| entry.whose == Whose::Ours)
            .any(|entry| matches!(entry.kind, Kind::Query | Kind::FunctionCall | Kind::Sync))
    }

    /// Whether something is owed that makes the server send what it has:
    /// replies to a batch without `Sync` may wait in its buffer for ever.
    pub fn will_be_sent(&self) -> bool {
        let forces = |entry: &Entry<Note>| {
            entry.flushed || matches!(entry.kind, Kind::Query | Kind::FunctionCall | Kind::Sync)
        };
        self.queue.iter().any(forces)
    }

    /// Whether the client has a `ReadyForQuery` to come: until then the server's status is that of an
    /// earlier moment.
    pub fn owes_ready(&self) -> bool {
        let ends = |entry: &Entry<Note>| {
            matches!(entry.kind, Kind::Query | Kind::FunctionCall | Kind::Sync)
        };
        self.queue
            .iter()
            .any(|entry| ends(entry) && entry.whose != Whose::Ours)
    }

    /// To whom the reply at the head goes.
    pub fn head(&self) -> Option<&Entry<Note>> {
        self.queue.front()
    }

    /// The next reply that we must give ourselves, if it is its turn.
    pub fn take_local(&mut self) -> Option<Entry<Note>> {
        match self.queue.front() {
            Some(entry) if entry.whose == Whose::Local => self.pop(),
            _ => None,
        }
    }

    /// Entries that errors have removed since the last call, newest first:
    /// the order in which to undo what they announced.
    pub fn take_undone(&mut self) -> impl Iterator<Item = Entry<Note>> {
        std::mem::take(&mut self.undone).into_iter().rev()
    }

    /// Whether [`Ledger::take_undone`] has something.
    pub fn has_undone(&self) -> bool {
        !self.undone.is_empty()
    }

    /// Takes the head, and markers behind it that owe nothing.
    fn pop(&mut self) -> Option<Entry<Note>> {
        let head = self.queue.pop_front();
        while self
            .queue
            .front()
            .is_some_and(|entry| entry.kind == Kind::CopyEnd)
        {
            self.queue.pop_front();
        }
        head
    }

    /// For reuse: forgets all but the memory.
    pub fn clear(&mut self) {
        self.queue.clear();
        self.undone.clear();
        self.mode = Mode::Normal;
        self.batch_open = false;
        self.described = false;
        self.eaten = 0;
        self.uncertain = 0;
    }
}
