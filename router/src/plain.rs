//! The short way for plain texts: one statement of the usual kinds, in which nothing can be that matters.
//!
//! Nearly all texts of most clients are like that, and to cut each into tokens is a good part of what it costs to pass
//! it on. Here, each byte takes five instructions and no branch. The answer is either what the long way
//! ([`crate::statement`]) would say, or that it must be asked; where the two could differ, it must be asked. To ask too
//! often only costs time.

use State::*;

use crate::effects::{Effect, Effects};
use crate::word::key;

/// What the text does to the session, if it is plain. The same for either way to read a backslash: a text that has one
/// where it could matter is not plain.
#[inline]
pub(crate) fn effects(text: &[u8]) -> Option<Effects> {
    // White space and a last semicolon are without effect, even where the semicolon turns out to end nothing.
    let text = text.trim_ascii();
    let text = text.strip_suffix(b";").unwrap_or(text);
    if let Some(effect) = transaction_control(text) {
        return Some(Effects::of(&[effect]));
    }
    let (first_words, effects) = first_words(text)?;
    is_plain(text.get(first_words..)?).then_some(effects)
}

/// The text that is one of these words and nothing else.
#[inline]
fn transaction_control(text: &[u8]) -> Option<Effect> {
    match text.len() {
        3 if folded::<3>(text)? == word("end") => Some(Effect::Commit),
        5 if folded::<5>(text)? == word("begin") => Some(Effect::Begin),
        6 if folded::<6>(text)? == word("commit") => Some(Effect::Commit),
        8 if folded::<8>(text)? == word("rollback") => Some(Effect::Rollback),
        _ => None,
    }
}

/// The length of the words that say what the statement is, with the white space behind, and their effect. In what
/// follows, only names and `INTO` matter; that of `INSERT INTO` does not, and is among the first words.
#[inline]
fn first_words(text: &[u8]) -> Option<(usize, Effects)> {
    let start = folded::<8>(text)?;
    let (len, effects) = match start & letters(6) {
        SELECT | UPDATE | DELETE | VALUES => (6, Effects::NONE),
        INSERT if is_space(text, 6) && folded::<4>(text.get(7..)?)? == word("into") => {
            (11, Effects::NONE)
        }
        _ if start & letters(5) == word("begin") => (5, Effects::of(&[Effect::Begin])),
        _ if start & letters(4) == word("with") => (4, Effects::NONE),
        _ => return None,
    };
    is_space(text, len).then_some((len + 1, effects))
}

#[inline]
fn is_space(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(u8::is_ascii_whitespace)
}

const SELECT: u64 = word("select");
const UPDATE: u64 = word("update");
const DELETE: u64 = word("delete");
const VALUES: u64 = word("values");
const INSERT: u64 = word("insert");

/// A short word, in lower case, as a number.
const fn word(word: &str) -> u64 {
    let key = key(word);
    assert!(key >> u64::BITS == 0, "at most eight letters");
    key as u64
}

/// The first `LEN` bytes of the text like [`word`], if it has so many. Made for lengths that are known, and for letters:
/// only the two cases of a letter become that letter.
#[inline]
fn folded<const LEN: usize>(text: &[u8]) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes[..LEN].copy_from_slice(text.first_chunk::<LEN>()?);
    let lower = u64::from_le_bytes([0x20; 8]) & letters(LEN as u32);
    Some(u64::from_le_bytes(bytes) | lower)
}

/// The bits of so many first bytes.
const fn letters(count: u32) -> u64 {
    u64::MAX >> (u64::BITS - 8 * count)
}

/// Whether nothing in `text` can matter: the automaton of [`State`] does not stumble, and does not end inside a thing.
#[inline]
fn is_plain(text: &[u8]) -> bool {
    let (chunks, rest) = text.as_chunks::<CHUNK_BYTES>();
    let mut state = State::Gap as u64;
    for chunk in chunks {
        state = chunk.iter().fold(state, step);
        // Once here, always here: long texts that are not plain need not be read twice.
        if state & STATE_MASK == State::Long as u64 {
            return false;
        }
    }
    state = rest.iter().fold(state, step);
    let last = state & STATE_MASK;
    last >= State::Gap as u64 && last <= State::Sign as u64
}

/// The row of a byte has the next state for each state, four bits wide each: to shift the one that is needed down is to
/// take the step. What stands above it is garbage that neither a shift, which takes its distance modulo 64, nor the
/// mask at the end can see.
#[inline]
fn step(state: u64, byte: &u8) -> u64 {
    NEXT[usize::from(*byte)].wrapping_shr((state as u32) << 2)
}

const CHUNK_BYTES: usize = 16;
const STATE_MASK: u64 = 15;
const STATES: [State; 16] = [
    Long, Gap, Word, One, Two, Three, Sign, Slash, Comment, Star, Literal, Open, OpenOne, OpenTwo,
    OpenThree, Quoted,
];

/// Where a byte stands. Sixteen states fit in a row of the table, and no more.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// Something was there that only the long way understands.
    Long,
    /// Anything may begin here.
    Gap,
    /// In a word that is none of those that matter.
    Word,
    /// A word has begun with one letter, two, three, as one of those that matter; see [`name`].
    One,
    Two,
    Three,
    /// Behind `-`, `$` or `&`, or in a number: the next byte may make a comment, a dollar quote or a Unicode string of the
    /// sign, and in numbers there may be letters, behind which others begin a word (`1e5into`).
    Sign,
    /// Behind a `/`.
    Slash,
    Comment,
    /// Behind a star in a comment.
    Star,
    /// In `'...'`.
    Literal,
    /// Behind the quote that opens `"..."`, and behind one letter, two, three as of a name that matters.
    Open,
    OpenOne,
    OpenTwo,
    OpenThree,
    /// In an identifier in quotes that is none of those that matter.
    Quoted,
}

static NEXT: [u64; 256] = {
    let mut rows = [0; 256];
    let mut byte = 0;
    while byte < rows.len() {
        let mut at = 0;
        while at < STATES.len() {
            assert!(STATES[at] as usize == at);
            rows[byte] |= (next(STATES[at], byte as u8) as u64) << (4 * at);
            at += 1;
        }
        byte += 1;
    }
    rows
};

const fn next(state: State, byte: u8) -> State {
    match (state, byte) {
        (Long, _) => Long,
        (Comment | Star, _) => in_comment(state, byte),
        // Two quotes for one are the end of a string and the begin of another, which comes to the same. So do two strings
        // on two lines. A letter before the opening quote would change the rules: see `Word`.
        (Literal, b'\'') => Gap,
        (Literal, b'\\') => Long,
        (Literal, _) => Literal,
        (Open | OpenOne | OpenTwo | OpenThree | Quoted, _) => in_quotes(state, byte),
        (Slash, b'*') => Comment,
        (Sign | Slash, _) => behind_sign(byte),
        (Gap | Word | One | Two | Three, _) => outside(state, byte),
    }
}

/// Few bytes are the same behind each of the signs and numbers: in `$12`, `1.5`, `- 1`, `-1`, `->`, `$1::int`, `(1,2)`.
const fn behind_sign(byte: u8) -> State {
    match byte {
        b'0'..=b'9' | b'.' | b'&' => Sign,
        b'/' => Slash,
        b' ' | b'\t' | b'\n' | b'\r' => Gap,
        b',' | b':' | b'(' | b')' | b'[' | b']' => Gap,
        b'+' | b'*' | b'%' | b'<' | b'>' | b'=' | b'|' => Gap,
        _ => Long,
    }
}

const fn in_comment(state: State, byte: u8) -> State {
    match (state, byte) {
        (Star, b'/') => Gap,
        (_, b'*') => Star,
        // Perhaps a comment in the comment.
        (_, b'/') => Long,
        _ => Comment,
    }
}

const fn in_quotes(state: State, byte: u8) -> State {
    let letters = match (state, byte) {
        (_, b'"') => return Gap,
        (Open, _) => 0,
        (OpenOne, _) => 1,
        (OpenTwo, _) => 2,
        (OpenThree, _) => 3,
        _ => return Quoted,
    };
    match name(letters, byte) {
        Name::Other => Quoted,
        Name::One => OpenOne,
        Name::Two => OpenTwo,
        Name::Three => OpenThree,
        Name::Matters => Long,
    }
}

const fn outside(state: State, byte: u8) -> State {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80..=0xff => in_word(state, byte),
        b'0'..=b'9' | b'$' if matches!(state, Gap) => Sign,
        b'0'..=b'9' => Word,
        b'\'' if matches!(state, Gap) => Literal,
        b'"' if matches!(state, Gap) => Open,
        b'-' | b'&' => Sign,
        b'/' => Slash,
        b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => Gap,
        b',' | b'.' | b':' | b'(' | b')' | b'[' | b']' => Gap,
        b'+' | b'*' | b'%' | b'<' | b'>' | b'=' => Gap,
        b'~' | b'!' | b'@' | b'#' | b'^' | b'|' | b'`' | b'?' => Gap,
        // `;` and what PostgreSQL has no use for. Quotes right behind a word, which may be `E'...'`.
        _ => Long,
    }
}

const fn in_word(state: State, byte: u8) -> State {
    let letters = match state {
        Gap => 0,
        One => 1,
        Two => 2,
        Three => 3,
        _ => return Word,
    };
    match name(letters, byte) {
        Name::Other => Word,
        Name::One => One,
        Name::Two => Two,
        Name::Three => Three,
        Name::Matters => Long,
    }
}

/// How far a name has come to be one of those that matter.
enum Name {
    Other,
    One,
    Two,
    Three,
    Matters,
}

/// A name of so many letters that may yet matter goes on with `byte`. Names that matter begin as `pg_`, `set_`, `sets`,
/// `db` or `into`; the letters are not told apart by what was before them, so that `ints` or `pg_stat_activity` are
/// taken for such as well.
const fn name(letters: u8, byte: u8) -> Name {
    match (letters, byte.to_ascii_lowercase()) {
        (0, b'p' | b's' | b'd' | b'i') => Name::One,
        (1, b'b') => Name::Matters,
        (1, b'g' | b'e' | b'n') => Name::Two,
        (2, b'_') => Name::Matters,
        (2, b't') => Name::Three,
        (3, b'_' | b's' | b'o') => Name::Matters,
        _ => Name::Other,
    }
}

#[cfg(test)]
mod tests;
