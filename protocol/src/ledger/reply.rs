//! What a backend message means for the ledger.

use super::{Entry, Kind, Ledger, Mode, Whose};

/// What to do with a backend message.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply<Note> {
    /// Part of an answer that goes on.
    Part(Whose),
    /// The end of the answer to this entry.
    Done(Entry<Note>),
    /// `ReadyForQuery`, the end of this entry (`Query`, `FunctionCall`, `Sync`).
    Ready(Entry<Note>),
    /// An error in answer to the head. Removed entries wait in
    /// [`Ledger::take_undone`].
    Failed(Whose),
    /// An error though nothing is owed: the server's last words.
    Unsolicited,
    /// N, A or S: not counted. With whom the server is busy, if it is.
    Async(Option<Whose>),
}

/// A message that cannot be an answer to what was asked. Both connections
/// must end: nobody knows whose bytes come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The message's type.
    pub tag: u8,
    /// What was being answered.
    pub answering: Option<Kind>,
}

impl<Note> Ledger<Note> {
    /// Whether a message of this type is a row, or the description of rows, that the client asked
    /// for: the many messages of which nothing has to be booked.
    #[inline]
    pub fn is_rows(&self, tag: u8) -> bool {
        let Some(head) = self.queue.front() else {
            return false;
        };
        let fits = match head.kind {
            Kind::Query => matches!(tag, b'D' | b'T' | b'd'),
            Kind::Execute => matches!(tag, b'D' | b'd'),
            _ => false,
        };
        fits && head.whose == Whose::Client
    }

    /// Books a backend message by its type.
    pub fn reply(&mut self, tag: u8) -> Result<Reply<Note>, Violation> {
        match tag {
            b'N' | b'A' | b'S' => {
                return Ok(Reply::Async(self.queue.front().map(|entry| entry.whose)));
            }
            b'E' => return Ok(self.error()),
            _ => {}
        }
        let Some(head) = self.queue.front() else {
            return self.unowed(tag);
        };
        let (kind, whose) = (head.kind, head.whose);
        let violation = Err(Violation {
            tag,
            answering: Some(kind),
        });
        match (kind, tag) {
            (Kind::Query | Kind::FunctionCall | Kind::Sync, b'Z') => Ok(self.ready()),
            (Kind::Query, b'T' | b'D' | b'C' | b'I' | b'd' | b'c' | b'H') => {
                if tag == b'C' {
                    self.copy_over();
                }
                Ok(Reply::Part(whose))
            }
            (Kind::Query | Kind::Execute, b'G') => {
                self.copy_in();
                Ok(Reply::Part(whose))
            }
            (Kind::Execute, b'D' | b'd' | b'c' | b'H') => Ok(Reply::Part(whose)),
            (Kind::Execute, b'C' | b'I' | b's') => {
                self.copy_over();
                self.done(violation)
            }
            (Kind::Parse, b'1') | (Kind::Bind, b'2') | (Kind::Close, b'3') => self.done(violation),
            (Kind::DescribeStatement, b't') if !self.described => {
                self.described = true;
                Ok(Reply::Part(whose))
            }
            (Kind::DescribeStatement, b'T' | b'n') if self.described => {
                self.described = false;
                self.done(violation)
            }
            (Kind::DescribePortal, b'T' | b'n') => self.done(violation),
            (Kind::FunctionCall, b'V') => Ok(Reply::Part(whose)),
            _ => violation,
        }
    }

    fn done(
        &mut self,
        violation: Result<Reply<Note>, Violation>,
    ) -> Result<Reply<Note>, Violation> {
        self.pop().map_or(violation, |entry| Ok(Reply::Done(entry)))
    }

    fn ready(&mut self) -> Reply<Note> {
        self.copy_over();
        let entry = self.pop();
        Reply::Ready(entry.unwrap_or(Entry::new(Kind::Sync, Whose::Client, None)))
    }

    /// Nothing is owed for certain; a `Sync` that COPY mode may or may not
    /// have eaten is the only excuse.
    fn unowed(&mut self, tag: u8) -> Result<Reply<Note>, Violation> {
        if tag == b'Z' && self.uncertain > 0 {
            // It stays so for good: which of them this answers is unknown.
            if self.mode == Mode::Skipping {
                self.mode = Mode::Normal;
            }
            let sync = Entry::new(Kind::Sync, Whose::Client, None);
            return Ok(Reply::Ready(sync));
        }
        Err(Violation {
            tag,
            answering: None,
        })
    }

    /// The server has entered COPY-in mode. What the client sent ahead of
    /// this: `Sync`s up to the end of the data are eaten; then comes the end
    /// of the data, or a message at which the server will raise an error.
    fn copy_in(&mut self) {
        self.mode = Mode::CopyIn;
        self.eaten = 0;
        while let Some(next) = self.queue.get(1) {
            match next.kind {
                Kind::Sync => {
                    self.queue.remove(1);
                }
                Kind::CopyEnd => {
                    self.queue.remove(1);
                    self.mode = Mode::Normal;
                    return;
                }
                _ => return,
            }
        }
    }

    fn copy_over(&mut self) {
        if self.mode == Mode::CopyIn {
            self.mode = Mode::Normal;
        }
        self.eaten = 0;
    }

    fn error(&mut self) -> Reply<Note> {
        self.described = false;
        if self.mode == Mode::CopyIn {
            self.mode = Mode::Normal;
            self.uncertain = self.uncertain.saturating_add(self.eaten);
        }
        self.eaten = 0;
        let Some(head) = self.queue.front() else {
            return Reply::Unsolicited;
        };
        let whose = head.whose;
        if head.kind.is_extended() {
            self.skip_to_sync();
        }
        Reply::Failed(whose)
    }

    /// The server answers nothing before the next `Sync`.
    fn skip_to_sync(&mut self) {
        while let Some(entry) = self.queue.front() {
            if entry.kind == Kind::Sync {
                return;
            }
            if let Some(entry) = self.queue.pop_front() {
                self.undone.push(entry);
            }
        }
        self.mode = Mode::Skipping;
    }
}
