//! SQL text as PostgreSQL's lexer sees it: one pass over the bytes, nothing allocated, never a panic.
//!
//! The rules are those of PostgreSQL's `scan.l` of version 16, where numbers may be `0x1F` and `1_000`; where an older
//! server would refuse a text, it makes no difference to us how it falls into tokens. Time is linear in the text:
//! every byte is looked at a bounded number of times.
//!
//! Bytes from 0x80 on are letters, as for PostgreSQL. That is right for every encoding that a server can have. Clients
//! can also use encodings whose later bytes may look like ASCII (SJIS, BIG5, GBK, UHC, GB18030, JOHAB): there, a
//! backslash or a quote may be half a character. See [`Options::reads_encoding`].

mod number;
mod operator;
mod quoted;

/// What the session says about how text is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The session's `standard_conforming_strings`: whether a backslash in `'...'` is an ordinary character.
    pub standard_conforming_strings: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            standard_conforming_strings: true,
        }
    }
}

impl Options {
    /// Whether text in this client encoding (any spelling) can be scanned as it is. If not, nothing that is found in it
    /// may be trusted.
    pub fn reads_encoding(client_encoding: &[u8]) -> bool {
        let letters = |name: &[u8]| -> Vec<u8> {
            let letters = name.iter().filter(|byte| byte.is_ascii_alphanumeric());
            letters.map(u8::to_ascii_lowercase).collect()
        };
        let name = letters(client_encoding);
        !UNREADABLE_ENCODINGS.contains(&name.as_slice())
    }
}

/// PostgreSQL's client-only encodings and their aliases, in letters and digits only (`encnames.c`).
const UNREADABLE_ENCODINGS: &[&[u8]] = &[
    b"sjis",
    b"shiftjis",
    b"mskanji",
    b"win932",
    b"windows932",
    b"shiftjis2004",
    b"big5",
    b"win950",
    b"windows950",
    b"gbk",
    b"win936",
    b"windows936",
    b"uhc",
    b"win949",
    b"windows949",
    b"gb18030",
    b"johab",
];

/// One token: where it is, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// Offset of its first byte.
    pub start: usize,
    /// Offset behind its last byte.
    pub end: usize,
}

/// The kinds of tokens. White space is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A keyword or an identifier without quotes.
    Word,
    /// `"..."`
    QuotedIdent,
    /// `U&"..."`
    UnicodeIdent,
    /// `'...'`, also behind the `N` of `N'...'`, which is a word of its own for PostgreSQL too.
    String,
    /// `E'...'`
    EscapeString,
    /// `B'...'` and `X'...'`
    BitString,
    /// `U&'...'`
    UnicodeString,
    /// `$$...$$` and `$tag$...$tag$`
    DollarString,
    /// `1`, `1.5e-3`, `0x1F`, `1_000`
    Number,
    /// `$1`
    Parameter,
    /// `+`, `<=`, `@?`, ...
    Operator,
    /// One of `,()[].;:` or `::`, `:=`, `..`, or a byte that means nothing to PostgreSQL.
    Symbol,
    /// `-- ...` without its line end
    LineComment,
    /// `/* ... */`, nested ones included
    BlockComment,
    /// A string, quoted identifier or block comment that lacks its end; it reaches to the end of the text.
    Unterminated,
}

impl Token {
    /// The bytes of the token.
    pub fn text<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }

    /// Whether it is a comment.
    pub fn is_comment(&self) -> bool {
        matches!(self.kind, TokenKind::LineComment | TokenKind::BlockComment)
    }
}

/// The tokens of a text, comments included. Copying it is cheap, and is how to look ahead.
#[derive(Clone, Copy, Debug)]
pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    options: Options,
    /// Up to here, each byte is known to be an operator of its own; see [`operator`].
    signs_end: usize,
}

impl<'a> Scanner<'a> {
    /// Scans `text` from its beginning.
    pub fn new(text: &'a [u8], options: Options) -> Self {
        Scanner {
            text,
            at: 0,
            options,
            signs_end: 0,
        }
    }

    /// The text that is scanned.
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Where the next token is looked for.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Goes on at `at`, which must be where a token or white space begins.
    pub(crate) fn seek(&mut self, at: usize) {
        self.at = at;
    }

    fn byte(&self, at: usize) -> u8 {
        // A zero can stand for the end: it is in no class, and the protocol's strings cannot contain it.
        self.text.get(at).copied().unwrap_or(0)
    }

    fn skip_class(&self, mut at: usize, class: u8) -> usize {
        while let Some(&byte) = self.text.get(at) {
            if CLASSES[usize::from(byte)] & class == 0 {
                break;
            }
            at += 1;
        }
        at
    }

    /// What the token that starts at `start` is, and where it ends.
    fn token(&mut self, start: usize, first: u8) -> (TokenKind, usize) {
        let class = CLASSES[usize::from(first)];
        if class & WORD_START != 0 {
            if class & PREFIX != 0
                && let Some(found) = self.prefixed(start, first)
            {
                return found;
            }
            return (TokenKind::Word, self.skip_class(start + 1, WORD));
        }
        if class & DIGIT != 0 {
            return (TokenKind::Number, self.number(start));
        }
        let second = self.byte(start + 1);
        match (first, second) {
            (b'-', b'-') => (TokenKind::LineComment, self.line_end(start + 2)),
            (b'/', b'*') => self.block_comment(start + 2),
            _ if class & OPERATOR != 0 => (TokenKind::Operator, self.operator(start)),
            (b'\'', _) => self.string(start + 1),
            (b'"', _) => self.quoted_ident(start + 1, TokenKind::QuotedIdent),
            (b'.', b'0'..=b'9') => (TokenKind::Number, self.number(start)),
            (b'$', _) => self.dollar(start),
            (b':', b':' | b'=') | (b'.', b'.') => (TokenKind::Symbol, start + 2),
            _ => (TokenKind::Symbol, start + 1),
        }
    }

    fn line_end(&self, mut at: usize) -> usize {
        while !matches!(self.text.get(at), None | Some(b'\n' | b'\r')) {
            at += 1;
        }
        at
    }

    fn block_comment(&self, mut at: usize) -> (TokenKind, usize) {
        let mut depth = 1_usize;
        while let Some(&byte) = self.text.get(at) {
            match (byte, self.byte(at + 1)) {
                (b'*', b'/') => {
                    at += 2;
                    depth -= 1;
                    if depth == 0 {
                        return (TokenKind::BlockComment, at);
                    }
                }
                (b'/', b'*') => {
                    at += 2;
                    depth += 1;
                }
                _ => at += 1,
            }
        }
        (TokenKind::Unterminated, self.text.len())
    }
}

impl Iterator for Scanner<'_> {
    type Item = Token;

    #[inline]
    fn next(&mut self) -> Option<Token> {
        let start = self.skip_class(self.at, SPACE);
        let Some(&first) = self.text.get(start) else {
            self.at = start;
            return None;
        };
        let (kind, end) = self.token(start, first);
        self.at = end;
        Some(Token { kind, start, end })
    }
}

/// What a byte can begin, in one look.
#[inline]
pub(crate) fn class(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

/// Vertical tab is white space from PostgreSQL 16 on, and an error before.
const SPACE: u8 = 1;
pub(crate) const WORD_START: u8 = 2;
pub(crate) const WORD: u8 = 4;
pub(crate) const DIGIT: u8 = 8;
const OPERATOR: u8 = 16;
/// Letters that change what a quote behind them means: `E'`, `B'`, `X'`, `U&'`, `U&"`.
pub(crate) const PREFIX: u8 = 32;
/// White space and signs that mean the same alone as beside any other byte: none begins a comment or a quote.
pub(crate) const ALONE: u8 = 64;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => SPACE | ALONE,
            b'e' | b'E' | b'b' | b'B' | b'x' | b'X' | b'u' | b'U' => WORD_START | WORD | PREFIX,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80..=0xff => WORD_START | WORD,
            b'0'..=b'9' => DIGIT | WORD,
            b'$' => WORD,
            b'~' | b'!' | b'@' | b'#' | b'^' | b'&' | b'|' | b'`' | b'?' => OPERATOR,
            b'+' | b'*' | b'%' | b'<' | b'>' | b'=' => OPERATOR | ALONE,
            b'-' | b'/' => OPERATOR,
            b',' | b':' | b'[' | b']' => ALONE,
            _ => 0,
        };
        byte += 1;
    }
    classes
}
