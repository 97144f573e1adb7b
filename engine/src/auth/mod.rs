//! Who may log in how: the files of PostgreSQL and PgBouncer that say so, and
//! the decision over them. No I/O but by what the caller hands in, no clock.

pub mod address;
pub mod hba;
pub mod ident;
mod options;
#[cfg(test)]
mod tests;
pub mod userlist;
mod words;

use std::fmt;

pub use hba::{CertName, ClientCert, Decision, Method, Request, Rule, Rules, Source};
pub use ident::Maps;

/// What is wrong in a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file, as it was named.
    pub file: String,
    /// The line in it, from 1; 0 when the file cannot be read.
    pub line: usize,
    /// What was expected and what was there; never a secret.
    pub text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

/// A name that must be this one, or a pattern for names.
enum Pattern {
    Literal(String),
    Regex(regex::Regex),
}

impl Pattern {
    /// As PostgreSQL reads it: what begins with a slash is a regular
    /// expression, in quotes or not.
    fn read(text: &str) -> Result<Self, String> {
        match text.strip_prefix('/') {
            Some(pattern) => match regex::RegexBuilder::new(pattern)
                .size_limit(REGEX_BYTES)
                .build()
            {
                Ok(regex) => Ok(Self::Regex(regex)),
                Err(error) => {
                    let reason = error.to_string();
                    let reason = reason.lines().last().unwrap_or("not understood");
                    Err(format!(
                        "expected a regular expression behind /, got {pattern:?} ({})",
                        reason.trim_start_matches("error: ")
                    ))
                }
            },
            None => Ok(Self::Literal(text.to_owned())),
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Literal(text) => text == name,
            Self::Regex(regex) => regex.is_match(name),
        }
    }
}

/// A compiled pattern's memory: far more than any list of names takes.
const REGEX_BYTES: usize = 1 << 20;
