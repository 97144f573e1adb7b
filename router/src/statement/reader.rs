//! The tokens of one statement, and what can be seen in any kind of statement.

use std::ops::Range;

use super::functions;
use super::head::words;
use crate::effects::{Effect, Effects};
use crate::scan::{ALONE, DIGIT, PREFIX, Scanner, Token, TokenKind, WORD, WORD_START, class};
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
    start: usize,
    last_end: usize,
    names_settings_view: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(scanner: Scanner<'a>) -> Self {
        let start = scanner.position();
        Reader {
            scanner,
            effects: Effects::NONE,
            depth: 0,
            in_body: false,
            has_ended: false,
            start,
            last_end: start,
            names_settings_view: false,
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
                        self.note_name(token);
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
                TokenKind::QuotedIdent => self.note_name(token),
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

    /// Skips what can neither be a name that matters nor end the statement, and counts parentheses on the way: most bytes
    /// of most queries, faster than token by token. Answers the last word that was skipped, if one was.
    ///
    /// It cuts numbers and operators otherwise than the scanner does, which is of no consequence: where a word, a quote
    /// or a comment begins is the same.
    pub(super) fn skip_dull(&mut self) -> Option<Range<usize>> {
        let text = self.scanner.text();
        let mut at = self.scanner.position();
        let mut last_word = None;
        let run_end = |from: usize, wanted: u8| {
            let rest = text.get(from..).unwrap_or_default();
            from + rest
                .iter()
                .take_while(|&&byte| class(byte) & wanted != 0)
                .count()
        };
        while let Some(&byte) = text.get(at).filter(|_| !self.has_ended) {
            let found = class(byte);
            if found & ALONE != 0 {
                at += 1;
            } else if found & WORD_START != 0 {
                let end = run_end(at + 1, WORD);
                let may_begin_quote = found & PREFIX != 0 && end - at == 1;
                if may_begin_quote
                    || functions::may_be_named(byte, end - at)
                    || is_into(&text[at..end])
                {
                    break;
                }
                last_word = Some(at..end);
                at = end;
            } else if found & DIGIT != 0 {
                let end = run_end(at + 1, DIGIT);
                let goes_on = |&next: &u8| next == b'.' || class(next) & WORD != 0;
                if text.get(end).is_some_and(goes_on) {
                    break;
                }
                at = end;
            } else {
                match (byte, text.get(at + 1)) {
                    (b'(', _) => self.depth += 1,
                    (b')', _) => self.depth = self.depth.saturating_sub(1),
                    (b'$', Some(b'0'..=b'9')) => at = run_end(at + 1, DIGIT) - 1,
                    (b'"', Some(&first)) => match dull_ident(&text[at + 1..], first) {
                        Some(len) => at += len,
                        None => break,
                    },
                    (b'-', Some(b'-')) | (b'/', Some(b'*')) => break,
                    (b'.', Some(b'.')) => at += 1,
                    (b'.', Some(b'0'..=b'9')) => break,
                    (b'-' | b'/' | b'.', _) => {}
                    _ => break,
                }
                at += 1;
            }
        }
        self.scanner.seek(at);
        last_word
    }

    /// The scanner behind the statement. A statement is read to its end in any case.
    pub(super) fn finish(&mut self) -> Scanner<'a> {
        while self.next().is_some() {}
        // `UPDATE pg_settings` sets a setting, by a rule of that view.
        let statement = &self.text()[self.start..self.scanner.position()];
        if self.names_settings_view && functions::contains_word(statement, b"update") {
            self.effects.insert(Effect::SetConfig);
            self.effects.insert(Effect::Role);
        }
        if self.effects.contains(Effect::DoOrCall) && functions::hides_names(statement) {
            self.effects.insert(Effect::PreparedNames);
        }
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

    /// Whether nothing but the end of the statement stands behind the last token.
    pub(super) fn is_last(&self) -> bool {
        self.ahead()
            .next()
            .is_none_or(|token| self.is_symbol(token, b';'))
    }

    /// Whether the word before an `INTO` says that a table follows that is there already.
    pub(super) fn is_data_target(&self, before: Option<&Range<usize>>) -> bool {
        let word = before.and_then(|range| self.text().get(range.clone()));
        matches!(word.map(folded), Some(words::INSERT | words::MERGE))
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

    fn note_name(&mut self, name: Token) {
        self.effects = self.effects.union(functions::call(&self.scanner, name));
        self.names_settings_view |= functions::is_settings_view(name, self.text());
        if functions::is_prepared_view(name, self.text()) {
            self.effects.insert(Effect::PreparedNames);
        }
    }

    /// Escapes in an identifier can spell any name, also that of a function that matters.
    fn unicode_ident(&mut self, token: Token) {
        let next = self.ahead().next();
        let has_own_escape = next.is_some_and(|next| self.key(next) == words::UESCAPE);
        if has_own_escape || token.text(self.text()).contains(&b'\\') {
            self.effects.insert(Effect::Unknown);
        } else {
            self.note_name(token);
        }
    }
}

/// The length, with its closing quote, of the quoted identifier that goes on with `rest`; none if it may matter.
fn dull_ident(rest: &[u8], first: u8) -> Option<usize> {
    let len = rest.iter().position(|&byte| byte == b'"')?;
    let is_whole = rest.get(len + 1) != Some(&b'"');
    (is_whole && !functions::may_be_named(first, len)).then_some(len + 1)
}

fn is_into(word: &[u8]) -> bool {
    word.len() == 4 && word.eq_ignore_ascii_case(b"into")
}

/// What a scanner would bring, without comments.
pub(super) fn significant(scanner: Scanner<'_>) -> impl Iterator<Item = Token> + use<'_> {
    scanner.filter(|token| !token.is_comment())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scan::Options;

    const PIECES: &[&str] = &[
        " ",
        "\n",
        "'",
        "\"",
        "$$",
        "$a$",
        "$1",
        "\\",
        "--",
        "-",
        "/*",
        "*/",
        "*",
        "/",
        ";",
        "(",
        ")",
        ",",
        ".",
        "..",
        "=",
        "+",
        "@",
        "E'",
        "e",
        "u&",
        "U&'",
        "b'",
        "x",
        "1",
        "0x",
        "1_0",
        "1e",
        "1.e",
        "5set_config(",
        "é",
        "\0",
        "[",
        "]",
        "::",
        "into",
        "set_config",
        "pg_advisory_lock",
        "pg_settings",
        "setseed(",
        "select",
        "update",
        "p",
        "s",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn skipping_what_is_dull_changes_nothing_that_is_seen(
            pieces in prop::collection::vec(prop::sample::select(PIECES), 0..30),
            standard_conforming_strings in any::<bool>(),
        ) {
            let text = pieces.concat();
            let scanner = Scanner::new(text.as_bytes(), Options { standard_conforming_strings });
            let (mut slow, mut quick) = (Reader::new(scanner), Reader::new(scanner));
            let is_into_token = |token: &Token| is_into(token.text(text.as_bytes())) && token.kind == TokenKind::Word;
            let slow_intos: Vec<_> = std::iter::from_fn(|| slow.next()).filter(is_into_token).collect();
            let next = || {
                quick.skip_dull();
                quick.next()
            };
            let quick_intos: Vec<_> = std::iter::from_fn(next).filter(is_into_token).collect();
            prop_assert_eq!(slow_intos, quick_intos);
            prop_assert_eq!(slow.depth(), quick.depth());
            prop_assert_eq!(slow.finish().position(), quick.finish().position());
            prop_assert_eq!(slow.effects, quick.effects);
        }
    }
}
