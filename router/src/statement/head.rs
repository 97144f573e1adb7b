//! The first tokens of a command, which say what it is.

use super::reader::Reader;
use crate::Ident;
use crate::scan::{Token, TokenKind};
use crate::word::{Key, NO_WORD};

/// The first tokens of a statement, as keys to be compared.
pub(super) struct Head<'a> {
    text: &'a [u8],
    tokens: [(Key, Option<Token>); HEAD_MAX],
    len: usize,
}

/// One more than the longest form that is told by its words: `DECLARE c BINARY INSENSITIVE NO SCROLL CURSOR WITH HOLD`,
/// and enough for a setting of four parts.
const HEAD_MAX: usize = 12;

impl<'a> Head<'a> {
    /// Reads the tokens behind `first`, which is the first word.
    pub(super) fn read(reader: &mut Reader<'a>, first: Token) -> Self {
        let mut head = Head {
            text: reader.text(),
            tokens: [(NO_WORD, None); HEAD_MAX],
            len: 0,
        };
        let mut next = Some(first);
        while let Some(token) = next {
            head.tokens[head.len] = (head_key(reader, token), Some(token));
            head.len += 1;
            next = if head.len < HEAD_MAX {
                reader.next()
            } else {
                None
            };
        }
        head
    }

    /// What stands at `at`: the folded word; [`words::STRING`], [`words::QUOTED`] or the symbol for something else.
    pub(super) fn key(&self, at: usize) -> Key {
        self.tokens.get(at).map_or(NO_WORD, |&(key, _)| key)
    }

    pub(super) fn token(&self, at: usize) -> Option<Token> {
        self.tokens.get(at)?.1
    }

    /// The identifier at `at`, if one is there.
    pub(super) fn ident(&self, at: usize) -> Option<Ident<'a>> {
        let token = self.token(at).filter(|token| is_name(token.kind))?;
        Some(Ident::new(token.text(self.text)))
    }

    /// The place behind an optional `word` at `at`: `at + 1` if it is there and something follows, which otherwise is
    /// the thing named so.
    pub(super) fn behind(&self, at: usize, word: Key) -> usize {
        at + usize::from(self.key(at) == word && self.token(at + 1).is_some())
    }

    /// The place behind an optional word at `at`.
    pub(super) fn behind_any(&self, at: usize, optional: &[Key]) -> usize {
        at + usize::from(optional.contains(&self.key(at)))
    }

    /// Whether a `DECLARE` is of a cursor that survives its transaction. When the words before `FOR` are too many to
    /// be seen (options may be repeated), it may be.
    pub(super) fn may_hold(&self) -> bool {
        for at in 2..self.len {
            match self.key(at) {
                words::WITH if self.key(at + 1) == words::HOLD => return true,
                words::FOR => return false,
                _ => {}
            }
        }
        self.len == HEAD_MAX
    }
}

pub(super) fn is_name(kind: TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::Word | TokenKind::QuotedIdent | TokenKind::UnicodeIdent
    )
}

fn head_key(reader: &Reader<'_>, token: Token) -> Key {
    match token.kind {
        TokenKind::Word => reader.key(token),
        TokenKind::QuotedIdent | TokenKind::UnicodeIdent => words::QUOTED,
        TokenKind::String
        | TokenKind::EscapeString
        | TokenKind::UnicodeString
        | TokenKind::DollarString => words::STRING,
        TokenKind::Operator | TokenKind::Symbol => crate::word::folded(token.text(reader.text())),
        _ => NO_WORD,
    }
}

/// The words that decide.
pub(super) mod words {
    use crate::word::{Key, key};

    /// Any identifier in quotes; no word can be like it.
    pub(in super::super) const QUOTED: Key = key("\"");
    /// Any string.
    pub(in super::super) const STRING: Key = key("'");
    pub(in super::super) const STAR: Key = key("*");
    pub(in super::super) const EQUALS: Key = key("=");
    pub(in super::super) const DOT: Key = key(".");

    macro_rules! words {
        ($($name:ident = $word:literal),* $(,)?) => {
            $(pub(in super::super) const $name: Key = key($word);)*
        };
    }

    words! {
        ABORT = "abort", ALL = "all", ALTER = "alter", ANALYSE = "analyse", ANALYZE = "analyze", AND = "and", AS = "as",
        ATOMIC = "atomic", AUTHORIZATION = "authorization", BEGIN = "begin", CALL = "call", CHAIN = "chain",
        CHARACTERISTICS = "characteristics", CHECKPOINT = "checkpoint", CLOSE = "close", CLUSTER = "cluster",
        COMMENT = "comment", COMMIT = "commit", CONSTRAINTS = "constraints", COPY = "copy", CREATE = "create",
        DEALLOCATE = "deallocate", DECLARE = "declare", DELETE = "delete", DISCARD = "discard", DO = "do", DROP = "drop",
        END = "end", EXECUTE = "execute", EXPLAIN = "explain", FETCH = "fetch", FOR = "for", FROM = "from",
        FUNCTION = "function", GLOBAL = "global", GRANT = "grant", HOLD = "hold", IMPORT = "import", INSERT = "insert",
        INTO = "into", LISTEN = "listen", LOAD = "load", LOCAL = "local", LOCK = "lock", MERGE = "merge", MOVE = "move",
        NAMES = "names", NOTIFY = "notify", OPTION = "option", PLANS = "plans", PREPARE = "prepare",
        PREPARED = "prepared", PROCEDURE = "procedure", REASSIGN = "reassign", REFRESH = "refresh", REINDEX = "reindex",
        RELEASE = "release", REPLACE = "replace", RESET = "reset", REVOKE = "revoke", ROLE = "role",
        ROLLBACK = "rollback", SAVEPOINT = "savepoint", SCHEMA = "schema", SECURITY = "security", SELECT = "select",
        SEQUENCES = "sequences", SESSION = "session", SET = "set", SHOW = "show", START = "start", STDIN = "stdin",
        STDOUT = "stdout", TABLE = "table", TEMP = "temp", TEMPORARY = "temporary", TIME = "time", TO = "to",
        TRANSACTION = "transaction", TRUE = "true", TRUNCATE = "truncate", UESCAPE = "uescape", UNLISTEN = "unlisten",
        UPDATE = "update", VACUUM = "vacuum", VALUES = "values", WITH = "with", WORK = "work", XML = "xml", ZONE = "zone",
    }
}
