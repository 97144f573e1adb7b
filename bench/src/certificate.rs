//! A throwaway certificate for poolers, and a client's end of TLS that trusts it.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::Socket;

/// The request for TLS (PostgreSQL's protocol, *SSLRequest*).
pub(crate) const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// The files of a certificate for 127.0.0.1 (ECDSA, P-256).
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Who signed it.
    pub ca: PathBuf,
    /// The certificate.
    pub cert: PathBuf,
    /// Its key, for the user that runs this program.
    pub key: PathBuf,
    /// The same key, for the user `postgres`: nobody else may read a key.
    pub postgres_key: PathBuf,
}

impl Certificate {
    /// Makes one in this directory. `postgres` is who owns the directory.
    pub fn make(dir: &Path) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Other than the certificate's: where both are the same, OpenSSL takes the latter for its own issuer.
        let subject = &mut params.distinguished_name;
        subject.push(DnType::CommonName, "pgmux-bench");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        let cert = params.signed_by(&key, &issuer)?;
        let made = Self {
            ca: dir.join("bench-ca.crt"),
            cert: dir.join("bench.crt"),
            key: dir.join("bench.key"),
            postgres_key: dir.join("bench-postgres.key"),
        };
        std::fs::write(&made.ca, issuer.pem())?;
        std::fs::write(&made.cert, cert.pem())?;
        let owner = std::fs::metadata(dir)?;
        for path in [&made.key, &made.postgres_key] {
            std::fs::write(path, key.serialize_pem())?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        }
        let (user, group) = (
            std::os::unix::fs::MetadataExt::uid(&owner),
            std::os::unix::fs::MetadataExt::gid(&owner),
        );
        chown(&made.postgres_key, Some(user), Some(group))?;
        Ok(made)
    }
}

/// What a login speaks through.
#[derive(Debug)]
pub(crate) enum Line {
    /// The socket itself.
    Clear(Socket),
    /// TLS over it.
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Line {
    /// Asks for TLS and trusts what this CA has signed.
    pub(crate) fn secured(mut socket: Socket, ca: &Path) -> Result<Self> {
        socket.write_all(&SSL_REQUEST)?;
        let mut answer = [0u8];
        socket.read_exact(&mut answer)?;
        if answer != *b"S" {
            bail!("the target does not speak TLS");
        }
        let peer = socket.peer_addr()?.as_socket().map(|address| address.ip());
        let connection = ClientConnection::new(client(ca)?, name(peer)?)?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self::Tls(Box::new(stream)))
    }

    /// The socket, with all that TLS knew forgotten.
    pub(crate) fn into_socket(self) -> Socket {
        match self {
            Self::Clear(socket) => socket,
            Self::Tls(stream) => stream.sock,
        }
    }
}

impl Read for Line {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

fn name(peer: Option<IpAddr>) -> Result<ServerName<'static>> {
    match peer {
        Some(ip) => Ok(ServerName::from(ip)),
        None => Ok(ServerName::try_from("localhost")?),
    }
}

fn client(ca: &Path) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_file(ca).context("read the CA's certificate")?;
    roots.add(trusted)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
