//! Certificates for tests, and the client's end of TLS by rustls, for raw clients.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, ServerConfig,
    ServerConnection,
};

use crate::process::TempDir;
use crate::wire::Conn;

/// A CA with a directory of its own, in which every certificate that it signs is a pair of files.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

/// A certificate and its key, as files.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate.
    pub cert: PathBuf,
    /// The key.
    pub key: PathBuf,
}

impl Authority {
    /// A new CA of this name.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let dir = TempDir::new("ca").expect("a directory");
        fs::write(dir.path().join("ca.crt"), issuer.pem()).expect("the CA's certificate");
        Self { issuer, dir }
    }

    /// Its own certificate.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// A certificate with this common name, for these host names and addresses.
    pub fn sign(&self, common_name: &str, hosts: &[&str]) -> Pair {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).into()).collect();
        let mut params = CertificateParams::new(hosts).expect("host names");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "pgmux, tests");
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        let path = |end: &str| self.dir.path().join(format!("{common_name}.{end}"));
        let pair = Pair {
            cert: path("crt"),
            key: path("key"),
        };
        fs::write(&pair.cert, cert.pem()).expect("the certificate");
        fs::write(&pair.key, key.serialize_pem()).expect("the key");
        private(&pair.key);
        pair
    }
}

impl Pair {
    /// Has the files be the PostgreSQL server's: it insists on owning its key.
    pub fn give_to_server(&self) {
        crate::cluster::give_to_server(&self.cert);
        crate::cluster::give_to_server(&self.key);
    }

    /// Takes the place of another pair's files.
    pub fn replace(&self, other: &Pair) {
        fs::copy(&self.cert, &other.cert).expect("the certificate");
        fs::copy(&self.key, &other.key).expect("the key");
    }
}

fn private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("permissions");
}

/// How a raw client does TLS. It trusts everybody, and tells what it saw.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
}

impl Default for Tls {
    fn default() -> Self {
        Self::new(&["postgresql"], None, true)
    }
}

impl Tls {
    /// With these protocols by ALPN and this certificate; `newest`: not only TLS 1.2.
    pub fn new(alpn: &[&str], pair: Option<&Pair>, newest: bool) -> Self {
        let versions: &[&rustls::SupportedProtocolVersion] = if newest {
            rustls::ALL_VERSIONS
        } else {
            &[&rustls::version::TLS12]
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody));
        let mut config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::pem_file_iter(&pair.cert)
                    .expect("the certificate")
                    .collect::<Result<_, _>>()
                    .expect("the certificate");
                let key = PrivateKeyDer::from_pem_file(&pair.key).expect("the key");
                builder.with_client_auth_cert(chain, key).expect("a pair")
            }
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self {
            config: Arc::new(config),
        }
    }

    /// The first record of a handshake.
    pub fn hello(&self) -> Vec<u8> {
        let mut hello = Vec::new();
        let mut connection = self.connection();
        connection.write_tls(&mut hello).expect("a Vec");
        hello
    }

    fn connection(&self) -> ClientConnection {
        let name = ServerName::try_from("localhost").expect("a name");
        ClientConnection::new(Arc::clone(&self.config), name).expect("a configuration that works")
    }

    /// Shakes hands over the stream.
    pub(crate) fn connect(&self, stream: TcpStream, patience: Duration) -> io::Result<TlsStream> {
        stream.set_read_timeout(Some(patience))?;
        let mut stream = TlsStream {
            connection: self.connection(),
            stream,
        };
        while stream.connection.is_handshaking() {
            let TlsStream { connection, stream } = &mut stream;
            connection.complete_io(stream)?;
        }
        Ok(stream)
    }
}

impl Tls {
    /// Shakes hands, says `bytes` and that nothing more will be said, all in the flight that ends the handshake.
    pub(crate) fn say_at_once(
        &self,
        stream: &mut TcpStream,
        bytes: &[u8],
    ) -> io::Result<TlsStream> {
        let mut connection = self.connection();
        loop {
            let over = !connection.is_handshaking();
            if over {
                connection.writer().write_all(bytes)?;
                connection.send_close_notify();
            }
            let mut flight = Vec::new();
            while connection.wants_write() {
                connection.write_tls(&mut flight)?;
            }
            stream.write_all(&flight)?;
            if over {
                let stream = stream.try_clone()?;
                return Ok(TlsStream { connection, stream });
            }
            if connection.read_tls(stream)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            connection.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

/// A stream that has shaken hands.
#[derive(Debug)]
pub struct TlsStream {
    connection: ClientConnection,
    stream: TcpStream,
}

impl TlsStream {
    /// The certificate that the server has shown.
    pub fn certificate(&self) -> Vec<u8> {
        let chain = self.connection.peer_certificates();
        chain
            .and_then(<[_]>::first)
            .expect("a certificate")
            .to_vec()
    }

    /// Whether the session is one of before.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub(crate) fn below_ref(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether the other end closes, and has said so by TLS first.
    pub fn is_ended_in_order(&mut self) -> bool {
        let mut chunk = [0; 1024];
        loop {
            match self.read(&mut chunk) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    /// Says that nothing more will be said; reading goes on.
    pub fn close_notify(&mut self) {
        self.connection.send_close_notify();
        let mut alert = Vec::new();
        self.connection.write_tls(&mut alert).expect("a Vec");
        self.below_write(&alert);
    }

    /// Writes past TLS.
    pub fn below_write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("a write below TLS");
    }

    /// The same in single bytes, which the other end most likely gets one by one.
    pub fn below_write_each(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.below_write(&[*byte]);
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// The TCP stream below.
    pub fn below(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// The records that these bytes become, without sending them.
    pub fn seal(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut records = Vec::new();
        for piece in bytes.chunks(8 * 1024) {
            self.connection.writer().write_all(piece).expect("room");
            while self.connection.wants_write() {
                self.connection.write_tls(&mut records).expect("a Vec");
            }
        }
        records
    }

    pub(crate) fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        let Self { connection, stream } = self;
        rustls::Stream::new(connection, stream).read(chunk)
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let records = self.seal(bytes);
        self.stream.write_all(&records)
    }
}

/// The server's end of TLS with this certificate.
pub fn server(pair: &Pair) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(&pair.cert)
        .expect("the certificate")
        .collect::<Result<_, _>>()
        .expect("the certificate");
    let key = PrivateKeyDer::from_pem_file(&pair.key).expect("the key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key);
    Arc::new(config.expect("a pair"))
}

/// Carries what a client says by TLS to another connection, and back, until one of them ends.
pub fn relay(client: TcpStream, config: &Arc<ServerConfig>, mut conn: Conn) -> io::Result<()> {
    let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    let mut client = rustls::StreamOwned::new(connection, client);
    let turn = Some(Duration::from_millis(5));
    client.sock.set_read_timeout(turn)?;
    let server = conn.tls();
    server.below().set_read_timeout(turn)?;
    let mut chunk = [0; 8192];
    let waited = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        )
    };
    loop {
        match client.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => server.write_all(&chunk[..read])?,
            Err(error) if waited(&error) => {}
            Err(error) => return Err(error),
        }
        match server.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => client.write_all(&chunk[..read])?,
            Err(error) if waited(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        let provider = rustls::crypto::ring::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
