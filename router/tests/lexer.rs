//! The scanner against PostgreSQL's own lexer, on texts that are put together and damaged at random.
//!
//! `LEXER_SEED=n` repeats a run, `LEXER_TEXTS=n` sets how many texts it has.

use std::time::{Duration, Instant};

use pg_query::protobuf::Token as Theirs;
use router::scan::{Options, Scanner, Token, TokenKind};

/// What is dealt out: words, signs, and the beginnings, middles and ends of all that has quotes.
const PIECES: &[&str] = &[
    " ",
    " ",
    " ",
    "\n",
    "\r",
    "\t",
    "\u{b}",
    "\u{c}",
    "\r\n",
    "select",
    "from",
    "where",
    "a",
    "b1",
    "_x",
    "é",
    "日本",
    "x$y",
    "SELECT",
    "Into",
    "for",
    "update",
    "1",
    "0",
    "42",
    "1.5",
    ".5",
    "1.",
    "1e5",
    "1E-3",
    "1e",
    "1e+",
    "0x1F",
    "0xg",
    "0o17",
    "0o8",
    "0b11",
    "0b2",
    "1_000",
    "1__0",
    "1_",
    "_1",
    "0x_1f",
    "0_1",
    "1..2",
    "1.2.3",
    "$1",
    "$12",
    "$1a",
    "$0",
    "$",
    "'",
    "'",
    "''",
    "'a'",
    "'it''s'",
    "E'",
    "e'a\\'b'",
    "E'\\\\'",
    "E'\\n\\x41\\101\\u0041\\U00000041'",
    "E'\\ud83d\\ude00'",
    "E'\\u00'",
    "E'\\xff'",
    "\\",
    "\\'",
    "b'",
    "B'01'",
    "B'2'",
    "x'",
    "X'1F'",
    "x'g'",
    "n'",
    "N'a'",
    "U&'",
    "u&'d\\0061t'",
    "U&'\\+000061'",
    "U&'\\x'",
    "U&\"",
    "U&\"d\\0061t\"",
    "u&\"a!0062\" uescape '!'",
    "UESCAPE",
    "U&",
    "u & 'a'",
    "\"",
    "\"a\"",
    "\"a\"\"b\"",
    "\"\"",
    "$$",
    "$$a$$",
    "$t$",
    "$t$ $$ $t$",
    "$é$",
    "$1$",
    "$a b$",
    "--",
    "-- x\n",
    "--\r",
    "/*",
    "*/",
    "/* a */",
    "/* /* b */ */",
    "/**/",
    "/*/",
    "+",
    "-",
    "*",
    "/",
    "<",
    ">",
    "=",
    "~",
    "!",
    "@",
    "#",
    "%",
    "^",
    "&",
    "|",
    "`",
    "?",
    "<=",
    ">=",
    "<>",
    "!=",
    "=>",
    "->",
    "->>",
    "||",
    "@>",
    "@-",
    "+-",
    "*-",
    "<--",
    "@/*",
    "=-",
    "!-",
    "::",
    ":=",
    ":",
    "..",
    ".",
    ",",
    ";",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "'a'\n'b'",
    "'a' -- c\n 'b'",
    "'a' 'b'",
    "'a'\r\"b\"",
    "E'a'\n'\\''",
    "$$a$$\n'b'",
    "b'1'\n'0'",
    "U&'a'\n'b'",
    "\"a\"\n\"b\"",
    "'a'/**/\n'b'",
];

const WHOLE: &[&str] = &[
    "select a.b, 'x''y', E'\\'z' from \"t\" where c = $1 and d->>'e' <> 'f' -- g",
    "insert into t (a, b) values (1.5e-3, $$x$$), (0x1F, U&'\\0041' UESCAPE '!') /* h /* i */ */ returning *",
    "update t set a = a + -1, b = b || 'c'::text[] where d @> '{1,2}' and e !~* '^f'",
    "create function f() returns int language sql as $body$ select 'x'; $body$;",
];

/// Numbers that look random and can be had again (splitmix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

fn text(dice: &mut Dice) -> String {
    let mut text = match dice.below(4) {
        0 => dice.one_of(WHOLE).to_string(),
        _ => {
            let count = 1 + dice.below(14);
            (0..count).map(|_| dice.one_of(PIECES)).collect()
        }
    };
    for _ in 0..dice.below(4) {
        damage(&mut text, dice);
    }
    text
}

/// A piece is put in somewhere, or a few letters are taken out, doubled or changed.
fn damage(text: &mut String, dice: &mut Dice) {
    let mut letters: Vec<char> = text.chars().collect();
    let at = dice.below(letters.len() + 1);
    let end = (at + dice.below(4)).min(letters.len());
    match dice.below(4) {
        0 => drop(letters.splice(at..at, dice.one_of(PIECES).chars())),
        1 => drop(letters.drain(at..end)),
        2 => {
            let twice: Vec<char> = letters[at..end].to_vec();
            letters.splice(at..at, twice);
        }
        _ => letters[at..end]
            .iter_mut()
            .for_each(|letter| *letter = (1 + dice.below(126)) as u8 as char),
    }
    *text = letters.into_iter().collect();
}

/// A token of either side, as far as it can be compared: where it is, and what.
type Seen = (usize, usize, &'static str);

fn ours(text: &str) -> Option<Vec<Seen>> {
    let scanner = Scanner::new(text.as_bytes(), Options::default());
    scanner
        .map(|token| our_kind(token).map(|kind| (token.start, token.end, kind)))
        .collect()
}

fn our_kind(token: Token) -> Option<&'static str> {
    Some(match token.kind {
        TokenKind::Word => "word",
        TokenKind::QuotedIdent => "word",
        TokenKind::UnicodeIdent => "unicode ident",
        TokenKind::String | TokenKind::EscapeString | TokenKind::DollarString => "string",
        TokenKind::BitString => "bits",
        TokenKind::UnicodeString => "unicode string",
        TokenKind::Number => "number",
        TokenKind::Parameter => "parameter",
        TokenKind::Operator => "operator",
        TokenKind::Symbol => "symbol",
        TokenKind::LineComment | TokenKind::BlockComment => "comment",
        TokenKind::Unterminated => return None,
    })
}

fn theirs(text: &str) -> Option<Vec<Seen>> {
    // Not `scan_tokens`, which makes a slice of a null pointer where there are none.
    let result = pg_query::scan(text).ok()?;
    let seen = result.tokens.iter().map(|token| {
        let (start, end) = (token.start as usize, token.end as usize);
        (start, end, their_kind(token.token(), &text[start..end]))
    });
    Some(seen.collect())
}

fn their_kind(token: Theirs, text: &str) -> &'static str {
    match token {
        Theirs::Uident => "unicode ident",
        Theirs::Usconst => "unicode string",
        Theirs::Sconst => "string",
        Theirs::Bconst | Theirs::Xconst => "bits",
        Theirs::Fconst | Theirs::Iconst => "number",
        Theirs::Param => "parameter",
        Theirs::SqlComment | Theirs::CComment => "comment",
        Theirs::Typecast | Theirs::DotDot | Theirs::ColonEquals => "symbol",
        _ if text.starts_with(|first: char| "~!@#^&|`?+-*/%<>=".contains(first)) => "operator",
        _ if text.len() == 1
            && !text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_') =>
        {
            "symbol"
        }
        _ => "word",
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

#[test]
fn tokens_are_those_of_postgresqls_lexer_or_one_of_the_two_refuses() {
    let seed = number("LEXER_SEED", 20_261_130);
    let texts = number("LEXER_TEXTS", 250_000);
    let mut dice = Dice(seed);
    let (mut same, mut refused_by_us) = (0_u64, 0_u64);
    let begun = Instant::now();
    for at in 0..texts {
        let text = text(&mut dice);
        match (theirs(&text), ours(&text)) {
            (Some(theirs), Some(ours)) => {
                assert_eq!(ours, theirs, "{text:?}, text {at} of LEXER_SEED={seed}");
                same += 1;
            }
            (Some(_), None) => refused_by_us += 1,
            (None, _) => {}
        }
        // On a machine where this is endless, what was seen by then must do.
        if begun.elapsed() > Duration::from_secs(120) && at >= 100_000 {
            break;
        }
    }
    println!("{same} of {texts} texts are the same, {refused_by_us} are refused by us alone");
    // A scanner that refuses all would be right as well.
    assert!(
        same > texts / 4 && refused_by_us < texts / 20,
        "{same}, {refused_by_us}"
    );
}
