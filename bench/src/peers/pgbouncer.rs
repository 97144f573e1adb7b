//! PgBouncer in transaction mode.

use std::path::PathBuf;

use anyhow::Result;
use rustix::process::Signal;

use super::{Auth, PASSWORD, Peer, SERVERS, Site, Start, USER, version_line};
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
        let prepares = parse_version(&version).is_some_and(|v| v >= PREPARES_SINCE);

        let users = site.file(&name, auth, "users");
        std::fs::write(&users, format!("\"{USER}\" \"{PASSWORD}\"\n"))?;
        let config = site.file(&name, auth, "ini");
        let text = ini(site, auth, port, prepares, &users.display().to_string());
        std::fs::write(&config, text)?;

        let launch = Launch {
            name: &name,
            program: &self.program,
            as_postgres: true,
            // SIGINT waits for the servers to be released, SIGTERM ends at once (before 1.23) or waits for clients (since).
            stop: Signal::TERM,
            cpus: site.cpus.as_deref(),
            under: &site.under,
        };
        let mut modes = vec![Mode::Simple, Mode::Extended];
        if prepares {
            modes.push(Mode::Prepared);
        }
        let target = Target {
            name: name.clone(),
            dsn: site.client_dsn(port, auth),
            pid: None,
            modes,
            clients: None,
            version,
        };
        let log = site.file(&name, auth, "log");
        site.start(&launch, &[config.display().to_string()], target, &log)
    }
}

fn ini(site: &Site<'_>, auth: Auth, port: u16, prepares: bool, users: &str) -> String {
    let auth_type = match auth {
        Auth::Trust => "trust",
        Auth::Scram => "scram-sha-256",
    };
    let prepared = if prepares {
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
         unix_socket_dir =\n\
         auth_type = {auth_type}\n\
         auth_file = {users}\n\
         pool_mode = transaction\n\
         default_pool_size = {SERVERS}\n\
         max_client_conn = {clients}\n\
         log_connections = 0\n\
         log_disconnections = 0\n\
         {prepared}",
        host = site.backend_host(),
        backend_port = site.cluster.dsn().port,
        clients = site.clients_max,
    )
}

/// Major and minor out of `PgBouncer 1.18.0`.
fn parse_version(line: &str) -> Option<(u32, u32)> {
    let number = line.split_ascii_whitespace().nth(1)?;
    let mut parts = number.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// `max_prepared_statements` came with 1.21.
const PREPARES_SINCE: (u32, u32) = (1, 21);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_statements_came_with_1_21() {
        let prepares = |line| parse_version(line).is_some_and(|v| v >= PREPARES_SINCE);
        assert!(!prepares("PgBouncer 1.18.0"));
        assert!(prepares("PgBouncer 1.21.0"));
        assert!(prepares("PgBouncer 1.25.2"));
        assert!(prepares("PgBouncer 2.0dev"));
        assert!(!prepares("unknown version"));
    }
}
