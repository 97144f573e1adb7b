//! Connecting to a server and logging in.

use super::dialog::{Broken, read};
use super::secure::{self, Way};
use super::{CancelKey, Keys, Parameters, Prepared, Server, Slot};
use crate::config::{ChannelBinding as Binding, Secret, ServerAuth, Target};
use crate::limits::{
    CONNECT, CONNECT_OF_SEVERAL, CONNECT_UNWELL, LOGIN_MESSAGE_BYTES, LOOK_UP, SCRAM_ITERATIONS,
    SERVER_LOGIN,
};
use crate::link::Link;
use crate::net;
use crate::random;
use crate::ring::Socket;
use crate::shard::{Facts, ShardPool};
use protocol::auth::scram::ChannelBinding;
use protocol::auth::{md5, scram};
use protocol::backend::{
    Authentication, BackendKeyData, ErrorResponse, NegotiateProtocolVersion, ReadyForQuery,
};
use protocol::encode::EncodeError;
use protocol::error::SqlState;
use protocol::frame::{Deframer, Side};
use protocol::frontend::{PasswordMessage, SASLInitialResponse, SASLResponse};
use protocol::ledger::Ledger;
use protocol::startup::{ProtocolVersion, Startup};
use router::effects::Effects;
use socket2::SockAddr;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;
use zeroize::Zeroizing;

/// Why there is no server.
#[derive(Debug)]
pub enum LoginError {
    /// The name does not resolve, or nobody listens there.
    Unreachable(io::Error),
    /// The server said no, in its own words.
    Refused {
        /// Its SQLSTATE, if it gave one.
        code: Option<SqlState>,
        /// Its message.
        message: String,
    },
    /// The server asks for a method that the configuration does not allow,
    /// or skips what it must prove.
    Downgrade(String),
    /// A password is asked for and none is configured.
    NoPassword,
    /// What a client has proved does not do for this server.
    NoKey(&'static str),
    /// There is no TLS as the configuration wants it.
    Tls(String),
    /// Not PostgreSQL's protocol, or the connection broke.
    Broken(Broken),
    /// Not within the deadline.
    Late,
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoginError::Unreachable(error) => write!(f, "cannot connect: {error}"),
            LoginError::Refused { code, message } => {
                write!(
                    f,
                    "the server refused the login: {message} ({})",
                    code.map_or("no code".into(), |code| code.to_string())
                )
            }
            LoginError::Downgrade(text) | LoginError::Tls(text) => f.write_str(text),
            LoginError::NoPassword => {
                f.write_str("the server asks for a password and backend.password is not set")
            }
            LoginError::NoKey(text) => f.write_str(text),
            LoginError::Broken(broken) => write!(f, "login failed: {broken}"),
            LoginError::Late => write!(f, "no login within {} s", SERVER_LOGIN.as_secs()),
        }
    }
}

impl From<Broken> for LoginError {
    fn from(broken: Broken) -> Self {
        LoginError::Broken(broken)
    }
}

impl From<EncodeError> for LoginError {
    fn from(error: EncodeError) -> Self {
        LoginError::Downgrade(format!("the login cannot be written: {}", error.text()))
    }
}

/// Names and values of the startup packet besides user and database.
type Extra<'a> = [(&'a [u8], &'a [u8])];

/// A new server of the pool, logged in. Dropping the future gives it up.
pub async fn login(pool: &ShardPool) -> Result<Server, LoginError> {
    login_with(pool, &[]).await
}

/// A server that is never the pool's, logged in with these startup parameters
/// too, among which neither `user` nor `database` may be. Dropping the future
/// gives it up.
pub async fn login_with(pool: &ShardPool, extra: &Extra<'_>) -> Result<Server, LoginError> {
    let deadline = Instant::now() + SERVER_LOGIN;
    pool.shard
        .ring
        .until(Some(deadline), log_in(pool, extra))
        .await
        .unwrap_or(Err(LoginError::Late))
}

/// In one way or, where `server_sslmode` allows another, in that.
async fn log_in(pool: &ShardPool, extra: &Extra<'_>) -> Result<Server, LoginError> {
    let (first, second) = secure::ways(pool);
    let mut secured = false;
    match (attempt(pool, extra, first, &mut secured).await, second) {
        (Err(error), Some(second)) if first.is_worth_another(secured, &error) => {
            tracing::debug!(%error, "a server is tried in another way");
            attempt(pool, extra, second, &mut secured).await
        }
        (outcome, _) => outcome,
    }
}

/// PROTOCOL: "Message Flow", Start-up: a server that speaks less than it is
/// asked for says so and goes on. Those of before 2018, and some poolers,
/// refuse; they are asked for 3.0 from then on.
async fn attempt(
    pool: &ShardPool,
    extra: &Extra<'_>,
    way: Way,
    secured: &mut bool,
) -> Result<Server, LoginError> {
    let newest = pool.newest_version();
    match attempt_version(pool, extra, way, newest, secured).await {
        Err(error) if newest > ProtocolVersion::V3_0 && is_about_version(&error) => {
            let server = attempt_version(pool, extra, way, ProtocolVersion::V3_0, secured).await?;
            pool.set_newest_version(ProtocolVersion::V3_0);
            Ok(server)
        }
        outcome => outcome,
    }
}

fn is_about_version(error: &LoginError) -> bool {
    matches!(
        error,
        LoginError::Refused {
            code: Some(SqlState::FEATURE_NOT_SUPPORTED | SqlState::PROTOCOL_VIOLATION),
            ..
        }
    )
}

async fn attempt_version(
    pool: &ShardPool,
    extra: &Extra<'_>,
    way: Way,
    version: ProtocolVersion,
    secured: &mut bool,
) -> Result<Server, LoginError> {
    let (socket, address) = connect(pool).await?;
    let socket = secure::begin(pool, socket, way).await?;
    *secured = socket.security().is_some();
    let mut login = Login {
        pool,
        group: pool.group(),
        keys: pool.keys(),
        socket,
        address,
        frames: Deframer::new(Side::Backend),
        version,
    };
    login.send_startup(extra)?;
    login.authenticate().await?;
    login.finish().await
}

/// Tries all addresses of the target in turn.
async fn connect(pool: &ShardPool) -> Result<(Socket, SockAddr), LoginError> {
    let addresses = addresses(pool).await.map_err(LoginError::Unreachable)?;
    let patience = match addresses.len() {
        _ if pool.target().health.is_unwell() => CONNECT_UNWELL,
        0 | 1 => CONNECT,
        _ => CONNECT_OF_SEVERAL,
    };
    let ring = &pool.shard.ring;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        let attempt = async {
            let socket = net::outgoing(&address, &pool.group().keepalive)?;
            ring.connect(socket, address.clone()).await
        };
        let deadline = Some(Instant::now() + patience);
        match ring.until(deadline, attempt).await {
            Ok(Ok(socket)) => return Ok((socket, address)),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(LoginError::Unreachable(last))
}

async fn addresses(pool: &ShardPool) -> io::Result<Vec<SockAddr>> {
    match &pool.group().target {
        target @ Target::Unix { .. } => {
            let path = target
                .socket_path()
                .ok_or_else(|| io::Error::other("no socket path"))?;
            Ok(vec![SockAddr::unix(path)?])
        }
        Target::Tcp { host, port } => {
            let known = pool.target().known_addresses();
            let deadline = (!known.is_empty()).then(|| Instant::now() + LOOK_UP);
            let asked = pool.shard.look_up_host(host, *port);
            match pool.shard.ring.until(deadline, asked).await {
                Ok(Err(error)) if known.is_empty() => Err(error),
                Ok(Ok(addresses)) => Ok(addresses),
                // What it meant is better than nothing.
                Ok(Err(_)) | Err(_) => {
                    let with_port = |ip| SockAddr::from(SocketAddr::new(ip, *port));
                    Ok(known.into_iter().map(with_port).collect())
                }
            }
        }
    }
}

struct Login<'a> {
    pool: &'a ShardPool,
    group: Rc<Facts>,
    keys: Option<Keys>,
    socket: Link,
    address: SockAddr,
    frames: Deframer,
    /// Asked for, then spoken.
    version: ProtocolVersion,
}

impl Login<'_> {
    fn send_startup(&mut self, extra: &Extra<'_>) -> Result<(), LoginError> {
        let mut out = Vec::new();
        let mut parameters = vec![
            (&b"user"[..], self.group.user.as_bytes()),
            (&b"database"[..], self.group.database_name.as_bytes()),
        ];
        if self.pool.is_for_lookups() {
            // Over whatever the role or the database has set (CVE-2025-12819).
            parameters.push((b"search_path", b"pg_catalog"));
        }
        parameters.extend_from_slice(extra);
        Startup::new(self.version, &parameters).encode(&mut out)?;
        self.socket.write(&out);
        Ok(())
    }

    async fn authenticate(&mut self) -> Result<(), LoginError> {
        let message = self.read().await?;
        let request = Authentication::decode(&message).map_err(|_| Broken::Unexpected(b'R'))?;
        if self.group.tls.channel_binding == Binding::Require
            && !matches!(request, Authentication::SASL(_))
        {
            return Err(unbound());
        }
        match request {
            Authentication::Ok => self.allow(ServerAuth::Trust),
            Authentication::CleartextPassword => {
                self.allow(ServerAuth::Cleartext)?;
                self.send_password(self.password()?.as_bytes())?;
                self.expect_ok().await
            }
            Authentication::MD5Password { salt } => {
                self.allow(ServerAuth::Md5)?;
                let hash = md5_hash(self.group.user.as_bytes(), self.password()?);
                let response = md5::response(&hash, salt).ok_or_else(|| {
                    LoginError::Downgrade("backend.password cannot answer an MD5 request".into())
                })?;
                self.send_password(response.as_bytes())?;
                self.expect_ok().await
            }
            Authentication::SASL(mechanisms) => {
                self.allow(ServerAuth::Scram)?;
                let offers =
                    |name: &str| mechanisms.iter().any(|offered| offered == name.as_bytes());
                let plus = offers(scram::MECHANISM_PLUS);
                if !plus && !offers(scram::MECHANISM) {
                    return Err(LoginError::Downgrade(
                        "the server offers no SASL mechanism that pgmux speaks".into(),
                    ));
                }
                self.scram(plus).await
            }
            other => Err(LoginError::Downgrade(format!(
                "the server asks for authentication method {}, which pgmux does not speak",
                other.code()
            ))),
        }
    }

    /// Never goes down to a method that the operator has not allowed.
    fn allow(&self, method: ServerAuth) -> Result<(), LoginError> {
        if self.group.auth_methods.contains(&method) {
            return Ok(());
        }
        Err(LoginError::Downgrade(format!(
            "the server asks for {:?} authentication, which backend.auth_methods does not allow",
            method
        )))
    }

    fn password(&self) -> Result<&str, LoginError> {
        self.secret().map(Secret::expose)
    }

    fn secret(&self) -> Result<&Secret, LoginError> {
        match &self.keys {
            Some(Keys::Password(password)) => Ok(password),
            Some(Keys::Scram { .. }) => Err(LoginError::NoKey(
                "the server asks for a password, and the client has proved by SCRAM only that it knows it",
            )),
            None if self.pool.id().is_role() => Err(LoginError::NoKey(
                "the server asks for a password, and the client was let in without one",
            )),
            None => Err(LoginError::NoPassword),
        }
    }

    fn send_password(&self, password: &[u8]) -> Result<(), LoginError> {
        let mut out = Zeroizing::new(Vec::new());
        PasswordMessage { password }.encode(&mut out)?;
        self.socket.write(&out);
        Ok(())
    }

    /// What the login is bound to, as libpq decides it. `offered`: the server
    /// has offered to bind.
    fn binding(&self, offered: bool) -> Result<ChannelBinding<'_>, LoginError> {
        let wanted = self.group.tls.channel_binding;
        let security = self.socket.security();
        let hash = security.and_then(|security| security.binding.as_deref());
        match (security, hash) {
            (None, _) if offered => Err(LoginError::Downgrade(
                "the server offers SCRAM-SHA-256-PLUS without TLS".into(),
            )),
            (_, Some(hash)) if offered && wanted != Binding::Disable => {
                Ok(ChannelBinding::TlsServerEndPoint(hash))
            }
            _ if wanted == Binding::Require => Err(unbound()),
            // So that the server finds out if somebody has taken its offer away.
            (_, Some(_)) if wanted == Binding::Prefer => Ok(ChannelBinding::Unused),
            _ => Ok(ChannelBinding::Unavailable),
        }
    }

    async fn scram(&mut self, plus_offered: bool) -> Result<(), LoginError> {
        let binding = self.binding(plus_offered)?;
        let mechanism = match binding {
            ChannelBinding::TlsServerEndPoint(_) => scram::MECHANISM_PLUS,
            _ => scram::MECHANISM,
        };
        let client = scram::ScramClient::with_binding(&random::nonce(), binding);
        let mut out = Vec::new();
        let first = client.client_first();
        SASLInitialResponse {
            mechanism: mechanism.as_bytes(),
            data: Some(&first),
        }
        .encode(&mut out)?;
        self.socket.write(&out);

        let message = self.read().await?;
        let Ok(Authentication::SASLContinue(server_first)) = Authentication::decode(&message)
        else {
            return Err(skipped());
        };
        let await_key = client
            .server_first(server_first, SCRAM_ITERATIONS)
            .map_err(sasl)?;
        let (last, await_final) = match &self.keys {
            Some(Keys::Scram {
                client_key,
                verifier,
            }) => {
                if await_key.salt() != verifier.salt
                    || await_key.iterations() != verifier.iterations
                {
                    return Err(LoginError::NoKey(
                        "the server's SCRAM secret of this role is not the one that pgmux knows",
                    ));
                }
                await_key.keys(client_key, &verifier.server_key)
            }
            _ => {
                let (salt, iterations) = (await_key.salt(), await_key.iterations());
                let salted = self.salted_password(salt, iterations).await?;
                await_key.salted_password(*salted)
            }
        };
        out.clear();
        SASLResponse { data: &last }.encode(&mut out)?;
        self.socket.write(&out);

        let message = self.read().await?;
        let Ok(Authentication::SASLFinal(server_final)) = Authentication::decode(&message) else {
            return Err(skipped());
        };
        await_final.server_final(server_final).map_err(sasl)?;
        self.expect_ok().await
    }

    /// PBKDF2 runs beside the shard, once for each salt.
    async fn salted_password(
        &self,
        salt: &[u8],
        iterations: u32,
    ) -> Result<Zeroizing<[u8; 32]>, LoginError> {
        let secret = self.secret()?.clone();
        if let Some(key) = self.pool.salted_key(&secret, salt, iterations) {
            return Ok(key);
        }
        let password = Zeroizing::new(secret.expose().as_bytes().to_vec());
        let salt_owned = salt.to_vec();
        let key = self
            .pool
            .shard
            .offload(move || {
                Zeroizing::new(scram::salted_password(&password, &salt_owned, iterations))
            })
            .await;
        self.pool
            .remember_salted_key(&secret, salt, iterations, &key);
        Ok(key)
    }

    async fn expect_ok(&mut self) -> Result<(), LoginError> {
        let message = self.read().await?;
        match Authentication::decode(&message) {
            Ok(Authentication::Ok) => Ok(()),
            _ => Err(Broken::Unexpected(b'R').into()),
        }
    }

    /// The body of the next authentication message.
    async fn read(&mut self) -> Result<Vec<u8>, LoginError> {
        loop {
            let message = read(&self.socket, &mut self.frames, LOGIN_MESSAGE_BYTES).await?;
            match message.tag {
                b'R' => return Ok(message.body),
                b'N' => {}
                b'v' => self.settle_for(&message.body)?,
                b'E' => return Err(refused(&message.body)),
                tag => return Err(Broken::Unexpected(tag).into()),
            }
        }
    }

    /// The server speaks less than it was asked for. It can only mean 3.0:
    /// 3.1 is no version, and options were not asked for.
    fn settle_for(&mut self, body: &[u8]) -> Result<(), LoginError> {
        let unexpected = || Broken::Unexpected(b'v');
        let answer = NegotiateProtocolVersion::decode(body).map_err(|_| unexpected())?;
        if answer.newest != ProtocolVersion::V3_0
            || self.version == ProtocolVersion::V3_0
            || answer.options.iter().next().is_some()
        {
            return Err(unexpected().into());
        }
        self.version = ProtocolVersion::V3_0;
        Ok(())
    }

    async fn finish(mut self) -> Result<Server, LoginError> {
        let mut parameters = Parameters::default();
        let mut cancel_key = None;
        loop {
            let message = read(&self.socket, &mut self.frames, LOGIN_MESSAGE_BYTES).await?;
            match message.tag {
                b'S' => parameters.read(&message.body),
                b'K' => cancel_key = cancel_key_of(&message.body, &self.address),
                b'N' => {}
                b'E' => return Err(refused(&message.body)),
                b'Z' => {
                    let ready = ReadyForQuery::decode(&message.body)
                        .map_err(|_| Broken::Unexpected(b'Z'))?;
                    return Ok(Server {
                        socket: self.socket,
                        frames: self.frames,
                        ledger: Ledger::default(),
                        status: ready.status,
                        label: self.pool.labels.empty(),
                        parameters,
                        prepared: Prepared::default(),
                        native: None,
                        unnamed: Slot::Empty,
                        suspect: Effects::default(),
                        pinned: false,
                        tainted: false,
                        said_goodbye: false,
                        last_words: None,
                        cancel_key,
                        cancels: Rc::default(),
                        slot: 0,
                        leased: 0,
                        asked: None,
                    });
                }
                tag => return Err(Broken::Unexpected(tag).into()),
            }
        }
    }
}

fn md5_hash(user: &[u8], password: &str) -> Zeroizing<String> {
    if md5::is_hash(password) {
        Zeroizing::new(password.to_owned())
    } else {
        md5::hash_password(user, password.as_bytes())
    }
}

/// Without a usable key queries cannot be cancelled; nothing else suffers.
fn cancel_key_of(body: &[u8], address: &SockAddr) -> Option<Rc<CancelKey>> {
    let BackendKeyData { pid, key } = BackendKeyData::decode(body).ok()?;
    Some(Rc::new(CancelKey {
        pid,
        key: key.into(),
        address: address.clone(),
    }))
}

fn refused(body: &[u8]) -> LoginError {
    let error = ErrorResponse::decode(body).ok();
    let message = error
        .as_ref()
        .and_then(|error| error.message())
        .unwrap_or(b"no reason given");
    LoginError::Refused {
        code: error.as_ref().and_then(|error| error.code()),
        message: String::from_utf8_lossy(message).chars().take(200).collect(),
    }
}

fn sasl(error: scram::SaslError) -> LoginError {
    LoginError::Downgrade(format!("SCRAM with the server failed: {}", error.text()))
}

fn unbound() -> LoginError {
    LoginError::Downgrade(
        "the server cannot bind the login to the TLS connection, which backend.server_channel_binding demands"
            .into(),
    )
}

fn skipped() -> LoginError {
    LoginError::Downgrade(
        "the server skips a part of SCRAM, by which it would prove that it knows the password"
            .into(),
    )
}
