//! pgmux in transaction mode.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use rustix::process::Signal;

use super::{Auth, Peer, SECRET, Site, Start, USER, version_line};
use crate::cluster::free_port;
use crate::dsn::DATABASE;
use crate::process::{Launch, output};
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
    /// `pool.max_connections`.
    pub servers: u32,
    /// `pool.min_connections`; none leaves pgmux's own.
    pub min_servers: Option<u32>,
    /// The modes to run it in.
    pub modes: Vec<Mode>,
    /// The client counts to run it at; none means all.
    pub clients: Option<Vec<u32>>,
    /// Whether its limits of clients are on, if it has any: none is reached, all are counted.
    pub limits: bool,
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
        let limits = match self.limits && knows_limits(&self.program) {
            true => limits(site.clients_max),
            false => String::new(),
        };
        let text = yaml(site, auth, port, self) + &limits + &tls(site);
        std::fs::write(&config, text)?;
        let launch = Launch {
            name: &name,
            program: &self.program,
            as_postgres: false,
            stop: Signal::TERM,
            cpus: site.cpus.as_deref(),
            under: &site.under,
        };
        let log = site.file(&name, auth, "log");
        let target = Target {
            name: name.clone(),
            dsn: site.client_dsn(port, auth),
            pids: Vec::new(),
            counters: Some(log.clone()),
            modes: self.modes.clone(),
            clients: self.clients.clone(),
            version: match limits.is_empty() {
                true => version_line(&self.program),
                false => format!("{}, limits of clients on", version_line(&self.program)),
            },
        };
        let arguments = ["run", "-c", &config.display().to_string()].map(str::to_owned);
        site.start(&launch, &arguments, target, &log)
    }
}

fn yaml(site: &Site<'_>, auth: Auth, port: u16, pgmux: &Pgmux) -> String {
    let (shards, servers) = (pgmux.shards, pgmux.servers);
    let method = match auth {
        Auth::Trust => "trust",
        Auth::Scram => "scram-sha-256",
    };
    let backend_port = site.cluster.dsn().port;
    let host = site.backend_host();
    // A host that begins with / is the directory of a unix socket.
    let writer = format!("{{ host: {host:?}, port: {backend_port} }}");
    let min = pgmux
        .min_servers
        .map_or(String::new(), |min| format!("  min_connections: {min}\n"));
    format!(
        "proxy:\n  listen: \"127.0.0.1:{port}\"\n\
         engine:\n  shards: {shards}\n\
         pool:\n  mode: transaction\n  max_connections: {servers}\n{min}\
         backend:\n  user: {USER}\n  database: {DATABASE}\n\
         databases:\n  {DATABASE}:\n    writer: {writer}\n\
         auth:\n  method: {method}\n  users:\n    - username: {USER}\n      password: {SECRET:?}\n"
    )
}

/// The section that demands TLS of clients.
fn tls(site: &Site<'_>) -> String {
    site.certificate.as_ref().map_or(String::new(), |pair| {
        format!(
            "tls:\n  enabled: true\n  client_sslmode: require\n  cert_file: {:?}\n  key_file: {:?}\n",
            pair.cert, pair.key,
        )
    })
}

/// Whether this build can limit clients by user and by database.
fn knows_limits(program: &Path) -> bool {
    let keys = output(Command::new(program).args(["config", "--defaults"]));
    keys.is_ok_and(|keys| keys.lines().any(|line| line == "connection_limits:"))
}

fn limits(clients: u32) -> String {
    format!(
        "connection_limits:\n  enabled: true\n\
         \x20 default_max_connections_per_user: {clients}\n\
         \x20 default_max_connections_per_database: {clients}\n"
    )
}
