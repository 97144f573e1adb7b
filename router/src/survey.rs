//! The one pass over a text that comes before every other look at it: its shape, its hints, its size.

use crate::hint::route::{self, Route};
use crate::scan::{Options, Scanner, Token, TokenKind};
use crate::shape::{Mixer, Shape, ShapeKey};

/// What one pass tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The text without its literals. Part of it is how plain strings are read.
    pub shape: Shape,
    /// Where its hints want it to go. Of several that differ, the primary.
    pub route: Option<Route>,
    /// How many tokens it has, without comments.
    pub tokens: usize,
    /// An upper bound of how deep its syntax tree can be.
    pub levels: usize,
    /// A string, quoted identifier or comment has no end, or there is a zero byte, which ends a text for PostgreSQL.
    pub is_broken: bool,
}

/// Looks at `text`.
pub fn survey(text: &[u8], options: Options, key: &ShapeKey) -> Survey {
    let mut pass = Pass {
        text,
        mixer: Mixer::new(key),
        route: None,
        tokens: 0,
        levels: 0,
        is_broken: false,
        escapes: false,
    };
    let reading = u128::from(options.standard_conforming_strings);
    pass.mixer.short(READING, reading);
    for token in Scanner::new(text, options) {
        pass.take(token);
    }
    Survey {
        shape: pass.mixer.finish(),
        route: pass.route,
        tokens: pass.tokens,
        levels: pass.levels,
        is_broken: pass.is_broken,
    }
}

struct Pass<'a> {
    text: &'a [u8],
    mixer: Mixer,
    route: Option<Route>,
    tokens: usize,
    levels: usize,
    is_broken: bool,
    /// A `U&"..."` was there: from now on, literals matter, for one behind UESCAPE says what the name is.
    escapes: bool,
}

impl Pass<'_> {
    #[inline]
    fn take(&mut self, token: Token) {
        let len = token.end - token.start;
        self.tokens += 1;
        match token.kind {
            TokenKind::Word => {
                self.levels += 1;
                match short(self.text, token.start, len) {
                    Some(word) => self.mixer.short(WORD + len as u64, lower(word)),
                    None => self.long_word(token),
                }
            }
            TokenKind::Symbol => {
                let symbol = self.text[token.start];
                self.levels += usize::from(!matches!(symbol, b',' | b'.' | b')' | b']' | b';'));
                self.is_broken |= symbol == 0;
                // `::` is not `:`.
                self.mixer.short(SYMBOL + len as u64, u128::from(symbol));
            }
            TokenKind::Number
            | TokenKind::String
            | TokenKind::EscapeString
            | TokenKind::BitString
            | TokenKind::UnicodeString
            | TokenKind::DollarString => self.literal(token),
            TokenKind::LineComment => self.tokens -= 1,
            TokenKind::BlockComment => self.comment(token),
            TokenKind::Operator | TokenKind::Parameter => {
                self.levels += usize::from(token.kind == TokenKind::Operator);
                self.verbatim(token);
            }
            TokenKind::QuotedIdent => self.verbatim(token),
            TokenKind::UnicodeIdent => {
                self.escapes = true;
                self.verbatim(token);
            }
            TokenKind::Unterminated => {
                self.is_broken = true;
                self.verbatim(token);
            }
        }
    }

    #[inline]
    fn verbatim(&mut self, token: Token) {
        let len = token.end - token.start;
        let kind = token.kind as u64;
        match short(self.text, token.start, len) {
            Some(text) => self.mixer.short(kind << 8 | len as u64, text),
            None => self.mixer.long(kind << 8, token.text(self.text)),
        }
    }

    #[inline]
    fn literal(&mut self, token: Token) {
        if self.escapes {
            self.verbatim(token);
        } else {
            self.mixer.short(LITERAL + token.kind as u64, 0);
        }
    }

    #[cold]
    fn long_word(&mut self, token: Token) {
        let word = token.text(self.text);
        self.mixer.short(WORD, word.len() as u128);
        for at in (0..word.len()).step_by(16) {
            let rest = &word[at..];
            let len = rest.len().min(16);
            let chunk = short(rest, 0, len).unwrap_or_default();
            self.mixer.short(WORD, lower(chunk));
        }
    }

    #[cold]
    fn comment(&mut self, token: Token) {
        self.tokens -= 1;
        if let Some(route) = route::of_comment(token.text(self.text)) {
            self.route = Some(
                self.route
                    .map_or(route, |so_far| route::stricter(so_far, route)),
            );
        }
    }
}

/// So many bytes from `start` as a number, if they are 16 or fewer.
#[inline]
fn short(text: &[u8], start: usize, len: usize) -> Option<u128> {
    if len > 16 {
        return None;
    }
    if let Some(bytes) = text.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
        let mask = u128::MAX.checked_shr(128 - 8 * len as u32).unwrap_or(0);
        return Some(u128::from_le_bytes(*bytes) & mask);
    }
    let mut bytes = [0; 16];
    bytes[..len].copy_from_slice(&text[start..start + len]);
    Some(u128::from_le_bytes(bytes))
}

/// A word in lower case: all its bytes are letters, digits, `_`, `$`, or from 0x80 on, which stay as they are.
#[inline]
fn lower(word: u128) -> u128 {
    const ONES: u128 = u128::from_le_bytes([1; 16]);
    const HIGH: u128 = ONES << 7;
    let seven = word & !HIGH;
    // Bit 7 of each byte: whether it is at least `A`; whether it is above `Z`.
    let from_a = seven + ONES * (0x80 - b'A' as u128);
    let above_z = seven + ONES * (0x7f - b'Z' as u128);
    let upper = from_a & !above_z & !word & HIGH;
    word | upper >> 2
}

/// Kinds of the shape, apart from one another by more than a length of 16; those of verbatim tokens are the token's kind
/// times 256.
const WORD: u64 = 1 << 32;
const SYMBOL: u64 = 2 << 32;
const LITERAL: u64 = 3 << 32;
const READING: u64 = 4 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &str) -> Survey {
        let key = ShapeKey::new([1, 2, 3, 4].map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        survey(text.as_bytes(), Options::default(), &key)
    }

    #[test]
    fn texts_that_differ_in_literals_case_space_and_comments_have_one_shape() {
        let groups: &[&[&str]] = &[
            &[
                "select 1",
                "SELECT 2",
                "  Select\n\t0x1F -- x",
                "/* a */ select/**/1.5e3",
            ],
            &["select 'a', $1", "select 'it''s' , $1"],
            &["select E'a'", "select e'\\''"],
            &["select $$a$$", "select $t$ b; delete $t$"],
            &[
                "select A_VERY_LONG_NAME_INDEED_1",
                "select a_very_long_name_indeed_1",
            ],
        ];
        for (at, group) in groups.iter().enumerate() {
            for text in *group {
                assert_eq!(look(text).shape, look(group[0]).shape, "{text}");
                let others = groups.iter().enumerate().filter(|(other, _)| *other != at);
                for (_, other) in others {
                    assert_ne!(look(text).shape, look(other[0]).shape, "{text}");
                }
            }
        }
    }

    #[test]
    fn texts_that_differ_in_anything_else_have_shapes_of_their_own() {
        let texts = [
            "select a b",
            "select ab",
            "select a, b",
            "select \"a\" b",
            "select \"A\" b",
            "select a \"b\"",
            "select $1",
            "select $2",
            "select 1 1",
            "select 1",
            "select -1",
            "select - - 1",
            "select '1'",
            "select b'1'",
            "select :a",
            "select ::a",
            "select a::b",
            "select a:b",
            "select U&'1'",
            "select 1;",
            "select 1;;",
            "select a || b",
            "select a | b",
            "select É",
            "select é",
            "select",
            "",
            "select U&\"a!0062\" UESCAPE '!'",
            "select U&\"a!0062\" UESCAPE '?'",
            "select a_very_long_name_indeed_1",
            "select a_very_long_name_indeed_2",
            "select \"a_very_long_name_indeed_1\"",
            "select \"a_very_long_name_indeed_2\"",
        ];
        for (at, one) in texts.iter().enumerate() {
            for other in &texts[at + 1..] {
                assert_ne!(look(one).shape, look(other).shape, "{one} / {other}");
            }
        }
    }

    #[test]
    fn a_word_is_in_lower_case_and_other_bytes_stay() {
        let word = "AZaz_$09É[@`{";
        let bytes = short(word.as_bytes(), 0, word.len()).map(lower);
        assert_eq!(bytes.map(u128::to_le_bytes), {
            let mut expected = [0; 16];
            expected[..word.len()].copy_from_slice(word.to_ascii_lowercase().as_bytes());
            Some(expected)
        });
    }

    #[test]
    fn hints_are_comments_of_their_own() {
        let table = [
            ("/* route:writer */ select 1", Some(Route::Writer)),
            ("select /*route:reader*/ 1", Some(Route::Reader)),
            (
                "/* route:reader timeout:3s */ select 1",
                Some(Route::Reader),
            ),
            (
                "/* timeout:3s, route:writer */ select 1",
                Some(Route::Writer),
            ),
            (
                "/* route:reader */ /* route:writer */ select 1",
                Some(Route::Writer),
            ),
            (
                "/* route:writer */ select 1 /* route:reader */",
                Some(Route::Writer),
            ),
            ("select '/* route:writer */'", None),
            ("select $$/* route:writer */$$", None),
            ("select $t$/* route:writer */$t$", None),
            ("select \"/* route:writer */\"", None),
            ("-- /* route:writer */\nselect 1", None),
            ("-- route:writer\nselect 1", None),
            ("/* a /* route:writer */ */ select 1", None),
            ("/* please route:writer */ select 1", None),
            ("/* ROUTE:WRITER */ select 1", None),
            ("/* route:writers */ select 1", None),
            ("/* route:writer", None),
        ];
        for (text, route) in table {
            assert_eq!(look(text).route, route, "{text}");
        }
    }

    #[test]
    fn levels_bound_the_depth_of_the_tree() {
        assert_eq!(look("select 1, 2, 3, 4, 5, 'a', $1").levels, 1);
        assert_eq!(look("select 1+1+1+1").levels, 4);
        assert!(look("select not not not true").levels >= 4);
        assert!(look("select (((1)))").levels >= 4);
    }
}
