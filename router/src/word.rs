//! Words as numbers, so that a keyword is compared in one instruction and matched like a constant.

/// A word of at most 16 bytes, folded to lower case as PostgreSQL folds ASCII.
pub(crate) type Key = u128;

/// The key of everything that is no word, or a longer one than any that is looked for by key.
pub(crate) const NO_WORD: Key = 0;

/// The key of a constant, which must be in lower case.
pub(crate) const fn key(word: &str) -> Key {
    let word = word.as_bytes();
    assert!(word.len() <= 16, "longer than a key");
    let mut bytes = [0; 16];
    let mut at = 0;
    while at < word.len() {
        assert!(!word[at].is_ascii_uppercase(), "keys are in lower case");
        bytes[at] = word[at];
        at += 1;
    }
    Key::from_le_bytes(bytes)
}

/// The key of a word in a text.
#[inline]
pub(crate) fn folded(word: &[u8]) -> Key {
    let mut bytes = [0; 16];
    let Some(target) = bytes.get_mut(..word.len()) else {
        return NO_WORD;
    };
    for (target, byte) in target.iter_mut().zip(word) {
        *target = byte.to_ascii_lowercase();
    }
    Key::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_the_key_of_its_lower_case_form() {
        assert_eq!(folded(b"SeLeCT"), key("select"));
        assert_ne!(folded(b"selec"), key("select"));
        assert_eq!(folded(b"exactly16letters"), key("exactly16letters"));
        assert_eq!(folded(b"seventeen_letters"), NO_WORD);
    }
}
