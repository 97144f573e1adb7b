//! What a text asks for itself: a time (`/* timeout:5s */`), or a server ([`route`]).
//!
//! A hint is a block comment of its own, anywhere in the text where PostgreSQL sees a comment: not in a literal, not
//! in another comment, not behind `--`. All its words are of the form `name:value`, so that one comment may hold
//! several hints and prose is none. Nothing is allocated, and a text without `/*` is not scanned.

pub mod route;

use crate::scan::{Options, Scanner, TokenKind};
use std::time::Duration;

pub use route::Route;

/// The first time that the text asks for. Zero, and what is no time, asks for nothing.
#[inline]
pub fn timeout(text: &[u8]) -> Option<Duration> {
    if !may_have_comment(text) {
        return None;
    }
    scan(text)
}

/// Whether a slash is in it: few texts have one. Without an early end, so that the compiler looks at many bytes at once.
#[inline]
fn may_have_comment(text: &[u8]) -> bool {
    let slash = |found, byte: &u8| found | (*byte == b'/');
    text.chunks(64).any(|chunk| chunk.iter().fold(false, slash))
}

#[cold]
fn scan(text: &[u8]) -> Option<Duration> {
    if !text.windows(2).any(|pair| pair == b"/*") {
        return None;
    }
    let tokens = Scanner::new(text, Options::default());
    let mut comments = tokens.filter(|token| token.kind == TokenKind::BlockComment);
    comments.find_map(|comment| of_comment(comment.text(text)))
}

fn of_comment(comment: &[u8]) -> Option<Duration> {
    words(comment)?.find_map(|word| duration(word.strip_prefix(b"timeout:")?))
}

/// The hints of a block comment, if it has nothing else in it.
fn words(comment: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let inside = comment.strip_prefix(b"/*")?.strip_suffix(b"*/")?;
    let words = || {
        let words = inside.split(|byte| byte.is_ascii_whitespace() || *byte == b',');
        words.filter(|word| !word.is_empty())
    };
    words().all(is_hint).then(words)
}

fn is_hint(word: &[u8]) -> bool {
    let colon = word.iter().position(|byte| *byte == b':');
    colon.is_some_and(|at| at > 0 && word[..at].iter().all(u8::is_ascii_lowercase))
}

/// `200ms`, `5s`, `1.5m`: digits with at most nine decimals, and a unit.
fn duration(text: &[u8]) -> Option<Duration> {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let end = text
        .iter()
        .position(|byte| !is_digit(byte) && *byte != b'.')?;
    let unit: u64 = match &text[end..] {
        b"ms" => 1_000_000,
        b"s" => 1_000_000_000,
        b"m" => 60_000_000_000,
        _ => return None,
    };
    let mut parts = text[..end].split(|byte| *byte == b'.');
    let (whole, fraction) = (parts.next()?, parts.next());
    if parts.next().is_some() || whole.is_empty() || fraction.is_some_and(<[u8]>::is_empty) {
        return None;
    }
    let mut nanos = number(whole)?.checked_mul(unit)?;
    if let Some(fraction) = fraction.filter(|fraction| fraction.len() <= 9) {
        let scale = fraction.iter().fold(1_u128, |scale, _| scale * 10);
        let part = u128::from(number(fraction)?) * u128::from(unit) / scale;
        nanos = nanos.checked_add(u64::try_from(part).ok()?)?;
    } else if fraction.is_some() {
        return None;
    }
    (nanos > 0).then(|| Duration::from_nanos(nanos))
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_a_comment_of_its_own_with_a_number_and_a_unit() {
        let table = [
            ("/* timeout:200ms */ SELECT pg_sleep(5)", 200),
            ("/*timeout:5s*/select 1", 5_000),
            ("select 1 /* timeout:2m */", 120_000),
            ("select /* timeout:1.5s */ 1", 1_500),
            ("select 'x' /* timeout:0.25m */", 15_000),
            ("/* route:reader timeout:3s */ select 1", 3_000),
            ("/* timeout:3s, route:writer */ select 1", 3_000),
            ("/* route:writer */ /* timeout:3s */ select 1", 3_000),
            ("/* why? */ select 2/2 /* timeout:7ms */", 7),
            ("/* timeout:0s */ /* timeout:9ms */ select 1", 9),
            ("select 1; /* timeout:4s */ select 2", 4_000),
        ];
        for (text, millis) in table {
            let expected = Some(Duration::from_millis(millis));
            assert_eq!(timeout(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_comment_or_no_time_asks_for_nothing() {
        let texts = [
            "select 1",
            "select 4/2",
            "timeout:5s",
            "-- /* timeout:5s */\nselect 1",
            "-- timeout:5s",
            "select '/* timeout:5s */'",
            "select E'\\'/* timeout:5s */'",
            "select $$/* timeout:5s */$$",
            "select $a$ $$ /* timeout:5s */ $a$",
            "select \"/* timeout:5s */\"",
            "select U&'/* timeout:5s */'",
            "/* a /* timeout:5s */ */ select 1",
            "/* /* timeout:5s */ route:x */ select 1",
            "/* timeout:5s",
            "/* timeout:5s select 1",
            "/* the timeout:5s is short */ select 1",
            "/* timeout: 5s */ select 1",
            "/* timeout:abc */ select 1",
            "/* timeout:0s */ select 1",
            "/* timeout:0.0ms */ select 1",
            "/* timeout:-5s */ select 1",
            "/* timeout:5 */ select 1",
            "/* timeout:5h */ select 1",
            "/* timeout:5.s */ select 1",
            "/* timeout:.5s */ select 1",
            "/* timeout:1.2.3s */ select 1",
            "/* TIMEOUT:5s */ select 1",
            "/* timeout:99999999999999999999s */ select 1",
            "/**/ select 1",
            "/*/ timeout:5s */ select 1",
            "",
        ];
        for text in texts {
            assert_eq!(timeout(text.as_bytes()), None, "{text}");
        }
    }
}
