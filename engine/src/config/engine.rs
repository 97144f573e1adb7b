//! The `engine` section: how many shards there are and where they run.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::keys::{Key, Kind, Unset};
use super::memory::MemoryMax;
use super::report::Report;
use crate::shard::INSTANCE_MAX;

/// The most shards: a cancel key has eight bits for its shard.
pub const SHARDS_MAX: u32 = 256;

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "engine.shards",
        kind: Kind::WholeOrAuto(1, SHARDS_MAX),
        unset: Unset::Is("auto"),
        about: "Executors, each with its own thread and ring; auto: one for each CPU that the process may use.",
    },
    Key {
        path: "engine.pin",
        kind: Kind::Choice(Pin::NAMES),
        unset: Unset::Is("auto"),
        about: "Whether a shard stays on its CPU: on, off, or auto (only when every shard can have a CPU of its own).",
    },
    Key {
        path: "engine.balance",
        kind: Kind::Choice(Balance::NAMES),
        unset: Unset::Is("on"),
        about: "Whether idle clients move to other shards when shards drift apart because clients left: on, off, or restless (each client moves on after each transaction; for tests).",
    },
    Key {
        path: "engine.mailbox",
        kind: Kind::Whole(1, 1 << 20),
        unset: Unset::Is("4096"),
        about: "Messages of other shards that may wait at a shard; what finds no room is kept by its sender, which costs time and loses nothing (a small number is for tests).",
    },
    Key {
        path: "engine.dns_interval",
        kind: Kind::DurationOrOff,
        unset: Unset::Is("15s"),
        about: "How often the names of PostgreSQL hosts are looked up again: servers at an address that a name has lost are replaced (0 or off: each login looks, servers stay).",
    },
    Key {
        path: "engine.hosts_file",
        kind: Kind::Text,
        unset: Unset::Nothing("/etc/pgmux/hosts"),
        about: "A file like /etc/hosts, read at each look-up: names of PostgreSQL hosts that stand there are not asked of the system. A relative path starts at this file's directory.",
    },
    Key {
        path: "engine.memory_max",
        kind: Kind::Memory,
        unset: Unset::Is("0"),
        about: "The memory (512MB, or 80% of what the cgroup or the machine has) from which logins are refused and idle clients sent away (0: no limit).",
    },
    Key {
        path: "engine.instance_id",
        kind: Kind::Whole(1, INSTANCE_MAX),
        unset: Unset::Nothing("1"),
        about: "Which of several instances behind one address this is (see peers), from 1 to 255: 8 of the 31 bits of each client's process id. The rest number 8 million clients, shared evenly by the shards.",
    },
];

/// Whether a shard stays on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Pin {
    /// When every shard can have a CPU of its own.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never: the kernel places the threads.
    Off,
}

impl Pin {
    /// Every value, by the name that the configuration uses.
    pub const NAMES: &[&str] = &["auto", "on", "off"];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// Whether clients move between shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Balance {
    /// When shards drift apart because clients left.
    #[default]
    On,
    /// Never.
    Off,
    /// Each client after each transaction, to the next shard.
    Restless,
}

impl Balance {
    /// Every value, by the name that the configuration uses.
    pub const NAMES: &[&str] = &["on", "off", "restless"];
}

/// How many shards there are and where they run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineOpts {
    /// The number of shards; `None` is `auto`, one for each CPU that the process may use.
    pub shards: Option<usize>,
    /// Whether a shard stays on one CPU.
    pub pin: Pin,
    /// Whether clients move between shards.
    pub balance: Balance,
    /// How many messages of others may wait at a shard.
    pub mailbox: u32,
    /// How often names are looked up again; zero is off too.
    pub dns_interval: Option<Duration>,
    /// What names mean, before the system is asked.
    pub hosts_file: Option<PathBuf>,
    /// The memory from which load is shed.
    pub memory_max: MemoryMax,
    /// Which of several instances behind one address this is.
    pub instance_id: Option<u32>,
}

impl EngineOpts {
    pub(super) fn resolve(mut self, report: &Report) -> Self {
        self.hosts_file = self.hosts_file.map(|file| report.beside(&file));
        self
    }
}
