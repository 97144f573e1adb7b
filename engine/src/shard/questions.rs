//! What the operator asks a shard. Each question carries where the answer goes;
//! a shard that has no time for it now is asked in vain, and nothing waits.

use super::clients::{Key, Whereabouts};
use super::standing::{About, Standing};
use super::{Home, PoolId, Shard};
use crate::ring::task;
use admin::handle::State;
use admin::stats::ShardStats;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot::Sender;

/// A question.
pub enum Question {
    /// All figures.
    Figures(Sender<Report>),
    /// Some of the clients.
    Clients {
        /// Which.
        wanted: Arc<Wanted>,
        /// From which place on.
        from: usize,
        /// At most so many.
        limit: usize,
        /// Where they go.
        reply: Sender<Part>,
    },
    /// Cancels what the client in this place has asked.
    Cancel {
        /// The place that its process id names.
        slot: u32,
        /// What came of it, or where the client is.
        reply: Sender<Hit>,
    },
    /// The same for a client that has come from elsewhere.
    CancelGuest {
        /// Which client.
        home: Arc<Home>,
        /// As above.
        reply: Sender<Hit>,
    },
    /// Begins or ends maintenance.
    Maintenance {
        /// Of this database, or of all.
        group: Option<usize>,
        /// Which of the two.
        on: bool,
        /// Told when it holds.
        reply: Sender<()>,
    },
}

/// A shard's figures.
#[derive(Clone, Default)]
pub struct Report {
    /// What it has counted.
    pub stats: ShardStats,
    /// Of each database, by its number.
    pub groups: BTreeMap<usize, GroupReport>,
    /// Errors by who made them and SQLSTATE.
    pub errors: Vec<(&'static str, [u8; 5], u64)>,
    /// The CPU time of its thread.
    pub cpu: Duration,
}

/// A group's, of one shard.
#[derive(Clone, Copy, Default)]
pub struct GroupReport {
    /// Servers now.
    pub open: u64,
    /// Of these, idle.
    pub idle: u64,
    /// Clients that wait.
    pub waiting: u64,
    /// Clients that got a server or an error, since the start.
    pub acquires: u64,
}

/// Which clients.
#[derive(Default)]
pub struct Wanted {
    /// In this state.
    pub state: Option<State>,
    /// Of this user.
    pub user: Option<Vec<u8>>,
    /// Of this database.
    pub database: Option<Vec<u8>>,
}

/// Some clients of a shard.
pub struct Part {
    /// The clients.
    pub clients: Vec<Seen>,
    /// Where to go on, if there may be more.
    pub next: Option<usize>,
}

/// A client, as it was seen.
pub struct Seen {
    /// The shard and the place that its process id names.
    pub home: (usize, u32),
    /// Who it is.
    pub about: About,
    /// What it does.
    pub standing: Standing,
    /// For how long, in microseconds.
    pub micros: u64,
}

/// What came of a cancel request.
pub enum Hit {
    /// It is on its way.
    Sent,
    /// There is nothing to cancel.
    Idle,
    /// The client is on another shard.
    Away(Arc<Home>),
    /// There is no such client.
    Nobody,
}

/// Answers, at once or in the turns to come.
pub(super) fn answer(shard: &Rc<Shard>, question: Question) {
    match question {
        // Whoever has asked may have lost patience; so in all of these.
        Question::Figures(reply) => drop(reply.send(shard.report())),
        Question::Maintenance { group, on, reply } => {
            shard.maintenance.set(group, on);
            let _ = reply.send(());
        }
        Question::Clients {
            wanted,
            from,
            limit,
            reply,
        } => {
            task::spawn(list(Rc::clone(shard), wanted, from, limit, reply));
        }
        Question::Cancel { slot, reply } => {
            let hit = match shard.clients.at(slot) {
                Some(Whereabouts::Away(home)) => Hit::Away(home),
                // A guest's key names another place.
                Some(Whereabouts::Here(client)) if matches!(client.key, Key::Own(_)) => {
                    cancel(shard, &client)
                }
                _ => Hit::Nobody,
            };
            let _ = reply.send(hit);
        }
        Question::CancelGuest { home, reply } => {
            let place = home.place();
            let here = place.slot.filter(|_| place.shard == shard.id);
            let client = here.and_then(|slot| shard.clients.guest(slot, &home));
            let hit = match client {
                Some(client) => cancel(shard, &client),
                // It has moved on, or is on its way.
                None => Hit::Away(home),
            };
            let _ = reply.send(hit);
        }
    }
}

/// As a cancel request of the client's own, but for the wait for its end.
fn cancel(shard: &Rc<Shard>, client: &Rc<super::Control>) -> Hit {
    let doing = client.standing.get().doing();
    match doing.state() {
        State::Idle | State::InTransaction => Hit::Idle,
        State::Waiting | State::Active => {
            let (shard, client) = (Rc::clone(shard), Rc::clone(client));
            task::spawn(async move {
                let hand_out = |guard| {
                    client.cancel.borrow_mut().push(guard);
                    client.wake();
                };
                shard.until_dropped(hand_out).await;
            });
            Hit::Sent
        }
    }
}

/// In slices, so that the shard's clients wait for none of it.
async fn list(
    shard: Rc<Shard>,
    wanted: Arc<Wanted>,
    mut from: usize,
    limit: usize,
    reply: Sender<Part>,
) {
    let mut clients = Vec::new();
    let mut next = Some(from);
    while let Some(at) = next.filter(|_| clients.len() < limit && !reply.is_closed()) {
        from = at;
        let now = shard.ring.micros();
        next = shard.clients.walk(from, SLICE, |slot, client| {
            let standing = client.standing.get();
            if wanted.has(&client.about, standing) {
                let home = match &client.key {
                    Key::Own(_) => (shard.id, slot),
                    Key::Guest(home) => (home.shard, home.slot),
                };
                clients.push(Seen {
                    home,
                    about: client.about.clone(),
                    standing,
                    micros: now.saturating_sub(standing.since()),
                });
            }
            clients.len() < limit
        });
        super::cancel::next_turn(&shard).await;
    }
    let _ = reply.send(Part { clients, next });
}

impl Wanted {
    fn has(&self, about: &About, standing: Standing) -> bool {
        let same = |wanted: &Option<Vec<u8>>, name: &[u8]| {
            wanted.as_ref().is_none_or(|wanted| wanted == name)
        };
        self.state
            .is_none_or(|state| state == standing.doing().state())
            && same(&self.user, about.user.text())
            && same(&self.database, about.database.text())
    }
}

impl Shard {
    /// What counts the acquires of a pool. Those of a database that is gone are
    /// not told any more; what asks for secrets is counted by itself.
    pub(super) fn acquires_of(&self, id: PoolId) -> Rc<Cell<u64>> {
        if id.is_lookup() {
            return Rc::default();
        }
        let mut acquires = self.acquires.borrow_mut();
        Rc::clone(acquires.entry(id.group).or_default())
    }

    fn report(&self) -> Report {
        let acquires = self.acquires.borrow();
        let mut groups: BTreeMap<usize, GroupReport> = acquires
            .iter()
            .map(|(group, acquires)| {
                let acquires = acquires.get();
                let report = GroupReport {
                    acquires,
                    ..GroupReport::default()
                };
                (*group, report)
            })
            .collect();
        for pool in self.pools() {
            if pool.is_for_lookups() {
                continue;
            }
            let (open, idle, waiting) = pool.counts();
            let group = groups.entry(pool.index()).or_default();
            group.open += u64::from(open);
            group.idle += u64::from(idle);
            group.waiting += waiting as u64;
        }
        let errors = self.faults.counts().into_iter();
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Report {
            stats: self.stats(),
            groups,
            errors: errors
                .map(|(maker, code, count)| (maker.name(), code, count))
                .collect(),
            cpu: Duration::try_from(clock).unwrap_or_default(),
        }
    }
}

/// Places looked at in one turn: to look at one takes some ten nanoseconds, to
/// tell of a client a hundred.
const SLICE: usize = 256;
