//! Child processes that cannot outlive the test, their resources, and port numbers that no two tests share.

use std::fs::{self, File};
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal};

/// The longest wait for anything that is expected to happen. Long, so that a noisy machine fails no test.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A child process that is ended when its owner is dropped, and also when the test process dies without dropping.
///
/// Statics are never dropped and a test can be killed, so a small shell waits on a pipe that the test process holds:
/// when the pipe closes, it ends the child and removes the directory.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    guard: Child,
    stop: Signal,
}

impl Guarded {
    /// Starts `command`. `stop` is the signal that ends it at once; `dir` is removed if the test process dies.
    pub fn spawn(command: &mut Command, stop: Signal, dir: &Path) -> io::Result<Self> {
        let child = command.spawn()?;
        let guard = Command::new("sh")
            .arg("-c")
            .arg("read _; kill -s \"$1\" \"$2\" 2>/dev/null; sleep 1; rm -rf \"$3\"")
            .arg("guard")
            .arg(stop.as_raw().to_string())
            .arg(child.id().to_string())
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, guard, stop })
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the child.
    pub fn signal(&self, signal: Signal) {
        signal_pid(self.pid(), signal);
    }

    /// The exit status, if the child has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("wait for a child")
    }

    /// Waits until the child has ended, at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        eventually(timeout, || self.try_wait())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        if self.try_wait().is_none() {
            self.signal(self.stop);
            if self.wait(Duration::from_secs(5)).is_none() {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
    }
}

/// Sends a signal to a process that the test started itself.
pub fn signal_pid(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Asks `probe` until it has an answer or the time is up. The pause is the price of events that only /proc or another
/// process can show.
pub fn eventually<T>(timeout: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(4));
    }
}

/// A directory under the system's temp directory, removed on drop.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes a new directory, open to every user: PostgreSQL runs as another one than the test.
    pub fn new(name: &str) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("pgmux-{name}-{}-{next}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                // Left by a process that was killed and had this number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A TCP port on the loopback addresses that no other test of this machine has.
///
/// Binding port 0 is not enough: pgmux listens with `SO_REUSEPORT`, so two of them on one port would not clash but
/// share clients. Each number is locked by a file for the life of this process, and lies below the range from which
/// the kernel takes the ports of outgoing connections. A connection is tried, not a listener: a listener of ours could
/// live on for a moment in a child that another test is just starting.
pub fn free_port() -> u16 {
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    let locks = std::env::temp_dir().join("pgmux-test-ports");
    fs::create_dir_all(&locks).expect("the folder of port locks");
    let mut held = HELD.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let start = std::process::id().wrapping_mul(64);
    for step in 0..COUNT {
        let port = FIRST + start.wrapping_add(step) % COUNT;
        let port = u16::try_from(port).expect("below 30,000");
        let lock = File::create(locks.join(port.to_string())).expect("a port lock");
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            && TcpStream::connect(("127.0.0.1", port)).is_err()
        {
            held.push(lock);
            return port;
        }
    }
    panic!("no free port");
}

/// The target directory, which is where this test's own program lies.
pub fn target_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    test.ancestors()
        .nth(3)
        .expect("target/<profile>/deps/<test>")
        .into()
}

/// Resident memory of a process in KiB.
pub fn rss_kib(pid: u32) -> u64 {
    status_field(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// Open file descriptors of a process.
pub fn open_fds(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// CPU time that all threads of a process have used, in clock ticks of 10 ms.
pub fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // utime and stime are fields 14 and 15 of proc(5); the split begins at field 3.
    [11, 12]
        .iter()
        .filter_map(|index| fields.get(*index)?.parse::<u64>().ok())
        .sum()
}

/// Voluntary context switches of all threads of a process: how often it woke up for something.
pub fn wake_ups(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    tasks
        .flatten()
        .map(|task| {
            let path = task.path().join("status");
            status_field(&path.to_string_lossy(), "voluntary_ctxt_switches:")
        })
        .sum()
}

fn status_field(path: &str, name: &str) -> u64 {
    let status = fs::read_to_string(path).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_that_a_killed_process_left_is_passed_over() {
        let first = TempDir::new("left").expect("a directory");
        let (stem, number) = first
            .path()
            .to_str()
            .and_then(|path| path.rsplit_once('-'))
            .expect("a name with a number");
        let number: u32 = number.parse().expect("a number");
        // Other tests of this process may take numbers meanwhile.
        let left: Vec<PathBuf> = (number + 1..number + 20)
            .map(|number| PathBuf::from(format!("{stem}-{number}")))
            .filter(|path| fs::create_dir(path).is_ok())
            .collect();
        let second = TempDir::new("left").expect("another directory");
        assert!(!left.iter().any(|path| path == second.path()));
        left.iter()
            .for_each(|path| fs::remove_dir(path).expect("removed"));
    }
}
