//! pgmux in transaction mode.

use std::path::PathBuf;

use anyhow::{Result, bail};
use rustix::process::Signal;

use super::{Auth, PASSWORD, Peer, SERVERS, Site, Start, USER, version_line};
use crate::cluster::free_port;
use crate::dsn::DATABASE;
use crate::process::Launch;
use crate::target::{Mode, Target};

/// pgmux with a number of shards.
#[derive(Clone, Debug)]
pub struct Pgmux {
    /// The program.
    pub program: PathBuf,
    /// Its name in tables: there may be several, which differ in their shards.
    pub name: String,
    /// `engine.shards`.
    pub shards: u32,
    /// The modes to run it in.
    pub modes: Vec<Mode>,
    /// The client counts to run it at; none means all.
    pub clients: Option<Vec<u32>>,
}

impl Start for Pgmux {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&self, site: &Site<'_>, auth: Auth) -> Result<Peer> {
        if !self.program.is_file() {
            bail!(
                "{} does not exist: cargo build --release -p engine --bin pgmux",
                self.program.display()
            );
        }
        let name = self.name();
        let port = free_port()?;
        let config = site.file(&name, auth, "yaml");
        std::fs::write(&config, yaml(site, auth, port, self.shards))?;
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
            modes: self.modes.clone(),
            clients: self.clients.clone(),
            version: version_line(&self.program),
        };
        let arguments = ["run", "-c", &config.display().to_string()].map(str::to_owned);
        let log = site.file(&name, auth, "log");
        site.start(&launch, &arguments, target, &log)
    }
}

fn yaml(site: &Site<'_>, auth: Auth, port: u16, shards: u32) -> String {
    let method = match auth {
        Auth::Trust => "trust",
        Auth::Scram => "scram-sha-256",
    };
    let backend_port = site.cluster.dsn().port;
    let host = site.backend_host();
    // A host that begins with / is the directory of a unix socket.
    let writer = format!("{{ host: {host:?}, port: {backend_port} }}");
    format!(
        "proxy:\n  listen: \"127.0.0.1:{port}\"\n\
         engine:\n  shards: {shards}\n\
         pool:\n  mode: transaction\n  max_connections: {SERVERS}\n\
         backend:\n  user: {USER}\n  database: {DATABASE}\n\
         databases:\n  {DATABASE}:\n    writer: {writer}\n\
         auth:\n  method: {method}\n  users:\n    - username: {USER}\n      password: {PASSWORD}\n"
    )
}
