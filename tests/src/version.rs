//! The versions of PostgreSQL that the tests run on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::process::target_dir;

/// One of PostgreSQL's versions. psql and pgbench are the distribution's, whichever server they talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The one that the distribution has: 15 on Debian 12.
    Distribution,
    /// 18, which `.ci/install postgres18` brings.
    Pg18,
}

impl Version {
    /// Every version.
    pub const ALL: [Self; 2] = [Self::Distribution, Self::Pg18];

    /// The version for tests that do not choose one: the distribution's, or what `PGMUX_TEST_POSTGRES` says.
    pub fn chosen() -> Self {
        match std::env::var("PGMUX_TEST_POSTGRES").as_deref() {
            Ok("18") => Self::Pg18,
            Ok("") | Err(_) => Self::Distribution,
            Ok(other) => panic!("PGMUX_TEST_POSTGRES={other}: 18 or nothing expected"),
        }
    }

    /// How the golden replies of scripts name it.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Distribution => "15",
            Self::Pg18 => "18",
        }
    }

    /// The directory of its server programs.
    pub fn bin_dir(self) -> PathBuf {
        match self {
            Self::Distribution => distribution(),
            Self::Pg18 => pg18().into(),
        }
    }

    /// A command that runs one of its server programs, as the user `postgres` when the test runs as root (the server
    /// refuses to run as root).
    pub fn program(self, name: &str) -> Command {
        let path = self.bin_dir().join(name);
        if !running_as_root() {
            return Command::new(path);
        }
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=postgres", "--regid=postgres", "--init-groups"])
            .arg(path);
        command
    }
}

/// Whether the server's programs need another user than ours.
pub fn running_as_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `PG_BIN`, or where Debian puts the newest version.
fn distribution() -> PathBuf {
    if let Some(dir) = std::env::var_os("PG_BIN") {
        return dir.into();
    }
    let versions =
        std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL's programs, or PG_BIN");
    let newest = versions
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|bin| bin.join("postgres").exists())
        .max();
    newest.expect("PostgreSQL's server programs, or PG_BIN")
}

/// `PGMUX_TEST_POSTGRES18`, or where `make` puts it. The link is followed here: what it leads to can be read by the
/// user `postgres`, the directory of the link perhaps not.
fn pg18() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = std::env::var_os("PGMUX_TEST_POSTGRES18")
            .map_or_else(|| target_dir().join("postgres18/bin"), PathBuf::from);
        dir.canonicalize().unwrap_or_else(|error| {
            panic!(
                "PostgreSQL 18 is not in {} ({error}): make install",
                dir.display()
            )
        })
    })
}
