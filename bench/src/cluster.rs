//! A throwaway PostgreSQL cluster with pgbench's tables.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use crate::dsn::{DATABASE, Dsn, SUPERUSER};
use crate::interrupt::Interrupt;
use crate::login::Session;
use crate::process::{Launch, Process, log_tail, output};

/// PostgreSQL, running. Its directory also holds the poolers' configs and logs.
#[derive(Debug)]
pub struct Cluster {
    // Fields drop in order: the server ends before its directory goes.
    server: Process,
    programs: Programs,
    port: u16,
    dir: TempDir,
}

/// What the cluster should be like.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// pgbench's scale factor.
    pub scale: u32,
    /// How many connections all targets together may make.
    pub connections: u32,
    /// CPUs for PostgreSQL.
    pub cpus: Option<&'a str>,
}

/// Where PostgreSQL's programs are.
#[derive(Clone, Debug)]
pub struct Programs(PathBuf);

impl Programs {
    /// Looks in the given folder, else for the newest version that Debian's packages
    /// left, else where `pg_config` says.
    pub fn find(given: Option<&Path>) -> Result<Self> {
        let mut places: Vec<PathBuf> = given.map(Path::to_owned).into_iter().collect();
        if places.is_empty() {
            places.extend(debian_folders());
            let asked = output(Command::new("pg_config").arg("--bindir"));
            places.extend(asked.ok().map(|dir| PathBuf::from(dir.trim())));
        }
        let complete = |dir: &PathBuf| {
            ["postgres", "initdb", "pgbench", "psql"]
                .iter()
                .all(|name| dir.join(name).is_file())
        };
        places.into_iter().find(complete).map(Self).context(
            "PostgreSQL's programs were not found: install postgresql-15 or name their folder by --pg-bin",
        )
    }

    /// The path of one program.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn debian_folders() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let mut versions: Vec<PathBuf> = versions
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    let number = |path: &PathBuf| -> u32 {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.parse().ok()).unwrap_or(0)
    };
    versions.sort_by_key(|path| std::cmp::Reverse(number(path)));
    versions.into_iter().map(|path| path.join("bin")).collect()
}

impl Cluster {
    /// Makes and starts it, and fills pgbench's tables.
    pub fn start(programs: Programs, wish: &Wish<'_>, interrupt: &Interrupt) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("pgmux-bench-").tempdir()?;
        give_to_postgres(dir.path())?;
        let data = dir.path().join("data");
        let initdb = Launch {
            name: "initdb",
            program: &programs.path("initdb"),
            as_postgres: true,
            stop: Signal::TERM,
            cpus: None,
            under: &[],
        };
        output(initdb.command().args(INITDB).arg("-D").arg(&data))?;
        interrupt.check()?;

        let port = free_port()?;
        let settings = settings(port, wish.connections, dir.path())?;
        let path = data.join("postgresql.conf");
        let mut text = std::fs::read_to_string(&path)?;
        text.push_str(&settings);
        std::fs::write(&path, text)?;

        let launch = Launch {
            name: "postgres",
            program: &programs.path("postgres"),
            as_postgres: true,
            // Fast shutdown: the orderly one would wait for the clients.
            stop: Signal::INT,
            cpus: wish.cpus,
            under: &[],
        };
        let server = launch.start(
            ["-D".as_ref(), data.as_os_str()],
            &dir.path().join("postgres.log"),
        )?;
        let mut cluster = Self {
            server,
            programs,
            port,
            dir,
        };
        cluster.wait_ready(interrupt)?;
        cluster.fill(wish.scale, interrupt)?;
        Ok(cluster)
    }

    /// The postmaster's process id.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// PostgreSQL itself as a target.
    pub fn dsn(&self) -> Dsn {
        Dsn::local(self.port)
    }

    /// A directory that the `postgres` user can write to; also where the unix socket is.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// PostgreSQL's programs.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    fn wait_ready(&mut self, interrupt: &Interrupt) -> Result<()> {
        let mut dsn = self.dsn();
        dsn.database = "postgres".to_owned();
        let server = &mut self.server;
        let ready = interrupt.wait_until(START_LIMIT, || {
            server.expect_alive()?;
            Ok(Session::open(&dsn, None).map(Session::close).is_ok())
        })?;
        if !ready {
            bail!(
                "PostgreSQL did not start: {}",
                log_tail(&self.dir.path().join("postgres.log"))
            );
        }
        Ok(())
    }

    fn fill(&self, scale: u32, interrupt: &Interrupt) -> Result<()> {
        let dsn = self.dsn();
        self.psql("postgres", &format!("CREATE DATABASE {DATABASE}"))?;
        output(
            Command::new(self.programs.path("pgbench"))
                .args(["--initialize", "--quiet", "--scale", &scale.to_string()])
                .arg(dsn.conninfo()),
        )?;
        interrupt.check()?;
        // Without the extension the first round is slower; the rounds' spread will show it.
        let warm = "CREATE EXTENSION IF NOT EXISTS pg_prewarm; \
                    SELECT pg_prewarm('pgbench_accounts'), pg_prewarm('pgbench_accounts_pkey')";
        if let Err(error) = self.psql(DATABASE, warm) {
            eprintln!("the tables are not pre-warmed: {error:#}");
        }
        self.psql(DATABASE, "CHECKPOINT")
    }

    fn psql(&self, database: &str, sql: &str) -> Result<()> {
        let mut dsn = self.dsn();
        dsn.database = database.to_owned();
        output(
            Command::new(self.programs.path("psql"))
                .args(["--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", "-c", sql])
                .arg(dsn.conninfo()),
        )?;
        Ok(())
    }
}

/// A port that was free a moment ago. Another program may take it in between; the start then fails and says so.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Settings that keep everything but the queries out of the measurement.
fn settings(port: u16, connections: u32, socket_dir: &Path) -> Result<String> {
    let mut text = String::new();
    for (key, value) in [
        ("port", port.to_string()),
        ("listen_addresses", "'127.0.0.1'".to_owned()),
        (
            "unix_socket_directories",
            format!("'{}'", socket_dir.display()),
        ),
        ("max_connections", connections.to_string()),
        ("shared_buffers", "'256MB'".to_owned()),
        ("fsync", "off".to_owned()),
        ("synchronous_commit", "off".to_owned()),
        ("full_page_writes", "off".to_owned()),
        ("autovacuum", "off".to_owned()),
        ("max_wal_size", "'2GB'".to_owned()),
        ("checkpoint_timeout", "'1h'".to_owned()),
        ("bgwriter_lru_maxpages", "0".to_owned()),
        ("jit", "off".to_owned()),
        ("logging_collector", "off".to_owned()),
    ] {
        writeln!(text, "{key} = {value}")?;
    }
    Ok(text)
}

/// Makes a directory the `postgres` user's, when this program is root and its children are not.
pub fn give_to_postgres(dir: &Path) -> Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let passwd = std::fs::read_to_string("/etc/passwd")?;
    let (user, group) = passwd_ids(&passwd, SUPERUSER)
        .context("there is no user `postgres`, as whom PostgreSQL could run: install postgresql")?;
    chown(dir, Some(user), Some(group))?;
    Ok(())
}

/// User and group id of a line of `/etc/passwd`.
fn passwd_ids(passwd: &str, name: &str) -> Option<(u32, u32)> {
    let line = passwd
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

const INITDB: [&str; 9] = [
    "-U",
    SUPERUSER,
    "-A",
    "trust",
    "-E",
    "UTF8",
    "--locale=C",
    "--no-sync",
    "--no-instructions",
];
const START_LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwd_gives_the_ids_of_exactly_that_user() {
        let text = "postgresx:x:7:8::/:/bin/sh\npostgres:x:101:104:PostgreSQL:/var/lib:/bin/bash\n";
        assert_eq!(passwd_ids(text, "postgres"), Some((101, 104)));
        assert_eq!(passwd_ids(text, "nobody"), None);
    }

    #[test]
    fn settings_are_one_a_line_with_quoted_paths() {
        let text = settings(5433, 400, Path::new("/tmp/x")).expect("formats");
        assert!(text.contains("port = 5433\n"));
        assert!(text.contains("unix_socket_directories = '/tmp/x'\n"));
        assert!(text.contains("fsync = off\n"));
    }
}
