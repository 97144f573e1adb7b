//! The tokens of one statement, and what can be seen in any kind of statement.

use super::functions;
use super::head::words;
use crate::effects::{Effect, Effects};
use crate::scan::{Scanner, Token, TokenKind};
use crate::word::{Key, NO_WORD, folded};

/// Hands out the tokens up to the `;` that ends the statement, without comments, and notes calls of functions that
/// matter on the way.
pub(super) struct Reader<'a> {
    scanner: Scanner<'a>,
    pub(super) effects: Effects,
    depth: usize,
    /// Whether a `;` belongs to the body of a routine (`BEGIN ATOMIC ... END`).
    in_body: bool,
    has_ended: bool,
    last_end: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(scanner: Scanner<'a>) -> Self {
        let last_end = scanner.position();
        Reader {
            scanner,
            effects: Effects::NONE,
            depth: 0,
            in_body: false,
            has_ended: false,
            last_end,
        }
    }

    /// The next token that is no comment. A `;` in parentheses (the actions of a rule) ends nothing.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Token> {
        if self.has_ended {
            return None;
        }
        for token in self.scanner.by_ref() {
            match token.kind {
                TokenKind::Word => {
                    let first = self.scanner.text()[token.start];
                    if functions::may_be_named(first, token.end - token.start) {
                        self.effects = self.effects.union(functions::call(&self.scanner, token));
                    }
                }
                TokenKind::Symbol => match self.scanner.text()[token.start] {
                    b'(' => self.depth += 1,
                    b')' => self.depth = self.depth.saturating_sub(1),
                    b';' if self.depth == 0 && !self.in_body => {
                        self.has_ended = true;
                        return None;
                    }
                    _ => {}
                },
                TokenKind::LineComment | TokenKind::BlockComment => continue,
                TokenKind::QuotedIdent => {
                    self.effects = self.effects.union(functions::call(&self.scanner, token))
                }
                TokenKind::UnicodeIdent => self.unicode_ident(token),
                TokenKind::Unterminated => self.effects.insert(Effect::Unterminated),
                _ => {}
            }
            self.last_end = token.end;
            return Some(token);
        }
        self.has_ended = true;
        None
    }

    /// The scanner behind the statement. A statement is read to its end in any case.
    pub(super) fn finish(&mut self) -> Scanner<'a> {
        while self.next().is_some() {}
        self.scanner
    }

    /// Where the last token ended.
    pub(super) fn last_end(&self) -> usize {
        self.last_end
    }

    pub(super) fn text(&self) -> &'a [u8] {
        self.scanner.text()
    }

    /// How many parentheses are open.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn set_in_body(&mut self, in_body: bool) {
        self.in_body = in_body;
    }

    /// A copy of the scanner, to look ahead.
    pub(super) fn ahead(&self) -> impl Iterator<Item = Token> + use<'a> {
        significant(self.scanner)
    }

    /// The word at `token`, or [`NO_WORD`].
    pub(super) fn key(&self, token: Token) -> Key {
        match token.kind {
            TokenKind::Word => folded(token.text(self.text())),
            _ => NO_WORD,
        }
    }

    pub(super) fn is_any(&self, token: Token, keys: &[Key]) -> bool {
        keys.contains(&self.key(token))
    }

    pub(super) fn is_symbol(&self, token: Token, symbol: u8) -> bool {
        token.kind == TokenKind::Symbol && token.text(self.text()) == [symbol]
    }

    /// Escapes in an identifier can spell any name, also that of a function that matters.
    fn unicode_ident(&mut self, token: Token) {
        let next = self.ahead().next();
        let has_own_escape = next.is_some_and(|next| self.key(next) == words::UESCAPE);
        if has_own_escape || token.text(self.text()).contains(&b'\\') {
            self.effects.insert(Effect::Unknown);
        } else {
            self.effects = self.effects.union(functions::call(&self.scanner, token));
        }
    }
}

/// What a scanner would bring, without comments.
pub(super) fn significant(scanner: Scanner<'_>) -> impl Iterator<Item = Token> + use<'_> {
    scanner.filter(|token| !token.is_comment())
}
