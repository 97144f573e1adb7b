//! The budget under real threads: never a permit too many, none lost, nobody stranded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pool::{Acquire, Budget, Moving, Placed, Pool, Settings};

#[test]
fn permits_taken_by_many_threads_never_exceed_the_maximum() {
    let budget = Budget::new(5, 4);
    let out = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    if budget.try_take() {
                        assert!(out.fetch_add(1, SeqCst) < 5);
                        out.fetch_sub(1, SeqCst);
                        budget.give_back();
                    }
                }
            });
        }
    });
    assert_eq!(budget.taken(), 0);
}

#[test]
#[should_panic(expected = "never taken")]
fn a_permit_that_was_never_taken_cannot_come_back() {
    Budget::new(1, 1).give_back();
}

/// What a shard is sent.
enum Mail {
    Wake,
    Server(Moving),
}

/// A shard as its thread sees it: serves its clients one after the other, each lease as short as can be.
struct Shard<'a> {
    pool: Pool<usize, u32>,
    mail: mpsc::Receiver<Mail>,
    peers: Vec<mpsc::SyncSender<Mail>>,
    sockets: &'a AtomicU32,
    moved: &'a AtomicU32,
    max: u32,
    next_key: usize,
}

impl Shard<'_> {
    /// Serves `clients` clients, then gives everything away that others ask for until `finished` says all have ended.
    fn serve(&mut self, clients: u32, finished: &AtomicU32, shards: u32) {
        let mut client = 0;
        let mut waiting = false;
        while client < clients || finished.load(SeqCst) < shards {
            let now = Instant::now();
            if client < clients && !waiting {
                match self.pool.acquire(client, now) {
                    Acquire::Lease(key) => self.served(key, &mut client, clients, finished),
                    Acquire::Wait(_) => waiting = true,
                }
            }
            while let Ok(mail) = self.mail.try_recv() {
                match mail {
                    Mail::Wake => {
                        while let Some(key) = self.pool.give_up_idle() {
                            self.hand_over(key);
                        }
                    }
                    Mail::Server(moving) => {
                        let key = self.fresh_key();
                        let placed = self.pool.arrived(key, moving, now);
                        if self.placed(key, placed) {
                            waiting = false;
                            self.served(key, &mut client, clients, finished);
                        }
                    }
                }
            }
            for _ in 0..self.pool.logins_wanted(now) {
                assert!(
                    self.sockets.fetch_add(1, SeqCst) < self.max,
                    "more sockets than permits"
                );
                let key = self.fresh_key();
                let placed = self.pool.connected(key, now, 0.5);
                if self.placed(key, placed) {
                    waiting = false;
                    self.served(key, &mut client, clients, finished);
                }
            }
            self.send_wakes();
            thread::yield_now();
        }
    }

    fn served(&mut self, key: usize, client: &mut u32, clients: u32, finished: &AtomicU32) {
        *client += 1;
        if *client == clients {
            finished.fetch_add(1, SeqCst);
        }
        let placed = self.pool.release(key, Instant::now());
        assert!(!self.placed(key, placed), "one client at a time");
    }

    /// Whether the client that waits has got it.
    fn placed(&mut self, key: usize, placed: Placed<u32>) -> bool {
        match placed {
            Placed::Idle => return false,
            Placed::HandOff(_) => return true,
            Placed::Close(_) => self.close(key),
            Placed::GiveAway { .. } => self.hand_over(key),
        }
        false
    }

    fn hand_over(&mut self, key: usize) {
        let moving = self.pool.hand_over(key).expect("nothing is retired");
        let to = moving.to_shard();
        match self.peers[to].try_send(Mail::Server(moving)) {
            Ok(()) => self.moved.fetch_add(1, SeqCst),
            Err(mpsc::TrySendError::Full(Mail::Server(moving))) => {
                let key = self.fresh_key();
                let placed = self.pool.arrived(key, moving, Instant::now());
                assert_eq!(placed, Placed::Idle, "only a shard without waiters gives");
                0
            }
            // All clients have been served meanwhile.
            Err(_) => self.sockets.fetch_sub(1, SeqCst),
        };
    }

    fn fresh_key(&mut self) -> usize {
        self.next_key += 1;
        self.next_key - 1
    }

    fn close(&mut self, key: usize) {
        self.sockets.fetch_sub(1, SeqCst);
        assert!(self.pool.discard(key));
        self.send_wakes();
    }

    fn send_wakes(&mut self) {
        while let Some(shard) = self.pool.next_wake() {
            // A full mailbox already holds a wake.
            let _ = self.peers[shard].try_send(Mail::Wake);
        }
    }
}

#[test]
fn shards_on_threads_share_too_few_servers_and_all_clients_are_served() {
    for max in [1, 3] {
        let shards = 4;
        let budget = Arc::new(Budget::new(max, shards));
        let [sockets, finished, moved] = [(); 3].map(|()| AtomicU32::new(0));
        let (peers, mails): (Vec<_>, Vec<_>) = (0..shards).map(|_| mpsc::sync_channel(8)).unzip();
        let settings = Settings {
            min_connections: 0,
            max_connections: max,
            max_lifetime: Some(Duration::from_millis(3)),
            ..Settings::default()
        };
        thread::scope(|scope| {
            for (index, mail) in mails.into_iter().enumerate() {
                let mut shard = Shard {
                    pool: Pool::new(settings.clone(), Arc::clone(&budget), index),
                    mail,
                    peers: peers.clone(),
                    sockets: &sockets,
                    moved: &moved,
                    max,
                    next_key: 0,
                };
                let finished = &finished;
                scope.spawn(move || shard.serve(2_000, finished, 4));
            }
        });
        assert_eq!(finished.load(SeqCst), 4);
        assert!(moved.load(SeqCst) > 0);
        assert_eq!(budget.taken(), 0, "the dropped pools gave everything back");
    }
}
