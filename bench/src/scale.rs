//! What more shards cost and bring, and a fleet of processes beside them.
//!
//! pgmux with 1, 2, 4, 8 shards and a fleet of PgBouncers run in the same rounds, with the same budget of
//! servers. Every transaction is logged here, for the worst wait of all is one of the figures.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;

use crate::args::{Args, Section};
use crate::instructions::{self, Tool};
use crate::lineup::Lineup;
use crate::matrix::Plan;
use crate::parts;
use crate::peers::Site;
use crate::pgbench::Load;
use crate::results::Results;
use crate::target::{Cell, Mode, Target, names};

/// Everything that the section found.
#[derive(Debug, Default)]
pub struct Scaling {
    /// The shard counts.
    pub shards: Vec<u32>,
    /// The processes of the fleet, which is held against as many shards.
    pub fleet: u32,
    /// Who took part.
    pub targets: Vec<Target>,
    /// The runs.
    pub results: Results,
    /// Where clients went that logged in one after the other.
    pub placements: Vec<Placement>,
    /// User instructions for each shard count, with what counted them.
    pub instructions: Option<(String, Vec<instructions::Figures>)>,
}

/// How clients spread.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The target's name.
    pub target: String,
    /// How many clients there were.
    pub clients: u32,
    /// How many each shard or process got.
    pub by_part: BTreeMap<String, u32>,
}

impl Scaling {
    /// The fleet's name, and that of pgmux with as many shards, when both took part.
    pub fn rivals(&self) -> Option<(String, String)> {
        let (ours, theirs) = (
            names::pgmux_with_shards(self.fleet),
            names::fleet(self.fleet),
        );
        let took_part = |name: &String| self.targets.iter().any(|target| target.name == *name);
        (took_part(&ours) && took_part(&theirs)).then_some((ours, theirs))
    }
}

/// Runs the section; what could not be done is a note.
pub fn measure(
    args: &Args,
    lineup: &Lineup,
    site: &Site<'_>,
    load: &Load<'_>,
    deadline: Instant,
    notes: &mut Vec<String>,
) -> Result<Scaling> {
    let peers = lineup.start(site)?;
    let targets: Vec<Target> = peers.iter().map(|peer| peer.target.clone()).collect();
    let load = Load {
        closely: true,
        ..load.clone()
    };
    let plan = Plan {
        cells: cells(args),
        rounds: args.rounds,
        deadline,
    };
    let length = plan.length(&load, &targets).as_secs();
    eprintln!("comparing shard counts takes about {length} s");
    let results = plan.run(&load, &targets)?;
    let placements = place(args, site, &targets, notes)?;
    drop(peers);
    Ok(Scaling {
        shards: args.scale_shards.clone(),
        fleet: args.fleet,
        results,
        placements,
        instructions: match args.has(Section::Instructions) {
            true => count(&args.scale_shards, lineup, site, &load, notes)?,
            false => None,
        },
        targets,
    })
}

fn cells(args: &Args) -> Vec<Cell> {
    let cell = |&clients| Cell {
        mode: Mode::Simple,
        clients,
    };
    args.scale_clients.iter().map(cell).collect()
}

fn place(
    args: &Args,
    site: &Site<'_>,
    targets: &[Target],
    notes: &mut Vec<String>,
) -> Result<Vec<Placement>> {
    let mut placements = Vec::new();
    for target in targets {
        for &clients in &args.scale_clients {
            match parts::clients_by_part(target, clients, site.interrupt) {
                // Where all are in one place there is nothing to tell.
                Ok(by_part) if by_part.len() < 2 => {}
                Ok(by_part) => placements.push(Placement {
                    target: target.name.clone(),
                    clients,
                    by_part,
                }),
                Err(error) => {
                    site.interrupt.check()?;
                    notes.push(format!(
                        "where {clients} clients of {} are: {error:#}",
                        target.name
                    ));
                }
            }
        }
    }
    Ok(placements)
}

fn count(
    shards: &[u32],
    lineup: &Lineup,
    site: &Site<'_>,
    load: &Load<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<(String, Vec<instructions::Figures>)>> {
    let tool = match Tool::find() {
        Ok(tool) => tool,
        Err(error) => {
            notes.push(format!(
                "no instructions were counted for shards: {error:#}"
            ));
            return Ok(None);
        }
    };
    let counter = instructions::Load {
        pgbench: load.program,
        tool,
    };
    let mut found = Vec::new();
    // The starters begin with pgmux, one for each shard count, in that order.
    for per_shard in [false, true] {
        for (&shards, starter) in shards.iter().zip(lineup.starters()) {
            let name = starter.name();
            let cell = Cell {
                mode: Mode::Simple,
                clients: match per_shard {
                    true => CLIENTS_PER_SHARD * shards,
                    false => COUNTED_CLIENTS,
                },
            };
            eprintln!("counting instructions of {name}, {cell}");
            match counter.measure(starter, site, cell) {
                Ok(figures) => found.extend(figures),
                Err(error) => {
                    site.interrupt.check()?;
                    notes.push(format!("instructions of {name}, {cell}: {error:#}"));
                }
            }
        }
    }
    let version = instructions::version(tool);
    Ok(Some((format!("`{tool}`, {version}"), found)))
}

/// Instructions are counted with as many clients for every shard count, enough for each of eight shards: what is
/// handled together then becomes less with more shards ...
const COUNTED_CLIENTS: u32 = 8;
/// ... and with as many for each shard: what is left over is what shards cost each other.
pub const CLIENTS_PER_SHARD: u32 = 2;
