//! Message scripts: conversations in a readable text, with PostgreSQL's own answers as golden replies.
//!
//! A script is a file of lines. Lines with `#` say what the script is about. `A`, `B`, … are clients; each logs in by
//! itself before its first message.
//!
//! | line | meaning |
//! |---|---|
//! | `needs 2` | the script needs two servers at the same time (default 1) |
//! | `only whole` | the script is not cut into pieces and servers are not changed under it; a reason stands above |
//! | `compare class` | errors are compared by severity and SQLSTATE only; a reason stands above |
//! | `direct "SQL"` | statements on a connection past pgmux, as the same role |
//! | `A > Parse "s" "select 1"` | a message; a run of such lines of one client is one write |
//! | `A cut` | ends such a run: what follows is another write |
//! | `A wait Z`, `A wait Z*2` | reads up to so many ReadyForQuery |
//! | `A wait 1 t T` | reads until messages with these tags have come in this order |
//! | `A wait eof`, `A wait byte`, `A wait quiet` | the end; one byte that is no message; nothing for a while |
//! | `A < ParseComplete` | golden reply of the wait above, written by `BLESS=1` |
//! | `A << ErrorResponse …` | what pgmux answers there instead, on purpose; a reason stands above |
//! | `A <15 …`, `A <18 …`, `A <<18 …` | the same on one version of PostgreSQL only |
//! | `A open` | connects without logging in |
//! | `A login user=x` | connects and logs in with these startup parameters; the reply is the outcome |
//! | `A close`, `A reset` | leaves in order, or by a TCP reset |
//! | `A cancel` | sends a CancelRequest with the key of A and waits until it is delivered |
//!
//! In strings `\n`, `\t`, `\"`, `\\`, `\xHH` are escapes; `$db` in startup parameters is the database's name.

mod golden;
mod message;
mod parse;
mod run;
mod swap;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use golden::Golden;
pub use run::{Mode, Stage};

use crate::version::Version;

/// A parsed script.
#[derive(Clone, Debug)]
pub struct Script {
    /// The file's name without its ending.
    pub name: String,
    /// How many servers it needs at the same time.
    pub needs: usize,
    /// Whether it may be cut into pieces and servers changed under it.
    pub divisible: bool,
    class_only: bool,
    lines: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    /// Index of the line that the step stands in.
    line: usize,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Direct(String),
    Send {
        client: char,
        bytes: Vec<u8>,
    },
    Wait {
        client: char,
        until: Until,
        golden: Golden,
    },
    Open {
        client: char,
    },
    Login {
        client: char,
        params: Vec<(String, String)>,
        golden: Golden,
    },
    Close {
        client: char,
    },
    Reset {
        client: char,
    },
    Cancel {
        client: char,
    },
}

#[derive(Clone, Debug)]
enum Until {
    Ready(usize),
    Tags(Vec<u8>),
    Eof,
    Byte,
    Quiet,
}

impl Script {
    /// Reads a script file.
    pub fn load(path: &Path) -> Self {
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        match parse::script(&name, &text) {
            Ok(script) => script,
            Err((line, error)) => panic!("{}:{}: {error}", path.display(), line + 1),
        }
    }

    /// All scripts of this crate, by name.
    pub fn all() -> Vec<(PathBuf, Self)> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
        let wanted = std::env::var("SCRIPT").unwrap_or_default();
        let mut paths: Vec<_> = std::fs::read_dir(dir)
            .expect("the folder of scripts")
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "script"))
            .filter(|path| path.to_string_lossy().contains(&wanted))
            .collect();
        paths.sort();
        paths
            .into_iter()
            .map(|path| {
                let script = Self::load(&path);
                (path, script)
            })
            .collect()
    }

    /// The longest single write, which is how many ways there are to cut it in two.
    pub fn longest_write(&self) -> usize {
        let lengths = self.steps.iter().map(|step| match &step.action {
            Action::Send { bytes, .. } => bytes.len(),
            _ => 0,
        });
        lengths.max().unwrap_or(0)
    }

    /// All that looks like the name of a custom setting in what the script sends.
    fn dotted_names(&self) -> BTreeSet<String> {
        let sent = self.steps.iter().filter_map(|step| match &step.action {
            Action::Send { bytes, .. } => Some(String::from_utf8_lossy(bytes).to_lowercase()),
            _ => None,
        });
        let in_name = |letter: char| letter.is_ascii_alphanumeric() || "_.".contains(letter);
        sent.flat_map(|text| {
            let words = text.split(|letter| !in_name(letter));
            let named = words.filter(|word| {
                let mut parts = word.split('.');
                parts.clone().count() > 1
                    && parts.all(|part| part.starts_with(|first: char| first.is_ascii_lowercase()))
            });
            named.map(String::from).collect::<Vec<_>>()
        })
        .collect()
    }

    /// The file's text with these replies, one list for each step that has golden ones, as those of `version`.
    fn blessed(&self, version: Version, replies: &[Vec<String>]) -> String {
        let mut text = String::new();
        let waits = self.steps.iter().filter_map(|step| {
            let golden = step.golden()?;
            Some((step.line, golden))
        });
        let mut waits = waits.zip(replies).peekable();
        for (index, line) in self.lines.iter().enumerate() {
            if parse::is_golden(line) {
                continue;
            }
            text.push_str(line);
            text.push('\n');
            if let Some(((_, golden), got)) = waits.next_if(|((at, _), _)| *at == index) {
                let client = line.chars().next().unwrap_or('A');
                for reply in golden.blessed(version, got) {
                    text.push_str(&format!("{client} {reply}\n"));
                }
            }
        }
        text
    }

    fn differs(&self, golden: &[String], got: &[String]) -> bool {
        self.compared(golden) != self.compared(got)
    }

    /// What of a reply must be equal. PostgreSQL reports settings that change together in the order of a list of its
    /// own, which depends on all that was ever set in the session: only each setting's own reports have an order.
    fn compared(&self, lines: &[String]) -> Vec<String> {
        let class = |line: &String| match line.strip_prefix("ErrorResponse ") {
            Some(rest) if self.class_only => {
                let mut words = rest.split(' ');
                format!("ErrorResponse {:?} {:?}", words.next(), words.next())
            }
            _ => line.clone(),
        };
        fn reported(line: &str) -> Option<String> {
            let rest = line.strip_prefix("ParameterStatus ")?;
            rest.split(' ').next().map(str::to_owned)
        }
        let mut lines: Vec<_> = lines.iter().map(class).collect();
        let both =
            |left: &String, right: &String| reported(left).is_some() && reported(right).is_some();
        for run in lines.chunk_by_mut(both) {
            run.sort_by_key(|line| reported(line));
        }
        lines
    }
}

impl Step {
    fn golden(&self) -> Option<&Golden> {
        match &self.action {
            Action::Wait { golden, .. } | Action::Login { golden, .. } => Some(golden),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_settings_that_change_together_have_no_order_but_those_of_one_do() {
        let script = parse::script("x", "A > Sync\nA wait Z\nA < x\n").expect("a script");
        let lines = |text: &str| -> Vec<String> { text.split(' ').map(line).collect() };
        fn line(word: &str) -> String {
            match word.split_once('=') {
                Some((name, value)) => format!("ParameterStatus {name} {value}"),
                None => word.to_owned(),
            }
        }
        let differs = |left: &str, right: &str| script.differs(&lines(left), &lines(right));
        assert!(!differs("C a=1 b=2 Z", "C b=2 a=1 Z"));
        assert!(differs("C a=1 a=2 Z", "C a=2 a=1 Z"));
        assert!(differs("C a=1 C b=2", "C b=2 C a=1"));
        assert!(differs("C a=1 Z", "C Z a=1"));
    }
}
