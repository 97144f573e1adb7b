//! The statements of a text: where each is, what kind it is, what it does, whom it names.

mod definition;
mod functions;
mod head;
mod reader;
mod setting;

use std::ops::Range;

use crate::Ident;
use crate::effects::{Effect, Effects};
use crate::scan::{Options, Scanner, Token};
use head::{Head, words};
use reader::Reader;

pub(crate) use functions::names_temp_schema;
pub use setting::Setting;

/// One statement of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// Its bytes in the text: from the end of the one before, up to and with its `;`. The ranges of all statements are
    /// the text.
    pub range: Range<usize>,
    /// What it is, by its first words.
    pub kind: Kind,
    /// What it does to the session.
    pub effects: Effects,
    /// The prepared statement, cursor, channel or savepoint that it names.
    pub name: Option<Ident<'a>>,
    /// What it sets or resets.
    pub setting: Option<Setting<'a>>,
}

/// What a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named as in SQL")]
pub enum Kind {
    /// White space, comments, or nothing.
    Empty,
    /// Its first word is none of PostgreSQL's, or its first words do not fit together.
    Unknown,
    Select,
    Values,
    Table,
    /// `WITH`: a query, or a change of data.
    With,
    Insert,
    Update,
    Delete,
    Merge,
    Explain,
    Show,
    Set,
    /// `SET LOCAL`, `SET TRANSACTION`, `SET CONSTRAINTS`
    SetLocal,
    Reset,
    ResetAll,
    Begin,
    Commit,
    Rollback,
    Savepoint,
    RollbackTo,
    Release,
    PrepareTransaction,
    CommitPrepared,
    RollbackPrepared,
    Prepare,
    Execute,
    Deallocate,
    DeallocateAll,
    Discard,
    Declare,
    /// `FETCH` and `MOVE`
    Fetch,
    Close,
    CloseAll,
    Listen,
    Unlisten,
    UnlistenAll,
    Notify,
    Copy,
    Create,
    Alter,
    Drop,
    Truncate,
    Lock,
    Load,
    Do,
    Call,
    /// Other commands that change data definitions or rights: `GRANT`, `COMMENT`, `REFRESH`, ...
    Definition,
    /// Other commands that keep the database in order: `VACUUM`, `ANALYZE`, `CHECKPOINT`, ...
    Maintenance,
}

/// The statements of `text`, in order. White space or comments behind the last `;` are a statement of kind
/// [`Kind::Empty`].
pub fn statements(text: &[u8], options: Options) -> Statements<'_> {
    Statements {
        scanner: Scanner::new(text, options),
    }
}

/// All that could be a name in `text`: every word and every identifier in quotes. Names whose escapes are not read
/// (`U&"..."`) come as they stand.
pub fn identifiers(text: &[u8], options: Options) -> impl Iterator<Item = Ident<'_>> {
    Scanner::new(text, options)
        .filter(|token| head::is_name(token.kind))
        .map(move |token| Ident::new(token.text(text)))
}

/// See [`statements`].
#[derive(Clone, Debug)]
pub struct Statements<'a> {
    scanner: Scanner<'a>,
}

impl<'a> Statements<'a> {
    /// The effects of all statements that are left: cheaper than to make a [`Statement`] of each.
    pub(crate) fn effects(mut self) -> Effects {
        let mut all = Effects::NONE;
        while let Some(mut parse) = self.begin() {
            parse.statement();
            self.scanner = parse.reader.finish();
            all = all.union(parse.reader.effects);
        }
        all
    }

    fn begin(&self) -> Option<Parse<'a>> {
        let is_left = self.scanner.position() < self.scanner.text().len();
        is_left.then(|| Parse {
            reader: Reader::new(self.scanner),
            name: None,
            setting: None,
        })
    }
}

impl<'a> Iterator for Statements<'a> {
    type Item = Statement<'a>;

    fn next(&mut self) -> Option<Statement<'a>> {
        let start = self.scanner.position();
        let mut parse = self.begin()?;
        let kind = parse.statement();
        self.scanner = parse.reader.finish();
        Some(Statement {
            range: start..self.scanner.position(),
            kind,
            effects: parse.reader.effects,
            name: parse.name,
            setting: parse.setting,
        })
    }
}

/// A statement that is being read.
struct Parse<'a> {
    reader: Reader<'a>,
    name: Option<Ident<'a>>,
    setting: Option<Setting<'a>>,
}

impl<'a> Parse<'a> {
    fn statement(&mut self) -> Kind {
        let Some(mut first) = self.reader.next() else {
            return Kind::Empty;
        };
        let is_parenthesised = self.reader.depth() > 0;
        while self.reader.is_symbol(first, b'(') {
            match self.reader.next() {
                Some(next) => first = next,
                None => return self.unknown(),
            }
        }
        match self.reader.key(first) {
            words::SELECT => self.query(Kind::Select, first),
            words::VALUES => self.query(Kind::Values, first),
            words::TABLE => self.query(Kind::Table, first),
            words::WITH => self.query(Kind::With, first),
            _ if is_parenthesised => self.unknown(),
            words::INSERT => self.query(Kind::Insert, first),
            words::UPDATE => self.query(Kind::Update, first),
            words::DELETE => self.query(Kind::Delete, first),
            words::MERGE => self.query(Kind::Merge, first),
            // Pools see few other texts as often.
            words::BEGIN => {
                self.reader.effects.insert(Effect::Begin);
                self.rest(Kind::Begin)
            }
            words::COMMIT | words::END if self.reader.is_last() => {
                self.does(Kind::Commit, Effect::Commit)
            }
            words::EXPLAIN => definition::explain(&mut self.reader),
            words::CREATE => definition::create(&mut self.reader),
            words::COPY => definition::copy(&mut self.reader),
            first_word => {
                let head = Head::read(&mut self.reader, first);
                self.command(first_word, &head)
            }
        }
    }

    /// A query may create a table by `INTO`. Else, queries and changes of data have no effect on the session but by the
    /// functions that they call, which the reader sees.
    fn query(&mut self, kind: Kind, first: Token) -> Kind {
        let mut word = Some(first.start..first.end);
        loop {
            word = self.reader.skip_dull().or(word);
            let Some(token) = self.reader.next() else {
                return kind;
            };
            if self.reader.key(token) == words::INTO && !self.reader.is_data_target(word.as_ref()) {
                definition::into_target(&mut self.reader);
            }
            word = Some(token.start..token.end);
        }
    }

    fn rest(&mut self, kind: Kind) -> Kind {
        while self.reader.next().is_some() {}
        kind
    }

    fn command(&mut self, first_word: u128, head: &Head<'a>) -> Kind {
        use words::*;
        let kind = match first_word {
            SET => setting::set(self, head),
            RESET => setting::reset(self, head),
            START if head.key(1) == TRANSACTION => self.does(Kind::Begin, Effect::Begin),
            COMMIT | END | ROLLBACK | ABORT => self.end_of_transaction(first_word, head),
            SAVEPOINT => self.names(Kind::Savepoint, Effect::Savepoint, head, 1),
            RELEASE => self.names(
                Kind::Release,
                Effect::Release,
                head,
                head.behind(1, SAVEPOINT),
            ),
            PREPARE if head.key(1) == TRANSACTION && head.key(2) == STRING => {
                self.does(Kind::PrepareTransaction, Effect::PrepareTransaction)
            }
            PREPARE => self.names(Kind::Prepare, Effect::Prepare, head, 1),
            EXECUTE => self.names(Kind::Execute, Effect::Execute, head, 1),
            DEALLOCATE => {
                let name = head.behind(1, PREPARE);
                match head.key(name) {
                    ALL => self.does(Kind::DeallocateAll, Effect::DeallocateAll),
                    _ => self.names(Kind::Deallocate, Effect::Deallocate, head, name),
                }
            }
            DISCARD => self.discard(head),
            DECLARE if head.may_hold() => self.names(Kind::Declare, Effect::DeclareHold, head, 1),
            DECLARE => self.names(Kind::Declare, Effect::Declare, head, 1),
            CLOSE if head.key(1) == ALL => self.does(Kind::CloseAll, Effect::CloseAll),
            CLOSE => self.names(Kind::Close, Effect::Close, head, 1),
            LISTEN => self.names(Kind::Listen, Effect::Listen, head, 1),
            UNLISTEN if head.key(1) == STAR => self.does(Kind::UnlistenAll, Effect::UnlistenAll),
            UNLISTEN => self.names(Kind::Unlisten, Effect::Unlisten, head, 1),
            NOTIFY => self.names(Kind::Notify, Effect::Notify, head, 1),
            LOAD => self.does(Kind::Load, Effect::Load),
            DO => self.does(Kind::Do, Effect::DoOrCall),
            CALL => self.does(Kind::Call, Effect::DoOrCall),
            DROP => self.does(Kind::Drop, Effect::Drop),
            FETCH | MOVE => Kind::Fetch,
            SHOW => Kind::Show,
            ALTER => Kind::Alter,
            TRUNCATE => Kind::Truncate,
            LOCK => Kind::Lock,
            GRANT | REVOKE | COMMENT | SECURITY | REFRESH | IMPORT | REASSIGN => Kind::Definition,
            VACUUM | ANALYZE | ANALYSE | REINDEX | CLUSTER | CHECKPOINT => Kind::Maintenance,
            _ => self.unknown(),
        };
        self.rest(kind)
    }

    fn end_of_transaction(&mut self, first_word: u128, head: &Head<'a>) -> Kind {
        use words::*;
        let (kind, effect) = match first_word {
            COMMIT if head.key(1) == PREPARED => {
                return self.does(Kind::CommitPrepared, Effect::CommitPrepared);
            }
            ROLLBACK if head.key(1) == PREPARED => {
                return self.does(Kind::RollbackPrepared, Effect::RollbackPrepared);
            }
            COMMIT | END => (Kind::Commit, Effect::Commit),
            _ => (Kind::Rollback, Effect::Rollback),
        };
        let next = head.behind_any(1, &[WORK, TRANSACTION]);
        if first_word == ROLLBACK && head.key(next) == TO {
            let name = head.behind(next + 1, SAVEPOINT);
            return self.names(Kind::RollbackTo, Effect::RollbackTo, head, name);
        }
        if head.key(next) == AND && head.key(next + 1) == CHAIN {
            self.reader.effects.insert(Effect::Chain);
        }
        self.does(kind, effect)
    }

    fn discard(&mut self, head: &Head<'a>) -> Kind {
        let effect = match head.key(1) {
            words::ALL => Effect::DiscardAll,
            words::TEMP | words::TEMPORARY => Effect::DiscardTemp,
            words::PLANS => Effect::DiscardPlans,
            words::SEQUENCES => Effect::DiscardSequences,
            _ => return self.unknown(),
        };
        self.does(Kind::Discard, effect)
    }

    fn does(&mut self, kind: Kind, effect: Effect) -> Kind {
        self.reader.effects.insert(effect);
        kind
    }

    fn names(&mut self, kind: Kind, effect: Effect, head: &Head<'a>, at: usize) -> Kind {
        self.name = head.ident(at);
        self.does(kind, effect)
    }

    fn unknown(&mut self) -> Kind {
        self.does(Kind::Unknown, Effect::Unknown)
    }
}
