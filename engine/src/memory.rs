//! `engine.memory_max`: load is shed before the kernel's OOM killer sheds the process.
//!
//! One thread looks at the resident memory, the more often the closer it is to
//! the mark; the shards only look at a flag, at a login and where a client's
//! statement is kept. From the mark on, in this order:
//!
//! 1. logins are refused, and so are more prepared statements (53200);
//! 2. what is free goes back to the kernel, for what the allocator keeps counts;
//! 3. if that is not enough, idle clients are sent away, a part of them at a time,
//!    until there is 1/16 less than the mark; then all is as before.

use crate::config::MemoryMax;
use crate::ring::return_free_memory;
use crate::shard::{Mail, Postbox};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Shared by all shards.
#[derive(Debug, Default)]
pub struct Memory {
    /// The mark in bytes, if there is one.
    max: Option<u64>,
    tight: AtomicBool,
}

impl Memory {
    /// With what the configuration says, and of a part of it, the machine.
    pub fn new(max: MemoryMax) -> Self {
        let max = match max {
            MemoryMax::Off => None,
            MemoryMax::Bytes(bytes) => Some(bytes),
            MemoryMax::Percent(percent) => Some(available() / 100 * u64::from(percent)),
        };
        Self {
            max,
            tight: AtomicBool::new(false),
        }
    }

    /// Whether there is no memory for anything new.
    #[inline]
    pub fn is_tight(&self) -> bool {
        self.tight.load(Relaxed)
    }

    /// Starts to look after it, where there is a mark.
    pub fn watch(self: &Arc<Self>, posts: &[Postbox]) {
        let Some(max) = self.max else { return };
        tracing::info!(bytes = max, "load is shed from this much memory on");
        let (memory, posts) = (Arc::clone(self), posts.to_vec());
        let watch = std::thread::Builder::new().name("memory".to_owned());
        let watching = watch.spawn(move || memory.look_for_ever(max, &posts));
        if let Err(error) = watching {
            tracing::error!(%error, "nobody looks after engine.memory_max");
        }
    }

    fn look_for_ever(&self, max: u64, posts: &[Postbox]) {
        let resident = Resident::open();
        loop {
            let mut used = resident.bytes();
            let was_tight = self.is_tight();
            let enough = if was_tight { max / 16 * 15 } else { max };
            if used >= enough {
                self.tight.store(true, Relaxed);
                return_free_memory();
                used = resident.bytes();
            }
            let tight = used >= enough;
            self.tight.store(tight, Relaxed);
            match (was_tight, tight) {
                (false, true) => {
                    tracing::warn!(bytes = used, max, "short of memory: logins are refused");
                }
                // To refuse was not enough.
                (true, true) => {
                    for post in posts {
                        post.post(Mail::Shed);
                    }
                }
                (true, false) => tracing::info!(bytes = used, "there is memory again"),
                (false, false) => {}
            }
            // What was freed must have been given back before it is looked at again.
            std::thread::sleep(match used {
                _ if tight => SHEDDING,
                used if used >= max / 2 => CLOSE,
                _ => FAR,
            });
        }
    }
}

/// What the process has in memory.
pub struct Resident {
    statm: Option<File>,
    page: u64,
}

impl Resident {
    /// Opened once: a process that is out of descriptors must still know.
    pub fn open() -> Self {
        Self {
            statm: File::open("/proc/self/statm").ok(),
            page: rustix::param::page_size() as u64,
        }
    }

    /// 0 when it is not known.
    pub fn bytes(&self) -> u64 {
        let mut text = [0; 128];
        let read = self.statm.as_ref().map(|file| file.read_at(&mut text, 0));
        let Some(Ok(read)) = read else { return 0 };
        pages(&text[..read]).saturating_mul(self.page)
    }
}

/// The second number of `/proc/self/statm` (proc(5)).
fn pages(statm: &[u8]) -> u64 {
    let text = std::str::from_utf8(statm).unwrap_or_default();
    let resident = text.split_whitespace().nth(1);
    resident.and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// What the process may use: of its cgroup and those around it, or the machine.
fn available() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = info.totalram as u64 * u64::from(info.mem_unit);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        text.trim().parse::<u64>().ok()
    });
    limits.fold(machine, u64::min)
}

/// Where the limits of these cgroups may stand, theirs and those around them.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let own = Path::new(path.trim_start_matches('/'));
        files.extend(
            own.ancestors()
                .map(|dir| Path::new(root).join(dir).join(name)),
        );
    }
    files
}

/// How often it is looked at: far from the mark, close to it, and above it.
const FAR: Duration = Duration::from_millis(100);
const CLOSE: Duration = Duration::from_millis(10);
const SHEDDING: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_memory_is_read_again_and_again() {
        assert_eq!(pages(b"5000 1234 300 1 0 900 0\n"), 1234);
        assert_eq!(pages(b""), 0);
        let resident = Resident::open();
        let before = resident.bytes();
        assert!(before > 0);
        let held = vec![1_u8; 64 << 20];
        assert!(
            resident.bytes() >= before + (48 << 20),
            "{} bytes held",
            held.len()
        );
    }

    #[test]
    fn a_part_is_of_the_machine_or_of_less() {
        let half = Memory::new(MemoryMax::Percent(50)).max.expect("a mark");
        let all = Memory::new(MemoryMax::Percent(100)).max.expect("a mark");
        assert!(half > 0 && half <= all && all <= half * 2 + 200);
        assert_eq!(Memory::new(MemoryMax::Off).max, None);
        assert_eq!(Memory::new(MemoryMax::Bytes(7)).max, Some(7));
    }

    #[test]
    fn limits_are_looked_for_in_both_versions_and_upwards() {
        let files = limit_files("5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/c\nnonsense\n");
        let files: Vec<_> = files
            .iter()
            .map(|file| file.to_str().expect("text"))
            .collect();
        assert_eq!(
            files,
            [
                "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/c/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
    }
}
