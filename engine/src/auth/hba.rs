//! `pg_hba.conf`: rules for who may log in from where, and how. The first
//! rule that fits decides.
//!
//! PostgreSQL: "The pg_hba.conf File".

use super::address::{Interfaces, Network};
use super::ident::Maps;
use super::options::{self, Options};
use super::words::{Line, Read, Word, lines};
use super::{Fault, Pattern};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

/// All rules, in their order, and the maps that they name.
pub struct Rules {
    rules: Vec<Rule>,
    /// For the names in certificates.
    pub maps: Maps,
    interfaces: Interfaces,
}

/// One rule.
pub struct Rule {
    /// The file that it stands in.
    pub file: String,
    /// Its line.
    pub line: usize,
    transport: Transport,
    databases: Vec<Database>,
    users: Vec<User>,
    address: Address,
    /// How the client must prove who it is.
    pub method: Method,
    /// Whether it must show a certificate too.
    pub client_cert: Option<ClientCert>,
    /// Which name in the certificate counts.
    pub cert_name: CertName,
    /// The map from such names to users.
    pub map: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Local,
    Host,
    HostSsl,
    HostNoSsl,
}

enum Database {
    All,
    SameUser,
    Replication,
    Named(Pattern),
}

enum User {
    All,
    Named(Pattern),
}

enum Address {
    Any,
    SameHost,
    SameNet,
    In(Network),
}

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    Trust,
    /// It is not let in.
    Reject,
    /// SCRAM-SHA-256, with channel binding over TLS.
    Scram,
    /// MD5, or SCRAM where the secret is for that.
    Md5,
    /// The password itself, over TLS or a unix socket.
    Password,
    /// The certificate.
    Cert,
}

/// What a rule demands of the client's certificate, next to its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCert {
    /// There is a valid one.
    VerifyCa,
    /// There is, and it has the user's name.
    VerifyFull,
}

/// Which name in a certificate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertName {
    /// The common name.
    #[default]
    CommonName,
    /// The whole distinguished name, as RFC 2253 writes it.
    Dn,
}

/// Where a client comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// By a unix socket.
    Local,
    /// By TCP.
    Host(IpAddr),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("[local]"),
            Self::Host(address) => write!(f, "{address}"),
        }
    }
}

/// What a client wants.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Where it comes from.
    pub source: Source,
    /// By TLS.
    pub tls: bool,
    /// As whom.
    pub user: &'a str,
    /// Where to.
    pub database: &'a str,
    /// For physical replication, which names no database.
    pub replication: bool,
}

/// What the rules say.
pub enum Decision<'r> {
    /// This rule fits: its method is to be asked for.
    By(&'r Rule),
    /// It is refused, with this message.
    Refused(String),
}

impl Rules {
    /// Reads a file of rules, and one of maps if there is one.
    pub fn read(
        path: &Path,
        maps: Option<&Path>,
        interfaces: Interfaces,
        read: Read<'_>,
    ) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let maps = match maps.map(|path| Maps::read(path, read)).transpose() {
            Ok(maps) => maps.unwrap_or_default(),
            Err(wrong) => {
                faults.extend(wrong);
                Maps::default()
            }
        };
        let file = path.display().to_string();
        let mut rules = Vec::new();
        for line in lines(path, read).unwrap_or_else(|fault| {
            faults.push(fault);
            Vec::new()
        }) {
            let number = line.number;
            let rule = rule(line, &file).and_then(|rule| match &rule.map {
                Some(map) if faults.is_empty() && !maps.has(map) => Err(format!(
                    "expected a map of auth.ident_file, got map={map}, which is not there"
                )),
                _ => Ok(rule),
            });
            match rule {
                Ok(rule) => rules.push(rule),
                Err(text) => faults.push(Fault {
                    file: file.clone(),
                    line: number,
                    text,
                }),
            }
        }
        if faults.is_empty() && rules.is_empty() {
            faults.push(Fault {
                file,
                line: 1,
                text: "expected at least one rule: nobody could log in".to_owned(),
            });
        }
        if faults.is_empty() {
            Ok(Self {
                rules,
                maps,
                interfaces,
            })
        } else {
            Err(faults)
        }
    }

    /// The first rule that fits.
    pub fn decide(&self, request: &Request<'_>) -> Decision<'_> {
        let found = self
            .rules
            .iter()
            .find(|rule| rule.fits(request, &self.interfaces));
        match found {
            Some(rule) if rule.method == Method::Reject => Decision::Refused(format!(
                "pg_hba.conf rejects {}",
                described(request, "connection for ")
            )),
            Some(rule) => Decision::By(rule),
            None => Decision::Refused(format!(
                "no pg_hba.conf entry for {}",
                described(request, "")
            )),
        }
    }

    /// All rules.
    pub fn all(&self) -> &[Rule] {
        &self.rules
    }
}

/// As PostgreSQL words it (`ClientAuthentication` of auth.c).
fn described(request: &Request<'_>, what: &str) -> String {
    let Request {
        source, user, tls, ..
    } = request;
    let encryption = if *tls {
        "SSL encryption"
    } else {
        "no encryption"
    };
    let (kind, database) = match (request.replication, what) {
        (true, "") => ("replication connection from ", String::new()),
        (true, _) => ("replication connection for ", String::new()),
        (false, what) => (what, format!(", database \"{}\"", request.database)),
    };
    format!("{kind}host \"{source}\", user \"{user}\"{database}, {encryption}")
}

impl Rule {
    fn fits(&self, request: &Request<'_>, interfaces: &Interfaces) -> bool {
        let transport = match (self.transport, request.source) {
            (Transport::Local, Source::Local) => true,
            (Transport::Local, _) | (_, Source::Local) => false,
            (Transport::Host, _) => true,
            (Transport::HostSsl, _) => request.tls,
            (Transport::HostNoSsl, _) => !request.tls,
        };
        let address = match (&self.address, request.source) {
            (_, Source::Local) | (Address::Any, _) => true,
            (Address::In(network), Source::Host(address)) => network.contains(address),
            (Address::SameHost, Source::Host(address)) => interfaces.has(address),
            (Address::SameNet, Source::Host(address)) => interfaces.neighbours(address),
        };
        let database = |database: &Database| match database {
            Database::Replication => request.replication,
            _ if request.replication => false,
            Database::All => true,
            Database::SameUser => request.database == request.user,
            Database::Named(name) => name.matches(request.database),
        };
        let user = |user: &User| match user {
            User::All => true,
            User::Named(name) => name.matches(request.user),
        };
        transport && address && self.databases.iter().any(database) && self.users.iter().any(user)
    }

    /// Whether somebody who is not on this machine may come by it.
    pub fn is_public(&self) -> bool {
        match (&self.address, self.transport) {
            (_, Transport::Local) | (Address::SameHost, _) => false,
            (Address::In(network), _) => !network.is_loopback(),
            _ => true,
        }
    }

    /// Whether it is for clients with TLS only, or on this machine.
    pub fn is_private(&self) -> bool {
        matches!(self.transport, Transport::Local | Transport::HostSsl)
    }
}

fn rule(line: Line, file: &str) -> Result<Rule, String> {
    let mut fields = line.fields.into_iter();
    let transport = transport(&fields.next().unwrap_or_default())?;
    let mut next = |what: &str| {
        fields
            .next()
            .ok_or_else(|| format!("expected {what} at the end of this line"))
    };
    let databases = next("a database")?;
    let databases = databases.iter().map(database).collect::<Result<_, _>>()?;
    let users = next("a user")?;
    let users = users.iter().map(user).collect::<Result<_, _>>()?;
    let address = match transport {
        Transport::Local => Address::Any,
        _ => match address(&next("an address")?)? {
            Written::Whole(address) => address,
            Written::Bare(bare) => masked(bare, &next("a mask behind the address")?)?,
        },
    };
    let method = method(&next("a method")?, transport)?;
    let rest: Vec<Vec<Word>> = fields.collect();
    let Options {
        map,
        client_cert,
        cert_name,
    } = options::read(&rest, method, transport == Transport::HostSsl)?;
    Ok(Rule {
        file: file.to_owned(),
        line: line.number,
        transport,
        databases,
        users,
        address,
        method,
        client_cert,
        cert_name,
        map,
    })
}

fn single<'w>(field: &'w [Word], what: &str) -> Result<&'w str, String> {
    match field {
        [word] => Ok(&word.text),
        _ => Err(format!("expected one {what}, got a list")),
    }
}

fn transport(field: &[Word]) -> Result<Transport, String> {
    Ok(match single(field, "connection type")? {
        "local" => Transport::Local,
        "host" => Transport::Host,
        "hostssl" => Transport::HostSsl,
        "hostnossl" => Transport::HostNoSsl,
        kind @ ("hostgssenc" | "hostnogssenc") => {
            return Err(format!(
                "expected local, host, hostssl or hostnossl, got {kind}: pgmux speaks no GSSAPI"
            ));
        }
        other => {
            return Err(format!(
                "expected local, host, hostssl or hostnossl, got {other:?}"
            ));
        }
    })
}

fn database(word: &Word) -> Result<Database, String> {
    Ok(match word.text.as_str() {
        "all" if !word.quoted => Database::All,
        "sameuser" if !word.quoted => Database::SameUser,
        "replication" if !word.quoted => Database::Replication,
        "samerole" | "samegroup" if !word.quoted => return Err(no_members(&word.text)),
        text => Database::Named(Pattern::read(text)?),
    })
}

fn user(word: &Word) -> Result<User, String> {
    Ok(match word.text.as_str() {
        "all" if !word.quoted => User::All,
        group if !word.quoted && group.starts_with('+') => return Err(no_members(group)),
        text => User::Named(Pattern::read(text)?),
    })
}

fn no_members(got: &str) -> String {
    format!("expected names, got {got}: pgmux does not know the members of roles, list them")
}

enum Written {
    Whole(Address),
    /// Its mask is the next field.
    Bare(IpAddr),
}

fn address(field: &[Word]) -> Result<Written, String> {
    let text = single(field, "address")?;
    let keyword = match (text, field[0].quoted) {
        ("all", false) => Some(Address::Any),
        ("samehost", false) => Some(Address::SameHost),
        ("samenet", false) => Some(Address::SameNet),
        _ => None,
    };
    if let Some(keyword) = keyword {
        return Ok(Written::Whole(keyword));
    }
    let (ip, bits) = match text.split_once('/') {
        Some((ip, bits)) => (ip, Some(bits)),
        None => (text, None),
    };
    let Ok(ip) = ip.parse::<IpAddr>() else {
        return Err(format!(
            "expected an address such as 10.0.0.0/8 or fd00::/8, all, samehost or samenet, got {text:?} (names of hosts are not looked up)"
        ));
    };
    let Some(bits) = bits else {
        return Ok(Written::Bare(ip));
    };
    match bits.parse().ok().and_then(|bits| Network::new(ip, bits)) {
        Some(network) => Ok(Written::Whole(Address::In(network))),
        None => Err(format!(
            "expected a number of bits up to {} behind the /, got {bits:?}",
            if ip.is_ipv4() { 32 } else { 128 }
        )),
    }
}

fn masked(ip: IpAddr, field: &[Word]) -> Result<Address, String> {
    let text = single(field, "mask")?;
    let network = text
        .parse()
        .ok()
        .and_then(|mask| Network::with_mask(ip, mask));
    network.map(Address::In).ok_or_else(|| {
        format!("expected a mask such as 255.255.0.0 behind an address without /, got {text:?}")
    })
}

fn method(field: &[Word], transport: Transport) -> Result<Method, String> {
    Ok(match single(field, "method")? {
        "trust" => Method::Trust,
        "reject" => Method::Reject,
        "scram-sha-256" => Method::Scram,
        "md5" => Method::Md5,
        "password" if transport == Transport::HostNoSsl => {
            return Err("expected a method that sends no password in clear, got password: it is for hostssl, or host with TLS".to_owned());
        }
        "password" => Method::Password,
        "cert" if transport == Transport::HostSsl => Method::Cert,
        "cert" => return Err("expected cert only in a hostssl line".to_owned()),
        other => {
            return Err(format!(
                "expected trust, reject, scram-sha-256, md5, password or cert, got {other:?}"
            ));
        }
    })
}
