//! The trace of `valgrind --tool=lackey --trace-mem=yes --trace-sched=yes`, read while it is written.
//!
//! It is a gigabyte before the first query, so it goes through a named pipe and is looked at only in windows.
//! valgrind runs one thread at a time and says which.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, FileType, Mode as FileMode, mknodat};

use super::lines::{Access, Lines, Site, Thread};
use crate::interrupt::Interrupt;

/// The reading end.
#[derive(Debug)]
pub struct Trace(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    looking: AtomicBool,
    read: AtomicU64,
    lines: Mutex<Lines>,
}

impl Trace {
    /// Makes the pipe and begins to read what will come.
    pub fn through(pipe: &Path) -> Result<Self> {
        let mode = FileMode::from_raw_mode(0o600);
        mknodat(CWD, pipe, FileType::Fifo, mode, 0).context("make a named pipe")?;
        let shared = Arc::new(Shared::default());
        let (pipe, theirs) = (pipe.to_owned(), Arc::clone(&shared));
        // It ends with the writer, or with this program.
        std::thread::spawn(move || {
            if let Ok(file) = File::open(pipe) {
                follow(BufReader::with_capacity(BUFFER_BYTES, file), &theirs);
            }
        });
        Ok(Self(shared))
    }

    /// Returns when hardly anything is traced any more: the program sleeps, and all it wrote has been read.
    pub fn wait_quiet(&self, interrupt: &Interrupt) -> Result<()> {
        let mut since = (self.0.read.load(Ordering::Acquire), Instant::now());
        let quiet = interrupt.wait_until(QUIET_LIMIT, || {
            let read = self.0.read.load(Ordering::Acquire);
            if read > since.0 + QUIET_LINES {
                since = (read, Instant::now());
            }
            Ok(read > 0 && since.1.elapsed() >= QUIET)
        })?;
        if !quiet {
            bail!("the traced program does not come to rest");
        }
        Ok(())
    }

    /// Looks at what happens in `work`, from rest to rest.
    pub fn during(
        &self,
        interrupt: &Interrupt,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Lines> {
        self.wait_quiet(interrupt)?;
        self.0.looking.store(true, Ordering::Release);
        let outcome = work().and_then(|()| self.wait_quiet(interrupt));
        self.0.looking.store(false, Ordering::Release);
        let mut lines = self.0.lines.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.map(|()| std::mem::take(&mut *lines))
    }
}

fn follow(mut trace: impl BufRead, shared: &Shared) {
    let mut reader = Reader::default();
    let mut line = Vec::new();
    while trace
        .read_until(b'\n', &mut line)
        .is_ok_and(|bytes| bytes > 0)
    {
        let looking = shared.looking.load(Ordering::Acquire);
        if let Some((site, address, size)) = reader.line(&line, looking) {
            let mut lines = shared.lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.touch(site, address, size);
        }
        line.clear();
        shared.read.fetch_add(1, Ordering::Release);
    }
}

/// What must be remembered from line to line.
#[derive(Debug, Default)]
struct Reader {
    thread: Thread,
    code: u64,
}

impl Reader {
    /// The access that a line tells of, if it does and somebody looks.
    fn line(&mut self, line: &[u8], looking: bool) -> Option<(Site, u64, u64)> {
        match line {
            [b'-', b'-', ..] => {
                self.thread = running(line).unwrap_or(self.thread);
                None
            }
            _ if !looking => None,
            [b'I', b' ', b' ', rest @ ..] => {
                self.code = numbers(rest)?.0;
                None
            }
            [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => {
                let (address, size) = numbers(rest)?;
                let site = Site {
                    thread: self.thread,
                    code: self.code,
                    access: match kind {
                        b'L' => Access::Read,
                        _ => Access::Write,
                    },
                };
                Some((site, address, size))
            }
            _ => None,
        }
    }
}

/// `1ffeffec68,8`: hexadecimal, decimal.
fn numbers(text: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(text).ok()?.trim_end();
    let (address, size) = text.split_once(',')?;
    Some((u64::from_str_radix(address, 16).ok()?, size.parse().ok()?))
}

/// The thread that begins to run: `--PID--   SCHED[3]:  acquired lock (…)`.
fn running(line: &[u8]) -> Option<Thread> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, rest) = text.split_once("SCHED[")?;
    let (thread, what) = rest.split_once("]:")?;
    what.trim_start()
        .starts_with("acquired lock")
        .then(|| thread.parse().ok())?
}

const BUFFER_BYTES: usize = 1 << 20;
/// So little in so long is rest: a query is more, and sixteen threads that look at their rings now and then are less.
const QUIET_LINES: u64 = 4_000;
const QUIET: Duration = Duration::from_millis(400);
const QUIET_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "==7== Lackey\n--7--   SCHED[2]:  acquired lock (x)\nI  00401000,3\n S 00000040,8\n\
        --7--   SCHED[2]: releasing lock (x) -> VgTs_WaitSys\n--7--   SCHED[3]:  acquired lock (x)\n\
        I  00402000,3\n L 00000048,4\nI  00402003,3\n M 00000050,4\n";

    fn shared(looking: bool) -> Shared {
        let shared = Shared::default();
        shared.looking.store(looking, Ordering::Release);
        follow(TRACE.as_bytes(), &shared);
        shared
    }

    #[test]
    fn accesses_belong_to_the_thread_and_the_instruction_before_them() {
        let lines = shared(true).lines.into_inner().expect("not poisoned");
        let moved = lines.moved();
        let [(64, line)] = moved[..] else {
            panic!("{moved:?}");
        };
        assert_eq!(line.transfers, 2, "once to be read, once to be taken");
        let mut sites: Vec<(u32, u64, Access)> = line
            .sites
            .keys()
            .map(|s| (s.thread, s.code, s.access))
            .collect();
        sites.sort_unstable();
        assert_eq!(
            sites,
            [
                (2, 0x40_1000, Access::Write),
                (3, 0x40_2000, Access::Read),
                (3, 0x40_2003, Access::Write),
            ]
        );
    }

    #[test]
    fn nothing_is_kept_while_nobody_looks() {
        let shared = shared(false);
        assert!(shared.lines.into_inner().expect("not poisoned").is_empty());
        assert_eq!(shared.read.into_inner(), 10);
    }

    #[test]
    fn only_a_thread_that_gets_the_lock_runs() {
        assert_eq!(
            running(b"--7--   SCHED[12]:  acquired lock (VG_(x)[async]) \n"),
            Some(12)
        );
        assert_eq!(
            running(b"--7--   SCHED[12]: releasing lock (x) -> VgTs_Yielding\n"),
            None
        );
        assert_eq!(running(b"--7-- something else\n"), None);
    }
}
