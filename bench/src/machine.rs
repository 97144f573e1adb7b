//! The machine that the figures belong to.

use std::path::Path;
use std::process::Command;

use crate::cluster::Programs;
use crate::process::output;

/// What a reader must know to judge the figures.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Name and value, in the order of the report.
    pub facts: Vec<(&'static str, String)>,
}

impl Machine {
    /// Looks around.
    pub fn describe(programs: &Programs) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let uname = |flag: &str| asked(Command::new("uname").arg(flag));
        let cpuinfo = read("/proc/cpuinfo");
        let virtual_machine = first_value(&cpuinfo, "flags")
            .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
        let cpu = first_value(&cpuinfo, "model name").unwrap_or("unknown");
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        let postgres = asked(Command::new(programs.path("postgres")).arg("--version"));
        let facts = vec![
            (
                "CPU",
                format!(
                    "{cpu}{}",
                    if virtual_machine {
                        " (virtual machine)"
                    } else {
                        ""
                    }
                ),
            ),
            ("cores", cores().to_string()),
            (
                "governor",
                match governor.trim() {
                    "" => "not visible".to_owned(),
                    name => name.to_owned(),
                },
            ),
            ("memory", memory(&read("/proc/meminfo"))),
            ("kernel", format!("{} {}", uname("-sr"), uname("-m"))),
            (
                "system",
                os_name(&read("/etc/os-release"))
                    .unwrap_or("unknown")
                    .to_owned(),
            ),
            ("load before", read("/proc/loadavg").trim().to_owned()),
            ("PostgreSQL", postgres),
            ("commit", commit()),
        ];
        Self { facts }
    }
}

/// CPUs that this process may use.
pub fn cores() -> u32 {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The path of a program: as given, or found on the search path and where Debian puts daemons.
pub fn find_program(name: &Path) -> Option<std::path::PathBuf> {
    if name.components().count() > 1 {
        return name.is_file().then(|| name.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([Path::new("/usr/sbin").to_owned()])
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

fn asked(command: &mut Command) -> String {
    output(command).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn commit() -> String {
    let id = asked(Command::new("git").args(["rev-parse", "--short", "HEAD"]));
    let changed =
        asked(Command::new("git").args(["status", "--porcelain", "--untracked-files=no"]));
    if changed.is_empty() {
        id
    } else {
        format!("{id}, with changes")
    }
}

fn first_value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

fn memory(meminfo: &str) -> String {
    let kib = first_value(meminfo, "MemTotal").and_then(|value| value.split(' ').next());
    match kib.and_then(|kib| kib.parse::<u64>().ok()) {
        Some(kib) => format!("{:.1} GiB", kib as f64 / 1024.0 / 1024.0),
        None => "unknown".to_owned(),
    }
}

fn os_name(release: &str) -> Option<&str> {
    let line = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_whole_name() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC\nmodel\t: 1\n";
        assert_eq!(first_value(text, "model"), Some("1"));
        assert_eq!(first_value(text, "model name"), Some("AMD EPYC"));
        assert_eq!(first_value(text, "flags"), None);
    }

    #[test]
    fn memory_is_told_in_gib() {
        assert_eq!(memory("MemTotal:       25165824 kB\n"), "24.0 GiB");
        assert_eq!(memory(""), "unknown");
    }

    #[test]
    fn programs_are_found_on_the_search_path_or_as_given() {
        assert!(find_program(Path::new("sh")).is_some());
        assert!(find_program(Path::new("/bin/sh")).is_some());
        assert!(find_program(Path::new("/no/such/program")).is_none());
        assert!(find_program(Path::new("no-such-program")).is_none());
    }
}
