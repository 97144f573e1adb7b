//! TLS with a server, as libpq's `sslmode` has it.
//!
//! PROTOCOL: "SSL Session Encryption".

use super::login::LoginError;
use crate::config::SslMode;
use crate::link::{Link, handshake};
use crate::net;
use crate::ring::Socket;
use crate::shard::ShardPool;
use crate::tls::{Connector, endpoint_hash};
use protocol::error::SqlState;
use protocol::startup::SslRequest;
use socket2::SockAddr;
use std::io;

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// In clear.
    Clear,
    /// With TLS if the server has it.
    Offered,
    /// With TLS.
    Tls,
}

impl Way {
    /// Whether a login that failed may be tried in the other way. `secured`:
    /// it had TLS.
    pub fn is_worth_another(self, secured: bool, error: &LoginError) -> bool {
        let not_like_this = matches!(
            error,
            LoginError::Refused {
                code: Some(SqlState::INVALID_AUTHORIZATION_SPECIFICATION),
                ..
            }
        );
        match self {
            Way::Clear => not_like_this,
            Way::Offered => matches!(error, LoginError::Tls(_)) || secured && not_like_this,
            Way::Tls => false,
        }
    }
}

/// The ways to log in at the pool's servers, in order.
pub fn ways(pool: &ShardPool) -> (Way, Option<Way>) {
    if pool.group().connector.is_none() {
        return (Way::Clear, None);
    }
    match pool.group().tls.mode {
        SslMode::Disable => (Way::Clear, None),
        SslMode::Allow => (Way::Clear, Some(Way::Tls)),
        SslMode::Prefer => (Way::Offered, Some(Way::Clear)),
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => (Way::Tls, None),
    }
}

/// Begins a connection in this way.
pub async fn begin(pool: &ShardPool, socket: Socket, way: Way) -> Result<Link, LoginError> {
    let connector = pool.group().connector.clone();
    let Some(connector) = connector.filter(|_| way != Way::Clear) else {
        return Ok(Link::plain(socket));
    };
    let mut link = Link::plain(socket);
    match ask(&mut link).await? {
        b'S' => shake_hands(pool, &mut link, &connector).await?,
        b'N' if way == Way::Offered => {}
        b'N' => {
            return Err(LoginError::Tls(
                "the server has no TLS, which backend.server_sslmode demands".into(),
            ));
        }
        // Whatever it says in clear nobody is shown (CVE-2024-10977).
        other => {
            return Err(LoginError::Tls(format!(
                "the server answers a request for TLS with {:?}",
                char::from(other)
            )));
        }
    }
    Ok(link)
}

/// The server's answer to a request for TLS: one byte, and not one more may
/// have come in clear (CVE-2021-23222).
async fn ask(link: &mut Link) -> Result<u8, LoginError> {
    let mut request = Vec::new();
    SslRequest.encode(&mut request)?;
    link.write(&request);
    loop {
        let Some(chunk) = link.take() else {
            if link.ended() {
                let text = "the server closed the connection when it was asked for TLS";
                return Err(LoginError::Tls(text.into()));
            }
            link.readable().await;
            continue;
        };
        return match chunk[..] {
            [answer @ (b'S' | b'N')] if !link.has_bytes() => Ok(answer),
            [b'S' | b'N', ..] => Err(LoginError::Downgrade(
                "the server sent something in clear behind its answer to a request for TLS".into(),
            )),
            [answer, ..] => Ok(answer),
            [] => continue,
        };
    }
}

async fn shake_hands(
    pool: &ShardPool,
    link: &mut Link,
    connector: &Connector,
) -> Result<(), LoginError> {
    let clear = || LoginError::Downgrade("the server sent something in clear before TLS".into());
    let emptied = link.emptied().ok_or_else(clear)?;
    let records = connector
        .records()
        .map_err(|error| LoginError::Tls(error.to_string()))?;
    let shaking = handshake(link.raw(), emptied, records, &[], &pool.shard.handshakes);
    let secured = shaking
        .await
        .map_err(|failed| LoginError::Tls(failed.to_string()))?;
    let binding = secured.certificate().and_then(endpoint_hash);
    link.secure(secured.bound_to(binding.map(Into::into)));
    Ok(())
}

/// Connects to a server once more, for a word beside its connection.
pub async fn reconnect(pool: &ShardPool, address: SockAddr, tls: bool) -> io::Result<Link> {
    let socket = net::outgoing(&address, &pool.group().keepalive)?;
    let socket = pool.shard.ring.connect(socket, address).await?;
    let way = if tls { Way::Tls } else { Way::Clear };
    begin(pool, socket, way)
        .await
        .map_err(|error| io::Error::other(error.to_string()))
}
