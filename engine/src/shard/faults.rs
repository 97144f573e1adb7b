//! Errors that clients got, by who made them and their SQLSTATE.

use protocol::error::Fields;
use std::cell::RefCell;

/// Who made an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// PostgreSQL.
    Server,
    /// pgmux.
    Pgmux,
}

impl Maker {
    /// As a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Pgmux => "pgmux",
        }
    }
}

/// How many there were. Looked through from the front: few codes make nearly
/// all errors, and those come first.
#[derive(Default)]
pub struct Faults(RefCell<Vec<(Maker, Code, u64)>>);

type Code = [u8; 5];

impl Faults {
    /// A client gets this `ErrorResponse`: what stands behind its length.
    pub fn note(&self, maker: Maker, body: &[u8]) {
        let code = Fields::new(body).code();
        let code = code.map_or(OTHER, |code| *code.as_bytes());
        let mut counts = self.0.borrow_mut();
        if let Some(count) = find(&mut counts, maker, code) {
            *count += 1;
            return;
        }
        // A server may say any code: their number is bounded, not their names.
        let code = if counts.len() < CODES_MAX {
            code
        } else {
            OTHER
        };
        match find(&mut counts, maker, code) {
            Some(count) => *count += 1,
            None => counts.push((maker, code, 1)),
        }
    }

    /// The same with its header, as pgmux sends it; other messages do not count.
    pub fn note_own(&self, message: &[u8]) {
        if let [b'E', _, _, _, _, body @ ..] = message {
            self.note(Maker::Pgmux, body);
        }
    }

    /// All of them.
    pub fn counts(&self) -> Vec<(Maker, Code, u64)> {
        self.0.borrow().clone()
    }
}

fn find(counts: &mut [(Maker, Code, u64)], maker: Maker, code: Code) -> Option<&mut u64> {
    let mut counts = counts.iter_mut();
    let found = counts.find(|(own, other, _)| *own == maker && *other == code);
    found.map(|(_, _, count)| count)
}

/// A code as a label.
pub fn label(code: &Code) -> String {
    match std::str::from_utf8(code) {
        Ok(text) if *code != OTHER => text.to_owned(),
        _ => "other".to_owned(),
    }
}

/// Codes that are counted by themselves.
const CODES_MAX: usize = 100;
/// All that are beyond, and errors without a code.
const OTHER: Code = *b"-----";

#[cfg(test)]
mod tests {
    use super::*;

    fn body(code: &str) -> Vec<u8> {
        format!("SERROR\0C{code}\0Mno\0\0").into_bytes()
    }

    #[test]
    fn errors_are_counted_by_maker_and_code() {
        let faults = Faults::default();
        faults.note(Maker::Server, &body("23505"));
        faults.note(Maker::Server, &body("23505"));
        faults.note_own(&[&b"E\0\0\0\x1c"[..], &body("23505")].concat());
        faults.note_own(b"Z\0\0\0\x05I");
        faults.note(Maker::Server, b"");
        let told: Vec<_> = faults
            .counts()
            .into_iter()
            .map(|(maker, code, count)| (maker.name(), label(&code), count))
            .collect();
        let expected = [
            ("server", "23505", 2),
            ("pgmux", "23505", 1),
            ("server", "other", 1),
        ];
        assert_eq!(
            told,
            expected.map(|(maker, code, count)| (maker, code.to_owned(), count))
        );
    }

    #[test]
    fn codes_without_end_are_counted_together() {
        let faults = Faults::default();
        for number in 0..5000 {
            faults.note(Maker::Server, &body(&format!("{number:05}")));
            faults.note(Maker::Pgmux, &body(&format!("{number:05}")));
        }
        let counts = faults.counts();
        assert!(counts.len() <= CODES_MAX + 2, "{}", counts.len());
        assert_eq!(
            counts.iter().map(|(_, _, count)| count).sum::<u64>(),
            10_000
        );
    }
}
