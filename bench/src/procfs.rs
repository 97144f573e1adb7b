//! What `/proc` tells about a process: pure parsers first, readers below.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Parent process id.
    pub parent: u32,
    /// User time in clock ticks.
    pub user_ticks: u64,
    /// System time in clock ticks.
    pub system_ticks: u64,
}

/// What one thread has used since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Time on a CPU, from schedstat, in nanoseconds.
    pub cpu_ns: u64,
    /// User time in clock ticks; ticks are coarse, so only their share is used.
    pub user_ticks: u64,
    /// System time in clock ticks.
    pub system_ticks: u64,
    /// Voluntary and involuntary context switches.
    pub switches: u64,
}

/// The whole machine's times since boot, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineTicks {
    /// Time in which any CPU did something.
    pub busy: u64,
    /// Time that the hypervisor gave to somebody else.
    pub steal: u64,
}

/// Parses `/proc/PID/stat`. The command name may hold spaces and parentheses, so it is cut at the last one.
pub fn parse_stat(text: &str) -> Result<Stat> {
    let (_, rest) = text.rsplit_once(')').context("stat without a command")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // proc(5) counts from 1 with pid and comm in front: state is field 3, here index 0.
    let number = |index: usize| -> Result<u64> {
        let field = fields.get(index).context("stat is too short")?;
        field.parse().context("stat holds no number")
    };
    Ok(Stat {
        parent: u32::try_from(number(1)?)?,
        user_ticks: number(11)?,
        system_ticks: number(12)?,
    })
}

/// Parses `/proc/PID/schedstat`: the first of its three numbers is the time on a CPU in nanoseconds.
pub fn parse_schedstat(text: &str) -> Result<u64> {
    let first = text.split_ascii_whitespace().next();
    let first = first.context("schedstat is empty")?;
    first.parse().context("schedstat holds no number")
}

/// The value of a `Key:   123 kB` line, as in `/proc/PID/status` and `smaps_rollup`.
pub fn parse_key(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.split_ascii_whitespace().next())
        .and_then(|value| value.parse().ok())
}

/// Both kinds of context switch of `/proc/PID/task/TID/status` together.
pub fn parse_switches(text: &str) -> Result<u64> {
    let voluntary = parse_key(text, "voluntary_ctxt_switches");
    let forced = parse_key(text, "nonvoluntary_ctxt_switches");
    voluntary
        .zip(forced)
        .map(|(a, b)| a + b)
        .context("status without context switches")
}

/// Parses the first line of `/proc/stat`: user nice system idle iowait irq softirq steal.
pub fn parse_machine(text: &str) -> Result<MachineTicks> {
    let line = text.lines().find(|line| line.starts_with("cpu "));
    let fields: Vec<u64> = line
        .context("/proc/stat without a cpu line")?
        .split_ascii_whitespace()
        .skip(1)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = fields[..] else {
        bail!("/proc/stat: the cpu line is too short");
    };
    Ok(MachineTicks {
        busy: user + nice + system + irq + softirq,
        steal,
    })
}

/// Soft limit of open files out of `/proc/PID/limits`.
pub fn parse_open_files(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    let soft = line.split_ascii_whitespace().next()?;
    if soft == "unlimited" {
        return Some(u64::MAX);
    }
    soft.parse().ok()
}

/// Whether a line of `/proc/net/tcp` is a listener (state 0A) on this port.
pub fn parse_listens(text: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    text.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
        matches!(fields[..], [_, local, _, "0A"] if local.ends_with(&port))
    })
}

/// Whether somebody on this machine listens on an IPv4 port; looking does not disturb the listener.
pub fn listens(port: u16) -> Result<bool> {
    Ok(parse_listens(
        &std::fs::read_to_string("/proc/net/tcp")?,
        port,
    ))
}

/// Every thread of a process, by its id; kernel threads that work for it (io_uring's) are among them.
pub fn tasks(pid: u32) -> Result<BTreeMap<u32, Task>> {
    let dir = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&dir).with_context(|| format!("process {pid} is gone"))?;
    let mut tasks = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        let id = path.file_name().and_then(|name| name.to_str());
        let Some(id) = id.and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A thread that ends between the listing and the reading is no error.
        if let Ok(task) = read_task(&path) {
            tasks.insert(id, task);
        }
    }
    Ok(tasks)
}

fn read_task(dir: &Path) -> Result<Task> {
    let stat = parse_stat(&std::fs::read_to_string(dir.join("stat"))?)?;
    let switches = parse_switches(&std::fs::read_to_string(dir.join("status"))?)?;
    let cpu_ns = match std::fs::read_to_string(dir.join("schedstat")) {
        Ok(text) => parse_schedstat(&text)?,
        // A kernel without CONFIG_SCHED_INFO: the ticks are all there is.
        Err(_) => (stat.user_ticks + stat.system_ticks) * ns_per_tick(),
    };
    Ok(Task {
        cpu_ns,
        user_ticks: stat.user_ticks,
        system_ticks: stat.system_ticks,
        switches,
    })
}

/// The names of a process's threads, by thread id.
pub fn thread_names(pid: u32) -> Result<BTreeMap<u32, String>> {
    let dir = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&dir).with_context(|| format!("process {pid} is gone"))?;
    let mut names = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        let id = path.file_name().and_then(|name| name.to_str());
        let id = id.and_then(|name| name.parse().ok());
        // A thread that ends between the listing and the reading is no error.
        if let (Some(id), Ok(name)) = (id, std::fs::read_to_string(path.join("comm"))) {
            names.insert(id, name.trim_end().to_owned());
        }
    }
    Ok(names)
}

/// Process ids whose parent is `parent`.
pub fn children(parent: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        if stat.is_ok_and(|text| parse_stat(&text).is_ok_and(|stat| stat.parent == parent)) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Resident memory in KiB. `smaps_rollup` counts pages; the counters behind
/// `status` are per CPU and may be off by some hundred KiB, so they come second.
pub fn rss_kib(pid: u32) -> Result<u64> {
    let exact = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
    if let Some(rss) = exact.ok().and_then(|text| parse_key(&text, "Rss")) {
        return Ok(rss);
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} is gone"))?;
    parse_key(&status, "VmRSS").with_context(|| format!("process {pid} has no resident memory"))
}

/// The most files that a process may open, as far as it can be read.
pub fn open_files_limit(pid: u32) -> Option<u64> {
    parse_open_files(&std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

/// The machine's times.
pub fn machine() -> Result<MachineTicks> {
    parse_machine(&std::fs::read_to_string("/proc/stat")?)
}

/// Nanoseconds of one clock tick.
pub fn ns_per_tick() -> u64 {
    let second = Duration::from_secs(1).as_nanos() as u64;
    second / rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_cut_behind_the_last_parenthesis_of_the_command() {
        let text = "4242 (pg) bouncer (1)) S 17 4242 4242 0 -1 4194560 1203 0 0 0 345 678 0 0 20 0 1 0 8812 1 2";
        let stat = parse_stat(text).expect("parses");
        assert_eq!(
            stat,
            Stat {
                parent: 17,
                user_ticks: 345,
                system_ticks: 678
            }
        );
    }

    #[test]
    fn a_short_stat_is_an_error_not_a_zero() {
        assert!(parse_stat("1 (init) S 0 1").is_err());
        assert!(parse_stat("").is_err());
        assert!(parse_schedstat("").is_err());
        assert!(parse_schedstat("abc 1 2").is_err());
    }

    #[test]
    fn schedstat_begins_with_nanoseconds_on_cpu() {
        assert_eq!(
            parse_schedstat("123456789 4567 89\n").expect("parses"),
            123_456_789
        );
    }

    #[test]
    fn status_gives_memory_and_both_kinds_of_switches() {
        let text = "Name:\tpgmux\nVmRSS:\t    5120 kB\nvoluntary_ctxt_switches:\t100\nnonvoluntary_ctxt_switches:\t23\n";
        assert_eq!(parse_key(text, "VmRSS"), Some(5120));
        assert_eq!(parse_switches(text).expect("parses"), 123);
        assert_eq!(parse_key(text, "Rss"), None);
        assert!(parse_switches("Name:\tx\nvoluntary_ctxt_switches:\t1\n").is_err());
    }

    #[test]
    fn waiting_and_stolen_time_is_not_busy_time() {
        let text = "cpu  100 2 30 4000 500 6 7 80 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let ticks = parse_machine(text).expect("parses");
        assert_eq!(
            ticks,
            MachineTicks {
                busy: 145,
                steal: 80
            }
        );
        assert!(parse_machine("cpu  1 2 3\n").is_err());
    }

    #[test]
    fn the_soft_limit_of_open_files_is_the_first_number() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\nMax open files            1024                 20000                files\n";
        assert_eq!(parse_open_files(text), Some(1024));
        assert_eq!(
            parse_open_files("Max open files   unlimited unlimited files"),
            Some(u64::MAX)
        );
        assert_eq!(parse_open_files("Max cpu time  1 1 s"), None);
    }

    #[test]
    fn only_a_listener_on_that_port_listens() {
        let text = "  sl  local_address rem_address   st\n   0: 0100007F:1538 00000000:0000 0A 0\n   1: 0100007F:1539 0100007F:1538 01 0\n";
        assert!(parse_listens(text, 0x1538));
        assert!(!parse_listens(text, 0x1539));
        assert!(!parse_listens(text, 0x538));
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id();
        let tasks = tasks(pid).expect("own tasks");
        assert!(!tasks.is_empty());
        assert!(rss_kib(pid).expect("own memory") > 0);
        assert!(machine().expect("machine").busy > 0);
        assert!(open_files_limit(pid).is_some());
    }
}
