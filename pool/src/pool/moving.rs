//! Servers that move from one shard to another.
//!
//! Who starves says so in the budget and wakes the shards that have servers. One of those promises it a server: an idle
//! one that the wake finds, or the next that is released. The engine takes that server off its ring and reports
//! [`Pool::hand_over`]; what it gets, the [`Moving`], travels with the server and is the server's permit. The other
//! shard's engine reports [`Pool::arrived`]. Where the server cannot be sent, it arrives where it was.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Placed, Pool, SETTLING};
use crate::Budget;
use crate::servers::{ServerKey, State};

/// The permit of a server that is between two shards, and what its pools must know of it. Dropped, the permit is free
/// again: so the server is to be closed before.
#[derive(Debug)]
#[must_use = "the permit of a server goes with it"]
pub struct Moving {
    /// Taken out where the server arrives.
    budget: Option<Arc<Budget>>,
    to: usize,
    /// When the server's lifetime is over.
    end: Option<Instant>,
}

impl Moving {
    /// The shard that starves.
    pub fn to_shard(&self) -> usize {
        self.to
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.take() {
            budget.fulfil(self.to);
            budget.give_back();
        }
    }
}

impl<K: ServerKey, W: Copy> Pool<K, W> {
    /// Another shard may starve: the server that has been idle for the longest time leaves for it, to be handed over or
    /// discarded. To be called until it answers `None` whenever another shard sends a wake.
    pub fn give_up_idle(&mut self) -> Option<K> {
        let at = self.servers.longest_idle()?;
        let shard = self.budget.promise(self.shard, None, Duration::ZERO)?;
        Some(self.servers.close(at, Some(shard)))
    }

    /// The server leaves as it was told to, and its permit with it. `None` when it must be closed and discarded after
    /// all, because all servers were retired meanwhile.
    ///
    /// # Panics
    /// When the server was not promised to another shard.
    pub fn hand_over(&mut self, key: K) -> Option<Moving> {
        let at = self.servers.find(key).expect("a leaving server is known");
        let slot = self.servers.slot(at);
        let State::Closing {
            promised_to: Some(to),
        } = slot.state
        else {
            panic!("server {key:?} is handed over and was promised to nobody");
        };
        if slot.retired {
            return None;
        }
        let end = slot.end;
        self.servers.remove(at);
        self.budget.publish_open(self.shard, self.servers.open());
        Some(Moving {
            budget: Some(Arc::clone(&self.budget)),
            to,
            end,
        })
    }

    /// A server is here that another shard has handed over; or that this one has, and that could not be sent.
    ///
    /// # Panics
    /// When the server is of another pool, or one of this key is here already.
    pub fn arrived(&mut self, key: K, mut moving: Moving, now: Instant) -> Placed<W> {
        let budget = moving.budget.take().expect("it arrives once");
        assert!(Arc::ptr_eq(&budget, &self.budget), "a server of this pool");
        budget.fulfil(moving.to);
        let at = self.servers.insert(key, now, now + SETTLING, moving.end);
        budget.publish_open(self.shard, self.servers.open());
        if moving.to == self.shard {
            self.asking.hurry();
            return self.place(at, now);
        }
        // The other shard must ask again.
        self.wakes.push(moving.to);
        self.place_here(at, now)
    }

    /// Whether a permit or a server is on its way here, or may be at any moment.
    pub fn is_expecting(&self) -> bool {
        self.budget.is_hungry(self.shard) || self.budget.promised(self.shard) > 0
    }
}
