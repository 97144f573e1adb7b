//! Who takes part: the poolers that the command line asks for, started, and PostgreSQL itself.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::args::{Args, Section};
use crate::cluster::Cluster;
use crate::machine::find_program;
use crate::peers::{Auth, Fleet, Peer, PgBouncer, Pgmux, SERVERS, Site, Spike, Start};
use crate::target::{Mode, Target, names};

/// The poolers that can be started, in the order of the tables.
pub struct Lineup {
    starters: Vec<Box<dyn Start>>,
}

impl Lineup {
    /// Finds the programs; an error when a wanted one is missing.
    pub fn find(args: &Args) -> Result<Self> {
        let mut starters: Vec<Box<dyn Start>> = Vec::new();
        if args.wants(names::PGBOUNCER) {
            let program = pgbouncer(args)?;
            starters.push(Box::new(PgBouncer { program }));
        }
        if args.wants(names::PGMUX) {
            starters.push(Box::new(first(args)));
        }
        for build in args.also.iter().filter(|build| args.wants(&build.name)) {
            starters.push(Box::new(Pgmux {
                program: build.program.clone(),
                name: build.name.clone(),
                shards: args.first_shards(),
                servers: SERVERS,
                min_servers: None,
                modes: Mode::ALL.into(),
                clients: None,
                limits: false,
            }));
        }
        if let Some(program) = args.spike.clone().filter(|_| args.wants(names::SPIKE)) {
            starters.push(Box::new(Spike { program }));
        }
        for shards in args.more_shards() {
            starters.push(Box::new(Pgmux {
                program: args.pgmux.clone(),
                name: names::pgmux_with_shards(shards),
                shards,
                servers: SERVERS,
                min_servers: None,
                modes: vec![Mode::Simple],
                clients: Some(args.shard_clients()),
                limits: false,
            }));
        }
        Ok(Self { starters })
    }

    /// The poolers of the section `scale`: none when it is not wanted.
    pub fn of_scale(args: &Args) -> Result<Self> {
        let mut starters: Vec<Box<dyn Start>> = Vec::new();
        if args.has(Section::Scale) && args.wants(names::PGMUX) {
            for &shards in &args.scale_shards {
                starters.push(Box::new(Pgmux {
                    program: args.pgmux.clone(),
                    name: names::pgmux_with_shards(shards),
                    shards,
                    servers: SERVERS,
                    min_servers: None,
                    modes: Mode::ALL.into(),
                    clients: None,
                    limits: true,
                }));
            }
            if args.fleet > 0 && args.wants(names::PGBOUNCER) {
                starters.push(Box::new(Fleet {
                    program: pgbouncer(args)?,
                    processes: args.fleet,
                }));
            }
        }
        Ok(Self { starters })
    }

    /// How many poolers there are.
    pub fn len(&self) -> u32 {
        u32::try_from(self.starters.len()).unwrap_or(u32::MAX)
    }

    /// Whether PostgreSQL is alone.
    pub fn is_empty(&self) -> bool {
        self.starters.is_empty()
    }

    /// Starts all of them.
    pub fn start(&self, site: &Site<'_>) -> Result<Vec<Peer>> {
        let start = |starter: &dyn Start| {
            let name = starter.name();
            eprintln!("starting {name}");
            starter
                .start(site, Auth::Trust)
                .with_context(|| format!("start {name}"))
        };
        self.starters
            .iter()
            .map(|starter| start(&**starter))
            .collect()
    }

    /// All of them.
    pub fn starters(&self) -> impl Iterator<Item = &dyn Start> {
        self.starters.iter().map(|starter| &**starter)
    }

    /// The poolers of the sections beside the matrix: PgBouncer and pgmux with its first shard count.
    pub fn main_ones(&self) -> impl Iterator<Item = &dyn Start> {
        let wanted = |name: &str| name == names::PGBOUNCER || name == names::PGMUX;
        self.starters
            .iter()
            .filter(move |starter| wanted(&starter.name()))
            .map(|starter| &**starter)
    }

    /// The main ones, and other builds of pgmux beside them.
    pub fn compared(&self) -> impl Iterator<Item = &dyn Start> {
        let many = |name: &str| name.ends_with("-shards") || name == names::SPIKE;
        self.starters
            .iter()
            .filter(move |starter| !many(&starter.name()))
            .map(|starter| &**starter)
    }

    /// The poolers whose instructions are counted: the main ones and the spike.
    pub fn counted(&self) -> impl Iterator<Item = &dyn Start> {
        let spike = self.starters.iter().filter(|s| s.name() == names::SPIKE);
        self.main_ones().chain(spike.map(|starter| &**starter))
    }
}

fn pgbouncer(args: &Args) -> Result<PathBuf> {
    find_program(&args.pgbouncer).with_context(|| {
        format!(
            "{} was not found: install pgbouncer, or set PGBOUNCER, or leave it out by --only",
            args.pgbouncer.display()
        )
    })
}

/// The target `pgmux`.
pub fn first(args: &Args) -> Pgmux {
    Pgmux {
        program: args.pgmux.clone(),
        name: names::PGMUX.to_owned(),
        shards: args.first_shards(),
        servers: SERVERS,
        min_servers: None,
        modes: Mode::ALL.into(),
        clients: None,
        limits: false,
    }
}

/// Everything that is measured, PostgreSQL first, what runs already last.
pub fn targets(args: &Args, cluster: &Cluster, peers: &[Peer]) -> Vec<Target> {
    let mut targets = Vec::new();
    if args.wants(names::DIRECT) {
        targets.push(Target {
            name: names::DIRECT.to_owned(),
            dsn: cluster.dsn(),
            pids: Vec::new(),
            counters: None,
            modes: Mode::ALL.into(),
            clients: None,
            version: String::new(),
        });
    }
    targets.extend(peers.iter().map(|peer| peer.target.clone()));
    targets.extend(
        args.targets
            .iter()
            .filter(|given| args.wants(&given.name))
            .map(|given| Target {
                name: given.name.clone(),
                dsn: given.dsn.clone(),
                pids: vec![given.pid],
                counters: None,
                modes: Mode::ALL.into(),
                clients: None,
                version: format!("given: {:?}", given.dsn),
            }),
    );
    targets
}
