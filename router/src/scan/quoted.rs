//! Whatever stands between quotes: strings of each kind, quoted identifiers, dollar quotes.

use super::{CLASSES, Scanner, TokenKind, WORD};

impl Scanner<'_> {
    /// A string or identifier whose quote has a letter before it; else the letter begins an ordinary word.
    pub(super) fn prefixed(&self, start: usize, letter: u8) -> Option<(TokenKind, usize)> {
        match (
            letter.to_ascii_lowercase(),
            self.byte(start + 1),
            self.byte(start + 2),
        ) {
            (b'e', b'\'', _) => Some(self.quoted(
                start + 2,
                b'\'',
                Inside::Backslashes,
                TokenKind::EscapeString,
            )),
            (b'b' | b'x', b'\'', _) => {
                Some(self.quoted(start + 2, b'\'', Inside::Plain, TokenKind::BitString))
            }
            (b'u', b'&', b'\'') => {
                Some(self.quoted(start + 3, b'\'', Inside::Doubled, TokenKind::UnicodeString))
            }
            (b'u', b'&', b'"') => Some(self.quoted_ident(start + 3, TokenKind::UnicodeIdent)),
            _ => None,
        }
    }

    pub(super) fn string(&self, body: usize) -> (TokenKind, usize) {
        let inside = if self.options.standard_conforming_strings {
            Inside::Doubled
        } else {
            Inside::Backslashes
        };
        self.quoted(body, b'\'', inside, TokenKind::String)
    }

    pub(super) fn quoted_ident(&self, body: usize, kind: TokenKind) -> (TokenKind, usize) {
        self.quoted(body, b'"', Inside::Doubled, kind)
    }

    /// `body` is the offset behind the opening quote.
    fn quoted(
        &self,
        body: usize,
        quote: u8,
        inside: Inside,
        kind: TokenKind,
    ) -> (TokenKind, usize) {
        let mut at = body;
        while let Some(&byte) = self.text.get(at) {
            if byte == b'\\' && inside == Inside::Backslashes {
                at += 2;
            } else if byte != quote {
                at += 1;
            } else if inside != Inside::Plain && self.byte(at + 1) == quote {
                at += 2;
            } else if let Some(next) = self.continued(at + 1).filter(|_| quote == b'\'') {
                at = next;
            } else {
                return (kind, at + 1);
            }
        }
        (TokenKind::Unterminated, self.text.len())
    }

    /// A string goes on, by the same rules, in a second pair of quotes on a later line; only white space with a line end
    /// and line comments may stand between. `at` is behind the closing quote, the answer behind the next opening one.
    fn continued(&self, mut at: usize) -> Option<usize> {
        let mut line_ended = false;
        loop {
            match self.byte(at) {
                b'\n' | b'\r' => line_ended = true,
                b' ' | b'\t' | 0x0b | 0x0c => {}
                b'-' if self.byte(at + 1) == b'-' => {
                    at = self.line_end(at);
                    continue;
                }
                b'\'' if line_ended => return Some(at + 1),
                _ => return None,
            }
            at += 1;
        }
    }

    /// A dollar quote, a parameter, or a dollar sign alone.
    pub(super) fn dollar(&self, start: usize) -> (TokenKind, usize) {
        let is_digit = |at: usize| self.byte(at).is_ascii_digit();
        if is_digit(start + 1) {
            let mut end = start + 2;
            while is_digit(end) {
                end += 1;
            }
            return (TokenKind::Parameter, end);
        }
        let tag_end = self.tag_end(start + 1);
        if self.byte(tag_end) != b'$' {
            return (TokenKind::Symbol, start + 1);
        }
        let delimiter = &self.text[start..=tag_end];
        let mut at = tag_end + 1;
        // A tag has no dollar in it, so that each comparison ends at the next dollar at the latest: linear in total.
        while let Some(offset) = self.text[at..].iter().position(|&byte| byte == b'$') {
            at += offset;
            if self.text[at..].starts_with(delimiter) {
                return (TokenKind::DollarString, at + delimiter.len());
            }
            at += 1;
        }
        (TokenKind::Unterminated, self.text.len())
    }

    fn tag_end(&self, start: usize) -> usize {
        let mut at = start;
        while self.byte(at) != b'$' && CLASSES[usize::from(self.byte(at))] & WORD != 0 {
            at += 1;
        }
        at
    }
}

/// What is not an ordinary character between two quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// Nothing: `B'...'`, `X'...'`.
    Plain,
    /// Two quotes are one.
    Doubled,
    /// That, and a backslash takes the next byte with it.
    Backslashes,
}
