//! The fields of an ErrorResponse or a NoticeResponse, as a server sent them.
//!
//! Spec: protocol-error-fields.

use std::fmt;

use crate::cursor::Cursor;
use crate::error::{Severity, SqlState, field};

/// Fields as they came. Nothing is required of them: any may be absent, come twice, be unknown, or
/// be cut off in the middle, and what can still be read is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields in a message body.
    pub const fn new(body: &'a [u8]) -> Self {
        Self { bytes: body }
    }

    /// The whole body as it came.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Walks the fields, known or not, up to the terminator or to the first that is cut off.
    pub const fn iter(&self) -> FieldsIter<'a> {
        FieldsIter {
            cursor: Cursor::new(self.bytes),
        }
    }

    /// The first field of this kind.
    pub fn get(&self, kind: u8) -> Option<&'a [u8]> {
        self.iter()
            .find_map(|(found, text)| (found == kind).then_some(text))
    }

    /// Severity: the untranslated one where the server sends it (since 9.6), else the other.
    pub fn severity(&self) -> Option<&'a [u8]> {
        self.get(field::SEVERITY_NON_LOCALIZED)
            .or_else(|| self.get(field::SEVERITY))
    }

    /// Whether the session ends with it.
    pub fn is_fatal(&self) -> bool {
        let severity = self.severity().and_then(Severity::from_bytes);
        matches!(severity, Some(Severity::Fatal | Severity::Panic))
    }

    /// SQLSTATE, unless it is absent or is not five digits and capitals.
    pub fn code(&self) -> Option<SqlState> {
        self.get(field::CODE).and_then(SqlState::from_bytes)
    }

    /// The message.
    pub fn message(&self) -> Option<&'a [u8]> {
        self.get(field::MESSAGE)
    }

    /// More about the cause.
    pub fn detail(&self) -> Option<&'a [u8]> {
        self.get(field::DETAIL)
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'a [u8]> {
        self.get(field::HINT)
    }
}

/// As text, and what is not ASCII escaped.
impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readable =
            |(kind, text): (u8, &[u8])| (char::from(kind), text.escape_ascii().to_string());
        f.debug_map().entries(self.iter().map(readable)).finish()
    }
}

impl<'a> IntoIterator for Fields<'a> {
    type Item = (u8, &'a [u8]);
    type IntoIter = FieldsIter<'a>;

    fn into_iter(self) -> FieldsIter<'a> {
        self.iter()
    }
}

/// Walks [`Fields`] as pairs of letter and text.
#[derive(Clone, Debug)]
pub struct FieldsIter<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Iterator for FieldsIter<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let kind = self.cursor.u8().ok()?;
        let text = match kind {
            0 => None,
            _ => self.cursor.cstr().ok(),
        };
        if text.is_none() {
            self.cursor = Cursor::new(&[]);
        }
        text.map(|text| (kind, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_letter_and_unknown_ones_are_kept() {
        let fields = Fields::new(b"SFEHLER\0VERROR\0C42P05\0Mboom\0Dwhy\0Hdo\0?what\0\0");
        assert_eq!(fields.severity(), Some(&b"ERROR"[..]));
        assert_eq!(fields.code(), Some(SqlState::DUPLICATE_PREPARED_STATEMENT));
        assert_eq!(fields.message(), Some(&b"boom"[..]));
        assert_eq!(fields.detail(), Some(&b"why"[..]));
        assert_eq!(fields.hint(), Some(&b"do"[..]));
        assert_eq!(fields.get(b'?'), Some(&b"what"[..]));
        assert_eq!(fields.into_iter().count(), 7);
        assert!(!fields.is_fatal());
    }

    #[test]
    fn they_print_as_text() {
        let fields = Fields::new(b"SERROR\0M\xff\n\0\0");
        assert_eq!(format!("{fields:?}"), r#"{'S': "ERROR", 'M': "\\xff\\n"}"#);
    }

    #[test]
    fn without_the_untranslated_severity_the_translated_one_is_used() {
        assert!(Fields::new(b"SFATAL\0\0").is_fatal());
        assert!(Fields::new(b"SPANIC\0\0").is_fatal());
        assert!(!Fields::new(b"SFATAL\0VERROR\0\0").is_fatal());
        assert!(!Fields::new(b"").is_fatal());
    }

    #[test]
    fn reading_stops_at_the_terminator_and_at_what_is_cut_off() {
        let mut ended = Fields::new(b"Mboom\0\0Dhidden\0\0").iter();
        assert_eq!(ended.next(), Some((b'M', &b"boom"[..])));
        assert_eq!((ended.next(), ended.next()), (None, None));
        let cut = Fields::new(b"Mboom\0Dwh");
        assert_eq!(cut.iter().collect::<Vec<_>>(), [(b'M', &b"boom"[..])]);
        let mut fields = cut.iter();
        fields.by_ref().for_each(drop);
        assert_eq!(fields.next(), None);
    }

    #[test]
    fn a_code_that_is_none_is_absent() {
        for body in [
            &b"C\0\0"[..],
            b"C4260\0\0",
            b"C426011\0\0",
            b"C4260a\0\0",
            b"C\xff\xff\xff\xff\xff\0\0",
        ] {
            assert_eq!(Fields::new(body).code(), None);
        }
    }
}
