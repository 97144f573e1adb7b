//! Proving who the client is.

use super::Refused;
use super::credentials::{Known, Proof};
use super::packets::Packets;
use crate::auth::Method;
use crate::config;
use crate::limits::PASSWORD_BYTES;
use crate::link::Link;
use crate::random;
use crate::server::Keys;
use crate::shard::Shard;
use protocol::auth::scram::{
    ChannelBinding, MECHANISM, MECHANISM_PLUS, MESSAGE_LEN_MAX, SaslError, ScramServer, Verifier,
};
use protocol::auth::{md5, scram};
use protocol::backend::Authentication;
use protocol::encode::EncodeError;
use protocol::error::SqlState;
use protocol::frontend::{PasswordMessage, SASLInitialResponse};
use protocol::list::List;
use std::rc::Rc;
use zeroize::Zeroizing;

/// The client has proved who it is. Made nowhere else.
pub(super) struct Authenticated {
    /// With what its role can log in to a server, if that is known.
    pub(super) keys: Option<Keys>,
}

impl Authenticated {
    fn by(known: Option<&Known>) -> Self {
        let password = known.and_then(Known::password);
        Self {
            keys: password.map(Keys::Password),
        }
    }
}

/// Asks for what the method demands.
pub(super) async fn authenticate(
    shard: &Rc<Shard>,
    socket: &Link,
    packets: &mut Packets<'_>,
    method: Method,
    group: Option<usize>,
    user: &[u8],
) -> Result<Authenticated, Refused> {
    let config = shard.config();
    let proof = config.credentials.proof(shard, method, group, user);
    let proof = proof.await?;
    prove(shard, socket, packets, proof, user)
        .await
        .map_err(|refused| refused.of(user))
}

async fn prove(
    shard: &Shard,
    socket: &Link,
    packets: &mut Packets<'_>,
    proof: Proof,
    user: &[u8],
) -> Result<Authenticated, Refused> {
    match proof {
        Proof::None(known) => Ok(Authenticated::by(known.as_deref())),
        Proof::Unknown => {
            let text = format!("role \"{}\" does not exist", String::from_utf8_lossy(user));
            Err(Refused::fatal(
                SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
                &text,
            ))
        }
        Proof::Md5(known, hash) => {
            let hash = hash.as_ref().map(|hash| hash.as_str());
            by_md5(socket, packets, user, hash).await?;
            Ok(Authenticated::by(known.as_deref()))
        }
        Proof::Password(known) => by_password(shard, socket, packets, user, known.as_deref()).await,
        Proof::Scram(known, verifier) => {
            let proof = by_scram(socket, packets, user, &verifier).await?;
            let mut proved = Authenticated::by(known.as_deref());
            proved.keys.get_or_insert_with(|| Keys::Scram {
                client_key: Zeroizing::new(proof.client_key),
                verifier,
            });
            Ok(proved)
        }
    }
}

async fn by_password(
    shard: &Shard,
    socket: &Link,
    packets: &mut Packets<'_>,
    user: &[u8],
    known: Option<&Known>,
) -> Result<Authenticated, Refused> {
    send(socket, &Authentication::CleartextPassword)?;
    let body = Zeroizing::new(packets.password(PASSWORD_BYTES).await?);
    let Ok(PasswordMessage { password }) = PasswordMessage::decode(&body) else {
        return Err(Refused::fatal(
            SqlState::PROTOCOL_VIOLATION,
            "invalid password packet",
        ));
    };
    let right = match known {
        Some(known) if !password.is_empty() => known.is_password(shard, user, password).await,
        _ => false,
    };
    if !right {
        return Err(wrong_password(user));
    }
    let text = std::str::from_utf8(password).ok();
    let secret = text.map(|text| config::Secret::new(text.to_owned()));
    Ok(Authenticated {
        keys: secret.map(Keys::Password),
    })
}

async fn by_md5(
    socket: &Link,
    packets: &mut Packets<'_>,
    user: &[u8],
    hash: Option<&str>,
) -> Result<(), Refused> {
    let salt: [u8; 4] = random::array();
    send(socket, &Authentication::MD5Password { salt })?;
    let body = packets.password(PASSWORD_BYTES).await?;
    let Ok(PasswordMessage { password }) = PasswordMessage::decode(&body) else {
        return Err(Refused::fatal(
            SqlState::PROTOCOL_VIOLATION,
            "invalid password packet",
        ));
    };
    match hash {
        Some(hash) if md5::verify(password, hash, salt) => Ok(()),
        _ => Err(wrong_password(user)),
    }
}

async fn by_scram(
    socket: &Link,
    packets: &mut Packets<'_>,
    user: &[u8],
    verifier: &Verifier,
) -> Result<scram::Proof, Refused> {
    let hash = socket
        .security()
        .and_then(|security| security.binding.as_deref());
    // As PostgreSQL: the bound one first, and only over TLS.
    let offered = [MECHANISM_PLUS.as_bytes(), MECHANISM.as_bytes()];
    let offered = if hash.is_some() {
        &offered[..]
    } else {
        &offered[1..]
    };
    send(socket, &Authentication::SASL(List::new(offered)))?;
    // The initial response has the mechanism's name and a length before the
    // SASL message itself.
    let body = packets
        .password(MESSAGE_LEN_MAX + MECHANISM_PLUS.len() + 5)
        .await?;
    let Ok(SASLInitialResponse { mechanism, data }) = SASLInitialResponse::decode(&body) else {
        return Err(Refused::fatal(
            SqlState::PROTOCOL_VIOLATION,
            "malformed SASL initial response",
        ));
    };
    if !offered.contains(&mechanism) {
        return Err(Refused::fatal(
            SqlState::PROTOCOL_VIOLATION,
            "client selected an invalid SASL authentication mechanism",
        ));
    }
    let binding = match hash {
        None => ChannelBinding::Unavailable,
        Some(hash) if mechanism == MECHANISM_PLUS.as_bytes() => {
            ChannelBinding::TlsServerEndPoint(hash)
        }
        Some(_) => ChannelBinding::Unused,
    };
    let nonce = random::nonce();
    let exchange = ScramServer::new(verifier, &nonce).with_binding(binding);
    let first = match data {
        Some(data) => data.to_vec(),
        // A client may wait for an empty challenge before it speaks.
        None => {
            send(socket, &Authentication::SASLContinue(b""))?;
            packets.password(MESSAGE_LEN_MAX).await?
        }
    };
    let (challenge, exchange) = exchange
        .client_first(&first)
        .map_err(|error| failed(error, user))?;
    send(socket, &Authentication::SASLContinue(&challenge))?;
    let last = packets.password(MESSAGE_LEN_MAX).await?;
    let (outcome, proof) = exchange
        .client_final(&last)
        .map_err(|error| failed(error, user))?;
    send(socket, &Authentication::SASLFinal(&outcome))?;
    Ok(proof)
}

fn send(socket: &Link, message: &Authentication<'_>) -> Result<(), Refused> {
    let mut out = Vec::new();
    message
        .encode(&mut out)
        .map_err(|error: EncodeError| Refused::fatal(SqlState::INTERNAL_ERROR, error.text()))?;
    socket.write(&out);
    Ok(())
}

fn failed(error: SaslError, user: &[u8]) -> Refused {
    if error == SaslError::Proof {
        wrong_password(user)
    } else {
        Refused::fatal(error.sqlstate(), error.text())
    }
}

/// The same words for a wrong password and for a user that does not exist.
fn wrong_password(user: &[u8]) -> Refused {
    let text = format!(
        "password authentication failed for user \"{}\"",
        String::from_utf8_lossy(user)
    );
    Refused::fatal(SqlState::INVALID_PASSWORD, &text)
}
