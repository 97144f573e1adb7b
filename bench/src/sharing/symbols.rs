//! What an address of a running program is: a function and its line, a static, or a piece of memory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::output;

/// The memory of a process as it was when it was read.
#[derive(Debug)]
pub struct Map {
    regions: Vec<Region>,
    statics: HashMap<PathBuf, Vec<Static>>,
    told: HashMap<u64, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Region {
    from: u64,
    to: u64,
    /// Where the file's first byte would be; a position-independent program counts its addresses from there.
    base: u64,
    /// The file's zeroed statics, and what has been mapped right behind them.
    zeroed: bool,
    name: String,
}

/// A named piece of a file's memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Static {
    start: u64,
    end: u64,
    name: String,
}

impl Region {
    /// The place of an address that has no better name.
    fn place(&self, address: u64) -> String {
        let name = match self.zeroed || self.name.is_empty() {
            true => "anonymous memory",
            false => &self.name,
        };
        let kib = (self.to - self.from) / 1024;
        format!("{name}, {:#x} of {kib} KiB", address - self.from)
    }
}

impl Map {
    /// Of a process that runs.
    pub fn of(pid: u32) -> Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps"));
        Ok(Self {
            regions: parse_maps(&text.with_context(|| format!("process {pid} is gone"))?),
            statics: HashMap::new(),
            told: HashMap::new(),
        })
    }

    /// The function that an instruction belongs to, with its line: the innermost that is not the library's own.
    pub fn code(&mut self, address: u64) -> String {
        if let Some(told) = self.told.get(&address) {
            return told.clone();
        }
        let told = self
            .ask_code(address)
            .unwrap_or_else(|| format!("{address:#x}"));
        self.told.insert(address, told.clone());
        told
    }

    fn ask_code(&self, address: u64) -> Option<String> {
        let region = self.region(address)?;
        let file = Path::new(&region.name);
        if !file.is_file() {
            return None;
        }
        let mut command = Command::new("addr2line");
        command.args([
            "--demangle",
            "--functions",
            "--inlines",
            "--pretty-print",
            "--exe",
        ]);
        // The call's own line is that of the byte before the one it returns to; these are the instructions themselves.
        command
            .arg(file)
            .arg(format!("{:#x}", address - region.base));
        let told = output(&mut command).ok()?;
        let frame = pick_frame(&told)?;
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("?");
        Some(match frame.starts_with("??") {
            true => format!("{name}+{:#x}", address - region.base),
            false => frame,
        })
    }

    /// What lies at an address.
    pub fn data(&mut self, address: u64) -> String {
        let Some(region) = self.region(address).cloned() else {
            return "unmapped since".to_owned();
        };
        let file = PathBuf::from(&region.name);
        if !file.is_file() {
            return region.place(address);
        }
        let offset = address - region.base;
        let statics = self
            .statics
            .entry(file.clone())
            .or_insert_with(|| statics(&file));
        let after = statics.partition_point(|found| found.start <= offset);
        let found = after.checked_sub(1).map(|at| &statics[at]);
        let name = file.file_name().unwrap_or_default().display();
        match found.filter(|found| offset < found.end) {
            Some(found) => format!("{name}: {}+{}", found.name, offset - found.start),
            None if region.zeroed => region.place(address),
            None => format!("{name}+{offset:#x}"),
        }
    }

    fn region(&self, address: u64) -> Option<&Region> {
        self.regions
            .iter()
            .find(|region| (region.from..region.to).contains(&address))
    }
}

/// Parses `/proc/PID/maps`. A nameless region right behind a file's is its zeroed statics.
fn parse_maps(text: &str) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [range, _, offset, _, inode, ref name @ ..] = fields[..] else {
            continue;
        };
        let Some((from, to)) = range.split_once('-') else {
            continue;
        };
        let hex = |text| u64::from_str_radix(text, 16);
        let (Ok(from), Ok(to), Ok(offset)) = (hex(from), hex(to), hex(offset)) else {
            continue;
        };
        let name = name.join(" ");
        let before = regions
            .last()
            .filter(|before| before.to == from && before.name.starts_with('/'));
        let region = match before {
            Some(before) if inode == "0" && name.is_empty() => Region {
                from,
                to,
                zeroed: true,
                ..before.clone()
            },
            _ => {
                let first = regions
                    .iter()
                    .find(|region| region.name == name && !name.is_empty());
                Region {
                    base: first.map_or(from.wrapping_sub(offset), |first| first.base),
                    from,
                    to,
                    zeroed: false,
                    name,
                }
            }
        };
        regions.push(region);
    }
    regions
}

/// Out of the chain of inlined functions, one a line, the innermost that is neither the language's nor a crate's
/// of the registry; else the innermost of all.
fn pick_frame(told: &str) -> Option<String> {
    let frames: Vec<&str> = told
        .lines()
        .map(|line| line.trim().trim_start_matches("(inlined by) "))
        .collect();
    let own = |frame: &&&str| {
        let place = frame.rsplit_once(" at ").map_or("", |(_, place)| place);
        !["/library/", "/registry/", "??"]
            .iter()
            .any(|other| place.contains(other))
    };
    let frame = frames.iter().find(own).or(frames.first())?;
    Some(match frame.rsplit_once(" at ") {
        Some((function, place)) => format!("{} ({})", short(function), tail(place)),
        None => (*frame).to_owned(),
    })
}

/// Without the hash, and what is too long to read.
fn short(function: &str) -> String {
    let function = function
        .rsplit_once("::h")
        .map_or(function, |(name, hash)| match hash.len() {
            16 => name,
            _ => function,
        });
    function.chars().take(NAME_CHARS).collect()
}

/// The last folders of a path.
fn tail(place: &str) -> String {
    let parts: Vec<&str> = place.split('/').collect();
    parts[parts.len().saturating_sub(3)..].join("/")
}

/// Names by address; none where there is no `nm` or there are no names.
fn statics(file: &Path) -> Vec<Static> {
    let mut found = Vec::new();
    for which in ["--defined-only", "--dynamic"] {
        let mut command = Command::new("nm");
        command
            .args(["--demangle", "--print-size", which])
            .arg(file);
        found.extend(output(&mut command).iter().flat_map(|text| parse_nm(text)));
    }
    found.sort_unstable();
    found
}

/// `0000000000001139 0000000000000010 D name with spaces`; names without a size are labels, and no data.
fn parse_nm(text: &str) -> Vec<Static> {
    let symbol = |line: &str| {
        let (start, rest) = line.split_once(' ')?;
        let (size, rest) = rest.split_once(' ')?;
        let (_, name) = rest.split_once(' ')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        Some(Static {
            start,
            end: start + u64::from_str_radix(size, 16).ok()?,
            name: short(name),
        })
    };
    text.lines().filter_map(symbol).collect()
}

const NAME_CHARS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_statics_behind_a_file_are_its_own() {
        let text = "00108000-0010a000 r--p 00000000 fd:00 12 /bin/x\n0010a000-0010c000 rw-p 00001000 fd:00 12 /bin/x\n\
                    0010c000-0010d000 rw-p 00000000 00:00 0 \n0010f000-00110000 rw-p 00000000 00:00 0 [heap]\n";
        let regions = parse_maps(text);
        let bases: Vec<(u64, &str)> = regions.iter().map(|r| (r.base, r.name.as_str())).collect();
        assert_eq!(
            bases,
            [
                (0x10_8000, "/bin/x"),
                (0x10_8000, "/bin/x"),
                (0x10_8000, "/bin/x"),
                (0x10_f000, "[heap]")
            ]
        );
    }

    #[test]
    fn the_frame_that_is_told_is_our_own() {
        let told = "core::sync::atomic::atomic_add::h0123456789abcdef at /rustc/1/library/core/src/sync/atomic.rs:3\n \
                    (inlined by) pool::budget::Budget::grant::h0123456789abcdef at /src/pool/src/budget.rs:77\n \
                    (inlined by) main at /src/engine/src/main.rs:1\n";
        assert_eq!(
            pick_frame(told).as_deref(),
            Some("pool::budget::Budget::grant (pool/src/budget.rs:77)")
        );
        let told = "malloc at /build/library/malloc.c:7\n";
        assert_eq!(
            pick_frame(told).as_deref(),
            Some("malloc (build/library/malloc.c:7)")
        );
        assert_eq!(pick_frame(""), None);
    }

    #[test]
    fn names_may_hold_spaces() {
        let text = "0000000000001139 0000000000000010 D <a as b>::C\n0000000000001200 T label\n                 U missing\n";
        let expected = Static {
            start: 0x1139,
            end: 0x1149,
            name: "<a as b>::C".to_owned(),
        };
        assert_eq!(parse_nm(text), [expected]);
    }

    #[test]
    fn own_code_and_memory_are_found() {
        let mut map = Map::of(std::process::id()).expect("self");
        let local = 5u8;
        assert!(map.data(std::ptr::from_ref(&local) as u64).contains(", 0x"));
        assert_eq!(map.data(1), "unmapped since");
        assert_eq!(map.code(1), "0x1");
    }
}
