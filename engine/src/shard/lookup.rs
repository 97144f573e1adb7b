//! Users that are listed nowhere: PostgreSQL is asked for them, by a server of
//! its own that no client gets, on one shard for each group. So a user is
//! asked for once, however many of its clients log in at the same time.
//!
//! ```text
//!   any shard ── LookUp{user, guard} ─▶ the group's shard ── query ─▶ server
//!       ▲                                      │ answers.put, guards dropped
//!       └────────── answers.latest ◀───────────┘
//! ```

use super::{Guard, Mail, Shard, ShardPool};
use crate::client::Known;
use crate::config::{AuthQuery, Secret, UserSecret};
use crate::ring::task;
use crate::server::dialog::Broken;
use crate::server::{Server, Slot};
use protocol::encode::EncodeError;
use protocol::frontend::{Bind, Execute, Parse, Sync};
use protocol::ledger::{Kind, Whose};
use protocol::list::List;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// What has been found out, shared by all shards.
#[derive(Default)]
pub struct Answers(RwLock<Remembered>);

#[derive(Default)]
struct Remembered {
    answers: HashMap<Asked, Answer>,
    /// How often all was forgotten: what was asked before that is old.
    forgotten: u64,
}

/// Group and user.
type Asked = (usize, Box<[u8]>);

struct Answer {
    found: Found,
    until: Instant,
}

/// What PostgreSQL says of a user.
#[derive(Clone)]
pub enum Found {
    /// There is one.
    Known(Arc<Known>),
    /// There is none that may log in.
    Unknown,
    /// It could not be asked.
    Failed,
}

impl Answers {
    /// Asks anew for everybody.
    pub fn forget(&self) {
        // Nobody panics while holding the lock.
        if let Ok(mut remembered) = self.0.write() {
            remembered.answers.clear();
            remembered.forgotten += 1;
        }
    }

    fn forgotten(&self) -> u64 {
        self.0.read().map_or(0, |remembered| remembered.forgotten)
    }

    fn latest(&self, group: usize, user: &[u8]) -> Option<(Found, Instant)> {
        let remembered = self.0.read().ok()?;
        let answer = remembered.answers.get(&(group, user.into()))?;
        Some((answer.found.clone(), answer.until))
    }

    fn fresh(&self, group: usize, user: &[u8]) -> Option<Found> {
        let (found, until) = self.latest(group, user)?;
        (until > Instant::now()).then_some(found)
    }

    /// `since`: how often all had been forgotten when it was asked.
    fn put(&self, group: usize, user: &[u8], found: Found, holds: Duration, since: u64) {
        let Ok(mut remembered) = self.0.write() else {
            return;
        };
        let holds = match remembered.forgotten == since {
            true => holds,
            false => Duration::ZERO,
        };
        let answers = &mut remembered.answers;
        let now = Instant::now();
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|_, answer| answer.until > now);
        }
        if answers.len() >= ANSWERS_MAX {
            // Made-up names go first.
            answers.retain(|_, answer| matches!(answer.found, Found::Known(_)));
        }
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        let until = now + holds;
        answers.insert((group, user.into()), Answer { found, until });
    }
}

/// One group's asking, on its shard.
pub(super) struct Lookup {
    pool: Rc<ShardPool>,
    query: AuthQuery,
    /// Who waits for which user.
    flights: RefCell<HashMap<Box<[u8]>, Vec<Guard>>>,
    queue: RefCell<VecDeque<Box<[u8]>>>,
    works: Cell<bool>,
}

impl Lookup {
    pub(super) fn pool(&self) -> Rc<ShardPool> {
        Rc::clone(&self.pool)
    }

    /// Whether this is what it asks.
    pub(super) fn asks(&self, query: &AuthQuery) -> bool {
        let user = |query: &AuthQuery| query.user.as_ref().map(|(user, _)| user.clone());
        self.query.text == query.text
            && self.query.database == query.database
            && self.query.cache == query.cache
            && user(&self.query) == user(query)
    }

    async fn work(self: Rc<Self>) {
        let working = Working(&self);
        loop {
            let next = self.queue.borrow_mut().pop_front();
            let Some(user) = next else { break };
            let answers = &self.pool.shard.answers;
            let since = answers.forgotten();
            let (found, holds) = self.ask(&user).await;
            answers.put(self.pool.index(), &user, found, holds, since);
            // Those that wait look now.
            self.flights.borrow_mut().remove(&user);
        }
        drop(working);
    }

    /// What PostgreSQL says, and for how long it holds.
    async fn ask(&self, user: &[u8]) -> (Found, Duration) {
        let cache = self.query.cache;
        // A server that has died since it was last asked shows it only now.
        for _ in 0..2 {
            let mut server = match self.pool.lease().await {
                Ok(server) => server,
                Err(_) => return (Found::Failed, FAILED),
            };
            let answer = self.query(&mut server, user).await;
            if server.is_at_rest() {
                self.pool.release(server);
            } else {
                self.pool.discard(server);
            }
            match answer {
                Ok(Row::Of(known, valid)) => {
                    let holds = valid.map_or(cache, |valid| cache.min(valid));
                    return (Found::Known(Arc::new(known)), holds);
                }
                Ok(Row::None) => return (Found::Unknown, cache.min(UNKNOWN)),
                Ok(Row::Failed) => break,
                Err(_) => {}
            }
        }
        (Found::Failed, FAILED)
    }

    async fn query(&self, server: &mut Server, user: &[u8]) -> Result<Row, Broken> {
        let mut out = Vec::new();
        encode(&self.query.text, user, &mut out).map_err(|_| Broken::Unexpected(b'P'))?;
        for kind in [Kind::Parse, Kind::Bind, Kind::Execute, Kind::Sync] {
            server.ledger.push(kind, Whose::Ours, None);
        }
        server.unnamed = Slot::Unknown;
        server.socket.write(&out);
        let mut answer = server.settle().await?;
        if let Some(error) = answer.error {
            let fields = protocol::error::Fields::new(&error);
            let code = fields.code().map(|code| code.to_string());
            let database = self.pool.group().name.clone();
            tracing::warn!(%database, code, "auth.query fails");
            return Ok(Row::Failed);
        }
        let Some(row) = answer.rows.first_mut() else {
            return Ok(Row::None);
        };
        Ok(read(row, user))
    }
}

enum Row {
    /// A user, and how much longer its secret is valid.
    Of(Known, Option<Duration>),
    None,
    Failed,
}

/// Name, secret, and perhaps for how many seconds that is valid.
fn read(row: &mut [Option<Box<[u8]>>], user: &[u8]) -> Row {
    let [name, secret, rest @ ..] = row else {
        tracing::warn!("auth.query gives less than two columns: expected name and secret");
        return Row::Failed;
    };
    // CVE-2015-6817: an answer about somebody else is none.
    if name.as_deref() != Some(user) {
        return Row::None;
    }
    let valid = match rest.first().and_then(|seconds| seconds.as_deref()) {
        None => None,
        Some(seconds) => match seconds_of(seconds) {
            Some(valid) if !valid.is_zero() => Some(valid),
            _ => return Row::None,
        },
    };
    let secret = secret.take().filter(|secret| !secret.is_empty());
    let secret = secret.map(|secret| Zeroizing::new(secret.into_vec()));
    let text = match secret.map(|mut secret| String::from_utf8(std::mem::take(&mut *secret))) {
        None => None,
        Some(Ok(text)) => Some(UserSecret::stored(Secret::new(text))),
        Some(Err(error)) => {
            drop(Zeroizing::new(error.into_bytes()));
            return Row::Failed;
        }
    };
    Row::Of(Known::new(text), valid)
}

/// What is no number of seconds counts as none; more than a century as that.
fn seconds_of(text: &[u8]) -> Option<Duration> {
    let seconds: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    if seconds.is_nan() {
        return None;
    }
    let century = 100.0 * 365.0 * 86_400.0;
    Duration::try_from_secs_f64(seconds.min(century)).ok()
}

fn encode(query: &str, user: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    Parse {
        name: b"",
        query: query.as_bytes(),
        param_types: List::new(&[]),
    }
    .encode(out)?;
    Bind {
        portal: b"",
        statement: b"",
        param_formats: List::new(&[]),
        params: List::new(&[Some(user)]),
        result_formats: List::new(&[]),
    }
    .encode(out)?;
    Execute {
        portal: b"",
        max_rows: 0,
    }
    .encode(out)?;
    Sync.encode(out)
}

/// The next question starts a new task, even if this one panics.
struct Working<'a>(&'a Lookup);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.queue.borrow_mut().clear();
        self.0.flights.borrow_mut().clear();
        self.0.works.set(false);
    }
}

impl Shard {
    /// What is known of a user that is listed nowhere.
    pub async fn look_up(self: &Rc<Self>, group: usize, user: &[u8]) -> Found {
        if let Some(found) = self.answers.fresh(group, user) {
            return found;
        }
        let home = group % self.peers.len().max(1);
        self.until_dropped(|guard| {
            let user = user.into();
            let until = Instant::now() + MAIL;
            self.post_until(home, Mail::LookUp { group, user, guard }, until);
        })
        .await;
        // It may hold for no time at all; this client has asked.
        let latest = self.answers.latest(group, user);
        latest.map_or(Found::Failed, |(found, _)| found)
    }

    /// A shard asks for a user of a group that is looked up here.
    pub(super) fn look_up_here(self: &Rc<Self>, group: usize, user: Box<[u8]>, guard: Guard) {
        let config = self.config();
        let (Some(query), Some(database)) = (&config.auth.query, config.database(group)) else {
            return;
        };
        if self.answers.fresh(group, &user).is_some() {
            return;
        }
        let mut lookups = self.lookups.borrow_mut();
        let lookup = lookups.entry(group).or_insert_with(|| {
            let pool = ShardPool::for_lookups(Rc::clone(self), database, query);
            task::spawn(Rc::clone(&pool).keep());
            Rc::new(Lookup {
                pool,
                query: query.clone(),
                flights: RefCell::default(),
                queue: RefCell::default(),
                works: Cell::new(false),
            })
        });
        let mut flights = lookup.flights.borrow_mut();
        let waiting = flights.entry(user.clone()).or_insert_with(|| {
            lookup.queue.borrow_mut().push_back(user);
            Vec::new()
        });
        waiting.push(guard);
        if !lookup.works.replace(true) {
            task::spawn(Rc::clone(lookup).work());
        }
    }
}

/// Users that are remembered; made-up names must not add up.
const ANSWERS_MAX: usize = 10_000;
/// How long it holds at most that there is no such user: a new one must not
/// wait for the whole of `auth.query_cache`.
const UNKNOWN: Duration = Duration::from_secs(5);
/// How long the shard that is asked may have no room for the question.
const MAIL: Duration = Duration::from_secs(5);
/// How long clients are told that PostgreSQL cannot be asked, without asking.
const FAILED: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: &[Option<&str>]) -> Row {
        let mut row: Vec<_> = columns
            .iter()
            .map(|column| column.map(|text| text.as_bytes().into()))
            .collect();
        read(&mut row, b"ann")
    }

    #[test]
    fn a_row_is_of_the_user_that_was_asked_for_or_of_nobody() {
        assert!(matches!(row(&[Some("ann"), Some("x")]), Row::Of(_, None)));
        assert!(matches!(row(&[Some("ann"), None]), Row::Of(_, None)));
        assert!(matches!(row(&[Some("postgres"), Some("x")]), Row::None));
        assert!(matches!(row(&[None, Some("x")]), Row::None));
        assert!(matches!(row(&[Some("ann")]), Row::Failed));
    }

    #[test]
    fn a_secret_holds_as_long_as_it_is_valid() {
        let third = |seconds| row(&[Some("ann"), Some("x"), seconds]);
        assert!(matches!(third(None), Row::Of(_, None)));
        let half = Duration::from_millis(500);
        assert!(matches!(third(Some("0.5")), Row::Of(_, Some(valid)) if valid == half));
        assert!(matches!(third(Some("1e300")), Row::Of(_, Some(_))));
        for seconds in ["0", "-1", "NaN", "never"] {
            assert!(matches!(third(Some(seconds)), Row::None), "{seconds}");
        }
    }
}
