//! Whether a query writes what another shard reads.
//!
//! pgmux runs under `valgrind --tool=lackey`, which tells every load and store. Once clients are spread over its
//! shards and their servers are warm, a window of the trace is looked at: each cache line that goes from one
//! thread to another in it is a finding. What the kernel writes on behalf of a thread is not in the trace.

pub mod lines;
pub mod symbols;
pub mod trace;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::login::Session;
use crate::parts;
use crate::peers::{Auth, Peer, Pgmux, SERVERS, Site, Start};
use crate::target::{Mode, names};
use crate::valgrind;
use lines::{Access, Line, Lines, Thread};
use symbols::Map;
use trace::Trace;

/// What is to be looked at.
#[derive(Clone, Debug)]
pub struct Plan {
    /// pgmux; a release build, for another is ten times slower here.
    pub program: PathBuf,
    /// Its shards.
    pub shards: u32,
    /// Clients of each shard.
    pub clients: u32,
    /// Transactions of each client in a window.
    pub transactions: u32,
    /// pgbench's modes.
    pub modes: Vec<Mode>,
}

/// How clients meet in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// One transaction at a time, from shard to shard in turn; a server for everybody.
    InTurn,
    /// All clients at once; a server for everybody.
    Together,
    /// All clients at once, and one server a shard.
    Waiting,
}

impl Scene {
    /// What it is, in the report.
    pub fn words(self) -> &'static str {
        match self {
            Self::InTurn => "clients in turn",
            Self::Together => "clients at once, a server for each",
            Self::Waiting => "clients at once, one server a shard",
        }
    }

    /// Whether nothing may move: clients that wait for servers concern other shards by intent.
    pub fn must_be_clean(self) -> bool {
        self != Self::Waiting
    }
}

/// What one window showed.
#[derive(Clone, Debug)]
pub struct Window {
    /// How clients met.
    pub scene: Scene,
    /// How they asked.
    pub mode: Mode,
    /// Transactions in it.
    pub transactions: u32,
    /// Cache lines that were touched at all.
    pub touched: usize,
    /// Those that went from thread to thread, most often first.
    pub moved: Vec<Moved>,
}

/// A cache line that moved.
#[derive(Clone, Debug)]
pub struct Moved {
    /// What is in it.
    pub what: String,
    /// How often it moved.
    pub transfers: u64,
    /// Who wrote it and who read it, most often first.
    pub sites: Vec<String>,
}

impl Window {
    /// Moves of lines per transaction.
    pub fn transfers_per_transaction(&self) -> f64 {
        let transfers: u64 = self.moved.iter().map(|moved| moved.transfers).sum();
        transfers as f64 / f64::from(self.transactions.max(1))
    }

    /// Whether there is something in it that should not be. What happens less than once in so many transactions
    /// is no query's doing.
    pub fn is_bad(&self) -> bool {
        self.scene.must_be_clean() && self.transfers_per_transaction() > RARE
    }
}

/// Looks through all windows.
pub fn measure(plan: &Plan, site: &Site<'_>) -> Result<Vec<Window>> {
    let mut windows = Vec::new();
    let scenes = [Scene::InTurn, Scene::Together];
    let traced = Traced::start(plan, site, SERVERS.max(plan.shards * plan.clients))?;
    for &mode in &plan.modes {
        for scene in scenes {
            windows.push(traced.window(plan, scene, mode)?);
        }
    }
    traced.stop();
    let traced = Traced::start(plan, site, plan.shards)?;
    windows.push(traced.window(plan, Scene::Waiting, Mode::Simple)?);
    traced.stop();
    Ok(windows)
}

/// A pgmux that is traced, with clients on every shard.
struct Traced<'a> {
    site: Site<'a>,
    trace: Trace,
    peer: Peer,
    sessions: Vec<Session>,
}

impl<'a> Traced<'a> {
    fn start(plan: &Plan, site: &Site<'a>, servers: u32) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("trace-")
            .tempdir_in(site.cluster.dir())?;
        let pipe = dir.path().join("pipe");
        let trace = Trace::through(&pipe)?;
        let words = ["--tool=lackey", "--trace-mem=yes", "--trace-sched=yes"];
        let mut words: Vec<String> = words.map(str::to_owned).into();
        words.push(format!("--log-file={}", pipe.display()));
        let mut site = site.clone();
        site.under = valgrind::under(site.cluster.dir(), &words)?;
        eprintln!(
            "starting pgmux with {} shards, every load and store traced",
            plan.shards
        );
        let starter = Pgmux {
            program: plan.program.clone(),
            name: names::PGMUX.to_owned(),
            shards: plan.shards,
            servers,
            min_servers: None,
            modes: Mode::ALL.into(),
            clients: None,
            limits: true,
        };
        let peer = starter.start(&site, Auth::Trust)?;
        let sessions = spread(plan, &site, &peer)?;
        Ok(Self {
            site,
            trace,
            peer,
            sessions,
        })
    }

    fn window(&self, plan: &Plan, scene: Scene, mode: Mode) -> Result<Window> {
        eprintln!("looking at {mode}, {}", scene.words());
        if mode == Mode::Prepared {
            self.sessions.iter().try_for_each(Session::prepare)?;
        }
        self.ask(scene, mode, WARM_UP)?;
        let lines = self.trace.during(self.site.interrupt, || {
            self.ask(scene, mode, plan.transactions)
        })?;
        if lines.is_empty() {
            bail!("nothing was traced");
        }
        let pid = self.peer.pid()?;
        Ok(Window {
            scene,
            mode,
            transactions: plan.transactions * plan.shards * plan.clients,
            touched: lines.len(),
            moved: told(&lines, &mut Map::of(pid)?, &threads(pid)?),
        })
    }

    fn ask(&self, scene: Scene, mode: Mode, times: u32) -> Result<()> {
        let ask = |session: &Session| {
            self.site.interrupt.check()?;
            session.ask_by(mode)
        };
        if scene == Scene::InTurn {
            return (0..times).try_for_each(|_| self.sessions.iter().try_for_each(ask));
        }
        let all = |session| move || (0..times).try_for_each(|_| ask(session));
        std::thread::scope(|scope| {
            let running: Vec<_> = self.sessions.iter().map(|s| scope.spawn(all(s))).collect();
            running
                .into_iter()
                .try_for_each(|client| match client.join() {
                    Ok(outcome) => outcome,
                    Err(_) => bail!("a client panicked"),
                })
        })
    }

    /// A traced program takes its time to leave, and nothing is lost with it.
    fn stop(self) {
        self.sessions.into_iter().for_each(Session::close);
        self.peer.kill();
    }
}

/// Clients until every shard has as many as it should, in turn by shard; what is too many leaves again.
fn spread(plan: &Plan, site: &Site<'_>, peer: &Peer) -> Result<Vec<Session>> {
    let wanted = plan.clients as usize;
    let mut by_shard: BTreeMap<String, Vec<Session>> = BTreeMap::new();
    let is_full = |by_shard: &BTreeMap<String, Vec<Session>>| {
        by_shard.len() == plan.shards as usize && by_shard.values().all(|s| s.len() == wanted)
    };
    for _ in 0..plan.shards * plan.clients * TRIES {
        if is_full(&by_shard) {
            break;
        }
        site.interrupt.check()?;
        let session = Session::open(&peer.target.dsn, None)?;
        let shard = parts::part_of(&peer.target, &session, PROBES)?;
        let clients = by_shard.entry(shard).or_default();
        match clients.len() < wanted {
            true => clients.push(session),
            false => session.close(),
        }
    }
    if !is_full(&by_shard) {
        bail!("the clients do not reach all shards");
    }
    let mut by_shard: Vec<Vec<Session>> = by_shard.into_values().collect();
    let mut sessions = Vec::new();
    for _ in 0..wanted {
        sessions.extend(by_shard.iter_mut().filter_map(Vec::pop));
    }
    Ok(sessions)
}

/// Names by valgrind's numbers, which count threads in the order of their beginning, as their ids do.
fn threads(pid: u32) -> Result<BTreeMap<Thread, String>> {
    let names = crate::procfs::thread_names(pid)?;
    if names.is_empty() {
        bail!("process {pid} has no threads");
    }
    Ok(numbered(pid, names))
}

fn numbered(pid: u32, names: BTreeMap<u32, String>) -> BTreeMap<Thread, String> {
    let mut names: Vec<(u32, String)> = names.into_iter().collect();
    // Ids begin again at the bottom when the highest has been given.
    names.sort_by_key(|(id, _)| (*id < pid, *id));
    let named = |(number, (_, name)): (Thread, (u32, String))| match number {
        1 => (number, "main".to_owned()),
        _ if name.starts_with("shard-") => (number, name),
        _ => (number, format!("thread {number}")),
    };
    (1..).zip(names).map(named).collect()
}

fn told(lines: &Lines, map: &mut Map, threads: &BTreeMap<Thread, String>) -> Vec<Moved> {
    let moved = lines.moved().into_iter().take(TOLD_LINES);
    moved
        .map(|(address, line)| Moved {
            what: map.data(address),
            transfers: line.transfers,
            sites: sites(line, map, threads),
        })
        .collect()
}

fn sites(line: &Line, map: &mut Map, threads: &BTreeMap<Thread, String>) -> Vec<String> {
    let mut sites: Vec<_> = line.sites.iter().collect();
    sites.sort_unstable_by_key(|(site, count)| (std::cmp::Reverse(**count), **site));
    let mut told = Vec::new();
    for (site, count) in sites.into_iter().take(TOLD_SITES) {
        let name = threads.get(&site.thread).cloned();
        let name = name.unwrap_or_else(|| format!("thread {}", site.thread));
        let verb = match site.access {
            Access::Read => "reads",
            Access::Write => "writes",
        };
        told.push(format!(
            "{name} {verb} {count} times in {}",
            map.code(site.code)
        ));
    }
    told
}

/// The windows as Markdown.
pub fn report(windows: &[Window]) -> String {
    let mut text = String::new();
    for window in windows {
        let verdict = match (window.is_bad(), window.scene.must_be_clean()) {
            (true, _) => "FAIL: queries move lines between shards",
            (false, true) => "pass",
            (false, false) => "for information: clients that wait concern other shards",
        };
        text.push_str(&format!(
            "## {}, {}\n\n{} transactions touched {} cache lines; {} of them moved between threads, {:.3} times a transaction in all: {verdict}.\n\n",
            window.mode,
            window.scene.words(),
            window.transactions,
            window.touched,
            window.moved.len(),
            window.transfers_per_transaction(),
        ));
        for moved in &window.moved {
            text.push_str(&format!("- {} times: {}\n", moved.transfers, moved.what));
            for site in &moved.sites {
                text.push_str(&format!("  - {site}\n"));
            }
        }
        text.push('\n');
    }
    text
}

/// Where the programs are that tell names of addresses, there must be valgrind too.
pub fn needs() -> Result<()> {
    let found = |name: &str| crate::machine::find_program(std::path::Path::new(name));
    for name in ["valgrind", "cc"] {
        found(name).with_context(|| format!("{name} is needed and was not found"))?;
    }
    for name in ["nm", "addr2line"] {
        if found(name).is_none() {
            eprintln!("without {name} the findings have less names");
        }
    }
    Ok(())
}

/// Until every label is known, every statement prepared and every buffer at hand.
const WARM_UP: u32 = 10;
/// Enough to tell which thread works where every query takes a hundred times as long.
const PROBES: u32 = 2;
/// Logins for each client that is wanted, at most.
const TRIES: u32 = 8;
/// Lines and accesses of each that are told.
const TOLD_LINES: usize = 40;
const TOLD_SITES: usize = 8;
/// One move in fifty transactions: timers, hints and counters have their reasons.
const RARE: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    fn window(scene: Scene, transfers: u64) -> Window {
        let moved = Moved {
            what: "pgmux: COUNTER+0".into(),
            transfers,
            sites: vec!["shard-0-1 writes 7 times in f (a.rs:1)".into()],
        };
        Window {
            scene,
            mode: Mode::Simple,
            transactions: 100,
            touched: 5,
            moved: vec![moved],
        }
    }

    #[test]
    fn a_line_that_moves_with_queries_is_bad_unless_clients_wait() {
        assert!(window(Scene::InTurn, 100).is_bad());
        assert!(window(Scene::Together, 3).is_bad());
        assert!(!window(Scene::Together, 2).is_bad(), "rare");
        assert!(!window(Scene::Waiting, 100).is_bad());
    }

    #[test]
    fn the_report_says_what_moved_and_who_moved_it() {
        let text = report(&[window(Scene::InTurn, 100)]);
        for part in [
            "FAIL",
            "1.000 times a transaction",
            "COUNTER",
            "shard-0-1 writes",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn threads_are_numbered_in_the_order_of_their_beginning_though_ids_begin_again() {
        let names = [
            (7, "shard-1-2"),
            (30_000, "pgmux"),
            (30_001, "shard-0-1"),
            (3, "pgmux"),
        ];
        let names = numbered(30_000, names.map(|(id, name)| (id, name.to_owned())).into());
        let names: Vec<&str> = names.values().map(String::as_str).collect();
        assert_eq!(names, ["main", "shard-0-1", "thread 3", "shard-1-2"]);
    }
}
