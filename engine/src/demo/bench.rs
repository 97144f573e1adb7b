//! The short measurement: `pgbench -S` direct and through pgmux.

use std::io::{IsTerminal, Write};
use std::path::Path;

use super::Stop;
use super::cluster::Cluster;
use super::front::Front;
use super::interrupt::Interrupt;
use super::process::task;
use super::programs::Programs;

/// Clients of a run; the pool of the demo has 20 servers.
pub(super) const CLIENTS: u32 = 16;

/// Seconds of a run.
pub(super) const SECONDS: u32 = 4;

/// pgbench's protocol modes, of which the second needs statements that follow the client over servers.
const MODES: [&str; 2] = ["simple", "prepared"];

/// What pgbench says about one run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub(super) transactions: u64,
    pub(super) tps: f64,
    pub(super) latency_ms: f64,
}

/// One mode, measured both ways.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Comparison {
    pub(super) mode: &'static str,
    pub(super) direct: Run,
    pub(super) pgmux: Run,
    /// pgmux's own CPU time for a transaction.
    pub(super) cpu_us: Option<f64>,
}

/// Measures each mode, first direct, then through pgmux.
pub(super) fn compare(
    programs: &Programs,
    cluster: &Cluster,
    front: &Front,
    dir: &Path,
    interrupt: &Interrupt,
) -> Result<Vec<Comparison>, Stop> {
    println!("pgbench -S with {CLIENTS} clients, {SECONDS} s each:");
    let measure = |mode: &str, target: &str, port: u16| {
        let mut command = programs.pgbench();
        cluster.connects(&mut command, port, "demo");
        let (clients, seconds) = (CLIENTS.to_string(), SECONDS.to_string());
        command.args([
            "--select-only",
            "--no-vacuum",
            "--protocol",
            mode,
            "--client",
            &clients,
            "--jobs",
            "2",
        ]);
        command.args(["--time", &seconds, "--progress", "1"]);
        let mut progress = Progress::new(mode, target);
        let output = task("pgbench", &mut command, dir, interrupt, &mut |line| {
            progress.show(line)
        })?;
        let run = parse(&output)
            .ok_or_else(|| Stop::Failed(format!("pgbench said something new:\n{output}")))?;
        progress.end(&run);
        Ok(run)
    };
    let mode = |mode| {
        let direct = measure(mode, "direct", cluster.port())?;
        let before = front.cpu_seconds();
        let pgmux = measure(mode, "pgmux", front.port()).map_err(|stop| front.blame(stop))?;
        let cpu = front
            .cpu_seconds()
            .zip(before)
            .map(|(after, before)| after - before);
        let cpu_us = cpu.map(|seconds| seconds * 1e6 / pgmux.transactions.max(1) as f64);
        Ok(Comparison {
            mode,
            direct,
            pgmux,
            cpu_us,
        })
    };
    MODES.into_iter().map(mode).collect()
}

/// A line that says how a run goes: rewritten on a terminal, else printed once at its end.
struct Progress {
    label: String,
    live: bool,
}

impl Progress {
    fn new(mode: &str, target: &str) -> Self {
        Self {
            label: format!("  {mode:<9} {target:<7}"),
            live: std::io::stdout().is_terminal(),
        }
    }

    fn show(&mut self, line: &str) {
        if let Some(progress) = line.strip_prefix("progress: ").filter(|_| self.live) {
            print!("\r{} {progress:<60.60}", self.label);
            let _ = std::io::stdout().flush();
        }
    }

    fn end(&mut self, run: &Run) {
        let line = format!("{} {:.0} tps", self.label, run.tps);
        if self.live {
            println!("\r{line:<80}")
        } else {
            println!("{line}")
        }
    }
}

fn parse(output: &str) -> Option<Run> {
    let after = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()
    };
    let transactions = after("number of transactions actually processed:")?
        .split('/')
        .next()?
        .parse()
        .ok()?;
    Some(Run {
        transactions,
        tps: after("tps =")?.parse().ok()?,
        latency_ms: after("latency average =")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_prints_is_read() {
        let output = "\
pgbench (15.18)
transaction type: <builtin: select only>
scaling factor: 5
number of transactions actually processed: 85012
number of failed transactions: 0 (0.000%)
latency average = 0.750 ms
initial connection time = 12.345 ms
tps = 21312.345678 (without initial connection time)
";
        let run = Run {
            transactions: 85_012,
            tps: 21_312.345678,
            latency_ms: 0.75,
        };
        assert_eq!(parse(output), Some(run));
        assert_eq!(parse("pgbench: error"), None);
    }
}
