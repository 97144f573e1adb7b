//! The throwaway PostgreSQL cluster.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::Stop;
use super::interrupt::Interrupt;
use super::process::{Service, demote, task, unprivileged};
use super::programs::Programs;

/// Role and database of the demo.
const NAME: &str = "demo";

/// pgbench's tables: 100,000 rows for each.
const SCALE: &str = "5";

/// A first start writes the catalogs; slow disks take their time.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running cluster with pgbench's tables in its database.
pub(super) struct Cluster {
    process: Service,
    port: u16,
    password: String,
}

impl Cluster {
    pub(super) fn start(
        programs: &Programs,
        dir: &Path,
        interrupt: &Interrupt,
    ) -> Result<Self, Stop> {
        let password =
            random_password().map_err(|error| Stop::failed("cannot read /dev/urandom", error))?;
        initdb(programs, dir, &password, interrupt)?;
        let port = free_port().map_err(|error| Stop::failed("cannot find a free port", error))?;
        let process = serve(programs, dir, port, interrupt)?;
        let cluster = Self {
            process,
            port,
            password,
        };
        cluster.fill(programs, dir, interrupt)?;
        Ok(cluster)
    }

    fn fill(&self, programs: &Programs, dir: &Path, interrupt: &Interrupt) -> Result<(), Stop> {
        let mut create = programs.psql();
        self.connects(&mut create, self.port, "postgres");
        create.args([
            "--no-psqlrc",
            "--quiet",
            "--command",
            "CREATE DATABASE demo",
        ]);
        task("psql", &mut create, dir, interrupt, &mut |_| {})?;
        let mut init = programs.pgbench();
        self.connects(&mut init, self.port, NAME);
        init.args(["--initialize", "--quiet", "--scale", SCALE]);
        task("pgbench-init", &mut init, dir, interrupt, &mut |_| {}).map(drop)
    }

    /// Has a PostgreSQL client connect to a port of this machine as the demo's role.
    pub(super) fn connects(&self, command: &mut Command, port: u16, database: &str) {
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", port.to_string())
            .env("PGUSER", NAME)
            .env("PGPASSWORD", &self.password)
            .env("PGDATABASE", database)
            .env("PGSSLMODE", "disable");
    }

    /// What to give to psql for the demo's database behind a port of this machine.
    pub(super) fn url(&self, port: u16) -> String {
        format!(
            "postgres://{NAME}:{}@127.0.0.1:{port}/{NAME}",
            self.password
        )
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn password(&self) -> &str {
        &self.password
    }

    pub(super) fn process(&self) -> &Service {
        &self.process
    }
}

fn initdb(
    programs: &Programs,
    dir: &Path,
    password: &str,
    interrupt: &Interrupt,
) -> Result<(), Stop> {
    let password_file = dir.join("password");
    fs::write(&password_file, password)
        .map_err(|error| Stop::failed("cannot write to the temp directory", error))?;
    if let Some((user, group)) = unprivileged() {
        for path in [dir, &password_file] {
            chown(path, Some(user), Some(group))
                .map_err(|error| Stop::failed("cannot chown the temp directory", error))?;
        }
    }
    let mut command = Command::new(programs.server("initdb"));
    command.args([
        "--username",
        NAME,
        "--auth",
        "scram-sha-256",
        "--encoding",
        "UTF8",
        "--locale",
        "C",
        "--no-sync",
    ]);
    command
        .arg("--pwfile")
        .arg(&password_file)
        .arg("--pgdata")
        .arg(dir.join("data"));
    demote(&mut command);
    task("initdb", &mut command, dir, interrupt, &mut |_| {}).map(drop)
}

fn serve(
    programs: &Programs,
    dir: &Path,
    port: u16,
    interrupt: &Interrupt,
) -> Result<Service, Stop> {
    let mut command = Command::new(programs.server("postgres"));
    command.arg("-D").arg(dir.join("data"));
    command.args([
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        &format!("port={port}"),
    ]);
    command.args(["-c", &format!("unix_socket_directories={}", dir.display())]);
    // It is thrown away in any case.
    command.args(["-c", "fsync=off", "-c", "full_page_writes=off"]);
    demote(&mut command);
    // SIGINT is PostgreSQL's fast shutdown: it does not wait for clients.
    let service = Service::start("postgres", &mut command, dir, &dir.join("postgres.log"))?
        .stopped_by(Signal::INT);
    service.wait_until(START_LIMIT, interrupt, |_| is_ready(&dir.join("data")))?;
    Ok(service)
}

/// The eighth line of `postmaster.pid` is the server's status (`pg_ctl` waits for it as well).
fn is_ready(data: &Path) -> bool {
    let lock = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    lock.lines()
        .nth(7)
        .is_some_and(|status| status.trim() == "ready")
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// 96 bits as hex: the demo listens only at home, but other users of the machine are not asked in.
fn random_password() -> std::io::Result<String> {
    let mut bytes = [0; 12];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
