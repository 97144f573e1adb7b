//! Our end of the clients' TLS.

use super::files::{self, Problem, Which};
use super::{endpoint_hash, provider, versions};
use crate::config::{ClientTls, SslMode};
use crate::link::Records;
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use std::sync::Arc;

/// What every handshake with a client starts from. Another one takes its
/// place when the certificates are read again; connections keep theirs.
pub struct Acceptor {
    config: Arc<ServerConfig>,
    binding: Option<Arc<[u8]>>,
}

impl Acceptor {
    /// Reads the files and puts them together.
    pub fn load(tls: &ClientTls) -> Result<Self, Problem> {
        let chain = files::certificates(&tls.cert_file, Which::Cert)?;
        let key = files::key(&tls.key_file)?;
        let binding = chain.first().and_then(|first| endpoint_hash(first));
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions(tls.min_version))
            .map_err(|error| Problem::new(Which::Cert, error.to_string()))?;
        let builder = match &tls.ca_file {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let (roots, _) = files::roots(path)?;
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
                // As PostgreSQL: asked for always, demanded by verify-*.
                let verifier = match tls.mode {
                    SslMode::VerifyCa | SslMode::VerifyFull => verifier,
                    _ => verifier.allow_unauthenticated(),
                };
                let verifier = verifier
                    .build()
                    .map_err(|error| Problem::new(Which::Ca, error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            let text = match error {
                rustls::Error::InconsistentKeys(_) => {
                    "the key does not belong to the certificate".to_owned()
                }
                error => format!("the certificate and the key cannot be used: {error}"),
            };
            Problem::new(Which::Key, text)
        })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Tickets hold the session, sealed with a key of this acceptor: any
        // shard takes them, none keeps anything, and those of an acceptor
        // that was replaced are of no use, so that a withdrawn CA is.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = rustls::crypto::ring::Ticketer::new()
            .map_err(|error| Problem::new(Which::Key, error.to_string()))?;
        config.send_tls13_tickets = 1;
        Ok(Self {
            config: Arc::new(config),
            binding: binding.map(Into::into),
        })
    }

    /// A new connection's end.
    pub fn records(&self) -> Records {
        Records::server(Arc::clone(&self.config))
    }

    /// The hash of our certificate, for `tls-server-end-point`.
    pub fn binding(&self) -> Option<Arc<[u8]>> {
        self.binding.clone()
    }
}

/// PROTOCOL: "SSL Session Encryption", ALPN.
pub(super) const ALPN: &[u8] = b"postgresql";
