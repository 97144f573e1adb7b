//! Errors and notices that are ours.

use crate::encode::{self, EncodeError, Writer};
use crate::error::{Severity, SqlState, field};
use crate::tag::backend_tag;

/// What to tell a client. Text must already be fit for its eyes: no hosts, no secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorFields<'a> {
    /// How bad it is.
    pub severity: Severity,
    /// What programs go by.
    pub code: SqlState,
    /// What people go by: one sentence, as PostgreSQL writes them.
    pub message: &'a str,
    /// More about the cause.
    pub detail: Option<&'a str>,
    /// What to do about it.
    pub hint: Option<&'a str>,
    /// Position in the query, in characters from 1.
    pub position: Option<u32>,
}

impl<'a> ErrorFields<'a> {
    /// The three parts that every error has.
    pub const fn new(severity: Severity, code: SqlState, message: &'a str) -> Self {
        Self {
            severity,
            code,
            message,
            detail: None,
            hint: None,
            position: None,
        }
    }

    /// A statement failed; the session goes on.
    pub const fn error(code: SqlState, message: &'a str) -> Self {
        Self::new(Severity::Error, code, message)
    }

    /// The session ends.
    pub const fn fatal(code: SqlState, message: &'a str) -> Self {
        Self::new(Severity::Fatal, code, message)
    }

    /// Adds more about the cause.
    #[must_use]
    pub const fn with_detail(mut self, detail: &'a str) -> Self {
        self.detail = Some(detail);
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub const fn with_hint(mut self, hint: &'a str) -> Self {
        self.hint = Some(hint);
        self
    }

    /// Appends an ErrorResponse; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::ERROR_RESPONSE, |w| self.write(w))
    }

    /// Appends a NoticeResponse; on error `out` is left as it was.
    pub fn encode_notice(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::NOTICE_RESPONSE, |w| self.write(w))
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        write_field(w, field::SEVERITY, self.severity.as_str())?;
        write_field(w, field::SEVERITY_NON_LOCALIZED, self.severity.as_str())?;
        write_field(w, field::CODE, self.code.as_str())?;
        write_field(w, field::MESSAGE, self.message)?;
        if let Some(detail) = self.detail {
            write_field(w, field::DETAIL, detail)?;
        }
        if let Some(hint) = self.hint {
            write_field(w, field::HINT, hint)?;
        }
        if let Some(position) = self.position {
            write_field(w, field::POSITION, &position.to_string())?;
        }
        w.u8(0)
    }
}

/// Text with a NUL ends there: an error must reach the client even when what it quotes is broken.
fn write_field(w: &mut Writer<'_>, kind: u8, text: &str) -> Result<(), EncodeError> {
    let (text, _) = text.split_once('\0').unwrap_or((text, ""));
    w.u8(kind)?;
    w.cstr(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_looks_like_this() {
        let error = ErrorFields::fatal(SqlState::ADMIN_SHUTDOWN, "terminating connection");
        let mut out = b"before".to_vec();
        error.encode(&mut out).unwrap();
        assert_eq!(
            out,
            b"beforeE\0\0\0\x32SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0"
        );
    }

    #[test]
    fn everything_that_was_set_is_sent() {
        let mut error = ErrorFields::error(SqlState::SYNTAX_ERROR, "m")
            .with_detail("d")
            .with_hint("h");
        error.position = Some(12);
        let mut out = Vec::new();
        error.encode(&mut out).unwrap();
        assert_eq!(
            out,
            b"E\0\0\0\x27SERROR\0VERROR\0C42601\0Mm\0Dd\0Hh\0P12\0\0"
        );
    }

    #[test]
    fn a_notice_differs_by_its_tag_only() {
        let notice = ErrorFields::new(Severity::Notice, SqlState::SUCCESSFUL_COMPLETION, "m");
        let mut out = Vec::new();
        notice.encode_notice(&mut out).unwrap();
        assert_eq!(out, b"N\0\0\0\x1fSNOTICE\0VNOTICE\0C00000\0Mm\0\0");
    }

    #[test]
    fn text_with_a_nul_ends_there_instead_of_failing() {
        let error = ErrorFields::error(SqlState::INTERNAL_ERROR, "a\0Cfake\0\0Z");
        let mut out = Vec::new();
        error.encode(&mut out).unwrap();
        assert!(out.ends_with(b"CXX000\0Ma\0\0"));
    }
}
