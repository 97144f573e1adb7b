//! Where a client that has moved is now: what its cancel key, which names the
//! place where it logged in, leads to. Written when it moves, read when it
//! wants a query cancelled.

use super::CancelSecret;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// See the module's text. Had by the client's place at home, by its place where
/// it is, and by requests that look for it.
pub struct Home {
    /// What the client was given to cancel with.
    pub(super) secret: CancelSecret,
    /// The shard that its process id names.
    pub shard: usize,
    /// The place that it names.
    pub slot: u32,
    /// A shard, and a place in it or [`UNDER_WAY`].
    now: AtomicU64,
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its shard, or that to which it is under way.
    pub(super) shard: usize,
    /// Its place there, once it has one.
    pub(super) slot: Option<u32>,
}

impl Home {
    /// Of a client that has logged in there, and is.
    pub fn new(secret: CancelSecret, shard: usize, slot: u32) -> Self {
        let home = Self {
            secret,
            shard,
            slot,
            now: AtomicU64::default(),
        };
        home.is_at(shard, slot);
        home
    }

    /// The client leaves for that shard. To be said before it is sent.
    pub fn is_under_way(&self, to: usize) {
        self.is_at(to, UNDER_WAY);
    }

    /// The client has a place.
    pub fn is_at(&self, shard: usize, slot: u32) {
        self.now
            .store((shard as u64) << 32 | u64::from(slot), SeqCst);
    }

    /// The shard where the client is, or to which it is under way.
    pub fn shard_now(&self) -> usize {
        self.place().shard
    }

    pub(super) fn place(&self) -> Place {
        let now = self.now.load(SeqCst);
        let slot = (now & u64::from(u32::MAX)) as u32;
        Place {
            shard: (now >> 32) as usize,
            slot: (slot != UNDER_WAY).then_some(slot),
        }
    }
}

const UNDER_WAY: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_where_the_client_was_sent_and_where_it_is() {
        let home = Home::new(CancelSecret::short(), 2, 7);
        let at = |shard, slot| Place { shard, slot };
        assert_eq!(home.place(), at(2, Some(7)));
        home.is_under_way(255);
        assert_eq!(home.place(), at(255, None));
        home.is_at(255, 0);
        assert_eq!(home.place(), at(255, Some(0)));
        assert_eq!((home.shard, home.slot), (2, 7));
    }
}
