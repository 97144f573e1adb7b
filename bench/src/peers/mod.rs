//! The poolers that this program starts itself, each configured alike.

mod fleet;
mod pgbouncer;
mod pgmux;
mod spike;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::certificate::Certificate;
use crate::cluster::Cluster;
use crate::dsn::{Dsn, SUPERUSER};
use crate::interrupt::Interrupt;
use crate::login::Session;
use crate::process::{Launch, Process, output};
use crate::procfs;
use crate::target::Target;

pub use fleet::Fleet;
pub use pgbouncer::PgBouncer;
pub use pgmux::Pgmux;
pub use spike::Spike;

/// How the poolers reach PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// Over the loopback.
    Tcp,
    /// Over PostgreSQL's unix socket.
    Unix,
}

/// How clients prove who they are. Servers are always trusted, so that only the clients' side differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Anybody may.
    Trust,
    /// SCRAM-SHA-256 with [`PASSWORD`].
    Scram,
}

impl Auth {
    /// The word in reports and file names.
    pub fn word(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Scram => "scram",
        }
    }
}

/// When a pooler counts as started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// When it has let a client in.
    LetsIn,
    /// When its port is open: its memory is then as it is before the first client.
    Listens,
}

/// What every pooler is given.
#[derive(Clone, Debug)]
pub struct Site<'a> {
    /// PostgreSQL.
    pub cluster: &'a Cluster,
    /// The way to it.
    pub backend: Backend,
    /// CPUs for poolers.
    pub cpus: Option<String>,
    /// A program under which to run poolers, like valgrind.
    pub under: Vec<String>,
    /// How many clients a pooler must be able to hold.
    pub clients_max: u32,
    /// When a pooler counts as started.
    pub ready: Ready,
    /// The certificate with which clients must come by TLS; none means in clear.
    pub certificate: Option<Certificate>,
    /// Ctrl-C.
    pub interrupt: &'a Interrupt,
}

/// A pooler that runs, and how to reach it.
#[derive(Debug)]
pub struct Peer {
    processes: Vec<Process>,
    /// What to measure.
    pub target: Target,
}

impl Peer {
    /// An error with the end of its log if it has ended.
    pub fn expect_alive(&mut self) -> Result<()> {
        self.processes
            .iter_mut()
            .try_for_each(Process::expect_alive)
    }

    /// The id of its process; an error when it is not one.
    pub fn pid(&self) -> Result<u32> {
        let [pid] = self.target.pids[..] else {
            bail!("{} is not one process", self.target.name);
        };
        Ok(pid)
    }

    /// Asks it to end; whether all of it did, each process in this time.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        let mut ended = true;
        for process in &mut self.processes {
            ended &= process.ends_within(limit);
        }
        ended
    }

    /// Ends it at once: under valgrind it may wait in a system call that no other signal ends.
    pub fn kill(mut self) {
        self.processes.iter_mut().for_each(Process::kill);
    }
}

/// A pooler that can be started more than once, with a way for its clients to log in.
pub trait Start {
    /// Its name in tables.
    fn name(&self) -> String;
    /// Starts it; returns when it is ready in the site's sense.
    fn start(&self, site: &Site<'_>, auth: Auth) -> Result<Peer>;
}

impl Site<'_> {
    /// A file of one pooler, in a directory that every user of ours can read.
    fn file(&self, name: &str, auth: Auth, extension: &str) -> PathBuf {
        let tls = if self.certificate.is_some() {
            "-tls"
        } else {
            ""
        };
        self.cluster
            .dir()
            .join(format!("{name}-{}{tls}.{extension}", auth.word()))
    }

    /// The host part of PostgreSQL's address.
    fn backend_host(&self) -> String {
        match self.backend {
            Backend::Tcp => self.cluster.dsn().host,
            Backend::Unix => self.cluster.dir().display().to_string(),
        }
    }

    /// Where clients of a pooler on this port connect, with what they need to get in.
    fn client_dsn(&self, port: u16, auth: Auth) -> Dsn {
        let mut dsn = Dsn::local(port);
        dsn.password = (auth == Auth::Scram).then(|| PASSWORD.to_owned());
        dsn.ca = self.certificate.as_ref().map(|pair| pair.ca.clone());
        dsn
    }

    /// Starts a pooler and waits until it is ready.
    fn start(
        &self,
        launch: &Launch<'_>,
        arguments: &[String],
        target: Target,
        log: &Path,
    ) -> Result<Peer> {
        let process = launch.start(arguments, log)?;
        let door = target.dsn.clone();
        self.await_ready(vec![process], &[door], target)
    }

    /// Waits until every one of these doors is open. Processes on one port need a door each: which of them
    /// a connection to the port gets is the kernel's choice.
    fn await_ready(&self, processes: Vec<Process>, doors: &[Dsn], target: Target) -> Result<Peer> {
        let pids = processes.iter().map(Process::pid).collect();
        let mut peer = Peer {
            processes,
            target: Target { pids, ..target },
        };
        let limit = match self.under.is_empty() {
            true => START_LIMIT,
            false => START_UNDER_LIMIT,
        };
        let mut last = None;
        let ready = self.interrupt.wait_until(limit, || {
            peer.expect_alive()?;
            last = doors.iter().find_map(|door| self.refusal(door));
            Ok(last.is_none())
        })?;
        if !ready {
            let why = last.map(|error| format!("{error:#}")).unwrap_or_default();
            bail!("{} is not ready: {why}", peer.target.name);
        }
        Ok(peer)
    }

    /// Why a pooler is not ready, if it is not.
    fn refusal(&self, dsn: &Dsn) -> Option<anyhow::Error> {
        match self.ready {
            Ready::LetsIn => Session::open(dsn, None).map(Session::close).err(),
            Ready::Listens => match procfs::listens(dsn.port) {
                Ok(true) => None,
                Ok(false) => Some(anyhow::anyhow!("port {} is not open", dsn.port)),
                Err(error) => Some(error),
            },
        }
    }
}

/// The first line of `PROGRAM --version`.
fn version_line(program: &Path) -> String {
    let told = output(Command::new(program).arg("--version")).unwrap_or_default();
    told.lines().next().unwrap_or("unknown version").to_owned()
}

/// Server connections that every pooler may make.
pub const SERVERS: u32 = 20;
/// The password of the SCRAM runs; it guards nothing.
pub const PASSWORD: &str = "bench";
/// The same as PostgreSQL keeps it: a pooler that is given the password itself would stretch it at every login.
const SECRET: &str = "SCRAM-SHA-256$4096:cGdtdXggYmVuY2ggc2FsdA==$aPFs8PxTvQ0BRSk6cMnfwRJ19xDsLwlZshySQsGOzEg=:MOkjiGCv8mN/deXbJu4KsRowqGHlxXZ4w9AYhiiOW4k=";
/// The role of all clients.
const USER: &str = SUPERUSER;
const START_LIMIT: Duration = Duration::from_secs(15);
/// What watches every instruction makes a program a hundred times slower.
const START_UNDER_LIMIT: Duration = Duration::from_secs(180);
