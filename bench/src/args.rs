//! The command line of `pgmux-bench`.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::peers::Backend;
use crate::target::{Build, Cell, Given, Mode, names};
use crate::verdict::SHARD_CLIENTS;

/// Runs `pgbench -S` through pgmux, PgBouncer and directly, and compares what each costs.
#[derive(Clone, Debug, Parser)]
#[command(name = "pgmux-bench", version)]
pub struct Args {
    /// The pgmux to measure.
    #[arg(long, default_value = "target/release/pgmux")]
    pub pgmux: PathBuf,
    /// The PgBouncer to compare with; a newer one than the distribution's can also run prepared statements.
    #[arg(long, env = "PGBOUNCER", default_value = "pgbouncer")]
    pub pgbouncer: PathBuf,
    /// The spike pooler, for the target that is set against it.
    #[arg(long)]
    pub spike: Option<PathBuf>,
    /// Another build of pgmux to run beside, as NAME=PATH. May be given several times.
    #[arg(long, value_name = "NAME=PATH")]
    pub also: Vec<Build>,
    /// Another target that already runs, as NAME=DSN,PID. May be given several times.
    #[arg(long = "targets", value_name = "NAME=DSN,PID")]
    pub targets: Vec<Given>,
    /// Only these targets.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Numbers of clients.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,256")]
    pub clients: Vec<u32>,
    /// pgbench's modes.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "simple,extended,prepared"
    )]
    pub modes: Vec<Mode>,
    /// How often everything is run; an odd number has a middle.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Length of each measured window. A run takes two seconds more.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// pgbench's scale factor.
    #[arg(long, default_value_t = 10)]
    pub scale: u32,
    /// Shard counts to compare; the first is what all other sections use.
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    pub shards: Vec<u32>,
    /// Shard counts of the section `scale`.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    pub scale_shards: Vec<u32>,
    /// Numbers of clients of the section `scale`.
    #[arg(long, value_delimiter = ',', default_value = "8,64,256")]
    pub scale_clients: Vec<u32>,
    /// Processes of PgBouncer on one port, which the section `scale` holds against as many shards; 0 leaves them out.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(..=64))]
    pub fleet: u32,
    /// How poolers reach PostgreSQL.
    #[arg(long, value_enum, default_value_t = Backend::Tcp)]
    pub backend: Backend,
    /// Keep the last core for poolers and the others for PostgreSQL and pgbench.
    #[arg(long)]
    pub cpu_pin: bool,
    /// Run everything at this nice level; below zero (root only) keeps other work on the machine out of the figures.
    #[arg(long, allow_hyphen_values = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
    pub nice: Option<i32>,
    /// pgbench's threads at most; default: one a core.
    #[arg(long)]
    pub jobs: Option<u32>,
    /// Sections to leave out.
    #[arg(long, value_delimiter = ',')]
    pub skip: Vec<Section>,
    /// Clients of the idle section.
    #[arg(long, default_value_t = 10_000)]
    pub idle_clients: u32,
    /// One short round, extended and prepared at 64 clients only, 2,000 idle clients by trust, no sections `scale`, `secure` and `first`, no instruction counts.
    #[arg(long)]
    pub quick: bool,
    /// Where the report goes.
    #[arg(long, default_value = "bench/out")]
    pub out: PathBuf,
    /// The folder of PostgreSQL's programs.
    #[arg(long)]
    pub pg_bin: Option<PathBuf>,
    /// End with an error when a target is missed.
    #[arg(long)]
    pub check: bool,
    /// No further run begins after this many minutes.
    #[arg(long, default_value_t = 20)]
    pub minutes: u32,
}

/// What can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// The runs of every mode and client count.
    Matrix,
    /// More shards than one.
    Shards,
    /// 1, 2, 4 and 8 shards, and a fleet of PgBouncers.
    Scale,
    /// Logins by SCRAM, with and without TLS, and clients by TLS.
    Secure,
    /// The first queries after a start, warm and cold.
    First,
    /// Idle clients.
    Idle,
    /// Instructions per transaction.
    Instructions,
}

impl Args {
    /// Reads the command line and applies what `--quick` means.
    pub fn read() -> Self {
        Self::parse().settled()
    }

    fn settled(mut self) -> Self {
        if self.quick {
            self.rounds = 1;
            self.seconds = self.seconds.min(2);
            self.idle_clients = self.idle_clients.min(QUICK_IDLE_CLIENTS);
            self.skip.push(Section::Instructions);
            self.skip.push(Section::Scale);
            self.skip.push(Section::Secure);
            self.skip.push(Section::First);
        }
        self
    }

    /// Whether a target is wanted.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Whether a section is wanted.
    pub fn has(&self, section: Section) -> bool {
        !self.skip.contains(&section)
    }

    /// Every load, in order.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        if !self.has(Section::Matrix) {
            return cells;
        }
        for &mode in &self.modes {
            for &clients in &self.clients {
                if !self.quick || mode == Mode::Simple || clients == QUICK_CLIENTS {
                    cells.push(Cell { mode, clients });
                }
            }
        }
        cells
    }

    /// The shards of the target `pgmux`.
    pub fn first_shards(&self) -> u32 {
        self.shards.first().copied().unwrap_or(1)
    }

    /// The shard counts of the comparison, the first left out.
    pub fn more_shards(&self) -> Vec<u32> {
        if !self.wants(names::PGMUX) || !self.has(Section::Shards) {
            return Vec::new();
        }
        self.shards.iter().copied().skip(1).collect()
    }

    /// Connections that PostgreSQL must have room for: direct clients, and every pooler's servers.
    pub fn connections(&self, poolers: u32) -> u32 {
        let direct = self.clients.iter().copied().max().unwrap_or(0);
        CONNECTIONS_MIN.max(direct + (poolers + 1) * crate::peers::SERVERS + CONNECTIONS_BESIDES)
    }

    /// CPUs for the load and PostgreSQL, and for poolers, as `taskset -c` writes them.
    pub fn cpu_sets(&self, cores: u32) -> (Option<String>, Option<String>) {
        if !self.cpu_pin || cores < 2 {
            return (None, None);
        }
        let last = cores - 1;
        (Some(format!("0-{}", last - 1)), Some(last.to_string()))
    }

    /// The client counts of the shard comparison that are run anyway.
    pub fn shard_clients(&self) -> Vec<u32> {
        SHARD_CLIENTS
            .into_iter()
            .filter(|n| self.clients.contains(n))
            .collect()
    }
}

const QUICK_IDLE_CLIENTS: u32 = 2_000;
const QUICK_CLIENTS: u32 = 64;
const CONNECTIONS_MIN: u32 = 200;
/// psql, superuser_reserved_connections, and what is just going.
const CONNECTIONS_BESIDES: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Args {
        Args::try_parse_from([&["pgmux-bench"], words].concat())
            .expect("parses")
            .settled()
    }

    #[test]
    fn quick_keeps_every_client_count_in_simple_mode_only() {
        let cells = parse(&["--quick"]).cells();
        assert_eq!(cells.len(), 6);
        assert!(
            cells
                .iter()
                .all(|c| c.mode == Mode::Simple || c.clients == 64)
        );
        assert_eq!(parse(&[]).cells().len(), 12);
        assert!(parse(&["--skip", "matrix"]).cells().is_empty());
    }

    #[test]
    fn direct_clients_and_every_pool_fit_into_postgresql() {
        let args = parse(&[]);
        assert!(args.connections(4) >= 256 + 4 * 20);
        assert_eq!(parse(&["--clients", "8"]).connections(1), 200);
    }

    #[test]
    fn pinning_needs_two_cores() {
        let pinned = parse(&["--cpu-pin"]);
        assert_eq!(pinned.cpu_sets(1), (None, None));
        assert_eq!(pinned.cpu_sets(2), (Some("0-0".into()), Some("1".into())));
        assert_eq!(parse(&[]).cpu_sets(2), (None, None));
    }

    #[test]
    fn only_chooses_targets_and_more_shards_belong_to_pgmux() {
        let args = parse(&["--only", "direct,pgbouncer"]);
        assert!(args.wants("direct") && !args.wants("pgmux"));
        assert!(args.more_shards().is_empty());
        assert_eq!(parse(&[]).more_shards(), [4]);
        assert!(parse(&["--skip", "shards"]).more_shards().is_empty());
    }
}
