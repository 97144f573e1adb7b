//! The verdict by tokens alone. It errs only to the safe side.

use super::grammar::{self, *};
use super::options::is_off;
use crate::Ident;
use crate::functions::{Functions, Volatility};
use crate::scan::{Options, Scanner, Token, TokenKind};
use crate::verdict::{Class, Verdict};
use crate::word::{Key, NO_WORD, folded};

/// What `text` is, as far as its tokens show.
pub fn by_words(text: &[u8], options: Options, functions: &impl Functions) -> Verdict {
    let mut words = Words {
        text,
        scanner: Scanner::new(text, options),
        functions,
    };
    let mut verdict = Verdict::EMPTY;
    while let Some(first) = words.next() {
        if words.symbol(first) == b';' {
            continue;
        }
        match words.statement(first) {
            Ok(found) => verdict = verdict.and(found),
            Err(Unknown) => return Verdict::UNKNOWN.and(verdict),
        }
    }
    verdict
}

/// Something that only a write has, or that is not understood.
struct Unknown;

type Found<T> = Result<T, Unknown>;

struct Words<'a, F> {
    text: &'a [u8],
    scanner: Scanner<'a>,
    functions: &'a F,
}

impl<F: Functions> Words<'_, F> {
    /// The next token that is no comment.
    fn next(&mut self) -> Option<Token> {
        self.scanner.find(|token| !token.is_comment())
    }

    fn peek(&self) -> Option<Token> {
        let mut ahead = self.scanner;
        ahead.find(|token| !token.is_comment())
    }

    fn key(&self, token: Token) -> Key {
        match token.kind {
            TokenKind::Word => folded(token.text(self.text)),
            _ => NO_WORD,
        }
    }

    fn next_key(&mut self) -> Key {
        let next = self.next();
        next.map_or(NO_WORD, |token| self.key(token))
    }

    fn peek_key(&self) -> Key {
        self.peek().map_or(NO_WORD, |token| self.key(token))
    }

    /// The sign, or zero for another token.
    fn symbol(&self, token: Token) -> u8 {
        match (token.kind, token.text(self.text)) {
            (TokenKind::Symbol, &[symbol]) => symbol,
            _ => 0,
        }
    }

    fn peek_symbol(&self) -> u8 {
        self.peek().map_or(0, |token| self.symbol(token))
    }

    /// Reads a statement to its end.
    fn statement(&mut self, first: Token) -> Found<Verdict> {
        let class = match self.key(first) {
            SELECT | VALUES | TABLE | WITH => return self.query(first, Class::Read),
            _ if self.symbol(first) == b'(' => return self.parenthesised(),
            SHOW => Class::Read,
            EXPLAIN => return self.explain(),
            COPY => return self.copy(),
            DECLARE => return self.query(first, Class::Session),
            BEGIN => return self.begin(),
            START if self.next_key() == TRANSACTION => return self.begin(),
            COMMIT | END | ROLLBACK | ABORT if self.peek_key() != PREPARED => Class::Transaction,
            SAVEPOINT | RELEASE => Class::Transaction,
            SET if matches!(self.peek_key(), TRANSACTION | CONSTRAINTS) => Class::Transaction,
            SET | RESET | DISCARD | LISTEN | UNLISTEN | LOAD => Class::Session,
            PREPARE if self.peek_key() != TRANSACTION => Class::Session,
            DEALLOCATE | CLOSE | FETCH | MOVE => Class::Session,
            VACUUM | ANALYZE | ANALYSE | CLUSTER | REINDEX | CHECKPOINT => Class::Utility,
            _ => return Err(Unknown),
        };
        self.skip()?;
        Ok(Verdict::of(class))
    }

    /// To behind the semicolon.
    fn skip(&mut self) -> Found<()> {
        while let Some(token) = self.next() {
            if token.kind == TokenKind::Unterminated {
                return Err(Unknown);
            }
            if self.symbol(token) == b';' {
                return Ok(());
            }
        }
        Ok(())
    }

    fn parenthesised(&mut self) -> Found<Verdict> {
        let mut token = self.next().ok_or(Unknown)?;
        while self.symbol(token) == b'(' {
            token = self.next().ok_or(Unknown)?;
        }
        match self.key(token) {
            SELECT | VALUES | TABLE | WITH => self.query(token, Class::Read),
            _ => Err(Unknown),
        }
    }

    fn begin(&mut self) -> Found<Verdict> {
        let (mut reads, mut writes) = (false, false);
        while let Some(token) = self.next() {
            if self.symbol(token) == b';' {
                break;
            }
            // `READ COMMITTED` and `READ UNCOMMITTED` say nothing about it.
            if self.key(token) == READ {
                reads |= self.peek_key() == ONLY;
                writes |= self.peek_key() == WRITE;
            }
        }
        Ok(match (reads, writes) {
            (true, false) => Verdict::BEGIN_READ_ONLY,
            _ => Verdict::of(Class::Transaction),
        })
    }

    /// Without `ANALYZE` nothing is run.
    fn explain(&mut self) -> Found<Verdict> {
        let mut runs = false;
        if self.peek_symbol() == b'(' && !self.opens_query() {
            runs = self.explain_options()?;
        } else {
            while matches!(self.peek_key(), ANALYZE | ANALYSE | VERBOSE) {
                runs |= self.next_key() != VERBOSE;
            }
        }
        let first = self.next().ok_or(Unknown)?;
        match self.key(first) {
            SELECT | VALUES | TABLE | WITH if runs => self.query(first, Class::Read),
            _ if runs && self.symbol(first) == b'(' => self.parenthesised(),
            _ if runs => Err(Unknown),
            EXECUTE => self.skip().map(|()| Verdict::of(Class::Session)),
            _ => self.skip().map(|()| Verdict::of(Class::Read)),
        }
    }

    /// Whether the parentheses that follow begin with a query: `EXPLAIN (SELECT 1)`.
    fn opens_query(&self) -> bool {
        let mut ahead = self.scanner;
        let mut tokens = ahead.by_ref().filter(|token| !token.is_comment());
        let first = tokens.find(|&token| self.symbol(token) != b'(');
        first.is_some_and(|token| matches!(self.key(token), SELECT | VALUES | TABLE | WITH))
    }

    /// Reads `(ANALYZE, VERBOSE off)`. Whether the statement is run.
    fn explain_options(&mut self) -> Found<bool> {
        let mut runs = false;
        loop {
            let token = self.next().ok_or(Unknown)?;
            match self.symbol(token) {
                b')' => return Ok(runs),
                b';' => return Err(Unknown),
                _ => {}
            }
            // In quotes it would be another case of the same option; whoever writes so is not understood.
            if token.kind == TokenKind::QuotedIdent || token.kind == TokenKind::UnicodeIdent {
                return Err(Unknown);
            }
            if matches!(self.key(token), ANALYZE | ANALYSE) {
                let value = self.peek().filter(|token| token.kind == TokenKind::Word);
                runs |= !value.is_some_and(|value| is_off(value.text(self.text)));
            }
        }
    }

    /// `COPY t TO STDOUT` and `COPY (query) TO STDOUT`; all others write, to a table or a file or a program.
    fn copy(&mut self) -> Found<Verdict> {
        if self.peek_symbol() == b'(' {
            self.next();
            let first = self.next().ok_or(Unknown)?;
            match self.key(first) {
                SELECT | VALUES | TABLE | WITH => self.query_until(first, Until::Closed)?,
                _ => return Err(Unknown),
            }
        } else {
            self.copied_table()?;
        }
        if self.next_key() != TO || self.next_key() != STDOUT {
            return Err(Unknown);
        }
        self.skip()?;
        Ok(Verdict::of(Class::Read))
    }

    /// Up to the `TO`: a name of up to three parts, and columns.
    fn copied_table(&mut self) -> Found<()> {
        while self.peek_key() != TO {
            let token = self.next().ok_or(Unknown)?;
            let is_name = matches!(token.kind, TokenKind::Word | TokenKind::QuotedIdent);
            let is_sign = matches!(self.symbol(token), b'.' | b'(' | b',' | b')');
            if !(is_name && self.key(token) != FROM || is_sign) {
                return Err(Unknown);
            }
        }
        Ok(())
    }

    fn query(&mut self, first: Token, class: Class) -> Found<Verdict> {
        self.query_until(first, Until::Semicolon)?;
        Ok(Verdict::of(class))
    }

    /// Reads a query behind its first word, and finds nothing in it that could write.
    fn query_until(&mut self, first: Token, until: Until) -> Found<()> {
        let mut calls = Calls::default();
        let mut before = Before::default();
        before.push(first);
        while let Some(token) = self.next() {
            match token.kind {
                TokenKind::Word => self.word(token, &before)?,
                TokenKind::QuotedIdent => self.attribute(token, &before)?,
                TokenKind::UnicodeIdent | TokenKind::Unterminated => return Err(Unknown),
                TokenKind::Operator => {
                    let operator = self.functions.operator(None, token.text(self.text));
                    if operator != Some(Volatility::Safe) {
                        return Err(Unknown);
                    }
                }
                TokenKind::Symbol => match self.symbol(token) {
                    b';' => {
                        return if until == Until::Semicolon {
                            Ok(())
                        } else {
                            Err(Unknown)
                        };
                    }
                    b'(' => {
                        let is_call = self.parenthesis(&before)?;
                        calls.open(is_call)?;
                    }
                    b')' if calls.depth == 0 && until == Until::Closed => return Ok(()),
                    b')' => before.closes_call = calls.close(),
                    _ => {}
                },
                _ => {}
            }
            before.push(token);
        }
        // Without its end, a query in parentheses is none.
        if until == Until::Semicolon {
            Ok(())
        } else {
            Err(Unknown)
        }
    }

    /// A word that is not before a parenthesis.
    fn word(&mut self, token: Token, before: &Before) -> Found<()> {
        match self.key(token) {
            INSERT | UPDATE | DELETE | MERGE | INTO => Err(Unknown),
            FOR if matches!(self.peek_key(), UPDATE | NO | SHARE | KEY) => Err(Unknown),
            _ => self.attribute(token, before),
        }
    }

    /// A name behind a point may be a call: `t.f` is `f(t)`.
    fn attribute(&self, token: Token, before: &Before) -> Found<()> {
        let is_behind_point = before.last(0).is_some_and(|last| self.symbol(last) == b'.');
        let is_called = is_behind_point
            && self
                .functions
                .may_be_attribute(&Ident::new(token.text(self.text)).folded());
        if is_called { Err(Unknown) } else { Ok(()) }
    }

    /// What opens here: the arguments of a call that is known to be safe, or something that is none.
    fn parenthesis(&mut self, before: &Before) -> Found<bool> {
        let Some(name) = before.last(0) else {
            return Ok(false);
        };
        let is_quoted = name.kind == TokenKind::QuotedIdent;
        if !is_quoted && name.kind != TokenKind::Word {
            return Ok(false);
        }
        let ahead = before.last(1);
        let is_qualified = ahead.is_some_and(|token| self.symbol(token) == b'.');
        if !is_qualified && self.is_syntax(name, ahead, before) {
            // What stands behind the arguments of a call belongs to it: `WITHIN GROUP (...) FILTER (...) OVER (...)`.
            return Ok(matches!(self.key(name), GROUP | FILTER));
        }
        let name = Ident::new(name.text(self.text)).folded();
        let schema = match (is_qualified, before.last(2), before.last(3)) {
            (false, _, _) => None,
            // Of three parts, or of something that is no name.
            (true, _, Some(token)) if self.symbol(token) == b'.' => return Err(Unknown),
            (true, Some(schema), _)
                if matches!(schema.kind, TokenKind::Word | TokenKind::QuotedIdent) =>
            {
                Some(Ident::new(schema.text(self.text)).folded())
            }
            _ => return Err(Unknown),
        };
        match self.functions.function(schema.as_deref(), &name) {
            Some(Volatility::Safe) => Ok(true),
            _ => Err(Unknown),
        }
    }

    /// Whether the name, which is not qualified, calls nothing for what it is or what is before it.
    fn is_syntax(&self, name: Token, ahead: Option<Token>, before: &Before) -> bool {
        let ahead_key = ahead.map_or(NO_WORD, |token| self.key(token));
        match self.key(name) {
            // Type modifiers: `x::varchar(10)`.
            _ if ahead.is_some_and(|token| token.text(self.text) == b"::") => true,
            // A CTE's columns, a table's alias with columns, the type of a cast.
            _ if matches!(ahead_key, WITH | RECURSIVE | AS) => true,
            // `WITH x AS MATERIALIZED (`
            MATERIALIZED => ahead_key == NOT,
            BY => matches!(ahead_key, GROUP | ORDER | PARTITION),
            SETS => ahead_key == GROUPING,
            VARYING => matches!(ahead_key, CHARACTER | CHAR | NCHAR | BIT),
            // `DISTINCT ON (a) over(b)` calls a function of that name.
            OVER | FILTER => {
                before.closes_call && ahead.is_some_and(|token| self.symbol(token) == b')')
            }
            // No argument begins so: `JOIN (SELECT`.
            _ if matches!(self.peek_key(), SELECT | VALUES | TABLE | WITH) => true,
            key => grammar::is_syntax(key),
        }
    }
}

/// Where a query ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Semicolon,
    /// At the parenthesis that was opened before it.
    Closed,
}

/// The last four tokens.
#[derive(Default)]
struct Before {
    tokens: [Option<Token>; 4],
    /// Whether the last parenthesis that was closed is that of a call.
    closes_call: bool,
}

impl Before {
    fn last(&self, back: usize) -> Option<Token> {
        self.tokens[back]
    }

    fn push(&mut self, token: Token) {
        self.tokens.rotate_right(1);
        self.tokens[0] = Some(token);
    }
}

/// For each open parenthesis, whether it is that of a call.
#[derive(Default)]
struct Calls {
    bits: u128,
    depth: u32,
}

impl Calls {
    fn open(&mut self, is_call: bool) -> Found<()> {
        if self.depth == u128::BITS {
            return Err(Unknown);
        }
        self.bits = self.bits << 1 | u128::from(is_call);
        self.depth += 1;
        Ok(())
    }

    fn close(&mut self) -> bool {
        let is_call = self.depth > 0 && self.bits & 1 != 0;
        self.bits >>= 1;
        self.depth = self.depth.saturating_sub(1);
        is_call
    }
}
