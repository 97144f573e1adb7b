//! What is wrong with a configuration: every problem with its place, in one list.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// One mistake: where it is and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file as it was named to us.
    pub file: String,
    /// The line in it, from 1; 0 when the file could not be read at all.
    pub line: usize,
    /// The key's path, such as `pool.max_connections`; empty for a mistake in the YAML itself.
    pub key: String,
    /// What was expected and what was there.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        write!(f, " {}", self.text)
    }
}

/// All mistakes of one file, in the order of their lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<Problem>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects problems while a file is read, and knows the line of every key that was seen.
pub(super) struct Report {
    file: String,
    lines: HashMap<String, usize>,
    /// Other files that the configuration names.
    files: RefCell<Vec<PathBuf>>,
    problems: Vec<Problem>,
}

impl Report {
    pub(super) fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            lines: HashMap::new(),
            files: RefCell::default(),
            problems: Vec::new(),
        }
    }

    /// Remembers where a key stands, for problems that are found later; the first place counts.
    pub(super) fn seen(&mut self, key: &str, line: usize) {
        self.lines.entry(key.to_owned()).or_insert(line);
    }

    /// A problem whose line is known.
    pub(super) fn at_line(&mut self, line: usize, key: &str, text: impl Into<String>) {
        self.problems.push(Problem {
            file: self.file.clone(),
            line,
            key: key.to_owned(),
            text: text.into(),
        });
    }

    /// A problem in another file.
    pub(super) fn elsewhere(&mut self, file: String, line: usize, text: String) {
        self.problems.push(Problem {
            file,
            line,
            key: String::new(),
            text,
        });
    }

    /// A problem at a key, or, where that is not written, at the nearest key around it that is.
    pub(super) fn at(&mut self, key: &str, text: impl Into<String>) {
        let line = self.line(key);
        self.at_line(line, key, text);
    }

    /// A problem at a key that has none yet.
    pub(super) fn once(&mut self, key: &str, text: &str) {
        if !self.problems.iter().any(|problem| problem.key == key) {
            self.at(key, text);
        }
    }

    /// Whether the key is written in the file.
    pub(super) fn has_seen(&self, key: &str) -> bool {
        self.lines.contains_key(key)
    }

    fn line(&self, key: &str) -> usize {
        let mut path = key;
        loop {
            if let Some(line) = self.lines.get(path) {
                return *line;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return 1,
            }
        }
    }

    /// A relative path starts at the directory of the configuration file.
    pub(super) fn beside(&self, path: &Path) -> PathBuf {
        let path = self.directory().join(path);
        self.files.borrow_mut().push(path.clone());
        path
    }

    /// Where the configuration file is.
    pub(super) fn directory(&self) -> &Path {
        Path::new(&self.file).parent().unwrap_or(Path::new(""))
    }

    /// The files that [`Report::beside`] was asked for.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.files.borrow().clone()
    }

    /// How many problems there are so far.
    pub(super) fn count(&self) -> usize {
        self.problems.len()
    }

    /// All problems, or the value that was read without any.
    pub(super) fn finish<T>(mut self, value: Option<T>) -> Result<T, ConfigErrors> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => {
                self.problems.sort_by_key(|problem| problem.line);
                Err(ConfigErrors(self.problems))
            }
        }
    }
}
