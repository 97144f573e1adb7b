//! The experiment whose I/O layer pgmux is held against: a pooler without
//! error handling, prepared statements or more than one user.

use std::path::PathBuf;

use anyhow::{Result, bail};
use rustix::process::Signal;

use super::{Auth, Backend, Peer, SERVERS, Site, Start};
use crate::cluster::free_port;
use crate::process::Launch;
use crate::target::{Mode, Target, names};

/// The spike.
#[derive(Clone, Debug)]
pub struct Spike {
    /// The program.
    pub program: PathBuf,
}

impl Start for Spike {
    fn name(&self) -> String {
        names::SPIKE.to_owned()
    }

    fn start(&self, site: &Site<'_>, auth: Auth) -> Result<Peer> {
        if auth != Auth::Trust {
            bail!("the spike knows no passwords");
        }
        let name = self.name();
        let port = free_port()?;
        let backend_port = site.cluster.dsn().port;
        let host = site.backend_host();
        let backend = match site.backend {
            Backend::Tcp => format!("{host}:{backend_port}"),
            Backend::Unix => format!("{host}/.s.PGSQL.{backend_port}"),
        };
        let launch = Launch {
            name: &name,
            program: &self.program,
            as_postgres: false,
            stop: Signal::TERM,
            cpus: site.cpus.as_deref(),
            under: &site.under,
        };
        let target = Target {
            name: name.clone(),
            dsn: site.client_dsn(port, auth),
            pids: Vec::new(),
            counters: None,
            modes: vec![Mode::Simple, Mode::Extended],
            clients: None,
            version: format!("depth {DEPTH}"),
        };
        let arguments = [
            port.to_string(),
            backend,
            SERVERS.to_string(),
            DEPTH.to_string(),
        ];
        let log = site.file(&name, auth, "log");
        site.start(&launch, &arguments, target, &log)
    }
}

/// Requests in flight per server connection. One, as a pooler in transaction mode has it.
const DEPTH: u32 = 1;
