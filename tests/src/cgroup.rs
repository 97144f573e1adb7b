//! A memory cgroup, of version 1 or 2, for one process.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::{PATIENCE, eventually};

/// A group whose processes may have only so much memory. It is removed when dropped, after its processes have ended.
#[derive(Debug)]
pub struct Cgroup {
    dir: PathBuf,
    v2: bool,
}

impl Cgroup {
    /// Makes one; `Err` says why this machine lets nobody make one.
    pub fn with_memory(bytes: u64) -> Result<Self, String> {
        let mut refusals = Vec::new();
        for (root, v2) in [("/sys/fs/cgroup/memory", false), ("/sys/fs/cgroup", true)] {
            match Self::under(Path::new(root), v2, bytes) {
                Ok(group) => return Ok(group),
                Err(error) => refusals.push(format!("{root}: {error}")),
            }
        }
        Err(refusals.join("; "))
    }

    fn under(root: &Path, v2: bool, bytes: u64) -> std::io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = if v2 {
            "cgroup.controllers"
        } else {
            "memory.limit_in_bytes"
        };
        fs::metadata(root.join(own))?;
        let dir = root.join(format!("pgmux-test-{}-{number}", std::process::id()));
        fs::create_dir(&dir)?;
        let group = Self { dir, v2 };
        let limit = if v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        fs::write(group.dir.join(limit), bytes.to_string())?;
        // No way out into swap, where there is any.
        let swap = if v2 {
            ("memory.swap.max", "0".to_owned())
        } else {
            ("memory.memsw.limit_in_bytes", bytes.to_string())
        };
        let _ = fs::write(group.dir.join(swap.0), swap.1);
        Ok(group)
    }

    /// The words that start a command in it.
    pub fn words(&self) -> Vec<String> {
        let procs = self.dir.join("cgroup.procs");
        let script = format!("echo $$ > '{}' && exec \"$0\" \"$@\"", procs.display());
        vec!["sh".into(), "-c".into(), script]
    }

    /// The most that its processes have had at once, if that is counted.
    pub fn peak(&self) -> Option<u64> {
        let name = if self.v2 {
            "memory.peak"
        } else {
            "memory.max_usage_in_bytes"
        };
        fs::read_to_string(self.dir.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// How often the kernel has killed one of them.
    pub fn kills(&self) -> u64 {
        let name = if self.v2 {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let events = fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        let kills = events
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "));
        kills
            .and_then(|number| number.trim().parse().ok())
            .unwrap_or(0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = eventually(PATIENCE, || fs::remove_dir(&self.dir).ok());
    }
}
