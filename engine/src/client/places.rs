//! How many clients there are, over all shards: in all, of each user, of each
//! database. Counted are those that have proved who they are.
//!
//! A count is raised and looked up at a login and lowered when the client is
//! gone; no query touches it. A name without clients is not kept, so that
//! names cost nothing, however many there are.

use super::Refused;
use crate::config::{Config, Group};
use protocol::error::SqlState;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by all shards.
///
/// Counts are raised by whoever holds the lock, so that all limits are looked
/// at before any count is raised; they are lowered by anybody.
#[derive(Default)]
pub struct Places {
    all: AtomicU32,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    users: Names,
    databases: Names,
}

/// A client's place among those that are counted; given back when dropped.
pub struct Place {
    places: Arc<Places>,
    user: Arc<Name>,
    database: Arc<Name>,
}

/// Names, and how many clients each has.
pub(crate) type Counted = Vec<(Arc<[u8]>, u32)>;

type Names = HashMap<Arc<[u8]>, Arc<Name>>;

/// A user or a database that has clients. It is raised from 0, and taken out
/// at 0, by whoever holds the lock.
pub struct Name {
    text: Arc<[u8]>,
    clients: AtomicU32,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Process,
    User(u32),
    Database(u32),
}

impl Name {
    #[cfg(test)]
    pub(crate) fn of_nobody() -> Self {
        Self {
            text: Arc::from(&b""[..]),
            clients: AtomicU32::new(0),
        }
    }

    /// The name itself.
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

impl Place {
    /// Whose it is, and of which database.
    pub(crate) fn names(&self) -> (Arc<Name>, Arc<Name>) {
        (Arc::clone(&self.user), Arc::clone(&self.database))
    }
}

impl Places {
    /// The names that have clients, and how many.
    pub(crate) fn counts(&self) -> (Counted, Counted) {
        let known = self.lock();
        let list = |names: &Names| {
            let counted = names.values();
            let counted = counted.map(|name| (Arc::clone(&name.text), name.clients.load(SeqCst)));
            counted.filter(|(_, clients)| *clients > 0).collect()
        };
        (list(&known.users), list(&known.databases))
    }

    /// A place for a client that has proved to be `user`.
    pub(super) fn take(
        self: &Arc<Self>,
        config: &Config,
        user: &[u8],
        group: &Group,
    ) -> Result<Place, Refused> {
        let database = &group.name;
        let all = (config.proxy.max_clients > 0).then_some(config.proxy.max_clients);
        let limits = (
            all,
            config.most_of_user(user),
            config.most_of_database(group),
        );
        self.admit(user, database.as_bytes(), limits)
            .map_err(|full| full.words(user, database))
    }

    fn admit(
        self: &Arc<Self>,
        user: &[u8],
        database: &[u8],
        (all, of_user, of_database): (Option<u32>, Option<u32>, Option<u32>),
    ) -> Result<Place, Full> {
        let mut known = self.lock();
        let Known { users, databases } = &mut *known;
        check(Some(&self.all), all).map_err(|_| Full::Process)?;
        check(count(users, user), of_user).map_err(Full::User)?;
        check(count(databases, database), of_database).map_err(Full::Database)?;
        self.all.fetch_add(1, SeqCst);
        Ok(Place {
            places: Arc::clone(self),
            user: enter(users, user),
            database: enter(databases, database),
        })
    }

    /// The name has lost its last client, unless another has come since.
    fn forget(&self, names: impl Fn(&mut Known) -> &mut Names, name: &Name) {
        let mut known = self.lock();
        let names = names(&mut known);
        if count(names, &name.text).is_some_and(|clients| clients.load(SeqCst) == 0) {
            names.remove(&name.text);
        }
        if names.len() < names.capacity() / 8 {
            names.shrink_to_fit();
        }
    }

    /// Nobody panics while holding it.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whose it is.
    pub fn user(&self) -> &[u8] {
        &self.user.text
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self {
            places,
            user,
            database,
        } = self;
        places.all.fetch_sub(1, SeqCst);
        if user.clients.fetch_sub(1, SeqCst) == 1 {
            places.forget(|known| &mut known.users, user);
        }
        if database.clients.fetch_sub(1, SeqCst) == 1 {
            places.forget(|known| &mut known.databases, database);
        }
    }
}

fn count<'a>(names: &'a Names, text: &[u8]) -> Option<&'a AtomicU32> {
    names.get(text).map(|name| &name.clients)
}

/// An error says the limit that leaves no room for one more.
fn check(clients: Option<&AtomicU32>, most: Option<u32>) -> Result<(), u32> {
    let clients = clients.map_or(0, |clients| clients.load(SeqCst));
    match most {
        Some(most) if clients >= most => Err(most),
        _ => Ok(()),
    }
}

fn enter(names: &mut Names, text: &[u8]) -> Arc<Name> {
    let known = names.get(text).cloned();
    let name = known.unwrap_or_else(|| {
        let text: Arc<[u8]> = text.into();
        let name = Arc::new(Name {
            text: Arc::clone(&text),
            clients: AtomicU32::new(0),
        });
        names.insert(text, Arc::clone(&name));
        name
    });
    name.clients.fetch_add(1, SeqCst);
    name
}

impl Full {
    fn words(self, user: &[u8], database: &str) -> Refused {
        let text = match self {
            // PostgreSQL's own words.
            Full::Process => "sorry, too many clients already".to_owned(),
            Full::User(limit) => {
                let user = String::from_utf8_lossy(user);
                format!("too many connections for user \"{user}\" (limit: {limit})")
            }
            Full::Database(limit) => {
                format!("too many connections for database \"{database}\" (limit: {limit})")
            }
        };
        Refused::fatal(SqlState::TOO_MANY_CONNECTIONS, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: (Option<u32>, Option<u32>, Option<u32>) = (None, None, None);

    fn names(places: &Places) -> (usize, usize) {
        let known = places.lock();
        (known.users.len(), known.databases.len())
    }

    #[test]
    fn each_limit_holds_and_a_refused_client_leaves_no_trace() {
        let places = Arc::new(Places::default());
        let admit = |user: &str, database: &str, limits| {
            places.admit(user.as_bytes(), database.as_bytes(), limits)
        };
        let held: Vec<_> = ["a", "a", "b"].map(|user| admit(user, "x", NONE)).into();
        assert!(held.iter().all(Result::is_ok));
        let refused = |user, database, limits| admit(user, database, limits).err();
        assert_eq!(
            refused("a", "y", (None, Some(2), None)),
            Some(Full::User(2))
        );
        assert_eq!(
            refused("c", "x", (None, None, Some(3))),
            Some(Full::Database(3))
        );
        assert_eq!(
            refused("c", "y", (Some(3), None, None)),
            Some(Full::Process)
        );
        assert_eq!(names(&places), (2, 1));
        assert!(refused("b", "x", (Some(4), Some(2), Some(4))).is_none());
        assert!(refused("a", "y", (Some(4), Some(3), Some(1))).is_none());
        drop(held);
        assert_eq!(names(&places), (0, 0));
        assert_eq!(places.all.load(SeqCst), 0);
    }

    #[test]
    fn a_million_names_cost_nothing_once_they_are_gone() {
        let places = Arc::new(Places::default());
        for name in 0..1_000_000_u32 {
            let place = places.admit(&name.to_ne_bytes(), b"x", NONE);
            assert!(place.is_ok());
        }
        assert_eq!(names(&places), (0, 0));
        let kept: Vec<_> = (0..10_000_u32)
            .map(|name| places.admit(&name.to_ne_bytes(), b"x", NONE))
            .collect();
        assert_eq!(names(&places), (10_000, 1));
        drop(kept);
        assert!(places.lock().users.capacity() < 64);
    }

    #[test]
    fn threads_that_come_and_go_never_pass_the_limit_and_end_at_nothing() {
        let places = Arc::new(Places::default());
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let (places, inside) = (&places, &inside);
                scope.spawn(move || {
                    for round in 0..20_000_u32 {
                        let user = [(thread + round) as u8 % 2];
                        let place = places.admit(&user, b"x", (None, Some(1), Some(2)));
                        if let Ok(place) = place {
                            assert!(inside.fetch_add(1, SeqCst) < 2);
                            inside.fetch_sub(1, SeqCst);
                            drop(place);
                        }
                    }
                });
            }
        });
        assert_eq!(names(&places), (0, 0));
        assert_eq!(places.all.load(SeqCst), 0);
    }
}
