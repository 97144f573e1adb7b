//! The PostgreSQLs behind the databases, as all shards know them: how they are, and where.

use super::{Mail, Shard};
use crate::config::{CircuitBreaker, Target};
use crate::resolver::Resolver;
use crate::server::login::LoginError;
use ::pool::{BreakerState, Condition, Fault, Target as Health};
use admin::stats::ShardStats;
use protocol::error::SqlState;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// All targets. Databases that lead to the same one share what is known of it.
pub struct Targets {
    resolver: Resolver,
    known: Mutex<Known>,
}

struct Known {
    breaker: CircuitBreaker,
    targets: Vec<Arc<TargetState>>,
    /// How many there have been.
    count: usize,
}

/// What is known of one.
pub struct TargetState {
    id: usize,
    target: Target,
    /// Whether it lets us in.
    pub health: Arc<Health>,
    last_failure: Mutex<Option<(SqlState, String)>>,
    addresses: Mutex<Addresses>,
}

/// What the name has meant.
#[derive(Default)]
struct Addresses {
    latest: Vec<IpAddr>,
    /// The look-up before that: an address that is missing once may be back, where a name has more than one answer holds.
    before: Vec<IpAddr>,
}

impl Targets {
    /// None yet.
    pub fn new(breaker: CircuitBreaker, resolver: Resolver) -> Self {
        Self {
            resolver,
            known: Mutex::new(Known {
                breaker,
                targets: Vec::new(),
                count: 0,
            }),
        }
    }

    /// The one target of all databases that are there.
    pub fn of(&self, target: &Target) -> Arc<TargetState> {
        let mut known = lock(&self.known);
        if let Some(state) = known.targets.iter().find(|state| state.target == *target) {
            return Arc::clone(state);
        }
        // A reload has taken the others out of use.
        known.targets.retain(|state| Arc::strong_count(state) > 1);
        known.count += 1;
        let state = Arc::new(TargetState {
            id: known.count,
            target: target.clone(),
            health: Arc::new(Health::new(known.breaker.settings())),
            last_failure: Mutex::default(),
            addresses: Mutex::default(),
        });
        known.targets.push(Arc::clone(&state));
        state
    }

    /// Takes a new `circuit_breaker` section, for all targets.
    pub fn set_breaker(&self, breaker: CircuitBreaker) {
        let mut known = lock(&self.known);
        known.breaker = breaker;
        for state in &known.targets {
            state.health.set_breaker(breaker.settings());
        }
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<TargetState>> {
        lock(&self.known).targets.clone()
    }

    /// Those with a name, which may change its meaning.
    pub fn named(&self) -> impl Iterator<Item = Arc<TargetState>> {
        self.all().into_iter().filter(|state| state.is_named())
    }

    /// By what names are looked up.
    pub fn resolver(&self) -> &Resolver {
        &self.resolver
    }
}

impl TargetState {
    /// Its number, of no other target in the life of the process.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Where it is.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// How it is.
    pub fn condition(&self) -> Condition {
        self.health.condition(Instant::now())
    }

    /// Why it did not let us in when it was last tried in vain.
    pub fn last_failure(&self) -> Option<(SqlState, String)> {
        lock(&self.last_failure).clone()
    }

    /// It has not let us in.
    pub(super) fn remember(&self, code: SqlState, reason: &str) {
        *lock(&self.last_failure) = Some((code, reason.to_owned()));
    }

    /// Whether its host is a name.
    pub fn is_named(&self) -> bool {
        match &self.target {
            Target::Tcp { host, .. } => host.parse::<IpAddr>().is_err(),
            Target::Unix { .. } => false,
        }
    }

    /// Asks what its name means now. True if addresses have come or gone. Blocks.
    pub fn look_up_again(&self, resolver: &Resolver) -> io::Result<bool> {
        let Target::Tcp { host, port } = &self.target else {
            return Ok(false);
        };
        let found = resolver
            .addresses(host, *port)
            .map_err(|error| io::Error::new(error.kind(), format!("{host}: {error}")))?;
        let latest: Vec<IpAddr> = found.into_iter().map(|address| address.ip()).collect();
        if latest.is_empty() {
            return Ok(false);
        }
        let mut addresses = lock(&self.addresses);
        let Addresses {
            latest: last,
            before,
        } = &mut *addresses;
        let is_new = !same(&latest, last) || !same(last, before);
        *before = std::mem::replace(last, latest);
        Ok(is_new)
    }

    /// Whether a server at this address is one that the name has lost.
    pub(super) fn has_lost(&self, address: IpAddr) -> bool {
        let Addresses { latest, before } = &*lock(&self.addresses);
        let known = |list: &[IpAddr]| list.is_empty() || list.contains(&address);
        !known(latest) && !known(before)
    }

    /// What the name meant when it was last looked up, for a login while it cannot be.
    pub(crate) fn known_addresses(&self) -> Vec<IpAddr> {
        lock(&self.addresses).latest.clone()
    }
}

fn same(a: &[IpAddr], b: &[IpAddr]) -> bool {
    a.iter().all(|address| b.contains(address)) && b.iter().all(|address| a.contains(address))
}

impl LoginError {
    /// Whose fault it is. `of_role`: a client's own role has tried, whose own limits have the same code as the server's.
    pub(super) fn fault(&self, of_role: bool) -> Fault {
        match self {
            LoginError::Unreachable(error) if is_ours(error) => Fault::Pool,
            LoginError::Unreachable(_) | LoginError::Broken(_) | LoginError::Late => Fault::Target,
            LoginError::Refused {
                code: Some(code), ..
            } => match code.as_bytes() {
                b"53300" if of_role => Fault::Pool,
                code if is_of_the_server(code) => Fault::Target,
                _ => Fault::Pool,
            },
            LoginError::Refused { code: None, .. }
            | LoginError::Downgrade(_)
            | LoginError::NoPassword
            | LoginError::NoKey(_)
            | LoginError::Tls(_) => Fault::Pool,
        }
    }
}

/// We have run out of something ourselves.
fn is_ours(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let ours = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::NOBUFS,
        Errno::ADDRNOTAVAIL,
    ];
    error
        .raw_os_error()
        .is_some_and(|code| ours.iter().any(|ours| ours.raw_os_error() == code))
}

/// Classes of errors at a login by which a server says that it cannot serve: connection exceptions, insufficient resources, and
/// operator intervention but for a database that was dropped.
fn is_of_the_server(code: &[u8; 5]) -> bool {
    matches!(
        code,
        [b'0', b'8', ..] | [b'5', b'3', ..] | [b'5', b'7', b'P', ..]
    ) && code != b"57P04"
}

/// Whether a server that ends with this error, while a client uses it, ends by its own fault. A client can bring it about to be
/// terminated (57P01), to idle for too long, or to be told that it broke the protocol (08P01).
pub fn is_death(code: &[u8; 5]) -> bool {
    matches!(
        code,
        [b'5', b'3', ..] | [b'5', b'8', ..] | [b'X', b'X', ..] | b"57P02" | b"57P03"
    )
}

impl Shard {
    /// What there is to count of targets, which all shards share: one of them does.
    pub(super) fn add_targets(&self, stats: &mut ShardStats) {
        if self.id != 0 {
            return;
        }
        for target in self.targets.all() {
            let condition = target.condition();
            stats.targets_unwell += u64::from(condition.is_unwell);
            stats.breaker_opens += condition.opened;
            match condition.breaker {
                Some(BreakerState::Open) => stats.breakers_open += 1,
                Some(BreakerState::HalfOpen) => stats.breakers_half_open += 1,
                Some(BreakerState::Closed) | None => {}
            }
        }
    }

    /// Tells the pools of a target, here and on the other shards, to look how it is.
    pub(super) fn spread_news(&self, target: usize) {
        for shard in 0..self.peers.len() {
            self.post(shard, Mail::Target { id: target });
        }
    }

    /// Something has changed about a target.
    pub(super) fn hear_news(self: &Rc<Self>, target: usize) {
        for pool in self.pools() {
            if pool.target().id() == target {
                pool.on_news();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whatever a panic leaves here is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
