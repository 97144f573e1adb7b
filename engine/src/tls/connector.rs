//! Our end of the TLS to servers.

use super::acceptor::ALPN;
use super::files::{self, Problem, Which};
use super::{provider, versions};
use crate::config::{ServerTls, SslMode, Target, TlsVersion};
use crate::link::Records;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    Resumption, UnbufferedClientConnection, verify_server_cert_signed_by_trust_anchor,
    verify_server_name,
};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// What every handshake with a group's servers starts from.
pub struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Connector {
    /// Reads the files and puts them together; `None` where TLS cannot be:
    /// switched off, or over a unix socket.
    pub fn load(tls: &ServerTls, target: &Target) -> Result<Option<Self>, Problem> {
        let Target::Tcp { host, .. } = target else {
            return Ok(None);
        };
        if tls.mode == SslMode::Disable {
            return Ok(None);
        }
        let name = ServerName::try_from(host.clone())
            .map_err(|_| Problem::new(Which::Ca, format!("{host:?} is no name for TLS")))?;
        let verifier = Arc::new(Verifier::new(tls)?);
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions(TlsVersion::V12))
            .map_err(|error| Problem::new(Which::Cert, error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &tls.cert {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = files::certificates(cert, Which::Cert)?;
                let text = "the certificate and the key cannot be used";
                builder
                    .with_client_auth_cert(chain, files::key(key)?)
                    .map_err(|error| Problem::new(Which::Key, format!("{text}: {error}")))?
            }
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        // PostgreSQL gives no tickets.
        config.resumption = Resumption::disabled();
        Ok(Some(Self {
            config: Arc::new(config),
            name,
        }))
    }

    /// A new connection's machine.
    pub fn records(&self) -> Result<Records, Error> {
        UnbufferedClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map(Records::client)
    }
}

/// Judges a server's certificate as `server_sslmode` says, and always that
/// the server has the key.
#[derive(Debug)]
struct Verifier {
    /// By whom it must be signed; `None`: by anybody.
    roots: Option<RootCertStore>,
    /// The same, as they were written.
    pinned: Vec<CertificateDer<'static>>,
    /// It must have the server's name.
    names: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    /// As libpq: with a CA at hand, `require` verifies the chain too.
    fn new(tls: &ServerTls) -> Result<Self, Problem> {
        let (roots, pinned) = match &tls.ca_file {
            Some(path) if tls.mode >= SslMode::Require => {
                let (roots, pinned) = files::roots(path)?;
                (Some(roots), pinned)
            }
            _ => (None, Vec::new()),
        };
        if roots.is_none() && tls.mode >= SslMode::VerifyCa {
            return Err(Problem::new(
                Which::Ca,
                "expected the CA to verify servers by",
            ));
        }
        Ok(Self {
            roots,
            pinned,
            names: tls.mode == SslMode::VerifyFull,
            algorithms: provider().signature_verification_algorithms,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        // A server's own certificate in the CA file names that server, even
        // if it is one that could sign others (`openssl req -x509`).
        if let Some(roots) = &self.roots
            && !self.pinned.contains(end_entity)
        {
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                self.algorithms.all,
            )?;
        }
        if self.names {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
