//! Words that say on or off, as PostgreSQL's `defGetBoolean` takes them.

/// Whether a word behind `ANALYZE` says that it is off. What is no such word does not say so.
pub(super) fn is_off(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"off") || word.eq_ignore_ascii_case(b"false")
}
