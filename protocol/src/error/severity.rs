//! How bad it is.

/// Severity of an error or a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The server as a whole goes down.
    Panic,
    /// The session ends.
    Fatal,
    /// The statement failed.
    Error,
    /// Something is likely wrong.
    Warning,
    /// Worth knowing.
    Notice,
    /// For developers.
    Debug,
    /// What the user asked for.
    Info,
    /// For the log.
    Log,
}

impl Severity {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Panic => "PANIC",
            Self::Fatal => "FATAL",
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Log => "LOG",
        }
    }

    /// The severity that an untranslated word means.
    pub const fn from_bytes(word: &[u8]) -> Option<Self> {
        match word {
            b"PANIC" => Some(Self::Panic),
            b"FATAL" => Some(Self::Fatal),
            b"ERROR" => Some(Self::Error),
            b"WARNING" => Some(Self::Warning),
            b"NOTICE" => Some(Self::Notice),
            b"DEBUG" => Some(Self::Debug),
            b"INFO" => Some(Self::Info),
            b"LOG" => Some(Self::Log),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_severities_are_one_to_one() {
        for severity in [
            Severity::Panic,
            Severity::Fatal,
            Severity::Error,
            Severity::Warning,
            Severity::Notice,
            Severity::Debug,
            Severity::Info,
            Severity::Log,
        ] {
            assert_eq!(
                Severity::from_bytes(severity.as_str().as_bytes()),
                Some(severity)
            );
        }
        assert_eq!(Severity::from_bytes(b"fatal"), None);
        assert_eq!(Severity::from_bytes(b""), None);
    }
}
