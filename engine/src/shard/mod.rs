//! A shard: one executor on one core, with its ring, its listeners, its
//! clients and its servers. With the other shards it shares the mailboxes,
//! and what is never touched by a query in steady state: the pools' budgets,
//! the users' credentials, what servers report at login.

mod balance;
mod cancel;
mod clients;
mod counters;
mod deadlines;
mod door;
mod faults;
mod home;
mod listen;
mod loads;
mod lookup;
mod mailbox;
mod maintenance;
mod offload;
mod pool;
mod process_ids;
mod questions;
mod reload;
mod reports;
mod roles;
mod run;
mod secret;
mod standing;
mod targets;

pub use balance::Balancer;
pub use cancel::{Cancels, Capped};
pub use clients::{Clients, Control, Key, Whereabouts, Wishes};
pub use counters::{Counters, Times, add, bump};
pub use deadlines::Deadlines;
pub use door::{Door, Guest, Room};
pub use faults::{Faults, Maker, label as fault_label};
pub use home::Home;
pub use listen::Counted;
pub use loads::Loads;
pub use lookup::{Answers, Found};
pub use mailbox::{Mail, Mailbox, Postbox};
pub use maintenance::Maintenance;
pub(crate) use maintenance::words as maintenance_words;
pub use offload::Guard;
pub use pool::{Arriving, Facts, PoolId, Refusal, Seat, ShardPool};
pub use process_ids::{INSTANCE_MAX, Owner, ProcessIds};
pub use questions::{GroupReport, Hit, Part, Question, Report, Seen, Wanted};
pub use reports::Reports;
pub use roles::Roles;
pub use run::{ShardSeed, run};
pub use secret::CancelSecret;
pub use standing::{About, Doing, Standing};
pub use targets::{TargetState, Targets, is_death};

use crate::client::{Brakes, Places};
use crate::config::TimeLimits;
use crate::control::Kin;
use crate::link::Handshakes;
use crate::memory::{Memory, Resident};
use crate::ring::{Ring, task};
use crate::server::{Definition, Meaning, timeout_hint};
use crate::signal::Signal;
use crate::snapshot::{InForce, Snapshot};
use ::pool::Budget;
use admin::stats::ShardStats;
use lookup::Lookup;
use offload::Offload;
use router::effects::Effects;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

/// What all tasks of a shard share.
pub struct Shard {
    /// Its number, from 0.
    pub id: usize,
    /// Its ring.
    pub ring: Ring,
    /// What it serves by, the same for all shards.
    snapshot: RefCell<Rc<InForce>>,
    /// What is to take its place.
    staged: RefCell<Option<Arc<Snapshot>>>,
    /// Its clients.
    pub clients: Clients,
    /// What it counts.
    pub counters: Counters,
    /// How long what took.
    pub times: Times,
    /// Errors that clients got.
    pub faults: Faults,
    /// By database, clients that got a server or an error.
    acquires: RefCell<BTreeMap<usize, Rc<Cell<u64>>>>,
    /// Which databases are in maintenance.
    pub maintenance: Maintenance,
    /// What it tells clients to be cancelled by.
    pub process_ids: ProcessIds,
    /// When which client's time may be up.
    pub deadlines: Deadlines,
    /// The limits that clients have, each once.
    pub limits: RefCell<Vec<Weak<TimeLimits>>>,
    /// Cancel requests on their way.
    pub cancels: Cancels,
    /// Clients that have not logged in.
    pub door: Door,
    /// Clients that wait for a server, of any pool.
    pub waiting: Cell<u32>,
    /// Given when the process is told to stop: no new clients, the idle ones
    /// leave.
    pub drain: Signal,
    /// Given when nobody is left whose query could be cancelled.
    deaf: Signal,
    /// Given when another process accepts clients in our place.
    taken_over: Signal,
    /// Listeners where that may happen.
    listening: Cell<usize>,
    /// The processes before and after this one.
    pub kin: Arc<Kin>,
    /// Shards that have clients.
    inhabited: Arc<AtomicUsize>,
    /// What PostgreSQL has said of users, for all shards.
    pub answers: Arc<Answers>,
    /// Who has failed to log in how often, on any shard.
    pub brakes: Arc<Brakes>,
    /// How many clients there are, on all shards.
    pub places: Arc<Places>,
    /// The roles of clients, for all shards.
    pub roles: Arc<Roles>,
    /// What servers report at login, for all shards.
    pub reports: Arc<Reports>,
    /// The PostgreSQLs, for all shards.
    pub targets: Arc<Targets>,
    /// Whether there is memory.
    pub memory: Arc<Memory>,
    /// Clients of all shards.
    pub loads: Arc<Loads>,
    /// How it gives clients away.
    balancer: Balancer,
    /// Replication connections, of all shards.
    pub replications: Arc<Budget>,
    /// Who may work on a TLS handshake.
    pub handshakes: Handshakes,
    /// Given when the last client has left a draining shard.
    finished: Signal,
    /// Of the databases' own users, by the databases' numbers.
    group_pools: RefCell<BTreeMap<usize, Rc<ShardPool>>>,
    role_pools: RefCell<HashMap<PoolId, Rc<ShardPool>>>,
    lookups: RefCell<HashMap<usize, Rc<Lookup>>>,
    mailbox: Mailbox,
    peers: Vec<Postbox>,
    offload: Offload,
    ids: Cell<u64>,
    /// A buffer for messages being written, so that none is made per query.
    scratch: RefCell<Vec<u8>>,
    definitions: RefCell<HashMap<Arc<[u8]>, Weak<Definition>, foldhash::fast::RandomState>>,
}

impl Shard {
    /// An empty buffer, to be given back by [`Shard::put_scratch`].
    pub fn take_scratch(&self) -> Vec<u8> {
        self.scratch.take()
    }

    /// Gives a buffer back.
    pub fn put_scratch(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= SCRATCH_BYTES {
            buffer.clear();
            self.scratch.replace(buffer);
        }
    }

    /// A number that this shard has not used before.
    pub fn fresh_id(&self) -> u64 {
        self.ids.set(self.ids.get() + 1);
        self.ids.get()
    }

    /// What it has counted, and what there is now: as long as there are pools,
    /// whatever the number of clients.
    pub fn stats(&self) -> ShardStats {
        let begun = Instant::now();
        let ring = self.ring.stats();
        let mut stats = self.counters.snapshot();
        stats.clients = self.clients.len() as u64;
        let by_state = self.clients.by_state();
        [
            stats.clients_idle,
            stats.clients_waiting,
            stats.clients_active,
            stats.clients_in_transaction,
        ] = by_state;
        stats.turn = self.ring.turns();
        stats.logging_in = self.door.count() as u64;
        stats.cancels_under_way = self.cancels.under_way() as u64;
        stats.sockets = self.ring.open_sockets() as u64;
        stats.buffers_lent = u64::from(self.ring.lent_buffers());
        stats.panics = task::panics();
        stats.ring_enters = ring.enters;
        stats.ring_sleeps = ring.sleeps;
        stats.short_sends = ring.short_sends;
        for pool in self.pools() {
            let (open, idle, waiting) = pool.counts();
            stats.servers += u64::from(open);
            stats.servers_idle += u64::from(idle);
            stats.waiting += waiting as u64;
            stats.transactions += pool.transactions();
        }
        self.add_targets(&mut stats);
        if self.id == 0 {
            stats.memory_bytes = Resident::open().bytes();
        }
        self.times.copy_to(&mut stats);
        stats.collecting_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        stats
    }

    /// What it serves by now. To be asked for anew after each await: a reload
    /// may have come.
    pub fn config(&self) -> Rc<InForce> {
        Rc::clone(&self.snapshot.borrow())
    }

    /// The pool of a database's own user, by the database's number.
    pub fn pool(&self, group: usize) -> Option<Rc<ShardPool>> {
        self.group_pools.borrow().get(&group).cloned()
    }

    /// All pools: those of the groups, of clients' roles, and for look-ups.
    pub fn pools(&self) -> Vec<Rc<ShardPool>> {
        let mut all: Vec<_> = self.group_pools.borrow().values().cloned().collect();
        all.extend(self.role_pools.borrow().values().cloned());
        all.extend(self.lookups.borrow().values().map(|lookup| lookup.pool()));
        all
    }

    /// A pool, if this shard has it.
    fn find_pool(&self, id: PoolId) -> Option<Rc<ShardPool>> {
        match id.is_role() {
            true => self.role_pools.borrow().get(&id).cloned(),
            false => self.pool(id.group),
        }
    }

    /// The one definition with this key, see [`Meaning`].
    pub fn definition(
        &self,
        key: &[u8],
        rest_at: usize,
        effects: impl FnOnce() -> Effects,
    ) -> Rc<Definition> {
        if let Some(definition) = self.known_definition(key) {
            return definition;
        }
        let key = key.into();
        self.add_definition(Meaning { key, rest_at }, effects())
    }

    /// The same for what a server has that comes from another shard.
    pub fn adopt_definition(&self, meaning: &Meaning, effects: Effects) -> Rc<Definition> {
        self.known_definition(&meaning.key)
            .unwrap_or_else(|| self.add_definition(meaning.clone(), effects))
    }

    fn known_definition(&self, key: &[u8]) -> Option<Rc<Definition>> {
        self.definitions.borrow().get(key).and_then(Weak::upgrade)
    }

    fn add_definition(&self, meaning: Meaning, effects: Effects) -> Rc<Definition> {
        let mut definitions = self.definitions.borrow_mut();
        if definitions.len() >= SWEEP && definitions.len().is_power_of_two() {
            definitions.retain(|_, definition| definition.strong_count() > 0);
        }
        let key = Arc::clone(&meaning.key);
        let definition = Rc::new(Definition {
            id: self.fresh_id(),
            hint: timeout_hint(meaning.text()),
            meaning,
            effects,
        });
        definitions.insert(key, Rc::downgrade(&definition));
        definition
    }
}

/// A larger buffer than this is not kept.
const SCRATCH_BYTES: usize = 64 * 1024;
/// Definitions known before unused ones are looked for.
const SWEEP: usize = 1024;
