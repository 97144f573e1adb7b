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

use crate::config::TlsVersion;
use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;
use std::sync::{Arc, LazyLock};

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
