//! Clients that have not logged in: how many there may be, and who has to
//! leave when there are too many.
//!
//! Nobody can be told from an attacker before it has proved who it is, so the
//! places are dealt out by where clients come from: a newcomer from an address
//! with fewer of them takes the place of one from the address with the most.
//! Among those of one address the newcomer has to wait outside, unless one of
//! them has not moved for [`STALLED`]. Who waits for its refusal because its
//! proof was wrong keeps its place as long as it can: else guessing would be
//! as quick as connecting.

use crate::auth::Source;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// The clients of a shard that have not logged in.
#[derive(Clone, Default)]
pub struct Door(Rc<RefCell<Waiting>>);

#[derive(Default)]
struct Waiting {
    /// By place and arrival. A place without clients is not kept.
    places: HashMap<Place, BTreeMap<u64, Entry>>,
    count: usize,
    arrivals: u64,
}

/// Where a client comes from, as far as one person can be many: an address,
/// of IPv6 the network that a subscriber gets (RFC 6177).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Local,
    Host(IpAddr),
}

struct Entry {
    /// When it has last done something.
    moved: Instant,
    /// Its proof was wrong.
    failing: bool,
    waker: Option<Waker>,
}

/// How many may wait at the door.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// In all.
    pub all: usize,
    /// From one place. Clients of a unix socket are bound by `all` only.
    pub of_a_place: usize,
}

/// A client that waits at the door; it leaves when dropped.
pub struct Guest {
    door: Door,
    place: Place,
    arrival: u64,
}

impl Door {
    /// How many wait.
    pub fn count(&self) -> usize {
        self.0.borrow().count
    }

    /// Lets a client wait, in the place of another if there must be one.
    /// `None` turns it away.
    pub fn enter(&self, source: Source, room: Room, now: Instant) -> Option<Guest> {
        let place = Place::of(source);
        let mut waiting = self.0.borrow_mut();
        let there = waiting.of(place);
        let full = place != Place::Local && there >= room.of_a_place;
        let leaver = if full {
            Some(waiting.stalled(place, now)?)
        } else if waiting.count >= room.all {
            Some(waiting.crowding(place, there, now)?)
        } else {
            None
        };
        let woken = leaver.and_then(|(place, arrival)| waiting.remove(place, arrival)?.waker);
        waiting.arrivals += 1;
        waiting.count += 1;
        let arrival = waiting.arrivals;
        let entry = Entry {
            moved: now,
            failing: false,
            waker: None,
        };
        let entries = waiting.places.entry(place).or_default();
        entries.insert(arrival, entry);
        drop(waiting);
        // It finds that it is no longer there.
        woken.into_iter().for_each(Waker::wake);
        Some(Guest {
            door: self.clone(),
            place,
            arrival,
        })
    }
}

impl Waiting {
    fn of(&self, place: Place) -> usize {
        self.places.get(&place).map_or(0, BTreeMap::len)
    }

    /// Who has not moved for the longest time among those of this place, if
    /// that is long enough. Arrivals are looked at in their order and only the
    /// first of them: the others have come later.
    fn stalled(&self, place: Place, now: Instant) -> Option<(Place, u64)> {
        let entries = self.places.get(&place)?;
        let (arrival, entry) = entries.iter().find(|(_, entry)| !entry.failing)?;
        let stalled = now.saturating_duration_since(entry.moved) >= STALLED;
        stalled.then_some((place, *arrival))
    }

    /// Who makes room for one more from a place that has `there`.
    fn crowding(&self, place: Place, there: usize, now: Instant) -> Option<(Place, u64)> {
        let (largest, entries) = self
            .places
            .iter()
            .max_by_key(|(_, entries)| entries.len())?;
        if entries.len() <= there + 1 {
            return self.stalled(place, now);
        }
        let unproven = entries.iter().find(|(_, entry)| !entry.failing);
        let (arrival, _) = unproven.or_else(|| entries.iter().next())?;
        Some((*largest, *arrival))
    }

    fn remove(&mut self, place: Place, arrival: u64) -> Option<Entry> {
        let entries = self.places.get_mut(&place)?;
        let entry = entries.remove(&arrival)?;
        if entries.is_empty() {
            self.places.remove(&place);
        }
        self.count -= 1;
        Some(entry)
    }
}

impl Guest {
    /// It has done something: nobody of its own place drives it out soon.
    pub fn moved(&self, now: Instant) {
        self.with(|entry| entry.moved = now);
    }

    /// Its proof was wrong.
    pub fn failing(&self) {
        self.with(|entry| entry.failing = true);
    }

    /// Waits until another has come in its place.
    pub async fn ousted(&self) {
        std::future::poll_fn(|cx| {
            let kept = self.with(|entry| match &mut entry.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            });
            match kept {
                Some(()) => Poll::Pending,
                None => Poll::Ready(()),
            }
        })
        .await;
    }

    fn with<R>(&self, change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let mut waiting = self.door.0.borrow_mut();
        let entries = waiting.places.get_mut(&self.place)?;
        entries.get_mut(&self.arrival).map(change)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut waiting = self.door.0.borrow_mut();
        // The entry's waker may own what borrows the door.
        let entry = waiting.remove(self.place, self.arrival);
        drop(waiting);
        drop(entry);
    }
}

impl Place {
    fn of(source: Source) -> Self {
        match source {
            Source::Local => Self::Local,
            Source::Host(IpAddr::V6(address)) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                Self::Host(IpAddr::V6(Ipv6Addr::from(network)))
            }
            Source::Host(address) => Self::Host(address),
        }
    }
}

/// A client that stays at one step of its login for so long may have to leave
/// for another of the same address. Longer than a proof takes on a busy
/// machine: else many good clients at once would drive each other out.
const STALLED: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const ROOM: Room = Room {
        all: 6,
        of_a_place: 4,
    };

    fn host(last: u8) -> Source {
        Source::Host([192, 0, 2, last].into())
    }

    fn fill(door: &Door, source: Source, count: usize, now: Instant) -> Vec<Guest> {
        let guests = (0..count).map(|_| door.enter(source, ROOM, now));
        guests.map(|guest| guest.expect("let in")).collect()
    }

    fn has_to_leave(guest: &Guest) -> bool {
        guest.with(|_| ()).is_none()
    }

    #[test]
    fn who_comes_from_a_full_place_waits_outside_until_somebody_there_has_stalled() {
        let (door, now) = (Door::default(), Instant::now());
        let guests = fill(&door, host(1), 4, now);
        assert!(door.enter(host(1), ROOM, now).is_none());
        guests[0].moved(now + STALLED);
        let later = now + STALLED;
        assert!(
            door.enter(host(1), ROOM, later).is_none(),
            "the first has moved, the others came after it"
        );
        let latest = later + STALLED;
        let guest = door.enter(host(1), ROOM, latest).expect("let in");
        assert!(has_to_leave(&guests[0]) && !has_to_leave(&guests[1]) && !has_to_leave(&guest));
        assert_eq!(door.count(), 4);
    }

    #[test]
    fn a_small_place_takes_from_the_largest_at_once() {
        let (door, now) = (Door::default(), Instant::now());
        let large = fill(&door, host(1), 4, now);
        let small = fill(&door, host(2), 2, now);
        let third = door.enter(host(3), ROOM, now).expect("let in");
        assert!(has_to_leave(&large[0]) && !has_to_leave(&large[1]));
        assert!(small.iter().all(|guest| !has_to_leave(guest)) && !has_to_leave(&third));
        assert!(
            door.enter(host(2), ROOM, now).is_none(),
            "it would be as large as the largest"
        );
    }

    #[test]
    fn who_waits_for_a_refusal_leaves_last_and_never_for_its_own_place() {
        let (door, now) = (Door::default(), Instant::now());
        let guessing = fill(&door, host(1), 4, now);
        guessing.iter().for_each(Guest::failing);
        let late = now + STALLED * 2;
        assert!(door.enter(host(1), ROOM, late).is_none());
        let _others = fill(&door, host(2), 2, now);
        let _good = door.enter(host(3), ROOM, now).expect("let in");
        assert!(
            has_to_leave(&guessing[0]),
            "there is nobody else of that place"
        );
    }

    #[test]
    fn nothing_is_kept_of_those_who_have_left() {
        let (door, now) = (Door::default(), Instant::now());
        let guests = fill(&door, host(1), 4, now);
        let local = fill(&door, Source::Local, 2, now);
        drop((guests, local));
        assert_eq!(door.count(), 0);
        assert!(door.0.borrow().places.is_empty());
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_place() {
        let of = |text: &str| Place::of(Source::Host(text.parse().expect("an address")));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn who_must_leave_is_woken() {
        struct Flag(AtomicBool);
        impl std::task::Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let (door, now) = (Door::default(), Instant::now());
        let guests = fill(&door, host(1), 4, now);
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&flag));
        let mut cx = std::task::Context::from_waker(&waker);
        let mut ousted = Box::pin(guests[0].ousted());
        assert!(ousted.as_mut().poll(&mut cx).is_pending());
        let _guest = door.enter(host(1), ROOM, now + STALLED).expect("let in");
        assert!(flag.0.load(Ordering::Relaxed));
        assert!(ousted.as_mut().poll(&mut cx).is_ready());
    }
}
