//! What a client does, as others may see it: noted when it changes, in plain
//! cells, so that whoever lists clients disturbs none of them.

use super::Clients;
use super::clients::Control;
use crate::auth::Source;
use crate::client::{Name, Place};
use admin::handle::State;
use std::sync::Arc;
use std::time::SystemTime;

/// Who a client is. The same for all of its life, wherever it moves.
#[derive(Clone)]
pub struct About {
    /// Who it has proved to be.
    pub user: Arc<Name>,
    /// What it has named.
    pub database: Arc<Name>,
    /// Where it comes from.
    pub source: Source,
    /// When it had logged in, in seconds after 1970.
    pub since: u32,
}

impl About {
    /// Of a client that has this place.
    pub(crate) fn new(place: &Place, source: Source) -> Self {
        let (user, database) = place.names();
        Self {
            user,
            database,
            source,
            since: admin::moment::second(SystemTime::now()),
        }
    }

    #[cfg(test)]
    pub(super) fn nobodys() -> Self {
        let name = Arc::new(Name::of_nobody());
        Self {
            user: Arc::clone(&name),
            database: name,
            source: Source::Local,
            since: 0,
        }
    }
}

/// What a client does, in eight bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doing(u8);

impl Doing {
    /// Nothing.
    pub const IDLE: Self = Self(0);
    /// It waits for a server.
    pub const WAITING: Self = Self(1);
    /// A server works for it.
    pub const ACTIVE: Self = Self(2 | HAS_SERVER);
    /// It does nothing in a transaction.
    pub const IN_TRANSACTION: Self = Self(3 | HAS_SERVER | TRANSACTION);
    /// It has a server that is its alone, for all of its life.
    pub const REPLICATING: Self = Self(2 | HAS_SERVER | PINNED);

    /// With a server.
    #[inline]
    pub fn with_server(rests: bool, transaction: bool, pinned: bool) -> Self {
        let state = match (rests, transaction) {
            (false, _) => 2,
            (true, true) => 3,
            (true, false) => 0,
        };
        let transaction = if transaction { TRANSACTION } else { 0 };
        let pinned = if pinned { PINNED } else { 0 };
        Self(state | HAS_SERVER | transaction | pinned)
    }

    /// The state alone.
    #[inline]
    fn index(self) -> usize {
        usize::from(self.0 & STATE)
    }

    /// Its name.
    pub fn state(self) -> State {
        State::ALL[self.index()]
    }

    /// It has a server.
    pub fn has_server(self) -> bool {
        self.0 & HAS_SERVER != 0
    }

    /// It is in a transaction.
    pub fn in_transaction(self) -> bool {
        self.0 & TRANSACTION != 0
    }

    /// Its server stays its own behind the transaction.
    pub fn is_pinned(self) -> bool {
        self.0 & PINNED != 0
    }
}

/// What a client does, and since when by its shard's `micros`: in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing(u64);

impl Standing {
    #[inline]
    fn new(doing: Doing, since: u64) -> Self {
        Self(since << 8 | u64::from(doing.0))
    }

    /// What.
    #[inline]
    pub fn doing(self) -> Doing {
        Doing(self.0.to_le_bytes()[0])
    }

    /// Since when.
    #[inline]
    pub fn since(self) -> u64 {
        self.0 >> 8
    }
}

impl Clients {
    /// A client does something else now.
    #[inline]
    pub fn note(&self, control: &Control, doing: Doing, now: u64) {
        let before = control.standing.get();
        if before.doing() == doing {
            return;
        }
        let (from, to) = (before.doing().index(), doing.index());
        let since = if from == to { before.since() } else { now };
        control.standing.set(Standing::new(doing, since));
        if from != to {
            self.count(from, -1);
            self.count(to, 1);
        }
    }

    /// A client has come, and does nothing yet.
    pub(super) fn note_arrival(&self, control: &Control, now: u64) {
        control.standing.set(Standing::new(Doing::IDLE, now));
        self.count(0, 1);
    }

    /// A client has gone.
    pub(super) fn note_departure(&self, control: &Control) {
        self.count(control.standing.get().doing().index(), -1);
    }

    #[inline]
    fn count(&self, state: usize, change: i32) {
        let cell = &self.by_state[state];
        cell.set(cell.get().wrapping_add_signed(change));
    }

    /// How many do what, in the order of [`State::ALL`].
    pub fn by_state(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|state| u64::from(self.by_state[state].get()))
    }
}

const STATE: u8 = 3;
const HAS_SERVER: u8 = 4;
const TRANSACTION: u8 = 8;
const PINNED: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_and_since_when_fit_one_word() {
        let all = [
            (Doing::IDLE, State::Idle),
            (Doing::WAITING, State::Waiting),
            (Doing::ACTIVE, State::Active),
            (Doing::IN_TRANSACTION, State::InTransaction),
            (Doing::with_server(false, true, false), State::Active),
            (Doing::with_server(true, true, true), State::InTransaction),
            (Doing::with_server(true, false, true), State::Idle),
        ];
        for (doing, state) in all {
            // A thousand years.
            let since = 1000 * 366 * 86_400 * 1_000_000;
            let standing = Standing::new(doing, since);
            assert_eq!((standing.doing(), standing.since()), (doing, since));
            assert_eq!(doing.state(), state);
        }
    }
}
