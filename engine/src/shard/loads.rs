//! How many clients each shard has. A new one goes to the shard with the
//! fewest: the kernel spreads connections by a hash of their addresses, and of
//! eight clients on four shards it gives one shard four and another none.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Clients by shard, those on their way to it included. Touched when a client
/// comes and when it leaves, never by a query.
#[derive(Debug)]
pub struct Loads(Mutex<Box<[u32]>>);

impl Loads {
    /// No clients on each of `shards`.
    pub fn new(shards: usize) -> Self {
        Self(Mutex::new(vec![0; shards].into()))
    }

    /// Counts a new client where it is to be served: on the shard with the
    /// fewest clients, and among equals where it has come, which costs nothing.
    pub fn place(&self, here: usize) -> usize {
        let mut loads = self.lock();
        let fewest = (0..loads.len()).min_by_key(|&shard| (loads[shard], shard != here));
        let place = fewest.unwrap_or(here);
        loads[place] += 1;
        place
    }

    /// A client that was counted there is served here, or nowhere.
    pub fn keep(&self, there: usize, here: usize) {
        let mut loads = self.lock();
        loads[there] -= 1;
        loads[here] += 1;
    }

    /// A client has left.
    pub fn leave(&self, shard: usize) {
        self.lock()[shard] -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, Box<[u32]>> {
        // Numbers have no broken state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_all_come_to_one_shard_are_spread_over_all() {
        let loads = Loads::new(4);
        let placed: Vec<usize> = (0..8).map(|_| loads.place(2)).collect();
        assert_eq!(placed, [2, 0, 1, 3, 2, 0, 1, 3]);
    }

    #[test]
    fn a_place_that_became_free_is_taken_first() {
        let loads = Loads::new(3);
        (0..6).for_each(|_| {
            loads.place(0);
        });
        loads.leave(1);
        loads.leave(1);
        loads.leave(2);
        assert_eq!([(); 3].map(|()| loads.place(0)), [1, 1, 2]);
    }

    #[test]
    fn a_client_that_was_not_taken_counts_where_it_stays() {
        let loads = Loads::new(2);
        loads.place(0);
        assert_eq!(loads.place(0), 1);
        loads.keep(1, 0);
        assert_eq!([(); 2].map(|()| loads.place(0)), [1, 1]);
    }
}
