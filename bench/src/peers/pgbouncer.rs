//! PgBouncer in transaction mode.

use std::path::PathBuf;

use anyhow::Result;
use rustix::process::Signal;

use super::{Auth, Peer, SECRET, SERVERS, Site, Start, USER, version_line};
use crate::cluster::free_port;
use crate::dsn::DATABASE;
use crate::process::Launch;
use crate::target::{Mode, Target, names};

/// A PgBouncer of any version.
#[derive(Clone, Debug)]
pub struct PgBouncer {
    /// The program.
    pub program: PathBuf,
}

impl Start for PgBouncer {
    fn name(&self) -> String {
        names::PGBOUNCER.to_owned()
    }

    fn start(&self, site: &Site<'_>, auth: Auth) -> Result<Peer> {
        let name = self.name();
        let port = free_port()?;
        let version = version_line(&self.program);
        let settings = Settings {
            name: &name,
            port,
            pool_size: SERVERS,
            prepares: knows(&version, PREPARES_SINCE),
            more: format!("unix_socket_dir =\n{}", tls(site)),
        };
        let config = settings.write(site, auth)?;

        let launch = Launch {
            name: &name,
            program: &self.program,
            as_postgres: true,
            // SIGINT waits for the servers to be released, SIGTERM ends at once (before 1.23) or waits for clients (since).
            stop: Signal::TERM,
            cpus: site.cpus.as_deref(),
            under: &site.under,
        };
        let target = Target {
            name: name.clone(),
            dsn: site.client_dsn(port, auth),
            pids: Vec::new(),
            counters: None,
            modes: settings.modes(),
            clients: None,
            version,
        };
        let log = site.file(&name, auth, "log");
        site.start(&launch, &[config.display().to_string()], target, &log)
    }
}

/// The lines that demand TLS of clients.
fn tls(site: &Site<'_>) -> String {
    site.certificate.as_ref().map_or(String::new(), |pair| {
        format!(
            "client_tls_sslmode = require\nclient_tls_cert_file = {}\nclient_tls_key_file = {}\n",
            pair.cert.display(),
            pair.postgres_key.display(),
        )
    })
}

/// What differs between the configuration files of PgBouncers.
pub(super) struct Settings<'a> {
    /// What the files are named after.
    pub name: &'a str,
    pub port: u16,
    pub pool_size: u32,
    pub prepares: bool,
    /// Further lines, sections too.
    pub more: String,
}

impl Settings<'_> {
    /// Writes the files that it needs, and gives the one that names the others.
    pub fn write(&self, site: &Site<'_>, auth: Auth) -> Result<PathBuf> {
        let users = site.file(self.name, auth, "users");
        std::fs::write(&users, format!("\"{USER}\" \"{SECRET}\"\n"))?;
        let config = site.file(self.name, auth, "ini");
        let text = self.ini(site, auth, &users.display().to_string());
        std::fs::write(&config, text)?;
        Ok(config)
    }

    /// The modes that it can relay.
    pub fn modes(&self) -> Vec<Mode> {
        let mut modes = vec![Mode::Simple, Mode::Extended];
        if self.prepares {
            modes.push(Mode::Prepared);
        }
        modes
    }

    fn ini(&self, site: &Site<'_>, auth: Auth, users: &str) -> String {
        let auth_type = match auth {
            Auth::Trust => "trust",
            Auth::Scram => "scram-sha-256",
        };
        let prepared = if self.prepares {
            "max_prepared_statements = 200\n"
        } else {
            ""
        };
        format!(
            "[databases]\n\
             {DATABASE} = host={host} port={backend_port} dbname={DATABASE} user={USER}\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             auth_type = {auth_type}\n\
             auth_file = {users}\n\
             pool_mode = transaction\n\
             default_pool_size = {servers}\n\
             max_client_conn = {clients}\n\
             log_connections = 0\n\
             log_disconnections = 0\n\
             {prepared}{more}",
            host = site.backend_host(),
            backend_port = site.cluster.dsn().port,
            port = self.port,
            servers = self.pool_size,
            clients = site.clients_max,
            more = self.more,
        )
    }
}

/// Whether the version in `PgBouncer 1.18.0` is this one or later.
pub(super) fn knows(line: &str, since: (u32, u32)) -> bool {
    parse_version(line).is_some_and(|version| version >= since)
}

/// Major and minor out of `PgBouncer 1.18.0`.
fn parse_version(line: &str) -> Option<(u32, u32)> {
    let number = line.split_ascii_whitespace().nth(1)?;
    let mut parts = number.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// `max_prepared_statements` came with 1.21.
pub(super) const PREPARES_SINCE: (u32, u32) = (1, 21);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_statements_came_with_1_21() {
        let prepares = |line| knows(line, PREPARES_SINCE);
        assert!(!prepares("PgBouncer 1.18.0"));
        assert!(prepares("PgBouncer 1.21.0"));
        assert!(prepares("PgBouncer 1.25.2"));
        assert!(prepares("PgBouncer 2.0dev"));
        assert!(!prepares("unknown version"));
    }
}
