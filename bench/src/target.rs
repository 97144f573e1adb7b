//! What is measured: a name, a place to connect to, and a process to watch.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::dsn::Dsn;

/// pgbench's query modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Mode {
    /// The simple protocol.
    Simple,
    /// The extended protocol, unnamed statements.
    Extended,
    /// The extended protocol, named statements.
    Prepared,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Simple, Self::Extended, Self::Prepared];

    /// The word that `pgbench -M` takes.
    pub fn word(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// One load: a mode and a number of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// pgbench's mode.
    pub mode: Mode,
    /// Number of clients.
    pub clients: u32,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.clients == 1 { "" } else { "s" };
        write!(f, "{}, {} client{plural}", self.mode, self.clients)
    }
}

/// A target that runs.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name in tables.
    pub name: String,
    /// Where to connect.
    pub dsn: Dsn,
    /// The process ids of the pooler; none for PostgreSQL itself.
    pub pids: Vec<u32>,
    /// The log to which the process writes its counters when it is asked to by SIGUSR1.
    pub counters: Option<PathBuf>,
    /// The modes that it can relay.
    pub modes: Vec<Mode>,
    /// The only client counts to run it at; none means all.
    pub clients: Option<Vec<u32>>,
    /// What it says its version is.
    pub version: String,
}

impl Target {
    /// Whether this load makes sense on it.
    pub fn takes(&self, cell: Cell) -> bool {
        let counted = |counts: &Vec<u32>| counts.contains(&cell.clients);
        self.modes.contains(&cell.mode) && self.clients.as_ref().is_none_or(counted)
    }
}

/// `NAME=PATH` of the command line.
#[derive(Clone, Debug)]
pub struct Build {
    /// Name in the tables.
    pub name: String,
    /// The program.
    pub program: PathBuf,
}

impl FromStr for Build {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, program) = text.split_once('=').context("a build is NAME=PATH")?;
        if name.is_empty() || program.is_empty() {
            bail!("a build is NAME=PATH");
        }
        Ok(Self {
            name: name.to_owned(),
            program: program.into(),
        })
    }
}

/// `NAME=DSN,PID` of the command line.
#[derive(Clone, Debug)]
pub struct Given {
    /// Name in the tables.
    pub name: String,
    /// Where it listens.
    pub dsn: Dsn,
    /// Its process.
    pub pid: u32,
}

impl FromStr for Given {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        const FORM: &str = "a target is NAME=DSN,PID";
        let (name, rest) = text.split_once('=').context(FORM)?;
        // The connection string may hold commas, the process id cannot.
        let (dsn, pid) = rest.rsplit_once(',').context(FORM)?;
        if name.is_empty() || name.contains(char::is_whitespace) {
            bail!("{FORM}, and the name is one word");
        }
        Ok(Self {
            name: name.to_owned(),
            dsn: dsn.parse()?,
            pid: pid.trim().parse().context(FORM)?,
        })
    }
}

/// The names that the program gives to its own targets.
pub mod names {
    /// PostgreSQL without a pooler.
    pub const DIRECT: &str = "direct";
    /// PgBouncer.
    pub const PGBOUNCER: &str = "pgbouncer";
    /// pgmux with one shard.
    pub const PGMUX: &str = "pgmux";
    /// The experiment that shows what the I/O layer alone costs.
    pub const SPIKE: &str = "spike";

    /// This many processes of PgBouncer on one port.
    pub fn fleet(processes: u32) -> String {
        format!("{PGBOUNCER}-fleet-{processes}")
    }

    /// pgmux with this many shards, for the sections that compare shard counts.
    pub fn pgmux_with_shards(shards: u32) -> String {
        format!("{PGMUX}-{shards}-shards")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_target_is_cut_at_the_first_equals_and_the_last_comma() {
        let given: Given = "mine=host=127.0.0.1 port=6000 options='a,b',4711"
            .parse()
            .expect("parses");
        assert_eq!(
            (given.name.as_str(), given.dsn.port, given.pid),
            ("mine", 6000, 4711)
        );
        for text in [
            "mine",
            "mine=postgres://x",
            "mine=postgres://x,y",
            "=postgres://,1",
            "a b=,1",
        ] {
            assert!(text.parse::<Given>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_build_has_a_name_and_a_path() {
        let build: Build = "old=/tmp/a=b".parse().expect("parses");
        assert_eq!(
            (build.name.as_str(), build.program),
            ("old", PathBuf::from("/tmp/a=b"))
        );
        for text in ["old", "=x", "old="] {
            assert!(text.parse::<Build>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_target_takes_only_its_modes_and_counts() {
        let mut target = Target {
            name: "x".into(),
            dsn: Dsn::local(1),
            pids: Vec::new(),
            counters: None,
            modes: vec![Mode::Simple],
            clients: None,
            version: String::new(),
        };
        let cell = |mode, clients| Cell { mode, clients };
        assert!(target.takes(cell(Mode::Simple, 5)));
        assert!(!target.takes(cell(Mode::Extended, 5)));
        target.clients = Some(vec![8]);
        assert!(target.takes(cell(Mode::Simple, 8)) && !target.takes(cell(Mode::Simple, 5)));
    }
}
