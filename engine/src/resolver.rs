//! What host names mean. Blocks: it is asked by threads beside the shards, at each login, and again and again by one
//! thread for the servers that are there.

use crate::shard::Targets;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How names are looked up.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    /// `engine.hosts_file`.
    hosts_file: Option<PathBuf>,
}

impl Resolver {
    /// One that looks into this file first.
    pub fn new(hosts_file: Option<PathBuf>) -> Self {
        Self { hosts_file }
    }

    /// All addresses of a host, in the order in which they are to be tried.
    pub fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Some(listed) = self.hosts_file.as_deref().map(|file| listed(file, host)) {
            let listed = listed?;
            if !listed.is_empty() {
                let with_port = |address| SocketAddr::new(address, port);
                return Ok(listed.into_iter().map(with_port).collect());
            }
        }
        let mut found: Vec<SocketAddr> = Vec::new();
        for address in (host, port).to_socket_addrs()? {
            if !found.contains(&address) {
                found.push(address);
            }
        }
        Ok(found)
    }
}

fn listed(file: &Path, host: &str) -> io::Result<Vec<IpAddr>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(in_hosts(&text, host)),
        Err(error) => {
            let text = format!("cannot read engine.hosts_file {}: {error}", file.display());
            Err(io::Error::new(error.kind(), text))
        }
    }
}

/// hosts(5): an address, then its names, to the end of the line or a `#`.
fn in_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse().ok()) else {
            continue;
        };
        if words.any(|name| name.eq_ignore_ascii_case(host)) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// The thread that looks names up again. It ends when this is dropped; a look-up that hangs is not waited for.
pub struct Refresher {
    _stop: Sender<()>,
    _thread: JoinHandle<()>,
}

impl Refresher {
    /// Starts it; `changed` hears of each target of which addresses have come or gone.
    pub fn start(
        targets: Arc<Targets>,
        interval: Duration,
        changed: impl Fn(usize) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let thread = std::thread::Builder::new()
            .name("resolver".to_owned())
            .spawn(move || refresh(&targets, interval, &stopped, &changed))?;
        Ok(Self {
            _stop: stop,
            _thread: thread,
        })
    }
}

fn refresh(
    targets: &Targets,
    interval: Duration,
    stopped: &Receiver<()>,
    changed: &impl Fn(usize),
) {
    while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        for target in targets.named() {
            match target.look_up_again(targets.resolver()) {
                Ok(true) => changed(target.id()),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the name of a host cannot be looked up"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_file_gives_all_addresses_of_a_name_in_its_order() {
        let text =
            "# comment\n::1 db Other\n127.0.0.1\tx DB # db2\nnonsense db\n\n::1 db\n10.0.0.1";
        let of = |host| in_hosts(text, host);
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(of("db"), [parse("::1"), parse("127.0.0.1")]);
        assert_eq!(of("other"), [parse("::1")]);
        assert_eq!(of("db2"), [] as [IpAddr; 0]);
    }

    #[test]
    fn a_name_that_the_file_does_not_list_is_asked_of_the_system() {
        let dir = std::env::temp_dir().join(format!("pgmux-hosts-{}", std::process::id()));
        std::fs::write(&dir, "127.0.0.9 elsewhere\n").unwrap();
        let resolver = Resolver::new(Some(dir.clone()));
        let elsewhere = resolver.addresses("elsewhere", 7).unwrap();
        assert_eq!(elsewhere, ["127.0.0.9:7".parse().unwrap()]);
        let system = resolver.addresses("127.0.0.1", 7).unwrap();
        assert_eq!(system, ["127.0.0.1:7".parse().unwrap()]);
        std::fs::remove_file(&dir).unwrap();
        let error = resolver.addresses("elsewhere", 7).unwrap_err();
        assert!(error.to_string().contains("engine.hosts_file"), "{error}");
    }
}
