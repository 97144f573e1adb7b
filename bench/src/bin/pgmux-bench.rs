//! Starts PostgreSQL, pgmux and its peers, measures them side by side, and writes the report.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bench::args::{Args, Section};
use bench::cluster::{Cluster, Programs, Wish};
use bench::first;
use bench::idle;
use bench::instructions::{self, Tool};
use bench::interrupt::Interrupt;
use bench::lineup::{self, Lineup};
use bench::machine::{Machine, cores};
use bench::matrix::Plan;
use bench::peers::{Auth, Ready, Site, Start};
use bench::pgbench::Load;
use bench::report::Report;
use bench::results::Results;
use bench::scale::{self, Scaling};
use bench::secure::{self, Secured};
use bench::target::{Cell, Mode, names};
use bench::verdict::{self, Check, Verdict};

fn main() -> ExitCode {
    let args = Args::read();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("pgmux-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// True when there were no errors, and with `--check` no missed targets.
fn run(args: &Args) -> Result<bool> {
    let begin = Instant::now();
    let interrupt = Interrupt::listen()?;
    if let Some(level) = args.nice {
        set_priority(level)?;
    }
    let programs = Programs::find(args.pg_bin.as_deref())?;
    let machine = Machine::describe(&programs);
    let lineup = Lineup::find(args)?;
    let scale_lineup = Lineup::of_scale(args)?;
    let (load_cpus, pooler_cpus) = args.cpu_sets(cores());
    let wish = Wish {
        scale: args.scale,
        connections: args.connections(lineup.len().max(scale_lineup.len())),
        cpus: load_cpus.as_deref(),
    };
    eprintln!("starting PostgreSQL, scale {}", args.scale);
    let cluster = Cluster::start(programs, &wish, &interrupt)?;
    let site = Site {
        cluster: &cluster,
        backend: args.backend,
        cpus: pooler_cpus,
        under: Vec::new(),
        clients_max: args.idle_clients.max(1_000) + 100,
        ready: Ready::LetsIn,
        certificate: None,
        interrupt: &interrupt,
    };

    let peers = match args.has(Section::Matrix) {
        true => lineup.start(&site)?,
        false => Vec::new(),
    };
    let targets = lineup::targets(args, &cluster, &peers);
    let pgbench = cluster.programs().path("pgbench");
    let load = Load {
        program: &pgbench,
        dir: cluster.dir(),
        seconds: args.seconds,
        jobs: args.jobs.unwrap_or_else(cores),
        cpus: load_cpus.as_deref(),
        postmaster: cluster.pid(),
        closely: false,
        connect: false,
        interrupt: &interrupt,
    };
    let plan = Plan {
        cells: args.cells(),
        rounds: args.rounds,
        deadline: begin + Duration::from_secs(60 * u64::from(args.minutes)),
    };
    eprintln!(
        "the runs take about {} s",
        plan.length(&load, &targets).as_secs()
    );
    let results = plan.run(&load, &targets)?;
    drop(peers);

    let mut notes = Vec::new();
    let scaling = (!scale_lineup.is_empty())
        .then(|| scale::measure(args, &scale_lineup, &site, &load, plan.deadline, &mut notes))
        .transpose()?;
    let secured = args
        .has(Section::Secure)
        .then(|| secure::measure(args, &lineup, &site, &load, plan.deadline, &mut notes))
        .transpose()?;
    let first = measure_first(args, &site, &mut notes)?;
    let idle = measure_idle(args, &lineup, &site, &mut notes)?;
    let instructions = count_instructions(args, &lineup, &site, &pgbench, &mut notes)?;
    let report = Report {
        machine,
        settings: settings(args),
        checks: checks(
            args,
            &results,
            scaling.as_ref(),
            secured.as_ref(),
            first.as_ref(),
            &idle,
        ),
        scaling,
        secured,
        targets,
        results,
        first,
        idle,
        instructions,
        notes,
    };
    report.write(&args.out)?;
    println!("{}", report.markdown());
    eprintln!(
        "written to {} after {} s",
        args.out.display(),
        begin.elapsed().as_secs()
    );
    let scaled = report
        .scaling
        .iter()
        .flat_map(|scaling| &scaling.results.samples);
    let clean = report
        .results
        .samples
        .iter()
        .chain(scaled)
        .all(|sample| sample.outcome.errors == 0);
    let missed = report
        .checks
        .iter()
        .any(|check| check.verdict == Verdict::Fail);
    Ok(clean && !(args.check && missed))
}

/// Those of all sections that were run.
fn checks(
    args: &Args,
    results: &Results,
    scaling: Option<&Scaling>,
    secured: Option<&Secured>,
    first: Option<&first::Figures>,
    idle: &[(String, Auth, idle::Figures)],
) -> Vec<Check> {
    let mut checks = verdict::judge(results, &args.shards, idle);
    checks.extend(scaling.map(verdict::scale::judge).unwrap_or_default());
    checks.extend(secured.map(verdict::secure::judge).unwrap_or_default());
    checks.extend(first.map(verdict::first::judge));
    checks
}

/// Sets the priority of this process, which its children inherit, and of its scheduling
/// group: between the groups of different sessions a process's own level counts for nothing.
fn set_priority(level: i32) -> Result<()> {
    rustix::process::setpriority_process(None, level).context("set --nice")?;
    let group = std::path::Path::new("/proc/self/autogroup");
    if group.exists() {
        std::fs::write(group, level.to_string()).context("set --nice of the session")?;
    }
    Ok(())
}

/// pgmux alone, started again and again; what goes wrong is a note, not the end.
fn measure_first(
    args: &Args,
    site: &Site<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<first::Figures>> {
    if !args.has(Section::First) || !args.wants(names::PGMUX) {
        return Ok(None);
    }
    eprintln!("first queries of {}, warm and cold", names::PGMUX);
    let starts = 2 * args.rounds + 1;
    match first::measure(&lineup::first(args), site, starts) {
        Ok(figures) => Ok(Some(figures)),
        Err(error) => {
            site.interrupt.check()?;
            notes.push(format!("first queries: {error:#}"));
            Ok(None)
        }
    }
}

/// Each pooler afresh, so that its empty size is seen; what goes wrong is a note, not the end.
fn measure_idle(
    args: &Args,
    lineup: &Lineup,
    site: &Site<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<(String, Auth, idle::Figures)>> {
    let mut found = Vec::new();
    if !args.has(Section::Idle) {
        return Ok(found);
    }
    let plan = idle::Plan {
        clients: args.idle_clients,
        watched_clients: 1_000,
        seconds: if args.quick { 3 } else { 8 },
    };
    // What a login leaves behind shows with a tenth of the clients as well.
    let few = idle::Plan {
        clients: (args.idle_clients / 10).max(1_000).min(args.idle_clients),
        ..plan
    };
    for starter in lineup.main_ones() {
        let logins = [(Auth::Trust, plan), (Auth::Scram, few)];
        let count = if args.quick { 1 } else { logins.len() };
        for (auth, plan) in logins.into_iter().take(count) {
            let name = starter.name();
            eprintln!("{} idle clients of {name}, {}", plan.clients, auth.word());
            match idle_figures(starter, site, auth, plan) {
                Ok(figures) => found.push((name, auth, figures)),
                Err(error) => {
                    site.interrupt.check()?;
                    notes.push(format!(
                        "idle clients of {name}, {}: {error:#}",
                        auth.word()
                    ));
                }
            }
        }
    }
    Ok(found)
}

fn idle_figures(
    starter: &dyn Start,
    site: &Site<'_>,
    auth: Auth,
    plan: idle::Plan,
) -> Result<idle::Figures> {
    let mut site = site.clone();
    site.ready = Ready::Listens;
    let peer = starter.start(&site, auth)?;
    let pid = peer.pid()?;
    idle::measure(&peer.target.dsn, pid, plan, site.interrupt)
}

fn count_instructions(
    args: &Args,
    lineup: &Lineup,
    site: &Site<'_>,
    pgbench: &std::path::Path,
    notes: &mut Vec<String>,
) -> Result<Option<(String, Vec<instructions::Figures>)>> {
    if !args.has(Section::Instructions) {
        return Ok(None);
    }
    let tool = match Tool::find() {
        Ok(tool) => tool,
        Err(error) => {
            notes.push(format!("no instructions were counted: {error:#}"));
            return Ok(None);
        }
    };
    let load = instructions::Load { pgbench, tool };
    let mut found = Vec::new();
    for (mode, clients) in COUNTED {
        let cell = Cell { mode, clients };
        for starter in lineup.counted() {
            eprintln!("counting instructions of {}, {cell}", starter.name());
            match load.measure(starter, site, cell) {
                Ok(figures) => found.extend(figures),
                Err(error) => {
                    site.interrupt.check()?;
                    notes.push(format!(
                        "instructions of {}, {cell}: {error:#}",
                        starter.name()
                    ));
                }
            }
        }
    }
    Ok(Some((
        format!("`{tool}`, {}", instructions::version(tool)),
        found,
    )))
}

fn settings(args: &Args) -> String {
    let pinned = if args.cpu_pin { "pinned" } else { "not pinned" };
    let nice = args
        .nice
        .map(|level| format!(", nice {level}"))
        .unwrap_or_default();
    format!(
        "`pgbench -S` scale {}, {} rounds of {} s each after 1 s of warm-up, targets in rotated order; poolers in transaction \
         mode with {} servers over {:?}, {} with {} shard(s); processes {pinned}{nice}. CPU, switches and RSS are the pooler's own.",
        args.scale,
        args.rounds,
        args.seconds,
        bench::peers::SERVERS,
        args.backend,
        names::PGMUX,
        args.first_shards(),
    )
}

/// One client leaves nothing to chance; eight show what is saved by handling them together.
const COUNTED: [(Mode, u32); 4] = [
    (Mode::Simple, 1),
    (Mode::Simple, 8),
    (Mode::Extended, 8),
    (Mode::Prepared, 8),
];
