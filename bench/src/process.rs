//! Processes that end with the one who started them.
//!
//! Three nets, one below the other: [`Process::stop`], its drop, and the
//! kernel's parent-death signal for the case that this program is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, geteuid, kill_process};

/// A child process, known by its process id, ended when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    log: Option<PathBuf>,
    stop: Signal,
}

/// How a process is to be started.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The name that messages use.
    pub name: &'a str,
    /// The program.
    pub program: &'a Path,
    /// Run as the `postgres` user when this program is root: PostgreSQL and
    /// PgBouncer refuse to be root.
    pub as_postgres: bool,
    /// The signal that ends it in an orderly way.
    pub stop: Signal,
    /// CPUs it may use, as `taskset -c` writes them; none leaves it free.
    pub cpus: Option<&'a str>,
    /// A program and its arguments under which to run it, like valgrind.
    pub under: &'a [String],
}

impl Launch<'_> {
    /// A command with this launch's user, CPUs and parent-death signal; the arguments are the caller's.
    ///
    /// `setpriv` and `taskset` replace themselves by the program, so the
    /// process id that we see is the program's own.
    pub fn command(&self) -> Command {
        let death = match self.stop {
            Signal::INT => "INT",
            _ => "TERM",
        };
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", death]);
        if self.as_postgres && geteuid().is_root() {
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
        }
        if let Some(cpus) = self.cpus {
            command.args(["taskset", "-c", cpus]);
        }
        command.args(self.under).arg(self.program);
        // A Ctrl-C at the terminal must reach this program alone, which then ends its children in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
    }

    /// Starts it with output into `log`.
    pub fn start<I, S>(&self, arguments: I, log: &Path) -> Result<Process>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let output = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let mut command = self.command();
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        self.adopt(command, Some(log.to_owned()))
    }

    /// Starts it with both outputs on pipes, for [`Process::child`] to take.
    pub fn start_piped<I, S>(&self, arguments: I) -> Result<Process>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = self.command();
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.adopt(command, None)
    }

    fn adopt(&self, mut command: Command, log: Option<PathBuf>) -> Result<Process> {
        let child = command
            .spawn()
            .with_context(|| format!("start {} ({})", self.name, self.program.display()))?;
        Ok(Process {
            child,
            name: self.name.to_owned(),
            log,
            stop: self.stop,
        })
    }
}

impl Process {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child, to take its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// An error with the end of its log if it has ended.
    pub fn expect_alive(&mut self) -> Result<()> {
        let Some(status) = self.ended()? else {
            return Ok(());
        };
        let log = self.log.as_deref().map(log_tail).unwrap_or_default();
        bail!("{} ended early ({status}): {log}", self.name);
    }

    /// Sends its own signal; whether it ended in this time.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        self.signal_and_wait(self.stop, limit)
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.signal_and_wait(Signal::KILL, STOP_LIMIT);
    }

    /// Ends it: its own signal first, SIGKILL when it takes too long.
    pub fn stop(&mut self) {
        if self.signal_and_wait(self.stop, STOP_LIMIT) {
            return;
        }
        eprintln!("{} did not end in time and is killed", self.name);
        self.kill();
    }

    fn signal(&mut self, signal: Signal) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // Not yet waited for, so the id cannot have been given to another process.
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    fn signal_and_wait(&mut self, signal: Signal, limit: Duration) -> bool {
        self.signal(signal);
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a short helper program to its end and gives its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let what = command.get_program().to_string_lossy().into_owned();
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("run {what}"))?;
    if !out.status.success() {
        let told = String::from_utf8_lossy(&out.stderr);
        bail!("{what} failed ({}): {}", out.status, told.trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The end of a log, enough to see why a program stopped.
pub fn log_tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

/// PostgreSQL's fast shutdown writes a checkpoint; without fsync it is done well within this.
const STOP_LIMIT: Duration = Duration::from_secs(8);
const LOG_TAIL_LINES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(stop: Signal) -> Process {
        let launch = Launch {
            name: "sleep",
            program: Path::new("sleep"),
            as_postgres: false,
            stop,
            cpus: None,
            under: &[],
        };
        launch.start_piped(["60"]).expect("sleep starts")
    }

    #[test]
    fn dropping_a_process_ends_it() {
        let process = sleeper(Signal::TERM);
        let proc_dir = PathBuf::from(format!("/proc/{}", process.pid()));
        assert!(proc_dir.exists());
        drop(process);
        assert!(!proc_dir.exists());
    }

    #[test]
    fn the_process_id_is_the_programs_own() {
        let process = sleeper(Signal::INT);
        let comm = format!("/proc/{}/comm", process.pid());
        let end = Instant::now() + Duration::from_secs(5);
        while std::fs::read_to_string(&comm).expect("alive").trim() != "sleep" {
            assert!(Instant::now() < end, "setpriv did not give way");
        }
    }

    #[test]
    fn an_early_end_is_reported_with_its_log() {
        let dir = tempfile::tempdir().expect("temp dir");
        let log = dir.path().join("log");
        let launch = Launch {
            name: "sh",
            program: Path::new("sh"),
            as_postgres: false,
            stop: Signal::TERM,
            cpus: None,
            under: &[],
        };
        let mut process = launch
            .start(["-c", "echo no such port; exit 3"], &log)
            .expect("sh starts");
        while process.ended().expect("wait").is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let told = process.expect_alive().expect_err("ended").to_string();
        assert!(told.contains("no such port"), "{told}");
    }
}
