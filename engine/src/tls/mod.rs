//! Certificates and what is made of them: who we are to clients, whom we
//! trust, what a certificate says. The bytes of TLS are [`crate::link`]'s.

mod acceptor;
mod connector;
mod der;
mod files;
mod peer;

pub use acceptor::Acceptor;
pub use connector::Connector;
pub use files::{Problem, Which};
pub use peer::{PeerCertificate, endpoint_hash};

use crate::config::{Config, TlsVersion};
use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;
use std::sync::{Arc, LazyLock, RwLock};

/// The certificates in use, shared by all shards: read once a handshake,
/// replaced when they are read again.
pub struct Material(RwLock<Current>);

#[derive(Clone)]
struct Current {
    acceptor: Option<Arc<Acceptor>>,
    /// By group.
    connectors: Vec<Option<Arc<Connector>>>,
}

impl Material {
    /// Reads all files that the configuration names.
    pub fn load(config: &Config) -> Result<Self, String> {
        Current::load(config).map(|current| Self(RwLock::new(current)))
    }

    /// Reads them again, for new connections. If anything is wrong, all stays
    /// as it is.
    pub fn reload(&self, config: &Config) -> Result<(), String> {
        let fresh = Current::load(config)?;
        // Nobody panics while holding the lock.
        if let Ok(mut current) = self.0.write() {
            *current = fresh;
        }
        Ok(())
    }

    /// For clients; `None` where TLS is off.
    pub fn acceptor(&self) -> Option<Arc<Acceptor>> {
        self.0.read().ok()?.acceptor.clone()
    }

    /// For the servers of a group; `None` where TLS is off.
    pub fn connector(&self, group: usize) -> Option<Arc<Connector>> {
        self.0.read().ok()?.connectors.get(group)?.clone()
    }
}

impl Current {
    fn load(config: &Config) -> Result<Self, String> {
        let acceptor = config.tls.as_ref().map(Acceptor::load).transpose();
        let acceptor = acceptor.map_err(|problem| format!("tls: {}", problem.text))?;
        let mut connectors = Vec::new();
        for group in &config.groups {
            let connector = Connector::load(&group.tls, &group.target);
            let connector = connector
                .map_err(|problem| format!("database {}: {}", group.name, problem.text))?;
            connectors.push(connector.map(Arc::new));
        }
        Ok(Self {
            acceptor: acceptor.map(Arc::new),
            connectors,
        })
    }
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    Arc::clone(&PROVIDER)
}

fn versions(min: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static ALL: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
    match min {
        TlsVersion::V12 => &ALL,
        TlsVersion::V13 => &ALL[..1],
    }
}
