//! What a reload has done, for whoever asked for it.

use crate::config::{ConfigErrors, Difference};
use serde::Serialize;

/// What came of a reload.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct ReloadReport {
    /// In a word.
    pub outcome: Outcome,
    /// Keys that are in force with another value.
    pub changed: Vec<Change>,
    /// Keys that have another value in the file, which a restart takes.
    pub restart: Vec<Pending>,
    /// Databases that clients can name now.
    pub databases_added: Vec<String>,
    /// Databases that they cannot name any more.
    pub databases_removed: Vec<String>,
    /// Databases whose servers are replaced as they become free.
    pub servers_replaced: Vec<String>,
    /// Why nothing has changed.
    pub errors: Vec<Fault>,
}

/// What came of a reload, in a word.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The new configuration is in force on all shards.
    Applied,
    /// Something is wrong, and the old one is in force on all shards.
    Refused,
}

/// A key that has another value.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Change {
    /// Its path, or that of a file that has other contents.
    pub key: String,
    /// What it was; secrets are not shown.
    pub from: Option<String>,
    /// What it is.
    pub to: Option<String>,
}

/// A key that cannot change while the process runs.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Pending {
    /// Its path.
    pub key: String,
    /// Why it takes a restart.
    pub reason: String,
}

/// Something that is wrong.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Fault {
    /// The file, or nothing.
    pub file: String,
    /// The line in it, from 1; 0 where there is none.
    pub line: usize,
    /// The key, if it is about one.
    pub key: String,
    /// What was expected.
    pub expected: String,
}

impl ReloadReport {
    /// Nothing has changed, for these reasons.
    pub(super) fn refused(errors: Vec<Fault>) -> Self {
        Self {
            outcome: Outcome::Refused,
            errors,
            ..Self::applied()
        }
    }

    pub(super) fn applied() -> Self {
        Self {
            outcome: Outcome::Applied,
            changed: Vec::new(),
            restart: Vec::new(),
            databases_added: Vec::new(),
            databases_removed: Vec::new(),
            servers_replaced: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// In a line.
    pub(super) fn status(&self) -> &'static str {
        match self.outcome {
            Outcome::Applied => "serving",
            Outcome::Refused => "serving; the last reload was refused, see the log",
        }
    }

    /// Tells the log.
    pub(super) fn log(&self) {
        for fault in &self.errors {
            tracing::error!("{fault}");
        }
        if self.outcome == Outcome::Refused {
            tracing::error!("reload: the configuration stays as it was");
            return;
        }
        for Change { key, from, to } in &self.changed {
            let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
            tracing::info!(%key, from = %shown(from), to = %shown(to), "reload: changed");
        }
        for Pending { key, reason } in &self.restart {
            tracing::warn!(%key, %reason, "reload: takes a restart");
        }
        tracing::info!(
            changed = self.changed.len(),
            restart = self.restart.len(),
            "reload: the new configuration is in force"
        );
    }
}

impl Fault {
    /// One that is about no place in a file.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self {
            file: String::new(),
            line: 0,
            key: String::new(),
            expected: text.into(),
        }
    }

    pub(super) fn all(errors: ConfigErrors) -> Vec<Self> {
        let fault = |problem: crate::config::Problem| Self {
            file: problem.file,
            line: problem.line,
            key: problem.key,
            expected: problem.text,
        };
        errors.0.into_iter().map(fault).collect()
    }
}

impl std::fmt::Display for Fault {
    /// As the configuration's own problems are shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
            if self.line > 0 {
                write!(f, "{}:", self.line)?;
            }
            f.write_str(" ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.expected)
    }
}

impl From<Difference> for Change {
    fn from(difference: Difference) -> Self {
        Self {
            key: difference.key,
            from: difference.before,
            to: difference.after,
        }
    }
}
