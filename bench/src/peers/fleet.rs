//! Several processes of PgBouncer on one port: how it is given more cores than one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::process::Signal;

use super::pgbouncer::{PREPARES_SINCE, Settings, knows};
use super::{Auth, Peer, SERVERS, Site, Start, version_line};
use crate::cluster::{free_port, give_to_postgres};
use crate::dsn::Dsn;
use crate::process::Launch;
use crate::target::{Target, names};

/// PgBouncers that share a port and, by hand, a budget of servers.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The program.
    pub program: PathBuf,
    /// How many.
    pub processes: u32,
}

impl Start for Fleet {
    fn name(&self) -> String {
        names::fleet(self.processes)
    }

    fn start(&self, site: &Site<'_>, auth: Auth) -> Result<Peer> {
        let fleet = self.name();
        let port = free_port()?;
        let version = version_line(&self.program);
        let mut members = Vec::new();
        for nth in 0..self.processes {
            members.push(Member::new(site, &fleet, nth)?);
        }
        let peers = match knows(&version, PEERS_SINCE) {
            true => Some(peers_section(&members, port)),
            false => None,
        };

        let mut processes = Vec::new();
        let mut doors = Vec::new();
        let mut modes = Vec::new();
        for (nth, member) in (0..).zip(&members) {
            let settings = Settings {
                name: &member.name,
                port,
                pool_size: share(SERVERS, self.processes, nth),
                prepares: knows(&version, PREPARES_SINCE),
                more: member.lines(peers.as_deref()),
            };
            let config = settings.write(site, auth)?;
            modes = settings.modes();
            let launch = Launch {
                name: &member.name,
                program: &self.program,
                as_postgres: true,
                stop: Signal::TERM,
                cpus: site.cpus.as_deref(),
                under: &site.under,
            };
            let log = site.file(&member.name, auth, "log");
            processes.push(launch.start([config], &log)?);
            doors.push(Dsn {
                host: member.dir.display().to_string(),
                ..site.client_dsn(port, auth)
            });
        }
        let peering = if peers.is_some() { "with" } else { "without" };
        let target = Target {
            name: fleet,
            dsn: site.client_dsn(port, auth),
            pids: Vec::new(),
            counters: None,
            modes,
            clients: None,
            version: format!("{version}, {} processes {peering} peering", self.processes),
        };
        site.await_ready(processes, &doors, target)
    }
}

/// One process: its sockets' directory is the one thing that is its own.
struct Member {
    id: u32,
    name: String,
    dir: PathBuf,
}

impl Member {
    fn new(site: &Site<'_>, fleet: &str, nth: u32) -> Result<Self> {
        let id = nth + 1;
        // Short: the path of a unix socket ends at 107 bytes.
        let dir = site.cluster.dir().join(format!("peer{id}"));
        make_dir(&dir)?;
        Ok(Self {
            id,
            name: format!("{fleet}.{id}"),
            dir,
        })
    }

    fn lines(&self, peers: Option<&str>) -> String {
        let dir = self.dir.display();
        let common = format!("unix_socket_dir = {dir}\nso_reuseport = 1\n");
        match peers {
            Some(peers) => format!("{common}peer_id = {}\n{peers}", self.id),
            None => common,
        }
    }
}

fn make_dir(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    give_to_postgres(dir)
}

/// Where cancel requests go that came to the wrong process.
fn peers_section(members: &[Member], port: u16) -> String {
    let mut text = "[peers]\n".to_owned();
    for member in members {
        let dir = member.dir.display();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} = host={dir} port={port}", member.id);
    }
    text
}

/// The `nth` part of a whole in `parts` parts that differ by one at most.
fn share(whole: u32, parts: u32, nth: u32) -> u32 {
    whole / parts + u32::from(nth < whole % parts)
}

/// `[peers]` and `peer_id` came with 1.19.
const PEERS_SINCE: (u32, u32) = (1, 19);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_a_fleet_are_the_budget_of_one() {
        for parts in [1, 2, 3, 4, 8] {
            let shares: Vec<u32> = (0..parts).map(|nth| share(SERVERS, parts, nth)).collect();
            assert_eq!(shares.iter().sum::<u32>(), SERVERS, "{shares:?}");
            assert!(
                shares
                    .iter()
                    .all(|share| share.abs_diff(SERVERS / parts) <= 1)
            );
        }
    }

    #[test]
    fn every_member_knows_all_and_says_who_it_is() {
        let member = |id| Member {
            id,
            name: format!("fleet.{id}"),
            dir: format!("/d/peer{id}").into(),
        };
        let members = [member(1), member(2)];
        let peers = peers_section(&members, 6432);
        assert_eq!(
            peers,
            "[peers]\n1 = host=/d/peer1 port=6432\n2 = host=/d/peer2 port=6432\n"
        );
        let lines = members[1].lines(Some(&peers));
        assert!(lines.starts_with("unix_socket_dir = /d/peer2\nso_reuseport = 1\npeer_id = 2\n"));
        assert!(!members[1].lines(None).contains("peer_id"));
    }
}
