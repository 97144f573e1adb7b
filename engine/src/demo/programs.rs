//! PostgreSQL's programs, wherever this machine keeps them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with a server's programs, and the clients to go with it.
#[derive(Debug)]
pub(super) struct Programs {
    dir: PathBuf,
    psql: PathBuf,
    pgbench: PathBuf,
    version: String,
}

impl Programs {
    /// Looks into PATH, where `pg_config` points to, and where Debian and Red Hat keep servers.
    pub(super) fn find() -> Result<Self, String> {
        let path: Vec<PathBuf> = std::env::var_os("PATH")
            .iter()
            .flat_map(std::env::split_paths)
            .collect();
        let mut servers = path.clone();
        servers.extend(config_dir());
        servers.extend(newest_first("/usr/lib/postgresql", ""));
        servers.extend(newest_first("/usr", "pgsql-"));
        let mut found = Self::find_in(&servers, &path)?;
        if let Some(version) = output(Command::new(found.server("postgres")).arg("--version")) {
            found.version = version.replace("postgres (PostgreSQL)", "PostgreSQL");
        }
        Ok(found)
    }

    fn find_in(servers: &[PathBuf], path: &[PathBuf]) -> Result<Self, String> {
        let dir = servers
            .iter()
            .find(|dir| ["initdb", "postgres"].iter().all(|name| dir.join(name).is_file()))
            .ok_or("PostgreSQL's server programs (initdb, postgres) are not on this machine: run `make demo`, which installs them, or install your distribution's postgresql package")?;
        let client = |name: &str| {
            std::iter::once(dir).chain(path).map(|dir| dir.join(name)).find(|program| program.is_file()).ok_or_else(|| {
                format!("{name} is neither in {} nor on the PATH: install your distribution's postgresql-contrib or postgresql-client package", dir.display())
            })
        };
        Ok(Self {
            psql: client("psql")?,
            pgbench: client("pgbench")?,
            dir: dir.clone(),
            version: "PostgreSQL".to_owned(),
        })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn server(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn psql(&self) -> Command {
        Command::new(&self.psql)
    }

    pub(super) fn pgbench(&self) -> Command {
        Command::new(&self.pgbench)
    }
}

fn config_dir() -> Option<PathBuf> {
    output(Command::new("pg_config").arg("--bindir")).map(PathBuf::from)
}

fn output(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|text| !text.is_empty())
}

/// The `bin` directories below `parent/<prefix><version>`, highest version first.
fn newest_first(parent: &str, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return Vec::new();
    };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let version = entry
                .file_name()
                .to_str()?
                .strip_prefix(prefix)?
                .split('.')
                .next()?
                .parse()
                .ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, dir)| dir).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn with(root: &Path, dir: &str, programs: &[&str]) -> PathBuf {
        let dir = root.join(dir);
        fs::create_dir_all(&dir).unwrap();
        for name in programs {
            fs::write(dir.join(name), "").unwrap();
        }
        dir
    }

    #[test]
    fn the_first_complete_server_wins_and_its_own_clients_with_it() {
        let root = tempfile::tempdir().unwrap();
        let half = with(root.path(), "half", &["initdb"]);
        let old = with(root.path(), "old", &["initdb", "postgres"]);
        let path = with(root.path(), "path", &["psql", "pgbench"]);
        let found =
            Programs::find_in(&[half.clone(), old.clone()], std::slice::from_ref(&path)).unwrap();
        assert_eq!(
            (found.dir(), &found.pgbench),
            (old.as_path(), &path.join("pgbench"))
        );
        with(root.path(), "old", &["pgbench"]);
        let found = Programs::find_in(&[half, old.clone()], &[path]).unwrap();
        assert_eq!(found.pgbench, old.join("pgbench"));
    }

    #[test]
    fn what_is_missing_is_named_with_where_to_get_it() {
        let root = tempfile::tempdir().unwrap();
        let dir = with(root.path(), "dir", &["initdb", "postgres", "psql"]);
        assert!(
            Programs::find_in(&[], &[])
                .unwrap_err()
                .contains("make demo")
        );
        assert!(
            Programs::find_in(&[dir], &[])
                .unwrap_err()
                .starts_with("pgbench is neither in")
        );
    }

    #[test]
    fn the_newest_version_comes_first() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9.6", "15", "17", "other"] {
            with(root.path(), &format!("{version}/bin"), &[]);
        }
        let found = newest_first(root.path().to_str().unwrap(), "");
        assert_eq!(
            found,
            ["17", "15", "9.6"].map(|version| root.path().join(version).join("bin"))
        );
    }
}
