//! Child processes: tasks that are waited for, and services that end with their guard.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Stop;
use super::interrupt::Interrupt;

/// How often a wait looks.
pub(super) const POLL: Duration = Duration::from_millis(50);

/// How long a service may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(8);

/// The end of a log that an error shows.
const TAIL_LINES: usize = 8;

/// A user without privileges for the server, which refuses to run as root; `None` when we are not root.
pub(super) fn unprivileged() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    ["postgres", "nobody"]
        .iter()
        .find_map(|name| ids(&users, name))
}

fn ids(users: &str, name: &str) -> Option<(u32, u32)> {
    let line = users
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Has a command run as the unprivileged user.
pub(super) fn demote(command: &mut Command) {
    if let Some((user, group)) = unprivileged() {
        command.uid(user).gid(group);
    }
}

/// Runs a command to its end and gives its standard output; `progress` gets each line of its standard error.
///
/// Both go through files, so that nothing can block on a full pipe.
pub(super) fn task(
    name: &str,
    command: &mut Command,
    dir: &Path,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(&str),
) -> Result<String, Stop> {
    let (out, err) = (
        dir.join(format!("{name}.out")),
        dir.join(format!("{name}.err")),
    );
    command.stdout(create(&out)?);
    let mut child = Service::start(name, command, dir, &err)?;
    let mut shown = 0;
    let status = loop {
        let ended = child
            .child
            .try_wait()
            .map_err(|error| Stop::failed(name, error))?;
        let text = fs::read_to_string(&err).unwrap_or_default();
        for line in text
            .get(shown..)
            .unwrap_or("")
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            progress(line.trim_end());
            shown += line.len();
        }
        match ended {
            Some(status) => break status,
            None => interrupt.check()?,
        }
        std::thread::sleep(POLL);
    };
    if !status.success() {
        return Err(Stop::Failed(format!(
            "{name} failed ({status}):\n{}",
            tail(&err)
        )));
    }
    fs::read_to_string(&out).map_err(|error| Stop::failed(name, error))
}

/// A process that is ended when this is dropped: by its signal, and by SIGKILL when that takes too long.
pub(super) struct Service {
    name: String,
    child: Child,
    log: PathBuf,
    stop: Signal,
    grace: Duration,
}

impl Service {
    /// Starts a command in `dir` with its standard error in `log`. It gets a process group of its own, so that
    /// a Ctrl-C reaches only us, and we end things in order.
    pub(super) fn start(
        name: &str,
        command: &mut Command,
        dir: &Path,
        log: &Path,
    ) -> Result<Self, Stop> {
        command
            .stdin(Stdio::null())
            .stderr(create(log)?)
            .current_dir(dir)
            .process_group(0);
        let child = command
            .spawn()
            .map_err(|error| Stop::failed(&format!("cannot start {name}"), error))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
            stop: Signal::TERM,
            grace: GRACE,
        })
    }

    /// Another signal than SIGTERM to end it with.
    pub(super) fn stopped_by(mut self, signal: Signal) -> Self {
        self.stop = signal;
        self
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard error so far.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last lines of its standard error.
    pub(super) fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// An error with the end of its log when it is no more.
    pub(super) fn alive(&self) -> Result<(), Stop> {
        // A child that ended and was not waited for is a zombie: its state says so without `&mut`.
        let state = fs::read_to_string(format!("/proc/{}/stat", self.id())).ok();
        let ended = match state.as_deref().and_then(|stat| stat.rsplit(')').next()) {
            Some(rest) => rest.trim_start().starts_with(['Z', 'X']),
            None => true,
        };
        if ended {
            return Err(Stop::Failed(format!(
                "{} ended by itself:\n{}",
                self.name,
                tail(&self.log)
            )));
        }
        Ok(())
    }

    /// Waits until `ready` is true.
    pub(super) fn wait_until(
        &self,
        limit: Duration,
        interrupt: &Interrupt,
        ready: impl Fn(&Self) -> bool,
    ) -> Result<(), Stop> {
        let started = Instant::now();
        while !ready(self) {
            interrupt.check()?;
            self.alive()?;
            if started.elapsed() > limit {
                let text = format!(
                    "{} is not ready after {limit:?}:\n{}",
                    self.name,
                    tail(&self.log)
                );
                return Err(Stop::Failed(text));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let started = Instant::now();
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
            && self.child.try_wait()?.is_none()
        {
            kill_process(pid, self.stop)?;
        }
        while self.child.try_wait()?.is_none() {
            if started.elapsed() > self.grace {
                self.child.kill()?;
                self.child.wait()?;
                break;
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!(
                "pgmux demo: cannot end {} (process {}): {error}",
                self.name,
                self.child.id()
            );
        }
    }
}

fn create(path: &Path) -> Result<File, Stop> {
    File::create(path)
        .map_err(|error| Stop::failed(&format!("cannot write {}", path.display()), error))
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let users = "root:x:0:0::/root:/bin/sh\npostgres2:x:7:8::/:/bin/sh\npostgres:x:101:103:x:/:/bin/sh\nbad:x:a:b\n";
        assert_eq!(ids(users, "postgres"), Some((101, 103)));
        assert_eq!(ids(users, "nobody"), None);
        assert_eq!(ids(users, "bad"), None);
    }

    #[test]
    fn a_dropped_service_is_gone_even_if_it_ignores_its_signal() {
        let dir = tempfile::tempdir().unwrap();
        let interrupt = Interrupt::install().unwrap();
        for (script, grace) in [("", GRACE), ("trap '' TERM;", POLL)] {
            let mut command = Command::new("sh");
            command.args([
                "-c",
                &format!("{script} echo up >&2; while :; do sleep 0.1; done"),
            ]);
            let mut service =
                Service::start("sleeper", &mut command, dir.path(), &dir.path().join("log"))
                    .unwrap();
            service.grace = grace;
            service
                .wait_until(Duration::from_secs(10), &interrupt, |service| {
                    service.log().contains("up")
                })
                .unwrap();
            let path = format!("/proc/{}", service.id());
            drop(service);
            assert!(!Path::new(&path).exists(), "{script}");
        }
    }

    #[test]
    fn a_service_that_ends_by_itself_is_noticed_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo last words >&2; exit 3"]);
        let service =
            Service::start("short", &mut command, dir.path(), &dir.path().join("log")).unwrap();
        let interrupt = Interrupt::install().unwrap();
        let ended = service.wait_until(Duration::from_secs(10), &interrupt, |_| false);
        assert!(
            matches!(ended, Err(Stop::Failed(text)) if text.contains("short ended") && text.contains("last words"))
        );
    }

    #[test]
    fn a_task_gives_its_output_and_shows_its_progress() {
        let dir = tempfile::tempdir().unwrap();
        let interrupt = Interrupt::install().unwrap();
        let mut lines = Vec::new();
        let mut run = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            task(
                "script",
                &mut command,
                dir.path(),
                &interrupt,
                &mut |line| lines.push(line.to_owned()),
            )
        };
        assert_eq!(
            run("echo one >&2; echo out; echo two >&2").unwrap(),
            "out\n"
        );
        assert!(
            matches!(run("echo sorry >&2; exit 1"), Err(Stop::Failed(text)) if text.ends_with("sorry"))
        );
        assert_eq!(lines, ["one", "two", "sorry"]);
    }
}
