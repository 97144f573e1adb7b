//! How many clients each shard has. A new one goes to the shard with the
//! fewest: the kernel spreads connections by a hash of their addresses, and of
//! eight clients on four shards it gives one shard four and another none. When
//! clients have left so that the shards drift apart, those of the fullest move.
//!
//! Moves begin when shards differ by two clients and by a sixteenth of what a
//! shard has on the average, and then go on until they differ by one: each
//! makes the difference smaller, so none is undone by the next.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Clients by shard, those on their way to it included. Touched when a client
/// comes, moves or leaves, never by a query.
#[derive(Debug)]
pub struct Loads(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    clients: Box<[u32]>,
    /// Of these, those that are on their way from another shard.
    moving: Box<[u32]>,
    /// Whether clients may move.
    open: bool,
}

impl Loads {
    /// No clients on each of `shards`. `balanced`: they may move.
    pub fn new(shards: usize, balanced: bool) -> Self {
        Self(Mutex::new(Counts {
            clients: vec![0; shards].into(),
            moving: vec![0; shards].into(),
            open: balanced,
        }))
    }

    /// Counts a new client where it is to be served: on the shard with the
    /// fewest clients, and among equals where it has come, which costs nothing.
    pub fn place(&self, here: usize) -> usize {
        let mut counts = self.lock();
        let place = counts.emptiest(here);
        counts.clients[place] += 1;
        place
    }

    /// A client that was counted there is served here, or nowhere.
    pub fn keep(&self, there: usize, here: usize) {
        let mut counts = self.lock();
        counts.clients[there] -= 1;
        counts.clients[here] += 1;
    }

    /// A client has left. The shard that is to give clients away because of
    /// that, if one is.
    pub fn leave(&self, shard: usize) -> Option<usize> {
        let mut counts = self.lock();
        counts.clients[shard] -= 1;
        counts.drifted()
    }

    /// The shard that is to give clients away.
    pub fn drifted(&self) -> Option<usize> {
        self.lock().drifted()
    }

    /// How many clients this shard has too many, now that it gives some away.
    pub fn surplus(&self, shard: usize) -> u32 {
        self.lock().surplus(shard)
    }

    /// Counts a client that leaves this shard where it goes: to the emptiest,
    /// if that makes the difference smaller.
    pub fn send(&self, from: usize) -> Option<usize> {
        let mut counts = self.lock();
        if counts.surplus(from) == 0 {
            return None;
        }
        let to = counts.emptiest(from);
        counts.send(from, to)
    }

    /// The same for one that goes to the next shard in any case.
    pub fn send_round(&self, from: usize) -> Option<usize> {
        let mut counts = self.lock();
        let to = (from + 1) % counts.clients.len();
        counts.send(from, to)
    }

    /// It has come.
    pub fn arrived(&self, shard: usize) {
        self.lock().moving[shard] -= 1;
    }

    /// It has stayed where it was.
    pub fn stayed(&self, from: usize, to: usize) {
        let mut counts = self.lock();
        counts.moving[to] -= 1;
        counts.clients[to] -= 1;
        counts.clients[from] += 1;
    }

    /// The process ends: no client begins to move any more.
    pub fn stop_moves(&self) {
        self.lock().open = false;
    }

    /// Whether a client is on its way to this shard.
    pub fn expects(&self, shard: usize) -> bool {
        self.lock().moving[shard] > 0
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Numbers have no broken state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn emptiest(&self, here: usize) -> usize {
        let shards = 0..self.clients.len();
        let fewest = shards.min_by_key(|&shard| (self.clients[shard], shard != here));
        fewest.unwrap_or(here)
    }

    fn fewest(&self) -> u32 {
        self.clients.iter().copied().min().unwrap_or_default()
    }

    fn total(&self) -> u64 {
        self.clients.iter().copied().map(u64::from).sum()
    }

    fn drifted(&self) -> Option<usize> {
        let shards = 0..self.clients.len();
        let fullest = shards.rev().max_by_key(|&shard| self.clients[shard])?;
        let difference = u64::from(self.clients[fullest] - self.fewest());
        let tolerated = self.total() / (self.clients.len() as u64 * TOLERANCE);
        (self.open && difference >= tolerated.max(2)).then_some(fullest)
    }

    /// What is above the average, rounded up: another shard has room for it.
    fn surplus(&self, shard: usize) -> u32 {
        let average = self.total() / self.clients.len() as u64;
        let mine = self.clients[shard];
        if !self.open || mine < self.fewest() + 2 {
            return 0;
        }
        mine.saturating_sub(u32::try_from(average).unwrap_or(u32::MAX))
    }

    fn send(&mut self, from: usize, to: usize) -> Option<usize> {
        if !self.open || from == to {
            return None;
        }
        self.clients[from] -= 1;
        self.clients[to] += 1;
        self.moving[to] += 1;
        Some(to)
    }
}

/// Part of the average by which shards may differ.
const TOLERANCE: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(clients: &[u32]) -> Loads {
        let loads = Loads::new(clients.len(), true);
        loads.lock().clients = clients.into();
        loads
    }

    fn counts(loads: &Loads) -> Vec<u32> {
        loads.lock().clients.to_vec()
    }

    /// Lets each shard that is told to do so give away what it can. The number
    /// of moves.
    fn settle(loads: &Loads) -> usize {
        let mut moves = 0;
        while let Some(from) = loads.drifted() {
            while let Some(to) = loads.send(from) {
                loads.arrived(to);
                moves += 1;
                assert!(moves < 10_000, "they move for ever");
            }
        }
        moves
    }

    #[test]
    fn clients_that_all_come_to_one_shard_are_spread_over_all() {
        let loads = Loads::new(4, true);
        let placed: Vec<usize> = (0..8).map(|_| loads.place(2)).collect();
        assert_eq!(placed, [2, 0, 1, 3, 2, 0, 1, 3]);
    }

    #[test]
    fn a_place_that_became_free_is_taken_first() {
        let loads = Loads::new(3, false);
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
        let loads = Loads::new(2, true);
        loads.place(0);
        assert_eq!(loads.place(0), 1);
        loads.keep(1, 0);
        assert_eq!([(); 2].map(|()| loads.place(0)), [1, 1]);
    }

    #[test]
    fn one_client_more_is_no_reason_to_move_and_two_are() {
        let loads = loads(&[2, 3, 2, 3]);
        assert_eq!(loads.leave(1), None);
        assert_eq!(loads.leave(0), Some(3));
        assert_eq!(settle(&loads), 1);
        assert_eq!(counts(&loads), [2, 2, 2, 2]);
    }

    #[test]
    fn of_many_clients_a_few_in_a_hundred_are_no_reason() {
        let loads = loads(&[1000, 1000, 1000, 950]);
        assert_eq!(loads.drifted(), None);
        loads.lock().clients[3] = 900;
        assert_eq!(loads.drifted(), Some(0));
        settle(&loads);
        assert_eq!(loads.drifted(), None);
    }

    #[test]
    fn no_two_shards_differ_by_more_than_one_and_nobody_moves_twice() {
        for (before, most) in [
            (vec![0, 4, 4, 4], 3),
            (vec![9, 0], 4),
            (vec![0, 0, 1], 0),
            (vec![0, 0, 2], 1),
            (vec![0, 100, 100, 100], 75),
            (vec![12, 0, 7, 3, 3], 9),
        ] {
            let loads = loads(&before);
            let moves = settle(&loads);
            let after = counts(&loads);
            let (fewest, most_now) = (after.iter().min(), after.iter().max());
            assert!(
                most_now.zip(fewest).is_some_and(|(a, b)| a - b <= 1),
                "{after:?}"
            );
            assert_eq!(moves, most, "{before:?}");
            assert_eq!(before.iter().sum::<u32>(), after.iter().sum::<u32>());
        }
    }

    #[test]
    fn one_that_cannot_go_counts_where_it_is() {
        let loads = loads(&[0, 4]);
        assert_eq!(loads.send(1), Some(0));
        assert!(loads.expects(0) && !loads.expects(1));
        loads.stayed(1, 0);
        assert_eq!(counts(&loads), [0, 4]);
        assert!(!loads.expects(0));
    }

    #[test]
    fn nobody_begins_to_move_when_the_process_ends_and_who_is_on_its_way_is_expected() {
        let loads = loads(&[0, 4]);
        assert_eq!(loads.send(1), Some(0));
        loads.stop_moves();
        assert_eq!((loads.send(1), loads.drifted()), (None, None));
        assert_eq!((loads.send_round(1), loads.surplus(1)), (None, 0));
        assert!(loads.expects(0));
        loads.arrived(0);
        assert!(!loads.expects(0));
    }
}
