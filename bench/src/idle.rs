//! Clients that do nothing: what each costs in memory, and all together in CPU time.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::dsn::Dsn;
use crate::interrupt::Interrupt;
use crate::login::Session;
use crate::procfs;

/// What to open, and how long to watch.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Clients in the end.
    pub clients: u32,
    /// Clients at the time when the CPU is watched.
    pub watched_clients: u32,
    /// How long the CPU is watched.
    pub seconds: u32,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Clients in the end.
    pub clients: u32,
    /// Resident memory before the first client.
    pub empty_kib: u64,
    /// After one client.
    pub warm_kib: u64,
    /// Clients while the CPU was watched.
    pub watched_clients: u32,
    /// Memory at that time.
    pub watched_kib: u64,
    /// CPU used meanwhile, in percent of one core.
    pub idle_cpu_percent: f64,
    /// Context switches per second meanwhile.
    pub switches_per_second: f64,
    /// Memory with all clients.
    pub full_kib: u64,
    /// The pooler's CPU microseconds per login, from the logins behind the watched ones.
    pub login_cpu_us: Option<f64>,
    /// Memory after all have left.
    pub after_kib: u64,
    /// Clients that the target dropped or wrote to.
    pub lost: u32,
}

impl Figures {
    /// KiB per client over the empty process.
    pub fn kib_over_empty(&self) -> f64 {
        per(self.full_kib, self.empty_kib, self.clients)
    }

    /// KiB per client over the process that has served one.
    pub fn kib_over_warm(&self) -> f64 {
        per(self.full_kib, self.warm_kib, self.clients.saturating_sub(1))
    }

    /// KiB that one more client costs when there are many: without what is paid once.
    pub fn kib_at_the_margin(&self) -> Option<f64> {
        let more = self.clients.checked_sub(self.watched_clients)?;
        (more > 0).then(|| per(self.full_kib, self.watched_kib, more))
    }
}

/// Opens the clients step by step and measures at each.
pub fn measure(dsn: &Dsn, pid: u32, plan: Plan, interrupt: &Interrupt) -> Result<Figures> {
    make_room(plan.clients, pid)?;
    let mut crowd = Crowd {
        dsn,
        pid,
        interrupt,
        sessions: Vec::with_capacity(plan.clients as usize),
    };
    let empty_kib = crowd.quiet_rss()?;
    crowd.grow(1)?;
    let warm_kib = crowd.quiet_rss()?;

    let watched_clients = plan.watched_clients.min(plan.clients).max(1);
    crowd.grow(watched_clients)?;
    let watched_kib = crowd.quiet_rss()?;
    let (idle_cpu_percent, switches_per_second) = crowd.watch(plan.seconds)?;

    let before = crowd.cpu_ns()?;
    crowd.grow(plan.clients)?;
    let logins = f64::from(plan.clients - watched_clients);
    let login_us = crowd.cpu_ns()?.saturating_sub(before) as f64 / 1e3;
    let login_cpu_us = (logins > 0.0).then(|| login_us / logins);
    let full_kib = crowd.quiet_rss()?;

    let lost = crowd
        .sessions
        .iter()
        .filter(|session| !session.is_quiet())
        .count();
    crowd.sessions.drain(..).for_each(Session::close);
    let after_kib = crowd.quiet_rss()?;
    Ok(Figures {
        clients: plan.clients,
        empty_kib,
        warm_kib,
        watched_clients,
        watched_kib,
        idle_cpu_percent,
        switches_per_second,
        full_kib,
        login_cpu_us,
        after_kib,
        lost: u32::try_from(lost)?,
    })
}

/// The clients that are open.
struct Crowd<'a> {
    dsn: &'a Dsn,
    pid: u32,
    interrupt: &'a Interrupt,
    sessions: Vec<Session>,
}

impl Crowd<'_> {
    fn grow(&mut self, clients: u32) -> Result<()> {
        while self.sessions.len() < clients as usize {
            self.interrupt.check()?;
            let nth = self.sessions.len();
            let session = Session::open(self.dsn, source(&self.dsn.host, nth))
                .with_context(|| format!("client {} of {clients}", nth + 1))?;
            self.sessions.push(session);
        }
        Ok(())
    }

    fn cpu_ns(&self) -> Result<u64> {
        Ok(procfs::tasks(self.pid)?
            .values()
            .map(|task| task.cpu_ns)
            .sum())
    }

    /// Memory once the target has calmed down: its CPU stands still and its memory too.
    fn quiet_rss(&self) -> Result<u64> {
        let end = Instant::now() + QUIET_LIMIT;
        let mut last = (self.cpu_ns()?, procfs::rss_kib(self.pid)?);
        loop {
            self.interrupt.sleep(QUIET_SLICE)?;
            let now = (self.cpu_ns()?, procfs::rss_kib(self.pid)?);
            let used = Duration::from_nanos(now.0.saturating_sub(last.0));
            if now.1 == last.1 && used < QUIET_SLICE / 20 {
                return Ok(now.1);
            }
            if Instant::now() > end {
                bail!("the target is still busy after {QUIET_LIMIT:?} without a request");
            }
            last = now;
        }
    }

    /// CPU in percent of a core, and context switches per second.
    fn watch(&self, seconds: u32) -> Result<(f64, f64)> {
        let sums = || -> Result<(u64, u64)> {
            let tasks = procfs::tasks(self.pid)?;
            Ok(tasks.values().fold((0, 0), |(cpu, switches), task| {
                (cpu + task.cpu_ns, switches + task.switches)
            }))
        };
        let begin = Instant::now();
        let before = sums()?;
        self.interrupt.sleep(Duration::from_secs(seconds.into()))?;
        let after = sums()?;
        let window = begin.elapsed();
        let cpu = after.0.saturating_sub(before.0) as f64;
        let switches = after.1.saturating_sub(before.1) as f64;
        Ok((
            100.0 * cpu / window.as_nanos() as f64,
            switches / window.as_secs_f64(),
        ))
    }
}

/// Raises this process's limit of open files as far as it may, and says where it, or the target's, is too low.
pub(crate) fn make_room(clients: u32, pid: u32) -> Result<()> {
    let needed = u64::from(clients) + FILES_BESIDES;
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum.or(Some(needed)),
        maximum: limit.maximum,
    };
    let _ = setrlimit(Resource::Nofile, wanted);
    let own = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if own < needed {
        bail!(
            "{clients} clients need {needed} open files, but only {own} are allowed: ulimit -n {needed}"
        );
    }
    if let Some(theirs) = procfs::open_files_limit(pid).filter(|theirs| *theirs < needed) {
        bail!(
            "{clients} clients need {needed} open files in the target too, but it may open only {theirs}: start it with ulimit -n {needed}"
        );
    }
    Ok(())
}

/// A source address for the nth client: one address has about 28,000 ports, some of them still in TIME_WAIT.
pub(crate) fn source(host: &str, nth: usize) -> Option<Ipv4Addr> {
    let host: Ipv4Addr = host.parse().ok()?;
    if !host.is_loopback() {
        return None;
    }
    let last = u8::try_from(1 + nth / CLIENTS_PER_SOURCE).ok()?;
    Some(Ipv4Addr::new(127, 0, 0, last))
}

fn per(kib: u64, base: u64, clients: u32) -> f64 {
    (kib as f64 - base as f64) / f64::from(clients.max(1))
}

const CLIENTS_PER_SOURCE: usize = 5_000;
/// Files that a process needs besides its clients: rings, listeners, servers, logs.
const FILES_BESIDES: u64 = 100;
const QUIET_SLICE: Duration = Duration::from_millis(400);
const QUIET_LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_per_client_leave_out_what_was_there_before() {
        let figures = Figures {
            clients: 1001,
            empty_kib: 1000,
            warm_kib: 1500,
            watched_clients: 501,
            watched_kib: 2000,
            full_kib: 3002,
            ..Figures::default()
        };
        assert!((figures.kib_over_empty() - 2.0).abs() < 1e-9);
        assert!((figures.kib_over_warm() - 1.502).abs() < 1e-9);
        assert!(
            figures
                .kib_at_the_margin()
                .is_some_and(|kib| (kib - 2.004).abs() < 1e-9)
        );
    }

    #[test]
    fn no_margin_without_more_clients() {
        let figures = Figures {
            clients: 10,
            watched_clients: 10,
            ..Figures::default()
        };
        assert_eq!(figures.kib_at_the_margin(), None);
    }

    #[test]
    fn source_addresses_change_before_their_ports_run_out() {
        assert_eq!(source("127.0.0.1", 0), Some(Ipv4Addr::new(127, 0, 0, 1)));
        assert_eq!(
            source("127.0.0.1", 4_999),
            Some(Ipv4Addr::new(127, 0, 0, 1))
        );
        assert_eq!(
            source("127.0.0.1", 5_000),
            Some(Ipv4Addr::new(127, 0, 0, 2))
        );
        assert_eq!(source("::1", 0), None);
        assert_eq!(source("192.0.2.1", 0), None);
    }

    #[test]
    fn a_limit_that_is_too_low_is_told_with_its_mend() {
        let told = make_room(u32::MAX, std::process::id());
        if let Err(error) = told {
            assert!(error.to_string().contains("ulimit -n"), "{error}");
        }
    }
}
