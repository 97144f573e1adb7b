//! Passwords: wiped when dropped, and impossible to print by accident.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use super::report::Report;

/// A password or another secret.
///
/// It has neither `Debug` nor `Display`, so that no log line can hold it: read it by [`Secret::expose`],
/// only where it is needed.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a secret over; the text is wiped when the last copy of it is dropped.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// The password that a section gives by `password` or by `password_file`.
pub(super) fn read_password(
    password: Option<Secret>,
    file: Option<PathBuf>,
    key: &str,
    report: &mut Report,
) -> Option<Secret> {
    let Some(file) = file else { return password };
    let key = format!("{key}.password_file");
    if password.is_some() {
        report.at(&key, "expected password or password_file, got both");
        return None;
    }
    let path = report.beside(&file);
    match std::fs::read_to_string(&path).map(Secret::new) {
        Ok(text) => match text.expose().lines().next() {
            Some(line) if !line.is_empty() => Some(Secret::new(line.to_owned())),
            _ => {
                report.at(
                    &key,
                    format!(
                        "expected a password in the first line of {}, got nothing",
                        path.display()
                    ),
                );
                None
            }
        },
        Err(error) => {
            report.at(&key, format!("cannot read {}: {error}", path.display()));
            None
        }
    }
}
