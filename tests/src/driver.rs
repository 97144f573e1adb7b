//! Other people's drivers: what a program prints must be the same direct and through pgmux.
//!
//! A program goes through its sections, each under a line `== name`, ends with `== end`, and prints nothing that two runs
//! on fresh databases need not have in common (no process ids, ports, times).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::clean::{Inspector, Suspicions};
use crate::cluster::{Cluster, PASSWORD};
use crate::direct::Direct;
use crate::pgmux::{Config, Pgmux};
use crate::process::{TempDir, target_dir};
use crate::tls::Authority;
use crate::wire::Endpoint;

/// How many servers pgmux may have: few enough that fifty clients share them.
pub const SERVERS: usize = 4;

/// The longest that a program may take. A driver that hangs is a failure, not the end of CI's patience.
const SECONDS_MAX: &str = "180";

/// How many lines a program has said last are shown when it fails: a log that is cut must still hold them.
const LAST_LINES: usize = 40;

/// How a program comes to pgmux.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// pgmux's shards.
    pub shards: usize,
    /// By TLS, without which pgmux lets nobody in, and with a look at the certificate; else in clear.
    pub tls: bool,
}

/// Runs a program direct, once for all its tests, and through pgmux, and names the first line that differs. Direct it
/// comes in clear: no program prints how.
pub fn expect_same(name: &'static str, way: Way, program: impl Fn() -> Command) {
    let direct = direct_output(name, &program);
    let counter = Counter::open(way);
    let through = counter.run(&mut program());
    counter.close();
    if let Some(difference) = first_difference(&direct, &through) {
        panic!("{name}, {way:?}: {difference}");
    }
}

/// What the program prints without pgmux.
fn direct_output(name: &'static str, program: &impl Fn() -> Command) -> String {
    static OUTPUTS: Mutex<BTreeMap<&str, Arc<OnceLock<String>>>> = Mutex::new(BTreeMap::new());
    let cell = {
        let mut outputs = OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(outputs.entry(name).or_default())
    };
    let run = || {
        let cluster = Cluster::shared();
        let dir = TempDir::new("driver").expect("a directory");
        let place = Place {
            port: cluster.port(),
            database: cluster.fresh_database(),
            dir: dir.path(),
            authority: None,
        };
        let output = place.run(&mut program()).unwrap_or_else(|text| {
            panic!("{name} fails without pgmux:\n{text}");
        });
        assert!(
            output.ends_with("== end\n"),
            "{name} has not come to its end:\n{output}"
        );
        output
    };
    cell.get_or_init(run).clone()
}

fn first_difference(direct: &str, through: &str) -> Option<String> {
    let (mut left, mut right) = (direct.lines(), through.lines());
    let mut section = "";
    for number in 1.. {
        let pair = (left.next(), right.next());
        if pair == (None, None) {
            break;
        }
        if pair.0 != pair.1 {
            let show = |line: Option<&str>| line.unwrap_or("(nothing more)").to_string();
            return Some(format!(
                "line {number}, in {section:?}:\n  direct:        {}\n  through pgmux: {}",
                show(pair.0),
                show(pair.1)
            ));
        }
        section = pair
            .0
            .filter(|line| line.starts_with("== "))
            .unwrap_or(section);
    }
    None
}

/// A fresh database behind a pgmux of its own.
#[derive(Debug)]
pub struct Counter {
    pgmux: Pgmux,
    direct: Direct,
    database: String,
    dir: TempDir,
    authority: Option<Authority>,
}

impl Counter {
    /// Starts pgmux.
    pub fn open(way: Way) -> Self {
        let cluster = Cluster::shared();
        let database = cluster.fresh_database();
        let mut config = Config::new(cluster, &database)
            .shards(way.shards)
            .servers(SERVERS);
        let authority = way.tls.then(|| Authority::new("a CA of drivers"));
        if let Some(authority) = &authority {
            let pair = authority.sign("localhost", &["localhost", "127.0.0.1"]);
            config = config
                .set("tls.enabled", true)
                .set("tls.client_sslmode", "require")
                .set("tls.cert_file", pair.cert.display())
                .set("tls.key_file", pair.key.display());
        }
        Self {
            pgmux: Pgmux::start(&config),
            direct: Direct::open(cluster, &database),
            database,
            dir: TempDir::new("driver").expect("a directory"),
            authority,
        }
    }

    /// Runs a program to its end, which must be a good one, and gives what it printed.
    pub fn run(&self, command: &mut Command) -> String {
        let place = Place {
            port: self.pgmux.port(),
            database: self.database.clone(),
            dir: self.dir.path(),
            authority: self.authority.as_ref(),
        };
        place.run(command).unwrap_or_else(|text| {
            panic!("pgmux:\n{}\n{text}", last_lines(&self.pgmux.last_words()))
        })
    }

    /// Checks that the program has left every server as good as fresh, and ends pgmux.
    pub fn close(mut self) {
        let (mut endpoint, login) = (self.pgmux.endpoint(), self.pgmux.login());
        if let (Some(_), Endpoint::Tcp(address)) = (&self.authority, &endpoint) {
            endpoint = Endpoint::Tls(*address);
        }
        Inspector::new(Cluster::shared(), &endpoint, &login, SERVERS)
            .expect_clean(&mut self.direct, &Suspicions::default());
        self.pgmux.stop();
    }
}

/// Where a program is sent.
struct Place<'a> {
    port: u16,
    database: String,
    /// Its working directory.
    dir: &'a Path,
    /// Who has signed the certificate, where TLS is spoken.
    authority: Option<&'a Authority>,
}

impl Place<'_> {
    /// What the program printed; the error is how it ended, the end of what it printed, and at last its complaint.
    fn run(&self, command: &mut Command) -> Result<String, String> {
        let mut limited = Command::new("timeout");
        limited
            .args(["--kill-after=5", SECONDS_MAX])
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(self.dir)
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", "app")
            .env("PGPASSWORD", PASSWORD)
            .env("PGDATABASE", &self.database)
            .env("DRIVERS_SHARED", drivers().join("shared"))
            .env("TZ", "UTC");
        match self.authority {
            None => limited.env("PGSSLMODE", "prefer"),
            Some(authority) => limited
                .env("PGSSLMODE", "verify-full")
                .env("PGSSLROOTCERT", authority.file()),
        };
        for (name, value) in command.get_envs() {
            limited.env(name, value.unwrap_or_default());
        }
        let output = limited
            .output()
            .map_err(|error| format!("{command:?}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!(
            "{}\n{command:?}: {}\n{}",
            last_lines(&text),
            output.status,
            last_lines(&errors)
        ))
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    match lines.len().checked_sub(LAST_LINES) {
        None | Some(0) => lines.join("\n"),
        Some(more) => format!("({more} lines more)\n{}", lines[more..].join("\n")),
    }
}

/// The folder of the drivers' programs.
pub fn drivers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers")
}

/// What `.ci/install` has put there, which must not be missing in silence.
pub fn installed(path: &str) -> PathBuf {
    let path = target_dir().join("drivers").join(path);
    assert!(
        path.exists(),
        "no {}: `make install` brings it, see tests/drivers/README.md",
        path.display()
    );
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named_with_its_section() {
        let direct = "== one\n1\n== two\n2\n3\n== end\n";
        assert_eq!(first_difference(direct, direct), None);
        let through = direct.replace("2\n3\n", "2\n4\n");
        let named = first_difference(direct, &through).expect("a difference");
        assert!(
            named.contains("line 5") && named.contains("== two"),
            "{named}"
        );
        let named = first_difference(direct, "== one\n").expect("a difference");
        assert!(named.contains("(nothing more)"), "{named}");
    }
}
