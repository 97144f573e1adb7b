//! Who may ask: first the address, then the key, then what its role may do.

use crate::answer::{self, Answer};
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::{StatusCode, header};
use std::net::IpAddr;
use subtle::{Choice, ConstantTimeEq};

/// What a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    Viewer,
    /// Look, and change something.
    Admin,
}

/// A key and what it may do.
#[derive(Clone)]
pub struct Key {
    /// The secret.
    pub key: String,
    /// What it may do.
    pub role: Role,
}

/// Who may ask what.
#[derive(Clone, Default)]
pub struct Access {
    /// False: whoever can connect is an admin.
    pub enabled: bool,
    /// The keys.
    pub keys: Vec<Key>,
    /// From where; empty is from anywhere.
    pub allowed: Vec<Network>,
    /// Who is believed what it says of where a request comes from.
    pub trusted: Vec<Network>,
}

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// An address alone, or with the number of bits that count: `10.0.0.0/8`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
            None => most,
        };
        (bits <= most).then_some(Self { address, bits })
    }

    /// Whether the address is one of them. An IPv4 address stays one when it
    /// comes in IPv6's clothes.
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                (own.to_bits() ^ other.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl Access {
    /// Whether the request may be answered, which needs this role.
    pub fn admit(&self, peer: IpAddr, headers: &HeaderMap, needed: Role) -> Result<(), Answer> {
        if !self.enabled {
            return Ok(());
        }
        let origin = self.origin(peer, headers);
        let allowed = |origin| self.allowed.iter().any(|network| network.has(origin));
        if !self.allowed.is_empty() && !origin.is_some_and(allowed) {
            return Err(answer::error(StatusCode::FORBIDDEN, "ip not allowed"));
        }
        let Some(shown) = bearer(headers) else {
            return Err(unauthorized("authentication required"));
        };
        match self.role_of(shown) {
            None => Err(unauthorized("invalid api key")),
            Some(role) if role < needed => {
                Err(answer::error(StatusCode::FORBIDDEN, "admin role required"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Where the request comes from. A proxy that is trusted says so in
    /// `X-Forwarded-For`, to which each proxy appends: the last address that is
    /// not of a trusted proxy is the one that somebody trusted has seen. `None`
    /// where a trusted proxy says what is no address.
    fn origin(&self, peer: IpAddr, headers: &HeaderMap) -> Option<IpAddr> {
        let trusted = |address| self.trusted.iter().any(|network| network.has(address));
        let mut origin = peer.to_canonical();
        let lines = headers.get_all("x-forwarded-for");
        let lines: Vec<_> = lines.iter().collect();
        for line in lines.into_iter().rev() {
            for entry in line.to_str().ok()?.rsplit(',') {
                if !trusted(origin) {
                    return Some(origin);
                }
                origin = entry.trim().parse::<IpAddr>().ok()?.to_canonical();
            }
        }
        Some(origin)
    }

    /// All keys are compared, each in a time that says nothing but its length.
    fn role_of(&self, shown: &[u8]) -> Option<Role> {
        let mut found = None;
        for Key { key, role } in &self.keys {
            let same: Choice = key.as_bytes().ct_eq(shown);
            if bool::from(same) {
                found = found.max(Some(*role));
            }
        }
        found
    }
}

/// The key of `Authorization: Bearer`; the scheme's case is free (RFC 9110, 11.1).
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.as_bytes();
    // Two of them: which counts would be a guess.
    if values.next().is_some() || value.len() <= SCHEME.len() {
        return None;
    }
    let (scheme, key) = value.split_at(SCHEME.len());
    scheme
        .eq_ignore_ascii_case(SCHEME)
        .then(|| key.trim_ascii())
        .filter(|key| !key.is_empty())
}

fn unauthorized(text: &str) -> Answer {
    answer::error(StatusCode::UNAUTHORIZED, text).with(header::WWW_AUTHENTICATE, "Bearer")
}

const SCHEME: &[u8] = b"Bearer ";

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn access() -> Access {
        let key = |key: &str, role| Key {
            key: key.to_owned(),
            role,
        };
        Access {
            enabled: true,
            keys: vec![key("look", Role::Viewer), key("change", Role::Admin)],
            allowed: vec![net("10.0.0.0/8"), net("127.0.0.1")],
            trusted: vec![net("127.0.0.1"), net("192.168.0.0/16")],
        }
    }

    fn net(text: &str) -> Network {
        Network::parse(text).expect(text)
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn status(
        access: &Access,
        peer: &str,
        pairs: &[(&'static str, &'static str)],
        role: Role,
    ) -> u16 {
        let peer = peer.parse().expect("an address");
        match access.admit(peer, &headers(pairs), role) {
            Ok(()) => 200,
            Err(answer) => answer.status().as_u16(),
        }
    }

    #[test]
    fn networks_hold_what_begins_alike_and_nothing_else() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.2"),
            ("10.1.2.3", "::ffff:10.1.2.3", "::10.1.2.3"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("::/0", "::1", "10.0.0.1"),
        ] {
            let network = net(network);
            assert!(network.has(inside.parse().unwrap()), "{inside}");
            assert!(!network.has(outside.parse().unwrap()), "{outside}");
        }
        for wrong in [
            "",
            "10",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "a/8",
        ] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_address_counts_first_then_the_key_then_its_role() {
        let access = access();
        let viewer = ("authorization", "Bearer look");
        let admin = ("authorization", "bearer change");
        let ask = |peer, pairs: &[_], role| status(&access, peer, pairs, role);
        assert_eq!(ask("9.9.9.9", &[admin], Role::Viewer), 403);
        assert_eq!(ask("10.0.0.1", &[], Role::Viewer), 401);
        for wrong in [
            "Bearer looks",
            "Bearer loo",
            "Bearer ",
            "Basic look",
            "look",
        ] {
            let shown = ("authorization", wrong);
            assert_eq!(ask("10.0.0.1", &[shown], Role::Viewer), 401, "{wrong}");
        }
        assert_eq!(ask("10.0.0.1", &[admin, viewer], Role::Viewer), 401);
        assert_eq!(ask("10.0.0.1", &[viewer], Role::Viewer), 200);
        assert_eq!(ask("10.0.0.1", &[viewer], Role::Admin), 403);
        assert_eq!(ask("10.0.0.1", &[admin], Role::Admin), 200);
    }

    #[test]
    fn only_a_trusted_proxy_is_believed_where_a_request_comes_from() {
        let access = access();
        let key = ("authorization", "Bearer look");
        let ask = |peer, forwarded| {
            status(
                &access,
                peer,
                &[key, ("x-forwarded-for", forwarded)],
                Role::Viewer,
            )
        };
        assert_eq!(ask("127.0.0.1", "10.0.0.9"), 200);
        assert_eq!(ask("127.0.0.1", "9.9.9.9"), 403);
        assert_eq!(
            ask("127.0.0.1", "10.0.0.9, 9.9.9.9"),
            403,
            "the first is a claim"
        );
        assert_eq!(ask("127.0.0.1", "9.9.9.9, 10.0.0.9, 192.168.0.1"), 200);
        assert_eq!(ask("127.0.0.1", "nonsense"), 403);
        assert_eq!(ask("9.9.9.9", "10.0.0.9"), 403, "not a proxy of ours");
        assert_eq!(ask("10.0.0.1", "9.9.9.9"), 200, "nor this one");
    }

    #[test]
    fn without_keys_everybody_is_admitted() {
        let open = Access::default();
        assert_eq!(status(&open, "9.9.9.9", &[], Role::Admin), 200);
    }
}
