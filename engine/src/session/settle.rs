//! After a transaction whose texts may have changed the session: the server
//! is asked what it holds now (see [`crate::server::probe`]), while the
//! client's next request waits.

use super::custom::CustomNames;
use crate::ring::task;
use crate::server::Server;
use crate::server::clean::{self, Departure};
use crate::settings::Entries;
use crate::shard::ShardPool;
use router::effects::{Effect, Effects};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// A server being asked.
pub(super) struct Settling {
    outcome: RefCell<Option<Settled>>,
    abandoned: Cell<bool>,
    waker: Waker,
}

/// What came of it.
pub(super) enum Settled {
    /// Nothing ties the server to the client; it is in its pool again.
    Free {
        /// What the client expects from now on.
        settings: Entries,
        /// Settings went back to where they started.
        returns: bool,
    },
    /// It holds something that cannot be moved.
    Pinned {
        /// The server.
        server: Box<Server>,
        /// As above.
        settings: Entries,
        /// As above.
        returns: bool,
    },
    /// The server is gone.
    Lost,
}

impl Settling {
    /// Starts to ask.
    pub(super) fn start(
        pool: &Rc<ShardPool>,
        server: Box<Server>,
        custom: CustomNames,
        waker: &Waker,
    ) -> Rc<Self> {
        let settling = Rc::new(Self {
            outcome: RefCell::new(None),
            abandoned: Cell::new(false),
            waker: waker.clone(),
        });
        let asking = Asking {
            pool: Rc::clone(pool),
            server: Some(server),
            custom,
            settling: Rc::clone(&settling),
        };
        task::spawn(asking.run());
        settling
    }

    /// The outcome, once there is one.
    pub(super) fn take(&self) -> Option<Settled> {
        self.outcome.borrow_mut().take()
    }

    /// The session ends: whatever comes of it, the server is cleaned.
    pub(super) fn abandon(&self, pool: &Rc<ShardPool>) {
        self.abandoned.set(true);
        if let Some(Settled::Pinned { server, .. }) = self.take() {
            clean::spawn(Rc::clone(pool), server, Departure::Polite);
        }
    }

    fn finish(&self, pool: &Rc<ShardPool>, settled: Settled) {
        *self.outcome.borrow_mut() = Some(settled);
        if self.abandoned.get() {
            self.abandon(pool);
        }
        self.waker.wake_by_ref();
    }
}

/// Tells the session of the end even if asking panics.
struct Asking {
    pool: Rc<ShardPool>,
    server: Option<Box<Server>>,
    custom: CustomNames,
    settling: Rc<Settling>,
}

impl Asking {
    async fn run(mut self) {
        let Some(server) = self.server.as_deref_mut() else {
            return;
        };
        let effects = server.suspect;
        let names = self.custom.iter().map(|name| &**name);
        let found = match server.probe(&self.pool.group().user, names).await {
            Ok(found) if server.is_at_rest() => found,
            _ => return,
        };
        let Some(mut server) = self.server.take() else {
            return;
        };
        server.label = self.pool.labels.intern(found.settings.iter().cloned());
        server.tainted |= effects.contains(Effect::Load);
        server.suspect = Effects::NONE;
        server.pinned = !found.pins.is_empty() || server.tainted;
        let (settings, returns) = (found.settings, effects.intersects(RETURNING));
        if server.pinned {
            tracing::debug!(reasons = ?found.pins, "the server stays with its client");
            self.settling.finish(
                &self.pool,
                Settled::Pinned {
                    server,
                    settings,
                    returns,
                },
            );
        } else {
            self.pool.release(server);
            self.settling
                .finish(&self.pool, Settled::Free { settings, returns });
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.pool.discard(server);
            self.settling.finish(&self.pool, Settled::Lost);
        }
    }
}

/// What brings settings back to their startup values.
const RETURNING: Effects = Effects::of(&[
    Effect::Reset,
    Effect::ResetAll,
    Effect::DiscardAll,
    Effect::Role,
]);
