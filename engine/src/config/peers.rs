//! The `peers` section: the instances behind the same address, to which cancel requests for their clients
//! are passed on.

use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;

use super::databases::is_host;
use super::keys::{Key, Kind, Unset};
use super::listen::{self, ListenAddr};
use super::report::Report;
use crate::shard::INSTANCE_MAX;

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "peers[].id",
        kind: Kind::Whole(1, INSTANCE_MAX),
        unset: Unset::Nothing("2"),
        about: "The engine.instance_id of another instance behind the same address; its cancel requests go there. The own one may be in the list too.",
    },
    Key {
        path: "peers[].address",
        kind: Kind::Text,
        unset: Unset::Nothing("10.0.0.2:6432"),
        about: "Where that instance itself listens: host:port, [::1]:port, /dir (the socket /dir/.s.PGSQL.5432) or unix:/path.",
    },
];

/// Another instance behind the same address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its `engine.instance_id`.
    pub id: u32,
    /// Where it listens.
    pub address: PeerAddress,
}

/// Where a peer listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// Over TCP.
    Tcp {
        /// A name or an IP address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A unix socket: the path of the socket itself.
    Unix(PathBuf),
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Item {
    id: Option<u32>,
    address: Option<String>,
}

/// The list without the own instance.
pub(super) fn resolve(
    items: Vec<Item>,
    own: Option<u32>,
    report: &mut Report,
) -> Option<Vec<Peer>> {
    let before = report.count();
    if !items.is_empty() && own.is_none() {
        report.at(
            "peers",
            format!("expected engine.instance_id beside it, from 1 to {INSTANCE_MAX}: keys must say whose they are"),
        );
    }
    let mut peers: Vec<Peer> = Vec::new();
    for (index, Item { id, address }) in items.into_iter().enumerate() {
        let key = format!("peers[{index}]");
        let mut absent = |name: &str, example: &str| {
            let text = format!("expected this key, for example {name}: {example}");
            report.at(&format!("{key}.{name}"), text);
        };
        let (id, address) = match (id, address) {
            (Some(id), Some(address)) => (id, address),
            (id, address) => {
                if id.is_none() {
                    absent("id", "2");
                }
                if address.is_none() {
                    absent("address", "10.0.0.2:6432");
                }
                continue;
            }
        };
        if peers.iter().any(|peer| peer.id == id) {
            report.at(&format!("{key}.id"), format!("{id} is listed twice"));
        }
        match parse(&address) {
            Ok(address) => peers.push(Peer { id, address }),
            Err(text) => report.at(&format!("{key}.address"), text),
        }
    }
    peers.retain(|peer| Some(peer.id) != own);
    (report.count() == before).then_some(peers)
}

fn parse(text: &str) -> Result<PeerAddress, String> {
    if text.starts_with('/') || text.starts_with("unix:") {
        let one = listen::parse_all(&[text]).map(|mut all| all.swap_remove(0));
        return match one {
            Ok(ListenAddr::Unix(path)) => Ok(PeerAddress::Unix(path)),
            Ok(ListenAddr::Tcp(_)) => Err(expected(text)),
            Err(mut problems) => Err(problems.swap_remove(0).1),
        };
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(|| expected(text))?;
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let port = port.parse().ok().filter(|port| *port > 0);
    match (bare, port) {
        (Some(bare), Some(port)) if bare.contains(':') && is_host(bare) => {
            let host = bare.to_owned();
            Ok(PeerAddress::Tcp { host, port })
        }
        (None, Some(port)) if !host.contains(':') && is_host(host) => {
            let host = host.to_owned();
            Ok(PeerAddress::Tcp { host, port })
        }
        _ => Err(expected(text)),
    }
}

fn expected(text: &str) -> String {
    format!(
        "expected host:port, [::1]:port, a socket directory (/run/pgmux) or unix:/path, got {text:?}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_peers_are_read() {
        for (text, shown) in [
            ("10.0.0.2:6432", "10.0.0.2:6432"),
            ("pgmux-2.internal:6432", "pgmux-2.internal:6432"),
            ("[::1]:6432", "[::1]:6432"),
            ("unix:/run/x.sock", "unix:/run/x.sock"),
            ("/run/pgmux", "unix:/run/pgmux/.s.PGSQL.5432"),
        ] {
            assert_eq!(
                parse(text).map(|address| address.to_string()),
                Ok(shown.to_owned())
            );
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "", "host", "host:", "host:0", "host:x", ":6432", "::1:6432", "[::1]", "[host]:1",
            "unix:x", "a b:1",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
