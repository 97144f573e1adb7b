//! What holds for every text, well-formed or not.

use std::hint::black_box;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use router::effects::{Effect, Effects, scan_effects};
use router::scan::{Options, Scanner, TokenKind};
use router::statement::statements;

/// Pieces that matter to the lexer or to the statements, to be put together at random.
const PIECES: &[&str] = &[
    " ",
    "\n",
    "\r",
    "\t",
    "'",
    "''",
    "\"",
    "$$",
    "$a$",
    "$",
    "\\",
    "--",
    "/*",
    "*/",
    ";",
    "(",
    ")",
    ",",
    ".",
    "=",
    "+",
    "-",
    "@",
    "E'",
    "U&'",
    "U&\"",
    "b'",
    "1",
    "0x",
    "1_0",
    "e",
    "é",
    "\0",
    "select",
    "set",
    "local",
    "session",
    "role",
    "to",
    "reset",
    "all",
    "create",
    "function",
    "begin",
    "atomic",
    "end",
    "temp",
    "table",
    "into",
    "with",
    "insert",
    "declare",
    "cursor",
    "hold",
    "for",
    "prepare",
    "transaction",
    "as",
    "execute",
    "set_config",
    "pg_advisory_lock",
    "pg_temp",
    "true",
    "copy",
    "from",
    "stdin",
    "explain",
    "uescape",
    "deallocate",
    "rollback",
    "savepoint",
    "work",
    "and",
    "chain",
    "x",
];

fn text() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        9 => prop::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
        4 => Just(b" ".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn options() -> impl Strategy<Value = Options> {
    any::<bool>().prop_map(|standard_conforming_strings| Options {
        standard_conforming_strings,
    })
}

/// The text and a semicolon, if that ends its last statement.
fn closed(text: &[u8]) -> Option<Vec<u8>> {
    let closed = [text, b";"].concat();
    let followed = [&closed[..], b"x"].concat();
    let last = statements(&followed, Options::default()).last()?;
    (last.range == (closed.len()..followed.len())).then_some(closed)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tokens_and_the_white_space_between_them_are_the_text(text in text(), options in options()) {
        let mut at = 0;
        for token in Scanner::new(&text, options) {
            prop_assert!(at <= token.start && token.start < token.end && token.end <= text.len());
            prop_assert!(text[at..token.start].iter().all(|byte| b" \t\n\r\x0b\x0c".contains(byte)));
            if token.kind == TokenKind::Unterminated {
                prop_assert_eq!(token.end, text.len());
            }
            at = token.end;
        }
        prop_assert!(text[at..].iter().all(|byte| b" \t\n\r\x0b\x0c".contains(byte)));
    }

    #[test]
    fn statements_join_to_the_text_and_their_effects_to_its_effects(text in text(), options in options()) {
        let mut at = 0;
        let mut sum = Effects::NONE;
        for statement in statements(&text, options) {
            prop_assert_eq!(statement.range.start, at);
            prop_assert!(statement.range.end > at);
            at = statement.range.end;
            sum = sum.union(statement.effects);
            if let Some(setting) = statement.setting {
                prop_assert!(!setting.name().is_empty() || text.windows(2).any(|pair| pair == b"\"\""));
            }
            if let Some(name) = statement.name {
                prop_assert!(name.folded().len() <= 63);
            }
        }
        prop_assert_eq!(at, text.len());
        prop_assert_eq!(sum, scan_effects(&text, options));
    }

    #[test]
    fn a_statement_alone_is_what_it_is_among_others(text in text(), options in options()) {
        for statement in statements(&text, options) {
            let alone: Vec<_> = statements(&text[statement.range.clone()], options).collect();
            prop_assert_eq!(alone.len(), 1);
            prop_assert_eq!(alone[0].kind, statement.kind);
            prop_assert_eq!(alone[0].effects, statement.effects);
        }
    }

    #[test]
    fn the_effects_of_two_texts_add_up(first in text(), second in text()) {
        if let Some(first) = closed(&first) {
            let both = [first.clone(), second.clone()].concat();
            let sum = scan_effects(&first, Options::default()).union(scan_effects(&second, Options::default()));
            prop_assert_eq!(scan_effects(&both, Options::default()), sum);
        }
    }

    #[test]
    fn words_hide_nothing_behind_a_semicolon(
        words in prop::collection::vec(prop::sample::select(PIECES), 0..40),
    ) {
        let harmless = |piece: &&&str| piece.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" _;=,.".contains(&byte));
        let words: Vec<_> = words.iter().filter(harmless).copied().filter(|&word| word != "atomic").collect();
        let text = format!("{}; set x = 1", words.join(" "));
        prop_assert!(scan_effects(text.as_bytes(), Options::default()).contains(Effect::SetSession));
    }

    #[test]
    fn a_quoted_text_is_one_string_and_does_nothing(text in text()) {
        let doubled: Vec<u8> = text.iter().flat_map(|&byte| if byte == b'\'' { vec![byte; 2] } else { vec![byte] }).collect();
        let query = [b"select '", &doubled[..], b"'"].concat();
        let kinds: Vec<_> = Scanner::new(&query, Options::default()).map(|token| token.kind).collect();
        prop_assert_eq!(kinds, [TokenKind::Word, TokenKind::String]);
        prop_assert!(scan_effects(&query, Options::default()).is_empty());
    }
}

/// Texts that make a careless scanner look at the same bytes again and again.
#[test]
fn no_text_takes_more_than_linear_time() {
    let size = 1 << 14;
    for piece in [
        "a",
        "1",
        "+",
        "+-",
        "-+",
        "@",
        "*",
        "(",
        ")",
        ";",
        "'",
        "''",
        "'' ",
        "''\n",
        "''\n--\n",
        "\"",
        "$",
        "$a",
        "$a$",
        "$$",
        "/*",
        "/**/",
        "--\n",
        "E'\\",
        "U&\"\" ",
        "1e",
        "0x",
        ".",
        "set_config(",
        "set_config(1,",
        "set_config('',/**/",
        "pg_advisory_lock/**/",
        "select 1 into ",
        "create temp ",
        "set a.",
        "declare ",
        "into /**/",
        "U&\"a\" --\n",
    ] {
        let text = piece.repeat(size / piece.len());
        for text in [
            text.clone(),
            format!("select {text}"),
            format!("create {text}"),
            format!("$a${text}"),
            format!("explain {text}"),
        ] {
            for standard_conforming_strings in [true, false] {
                let options = Options {
                    standard_conforming_strings,
                };
                // Linear takes milliseconds, quadratic seconds each time; a busy machine may pause one of three.
                let is_quick = |_| {
                    let start = Instant::now();
                    black_box(scan_effects(text.as_bytes(), options));
                    start.elapsed() < Duration::from_secs(1)
                };
                assert!((0..3).any(is_quick), "{piece:?} takes too long");
            }
        }
    }
}
