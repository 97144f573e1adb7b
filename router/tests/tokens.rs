//! Texts and the tokens that PostgreSQL's lexer finds in them.

use router::scan::{Options, Scanner, TokenKind};

/// One letter for each kind, and the token's text.
fn tokens(text: &str, options: Options) -> Vec<String> {
    let letter = |kind| match kind {
        TokenKind::Word => 'w',
        TokenKind::QuotedIdent => 'q',
        TokenKind::UnicodeIdent => 'u',
        TokenKind::String => 's',
        TokenKind::EscapeString => 'e',
        TokenKind::BitString => 'b',
        TokenKind::UnicodeString => 'v',
        TokenKind::DollarString => 'd',
        TokenKind::Number => 'n',
        TokenKind::Parameter => 'p',
        TokenKind::Operator => 'o',
        TokenKind::Symbol => 'y',
        TokenKind::LineComment => 'l',
        TokenKind::BlockComment => 'c',
        TokenKind::Unterminated => '!',
    };
    let show = |token: router::scan::Token| {
        format!("{}{}", letter(token.kind), &text[token.start..token.end])
    };
    Scanner::new(text.as_bytes(), options).map(show).collect()
}

fn check(options: Options, table: &[(&str, &[&str])]) {
    for (text, expected) in table {
        assert_eq!(tokens(text, options), *expected, "{text:?}");
    }
}

#[test]
fn tokens_are_those_of_postgresql() {
    check(
        Options::default(),
        &[
            ("", &[]),
            (" \t\r\n\u{b}\u{c}", &[]),
            ("select é_1$x", &["wselect", "wé_1$x"]),
            (
                "a.b,(c)[1];",
                &[
                    "wa", "y.", "wb", "y,", "y(", "wc", "y)", "y[", "n1", "y]", "y;",
                ],
            ),
            // Comments.
            ("a--b\nc", &["wa", "l--b", "wc"]),
            ("a--b\rc", &["wa", "l--b", "wc"]),
            ("DELETE/**/FROM", &["wDELETE", "c/**/", "wFROM"]),
            ("/* a /* b */ c */d", &["c/* a /* b */ c */", "wd"]),
            ("/*/*/ a", &["!/*/*/ a"]),
            ("/**", &["!/**"]),
            ("a*/b", &["wa", "o*/", "wb"]),
            // Strings.
            ("'a''b'c", &["s'a''b'", "wc"]),
            (r"'a\'b", &[r"s'a\'", "wb"]),
            (r"E'a\'b'c", &[r"eE'a\'b'", "wc"]),
            (r"e'a\\'c", &[r"ee'a\\'", "wc"]),
            (r"E'a\", &[r"!E'a\"]),
            ("E'a''b'", &["eE'a''b'"]),
            ("b'01' X'1f' x''", &["bb'01'", "bX'1f'", "bx''"]),
            ("N'a' n'b'", &["wN", "s'a'", "wn", "s'b'"]),
            (
                "U&'a' u&\"b\" U & 'c'",
                &["vU&'a'", "uu&\"b\"", "wU", "o&", "s'c'"],
            ),
            ("E 'a\\' b", &["wE", "s'a\\'", "wb"]),
            ("fooE'a'", &["wfooE", "s'a'"]),
            ("'a", &["!'a"]),
            ("'a' 'b'", &["s'a'", "s'b'"]),
            ("'a'\n'b'c", &["s'a'\n'b'", "wc"]),
            ("'a' -- x\n 'b'", &["s'a' -- x\n 'b'"]),
            ("'a' -- x", &["s'a'", "l-- x"]),
            ("'a' /* x\n */ 'b'", &["s'a'", "c/* x\n */", "s'b'"]),
            ("E'a'\n'b\\'c'd", &["eE'a'\n'b\\'c'", "wd"]),
            ("B'1'\n'0'", &["bB'1'\n'0'"]),
            ("'a'\n\"b\"", &["s'a'", "q\"b\""]),
            // Quoted identifiers.
            ("\"a\"\"b\"c", &["q\"a\"\"b\"", "wc"]),
            ("\"a\"\n\"b\"", &["q\"a\"", "q\"b\""]),
            ("\"a;", &["!\"a;"]),
            // Dollar quotes and parameters.
            ("$$a$$b", &["d$$a$$", "wb"]),
            ("$t$a$$b$T$c$t$d", &["d$t$a$$b$T$c$t$", "wd"]),
            ("$t$a$tt$b$t$", &["d$t$a$tt$b$t$"]),
            ("$$a$", &["!$$a$"]),
            ("$1 $12a $1$2", &["p$1", "p$12", "wa", "p$1", "p$2"]),
            ("a$$b$$", &["wa$$b$$"]),
            ("$a b$", &["y$", "wa", "wb$"]),
            ("$é$x$é$", &["d$é$x$é$"]),
            ("1$$a$$", &["n1", "d$$a$$"]),
            // Numbers.
            (
                "1 1.5 .5 1. 1e5 1.5E-3 1e+",
                &[
                    "n1", "n1.5", "n.5", "n1.", "n1e5", "n1.5E-3", "n1", "we", "o+",
                ],
            ),
            (
                "0x1F 0o17 0b11 1_000 0x_1f",
                &["n0x1F", "n0o17", "n0b11", "n1_000", "n0x_1f"],
            ),
            ("1__0 0xg 1_", &["n1", "w__0", "n0", "wxg", "n1", "w_"]),
            ("1..10", &["n1", "y..", "n10"]),
            ("1.e5 1.x a.1", &["n1.e5", "n1.", "wx", "wa", "n.1"]),
            // Operators.
            ("a=-1", &["wa", "o=", "o-", "n1"]),
            ("a@-1", &["wa", "o@-", "n1"]),
            ("a<=b<>c!=d", &["wa", "o<=", "wb", "o<>", "wc", "o!=", "wd"]),
            ("+-+", &["o+", "o-", "o+"]),
            ("*--a", &["o*", "l--a"]),
            ("a->>'b' @? c", &["wa", "o->>", "s'b'", "o@?", "wc"]),
            ("@/*x*/-", &["o@", "c/*x*/", "o-"]),
            ("+/*x*/", &["o+", "c/*x*/"]),
            ("a::b:=c", &["wa", "y::", "wb", "y:=", "wc"]),
            ("\\{}\0", &["y\\", "y{", "y}", "y\0"]),
        ],
    );
}

#[test]
fn a_backslash_escapes_in_plain_strings_when_the_session_says_so() {
    let options = Options {
        standard_conforming_strings: false,
    };
    check(
        options,
        &[
            (r"'a\'b'c", &[r"s'a\'b'", "wc"]),
            (r"'a\\'c", &[r"s'a\\'", "wc"]),
            (r"N'a\'b'", &["wN", r"s'a\'b'"]),
            (r"B'\'c", &[r"bB'\'", "wc"]),
            (r"U&'\'c", &[r"vU&'\'", "wc"]),
            (r#""a\"c"#, &[r#"q"a\""#, "wc"]),
            (r"'a' '\'", &["s'a'", r"!'\'"]),
        ],
    );
}

#[test]
fn client_encodings_with_ascii_in_their_later_bytes_are_not_read() {
    for (encoding, is_read) in [
        ("UTF8", true),
        ("latin1", true),
        ("EUC_JP", true),
        ("SQL_ASCII", true),
        ("SJIS", false),
        ("Shift_JIS", false),
        ("big5", false),
        ("GBK", false),
        ("gb18030", false),
        ("UHC", false),
        ("JOHAB", false),
        ("shift-jis-2004", false),
        ("WIN936", false),
    ] {
        assert_eq!(
            Options::reads_encoding(encoding.as_bytes()),
            is_read,
            "{encoding}"
        );
    }
}
