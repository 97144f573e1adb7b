//! TLS with a client, before it has said who it is.
//!
//! PROTOCOL: "SSL Session Encryption".

use super::Refused;
use crate::config::SslMode;
use crate::limits::TLS_HANDSHAKE;
use crate::link::{Emptied, Link, handshake};
use crate::shard::Shard;
use crate::tls::Acceptor;
use protocol::error::SqlState;
use std::sync::Arc;
use std::time::Instant;

/// How TLS begins when nobody asks first: a handshake record.
pub(super) const DIRECT: u8 = 0x16;

/// What TLS starts from, if this client may have it.
pub(super) fn acceptor(shard: &Shard, local: bool) -> Option<Arc<Acceptor>> {
    if local {
        None
    } else {
        shard.config().acceptor.clone()
    }
}

/// The client has asked for TLS. `unread`: what came behind that.
pub(super) async fn on_request(
    shard: &Shard,
    link: &mut Link,
    acceptor: &Acceptor,
    unread: &[u8],
) -> Result<(), Refused> {
    // CVE-2021-23214: what somebody has put in between must not be taken for
    // the client's own words once there is TLS.
    let Some(emptied) = link.emptied().filter(|_| unread.is_empty()) else {
        return Err(Refused::fatal(
            SqlState::PROTOCOL_VIOLATION,
            "received unencrypted data after SSL request",
        ));
    };
    link.write(b"S");
    shake_hands(shard, link, acceptor, emptied, &[]).await
}

/// The client has begun with TLS at once, of which `first` has come. It must
/// name the protocol by ALPN, so that nobody talks it into one that it does
/// not mean.
pub(super) async fn directly(
    shard: &Shard,
    link: &mut Link,
    acceptor: &Acceptor,
    first: Vec<u8>,
) -> Result<(), Refused> {
    let emptied = Emptied::from_the_start(&first).ok_or(Refused::Silently)?;
    shake_hands(shard, link, acceptor, emptied, &first).await?;
    match link.security() {
        Some(security) if security.alpn => Ok(()),
        _ => {
            tracing::debug!("a client began with TLS and did not agree on a protocol by ALPN");
            Err(Refused::Silently)
        }
    }
}

async fn shake_hands(
    shard: &Shard,
    link: &mut Link,
    acceptor: &Acceptor,
    emptied: Emptied,
    first: &[u8],
) -> Result<(), Refused> {
    let records = acceptor.records();
    let deadline = Some(Instant::now() + TLS_HANDSHAKE);
    let shaking = handshake(link.raw(), emptied, records, first, &shard.handshakes);
    match shard.ring.until(deadline, shaking).await {
        Ok(Ok(secured)) => {
            link.secure(secured.bound_to(acceptor.binding()));
            Ok(())
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "no TLS with a client");
            Err(Refused::Silently)
        }
        Err(_) => Err(Refused::Silently),
    }
}

/// Refuses whoever does not come as `tls.client_sslmode` demands, before it
/// is asked for a password. A certificate, if one is demanded, has been
/// demanded by the handshake already.
pub(super) fn demand(shard: &Shard, link: &Link, local: bool, user: &[u8]) -> Result<(), Refused> {
    let config = shard.config();
    let Some(tls) = config.tls.as_ref().filter(|_| !local) else {
        return Ok(());
    };
    let refused = |text: &str| {
        let code = SqlState::INVALID_AUTHORIZATION_SPECIFICATION;
        Err(Refused::fatal(code, text))
    };
    let Some(security) = link.security() else {
        if tls.mode >= SslMode::Require {
            return refused("connections without TLS are not accepted here (sslmode=require)");
        }
        return Ok(());
    };
    let common_name = security
        .peer
        .as_ref()
        .and_then(|peer| peer.common_name.as_deref());
    if tls.mode == SslMode::VerifyFull && common_name.map(str::as_bytes) != Some(user) {
        let text = format!(
            "certificate authentication failed for user \"{}\"",
            String::from_utf8_lossy(user)
        );
        return refused(&text);
    }
    Ok(())
}
