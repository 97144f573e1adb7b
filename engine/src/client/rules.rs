//! What is demanded of a client: by `pg_hba.conf`, or by `auth.method`.

use super::Refused;
use crate::auth::{CertName, ClientCert, Decision, Method, Request, Rule, Rules, Source};
use crate::config::AuthMethod;
use crate::link::Link;
use crate::shard::Shard;
use protocol::error::SqlState;

/// The method by which this client must prove who it is. What its certificate
/// must prove, it has proved.
pub(super) fn method(
    shard: &Shard,
    link: &Link,
    source: Source,
    user: &[u8],
    database: &[u8],
    replication: bool,
) -> Result<Method, Refused> {
    let credentials = &shard.config().credentials;
    let Some(rules) = credentials.rules() else {
        return Ok(match credentials.method() {
            AuthMethod::Trust => Method::Trust,
            AuthMethod::Md5 => Method::Md5,
            AuthMethod::ScramSha256 => Method::Scram,
        });
    };
    let user = String::from_utf8_lossy(user);
    let request = Request {
        source,
        tls: link.security().is_some(),
        user: &user,
        database: &String::from_utf8_lossy(database),
        replication,
    };
    let rule = match rules.decide(&request) {
        Decision::By(rule) => rule,
        Decision::Refused(text) => return refused(&text),
    };
    certificate(&rules, rule, link, &user)?;
    if rule.method == Method::Password && source != Source::Local && !request.tls {
        return refused("a password in clear text is taken over TLS only");
    }
    Ok(rule.method)
}

/// The certificate, where the rule demands one.
fn certificate(rules: &Rules, rule: &Rule, link: &Link, user: &str) -> Result<(), Refused> {
    let by_name = rule.method == Method::Cert || rule.client_cert == Some(ClientCert::VerifyFull);
    if !by_name && rule.client_cert.is_none() {
        return Ok(());
    }
    let Some(peer) = link.security().and_then(|security| security.peer.as_ref()) else {
        return refused("connection requires a valid client certificate");
    };
    if !by_name {
        return Ok(());
    }
    let name = match rule.cert_name {
        CertName::CommonName => peer.common_name.as_deref(),
        CertName::Dn => Some(peer.dn.as_str()),
    };
    let fits = name.is_some_and(|name| match &rule.map {
        Some(map) => rules.maps.allow(map, name, user),
        None => name == user,
    });
    if fits {
        return Ok(());
    }
    refused(&format!(
        "certificate authentication failed for user \"{user}\""
    ))
}

/// Without authentication everybody runs as the group's user, so nobody may
/// come as somebody else: it would be told that it is whom it is not.
pub(super) fn only_as(backend: &str, user: &[u8]) -> Result<(), Refused> {
    if user == backend.as_bytes() {
        return Ok(());
    }
    refused(&format!(
        "role \"{}\" cannot log in here: without authentication (auth.enabled: false) clients may only be who the servers are logged in as",
        String::from_utf8_lossy(user)
    ))
}

fn refused<T>(text: &str) -> Result<T, Refused> {
    let code = SqlState::INVALID_AUTHORIZATION_SPECIFICATION;
    Err(Refused::fatal(code, text))
}
