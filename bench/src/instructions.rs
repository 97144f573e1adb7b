//! User instructions per transaction: the one figure that other work on the machine does not move.
//!
//! The same load is run twice with different numbers of transactions, and the
//! difference of the counts is divided by the difference of the numbers: what
//! start, logins and shutdown cost falls out. The kernel's part is not counted.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::cluster::give_to_postgres;
use crate::interrupt::Interrupt;
use crate::machine::find_program;
use crate::peers::{Auth, Site, Start};
use crate::process::{Launch, output};
use crate::target::{Cell, Target};
use crate::valgrind;

/// Who counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The CPU's own counter, read by `perf stat`.
    Perf,
    /// `valgrind --tool=callgrind`: slow, and the target is timed differently, but it works in virtual machines.
    Callgrind,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Perf => "perf stat -e instructions:u",
            Self::Callgrind => "valgrind --tool=callgrind",
        })
    }
}

/// A count.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The target's name.
    pub target: String,
    /// The load.
    pub cell: Cell,
    /// User instructions per transaction.
    pub per_transaction: f64,
}

/// How to load the target.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// pgbench.
    pub pgbench: &'a Path,
    /// Who counts.
    pub tool: Tool,
}

impl Tool {
    /// The first tool that works here.
    pub fn find() -> Result<Self> {
        let counter = Command::new("perf")
            .args(["stat", "-x,", "-e", EVENT, "true"])
            .output();
        // perf ends with success also when the CPU shows no counters, and says so in the figure's place.
        let counted = counter.is_ok_and(|out| {
            out.status.success() && parse_perf(&String::from_utf8_lossy(&out.stderr)).is_ok()
        });
        if counted {
            return Ok(Self::Perf);
        }
        if find_program(Path::new("valgrind")).is_some() {
            return Ok(Self::Callgrind);
        }
        bail!(
            "perf can count no instructions here (a virtual machine?) and valgrind is not installed"
        )
    }
}

impl Load<'_> {
    /// Counts one target in one cell.
    pub fn measure(
        &self,
        starter: &dyn Start,
        site: &Site<'_>,
        cell: Cell,
    ) -> Result<Option<Figures>> {
        let mut counts = Vec::new();
        for per_client in [FEW, MANY] {
            let count = match self.tool {
                Tool::Perf => self.with_perf(starter, site, cell, per_client)?,
                Tool::Callgrind => self.with_callgrind(starter, site, cell, per_client)?,
            };
            let Some(count) = count else {
                return Ok(None);
            };
            counts.push(count as f64);
        }
        let more = f64::from((MANY - FEW) * cell.clients);
        Ok(Some(Figures {
            target: starter.name(),
            cell,
            per_transaction: (counts[1] - counts[0]) / more,
        }))
    }

    /// callgrind tells its sum when the target ends. One that does not in time is asked for it through
    /// valgrind's debugger connection.
    fn with_callgrind(
        &self,
        starter: &dyn Start,
        site: &Site<'_>,
        cell: Cell,
        per_client: u32,
    ) -> Result<Option<u64>> {
        let dir = tempfile::Builder::new()
            .prefix("callgrind-")
            .tempdir_in(site.cluster.dir())?;
        give_to_postgres(dir.path())?;
        let out = dir.path().join("out");
        let prefix = format!("--vgdb-prefix={}", dir.path().join("vgdb").display());
        let mut site = site.clone();
        let file = format!("--callgrind-out-file={}", out.display());
        let words = ["--quiet", "--tool=callgrind", &prefix, &file].map(str::to_owned);
        site.under = valgrind::under(site.cluster.dir(), &words)?;
        let mut peer = starter.start(&site, Auth::Trust)?;
        if !peer.target.modes.contains(&cell.mode) {
            peer.kill();
            return Ok(None);
        }
        let pgbench = arguments(&peer.target, cell, per_client);
        run(
            "pgbench",
            self.pgbench,
            &pgbench,
            LOAD_LIMIT,
            site.interrupt,
        )?;
        let pid = peer.pid()?;
        if !peer.ends_within(END_LIMIT) {
            let dump = [prefix, format!("--pid={pid}"), "dump".to_owned()];
            run("vgdb", Path::new("vgdb"), &dump, VGDB_LIMIT, site.interrupt)?;
        }
        peer.kill();
        // The first is a dump that was asked for, the second the one at the end.
        let text = std::fs::read_to_string(out.with_extension("1"))
            .or_else(|_| std::fs::read_to_string(&out))?;
        parse_callgrind(&text).map(Some)
    }

    fn with_perf(
        &self,
        starter: &dyn Start,
        site: &Site<'_>,
        cell: Cell,
        per_client: u32,
    ) -> Result<Option<u64>> {
        let peer = starter.start(site, Auth::Trust)?;
        if !peer.target.modes.contains(&cell.mode) {
            return Ok(None);
        }
        let log = site.cluster.dir().join("perf.log");
        let launch = Launch {
            name: "perf",
            program: Path::new("perf"),
            as_postgres: false,
            stop: Signal::INT,
            cpus: None,
            under: &[],
        };
        let pid = peer.pid()?;
        let stat = ["stat", "-x,", "-e", EVENT, "-p", &pid.to_string()];
        let mut perf = launch.start(stat, &log)?;
        site.interrupt.sleep(Duration::from_millis(300))?;
        let pgbench = arguments(&peer.target, cell, per_client);
        run(
            "pgbench",
            self.pgbench,
            &pgbench,
            LOAD_LIMIT,
            site.interrupt,
        )?;
        perf.stop();
        parse_perf(&std::fs::read_to_string(&log)?).map(Some)
    }
}

/// pgbench with a fixed number of transactions.
fn arguments(target: &Target, cell: Cell, per_client: u32) -> Vec<String> {
    vec![
        "--select-only".to_owned(),
        "--no-vacuum".to_owned(),
        format!("--client={}", cell.clients),
        format!("--transactions={per_client}"),
        format!("--protocol={}", cell.mode),
        target.dsn.conninfo(),
    ]
}

/// Runs a program to its end, which must come soon and be good.
fn run(
    name: &str,
    program: &Path,
    arguments: &[String],
    limit: Duration,
    interrupt: &Interrupt,
) -> Result<()> {
    let launch = Launch {
        name,
        program,
        as_postgres: false,
        stop: Signal::TERM,
        cpus: None,
        under: &[],
    };
    let mut process = launch.start_piped(arguments)?;
    let mut status = None;
    let ended = interrupt.wait_until(limit, || {
        status = process.ended()?;
        Ok(status.is_some())
    })?;
    if !ended {
        bail!("{name} did not end in time");
    }
    if status.is_none_or(|status| !status.success()) {
        bail!("{name} failed");
    }
    Ok(())
}

/// The version of the tool, for the report.
pub fn version(tool: Tool) -> String {
    let program = match tool {
        Tool::Perf => "perf",
        Tool::Callgrind => "valgrind",
    };
    output(Command::new(program).arg("--version"))
        .map_or_else(|_| program.to_owned(), |text| text.trim().to_owned())
}

/// The figure of `perf stat -x,`: `12345,,instructions:u,…`.
fn parse_perf(text: &str) -> Result<u64> {
    let line = text.lines().find(|line| line.contains(EVENT));
    let figure = line.and_then(|line| line.split(',').next());
    figure
        .and_then(|figure| figure.parse().ok())
        .context("perf counted no instructions")
}

/// The sum in a dump of callgrind: `totals: 12345`.
fn parse_callgrind(text: &str) -> Result<u64> {
    let sum = text.lines().find_map(|line| line.strip_prefix("totals: "));
    sum.and_then(|figure| figure.trim().parse().ok())
        .context("callgrind wrote no sum")
}

const EVENT: &str = "instructions:u";
/// Transactions per client in the two runs.
const FEW: u32 = 100;
const MANY: u32 = 400;
const LOAD_LIMIT: Duration = Duration::from_secs(40);
const END_LIMIT: Duration = Duration::from_secs(2);
const VGDB_LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_the_cpu_lacks_is_no_figure() {
        assert!(parse_perf("<not supported>,,instructions:u,0,100.00,,\n").is_err());
        assert_eq!(
            parse_perf("123456,,instructions:u,1000,100.00,,\n").expect("figure"),
            123_456
        );
        assert!(parse_perf("").is_err());
    }

    #[test]
    fn callgrinds_sum_is_its_totals() {
        let text = "events: Ir\nsummary: 2240745\n\nfn=(1)\n16 4\ntotals: 2240770\n";
        assert_eq!(parse_callgrind(text).expect("sum"), 2_240_770);
        assert!(parse_callgrind("events: Ir\n").is_err());
    }
}
