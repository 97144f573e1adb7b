//! The program under test: its configuration, its process, its log.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use crate::cluster::{Cluster, PASSWORD};
use crate::process::{Guarded, PATIENCE, TempDir, eventually, free_port};
use crate::wire::{Endpoint, Login, Session};

/// A configuration under construction: keys in their dotted form, values as YAML.
#[derive(Clone, Debug, Default)]
pub struct Config {
    keys: BTreeMap<Vec<String>, String>,
    database: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    file_limit: Option<u32>,
    within: Vec<String>,
    port: Option<u16>,
}

impl Config {
    /// One database of a cluster as role `app`, clients log in as the same role with the same password. The budget is
    /// small on purpose, so that clients share servers.
    pub fn new(cluster: &Cluster, database: &str) -> Self {
        let mut config = Self::bare();
        config.add_database(database, cluster.port());
        config.database = database.into();
        config
    }

    /// As [`Self::new`] for a scripted server on a port of 127.0.0.1, in the database `fake`.
    pub fn fake(port: u16) -> Self {
        let mut config = Self::bare();
        config.add_database("fake", port);
        config.database = "fake".into();
        config
    }

    fn bare() -> Self {
        Self::default()
            .set("proxy.shutdown_timeout", "10s")
            .set("pool.min_connections", 0)
            .set("pool.max_connections", 4)
            // Long, so that a noisy machine fails no test that is not about it.
            .set("pool.connection_timeout", "20s")
            .set("backend.user", "app")
            .set("backend.password", yaml_string(PASSWORD))
            .set("auth.enabled", true)
            .users(&["app"])
            .set("engine.shards", 1)
            .set("engine.pin", "off")
    }

    /// Sets a key, like `set("pool.max_connections", 2)`. The value is YAML.
    pub fn set(mut self, key: &str, value: impl ToString) -> Self {
        let path = key.split('.').map(String::from).collect();
        self.keys.insert(path, value.to_string());
        self
    }

    /// Takes a key out.
    pub fn unset(mut self, key: &str) -> Self {
        let path: Vec<String> = key.split('.').map(String::from).collect();
        self.keys.retain(|other, _| !other.starts_with(&path));
        self
    }

    /// The database of [`Pgmux::login`].
    pub fn main_database(&self) -> &str {
        &self.database
    }

    /// Adds a database whose writer is on a port of 127.0.0.1.
    pub fn database(mut self, name: &str, port: u16) -> Self {
        self.add_database(name, port);
        self
    }

    /// Sets the number of shards.
    pub fn shards(self, shards: usize) -> Self {
        self.set("engine.shards", shards)
    }

    /// Sets `pool.max_connections`.
    pub fn servers(self, servers: usize) -> Self {
        self.set("pool.max_connections", servers)
    }

    /// The users that may log in, all with [`PASSWORD`].
    pub fn users(self, names: &[&str]) -> Self {
        let password = yaml_string(PASSWORD);
        let users: Vec<_> = names
            .iter()
            .map(|name| format!("{{username: {name}, password: {password}}}"))
            .collect();
        self.set("auth.users", format!("[{}]", users.join(", ")))
    }

    /// Adds an argument to the command line.
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets a variable of the process's environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Limits the process's file descriptors.
    pub fn file_limit(mut self, limit: u32) -> Self {
        self.file_limit = Some(limit);
        self
    }

    /// Starts it by another program, whose last arguments are the command.
    pub fn within(mut self, words: Vec<String>) -> Self {
        self.within = words;
        self
    }

    /// Has it listen on this port of 127.0.0.1, which others must know before it starts.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// The file's text.
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        let mut open: Vec<&String> = Vec::new();
        for (path, value) in &self.keys {
            let (leaf, sections) = path.split_last().expect("a key");
            let shared = open
                .iter()
                .zip(sections)
                .take_while(|(left, right)| **left == *right)
                .count();
            open.truncate(shared);
            for section in &sections[shared..] {
                let _ = writeln!(text, "{}{section}:", "  ".repeat(open.len()));
                open.push(section);
            }
            let _ = writeln!(text, "{}{leaf}: {value}", "  ".repeat(open.len()));
        }
        text
    }

    fn listening_on(&self, port: u16) -> Self {
        let listens = |path: &Vec<String>| path.join(".") == "proxy.listen";
        match self.keys.keys().any(listens) {
            true => self.clone(),
            false => self
                .clone()
                .set("proxy.listen", format!("'127.0.0.1:{port}'")),
        }
    }

    fn command(&self) -> Command {
        if let Some((program, words)) = self.within.split_first() {
            let mut command = Command::new(program);
            command.args(words).arg(binary());
            return command;
        }
        match self.file_limit {
            None => Command::new(binary()),
            Some(limit) => {
                let mut command = Command::new("prlimit");
                command
                    .arg(format!("--nofile={limit}"))
                    .arg("--")
                    .arg(binary());
                command
            }
        }
    }

    fn add_database(&mut self, name: &str, port: u16) {
        for (key, value) in [
            ("host", "127.0.0.1".to_string()),
            ("port", port.to_string()),
        ] {
            let path = ["databases", name, "writer", key].map(String::from);
            self.keys.insert(path.to_vec(), value);
        }
    }
}

/// Text as a YAML string.
pub fn yaml_string(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A running pgmux. It is ended when dropped.
#[derive(Debug)]
pub struct Pgmux {
    process: Guarded,
    dir: TempDir,
    port: u16,
    database: String,
    /// Whether its log is told by whoever fails.
    is_told: AtomicBool,
}

impl Pgmux {
    /// Starts pgmux and waits until it serves.
    pub fn start(config: &Config) -> Self {
        match Self::try_start(config) {
            Ok(pgmux) => pgmux,
            Err(log) => panic!("pgmux did not start:\n{log}\nwith:\n{}", config.to_yaml()),
        }
    }

    /// Starts pgmux; the error is its log, when it ends instead of serving.
    pub fn try_start(config: &Config) -> Result<Self, String> {
        let dir = TempDir::new("run").expect("a directory for pgmux");
        let port = config.port.unwrap_or_else(free_port);
        let config = config.listening_on(port);
        let file = dir.path().join("pgmux.yaml");
        fs::write(&file, config.to_yaml()).expect("the configuration file");
        let log = fs::File::create(dir.path().join("log")).expect("the log");
        let mut command = config.command();
        command
            .args(["run", "-c"])
            .arg(&file)
            .args(&config.args)
            .envs(config.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log);
        let process = Guarded::spawn(&mut command, Signal::KILL, dir.path()).expect("pgmux");
        let mut pgmux = Self {
            process,
            dir,
            port,
            database: config.database.clone(),
            is_told: AtomicBool::new(false),
        };
        let ended = eventually(PATIENCE, || {
            if pgmux.log().lines().any(|line| line.contains("ready")) {
                return Some(None);
            }
            pgmux.process.try_wait().map(Some)
        });
        match ended {
            Some(None) => Ok(pgmux),
            Some(Some(status)) => Err(format!("{status}\n{}", pgmux.log())),
            None => Err(format!("no ready line\n{}", pgmux.log())),
        }
    }

    /// Where it listens by TCP, if the configuration left that to this library.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::local(self.port)
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The login of role `app` to the configuration's first database.
    pub fn login(&self) -> Login {
        Login::new("app", PASSWORD, &self.database)
    }

    /// A new logged-in client.
    pub fn client(&self) -> Session {
        Session::open(&self.endpoint(), &self.login())
    }

    /// A new client of the `postgres` crate.
    pub fn rust_client(&self) -> postgres::Client {
        postgres::Config::new()
            .host("127.0.0.1")
            .port(self.port)
            .user("app")
            .password(PASSWORD)
            .dbname(&self.database)
            .connect(postgres::NoTls)
            .expect("a connection by the postgres crate")
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// What it has counted, all shards together.
    pub fn figures(&self) -> BTreeMap<String, u64> {
        let lines = |log: &str| log.matches(" stats ").count();
        let before = lines(&self.log());
        self.signal(Signal::USR1);
        let told = eventually(PATIENCE, || {
            let log = self.log();
            let whole = log.ends_with('\n') && lines(&log) > before;
            whole.then_some(log)
        });
        let log = told.expect("a line with figures");
        let line = log.rsplit(" stats ").next().unwrap_or_default();
        let line = line.lines().next().unwrap_or_default();
        line.split_whitespace()
            .filter_map(|pair| {
                let (name, figure) = pair.split_once('=')?;
                Some((name.to_string(), figure.parse().ok()?))
            })
            .collect()
    }

    /// One of them.
    pub fn figure(&self, name: &str) -> u64 {
        let figures = self.figures();
        let found = figures.get(name).copied();
        found.unwrap_or_else(|| panic!("no figure {name} in {figures:?}"))
    }

    /// Waits until a figure is this one.
    pub fn wait_for(&self, name: &str, figure: u64) {
        let same = || (self.figures().get(name) == Some(&figure)).then_some(());
        let came = eventually(PATIENCE, same);
        assert!(
            came.is_some(),
            "{name} is not {figure}: {:?}",
            self.figures()
        );
    }

    /// The same for the words of a failure, behind which it is not told once more.
    pub fn last_words(&self) -> String {
        self.is_told.store(true, Ordering::Relaxed);
        self.log()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// The configuration file.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("pgmux.yaml")
    }

    /// Writes another configuration file, and does not have it read.
    pub fn rewrite(&self, config: &Config) {
        let text = config.listening_on(self.port).to_yaml();
        fs::write(self.file(), text).expect("the configuration file");
    }

    /// Has another configuration read by SIGHUP. False: it was refused.
    pub fn reload(&self, config: &Config) -> bool {
        self.rewrite(config);
        self.outcome_of_reload(|| self.signal(Signal::HUP))
    }

    /// Waits for what a reload comes to that something starts. False: it was refused.
    pub fn outcome_of_reload(&self, start: impl FnOnce()) -> bool {
        let applied = |log: &str| log.matches(RELOADED).count();
        let refused = |log: &str| log.matches(KEPT).count();
        let before = self.log();
        start();
        let outcome = eventually(PATIENCE, || {
            let log = self.log();
            match applied(&log) > applied(&before) {
                true => Some(true),
                false => (refused(&log) > refused(&before)).then_some(false),
            }
        });
        outcome.unwrap_or_else(|| panic!("no reload:\n{}", self.log()))
    }

    /// Waits until the process has ended.
    pub fn wait(&mut self) -> ExitStatus {
        match self.process.wait(PATIENCE) {
            Some(status) => status,
            None => panic!("pgmux does not end:\n{}", self.log()),
        }
    }

    /// Whether the process still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().is_none()
    }

    /// Ends it by SIGTERM and checks that it ends in order.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(
            status.success(),
            "pgmux ended with {status}:\n{}",
            self.log()
        );
    }
}

impl Drop for Pgmux {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.is_told.load(Ordering::Relaxed) {
            eprintln!("pgmux's log:\n{}", self.log());
        }
    }
}

/// What the log says when a configuration is in force.
pub const RELOADED: &str = "reload: the new configuration is in force";
/// What it says when one was refused.
pub const KEPT: &str = "reload: the configuration stays as it was";

/// The program's path: `PGMUX_BIN`, or built by cargo beside this test.
pub fn binary() -> &'static PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("PGMUX_BIN") {
        Some(path) => path.into(),
        None => build(),
    })
}

fn build() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let profile = test
        .ancestors()
        .nth(2)
        .expect("target/<profile>/deps/<test>");
    let target = profile.parent().expect("the target directory");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args([
            "build",
            "--quiet",
            "-p",
            "engine",
            "--bin",
            "pgmux",
            "--target-dir",
        ])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo");
    assert!(status.success(), "cargo build of pgmux: {status}");
    profile.join("pgmux")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_keys_become_nested_sections() {
        let yaml = Config::default()
            .set("pool.mode", "session")
            .set("pool.max_connections", 2)
            .set("databases.a.writer.port", 1)
            .set("databases.b.writer.port", 2)
            .to_yaml();
        let expected = "databases:\n  a:\n    writer:\n      port: 1\n  b:\n    writer:\n      port: 2\n\
                        pool:\n  max_connections: 2\n  mode: session\n";
        assert_eq!(yaml, expected);
    }
}
