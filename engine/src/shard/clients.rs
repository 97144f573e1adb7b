//! The clients of a shard, as others may reach them: to cancel, to end, to
//! move.
//!
//! A client's cancel key names the shard and the place where it logged in, its
//! home. When it moves, its place there stays taken, by what says where it is
//! now, until it has left: so a key that was given out never means another
//! client, and a request has one hop to go, however often the client moves.

use super::standing::{About, Standing};
use super::{CancelSecret, Guard, Home};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

/// The clients that have logged in or try to.
#[derive(Default)]
pub struct Clients {
    places: RefCell<Slab<Entry>>,
    /// Those that are here.
    here: Cell<usize>,
    /// What every client is told, those that come later too.
    told: Cell<Wishes>,
    /// Where the last look for clients that may move ended.
    cursor: Cell<usize>,
    /// How many of them do what.
    pub(super) by_state: [Cell<u32>; 4],
}

enum Entry {
    Here(Rc<Control>),
    /// Its client is on another shard, or in another place.
    Away(Arc<Home>),
}

/// Where a client is.
pub enum Whereabouts {
    /// Here.
    Here(Rc<Control>),
    /// Wherever its home says.
    Away(Arc<Home>),
}

/// By what a client is known to who wants its query cancelled.
pub enum Key {
    /// It logged in here, with this secret.
    Own(CancelSecret),
    /// It has come from another place.
    Guest(Arc<Home>),
}

/// A client's handle for others. The session looks at it whenever it is woken.
pub struct Control {
    /// By which its cancel requests are known.
    pub key: Key,
    /// Who it is.
    pub about: About,
    /// What it does.
    pub standing: Cell<Standing>,
    /// It wants its query cancelled; once for each request.
    pub cancel: RefCell<Vec<Guard>>,
    /// What others want of it.
    pub wishes: Cell<Wishes>,
    /// The number of its database.
    pub group: u32,
    /// Its task.
    pub waker: RefCell<Option<Waker>>,
}

/// What others want of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes(u16);

impl Wishes {
    /// It must leave as soon as it has no transaction.
    pub const LEAVE: Self = Self(1);
    /// It must leave at once.
    pub const STOP: Self = Self(2);
    /// It may move to another shard as soon as it has no transaction.
    pub const MOVE: Self = Self(4);
    /// It moves on after each transaction.
    pub const RESTLESS: Self = Self(8);
    /// It is, and has had one here.
    pub const DUE: Self = Self(16);

    /// Its database, or its user, is not in the configuration any more: it must
    /// leave as soon as it has no transaction.
    pub const REMOVED: Self = Self(32);
    /// Users are not in the configuration any more: is it one of them?
    pub const CHECK: Self = Self(64);
    /// Its limits may have changed.
    pub const LIMITS: Self = Self(256);
    /// It must leave as soon as it has no transaction, for want of memory.
    pub const SHED: Self = Self(512);

    /// This and that.
    pub const fn or(self, that: Self) -> Self {
        Self(self.0 | that.0)
    }

    /// Nothing is wanted.
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether something of this is wanted.
    pub fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }
}

impl Control {
    /// Has the client's task look.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Something is wanted of it.
    pub fn want(&self, wish: Wishes) {
        self.wishes.set(Wishes(self.wishes.get().0 | wish.0));
    }

    /// That is not wanted any more.
    pub fn unwant(&self, wish: Wishes) {
        self.wishes.set(Wishes(self.wishes.get().0 & !wish.0));
    }

    fn is_guest(&self, home: &Arc<Home>) -> bool {
        matches!(&self.key, Key::Guest(own) if Arc::ptr_eq(own, home))
    }
}

impl Clients {
    /// Enters a client of the database with this number; its place. `now`: by
    /// the shard's `micros`.
    pub fn enter(&self, key: Key, group: usize, about: About, now: u64) -> (u32, Rc<Control>) {
        let control = Rc::new(Control {
            key,
            about,
            standing: Cell::default(),
            group: u32::try_from(group).unwrap_or(u32::MAX),
            cancel: RefCell::default(),
            wishes: Cell::new(self.told.get()),
            waker: RefCell::default(),
        });
        self.note_arrival(&control, now);
        let slot = self
            .places
            .borrow_mut()
            .insert(Entry::Here(Rc::clone(&control)));
        self.here.set(self.here.get() + 1);
        (
            u32::try_from(slot).expect("fewer than 2^32 clients"),
            control,
        )
    }

    /// The client has left, and its place is free.
    pub fn leave(&self, slot: u32) {
        self.free(slot);
        self.here.set(self.here.get() - 1);
    }

    /// The client is on another shard, and its place is kept for its key.
    pub fn send_away(&self, slot: u32, home: Arc<Home>) {
        let place = &mut self.places.borrow_mut()[slot as usize];
        if let Entry::Here(control) = std::mem::replace(place, Entry::Away(home)) {
            self.note_departure(&control);
        }
        self.here.set(self.here.get() - 1);
    }

    /// The place of a client that has left elsewhere.
    pub(super) fn free(&self, slot: u32) {
        let entry = self.places.borrow_mut().remove(slot as usize);
        if let Entry::Here(control) = entry {
            self.note_departure(&control);
        }
    }

    /// Hands the clients of up to `most` places to `look`, from a place on, until
    /// it says that it has enough; where to go on, if there is more.
    pub(super) fn walk(
        &self,
        from: usize,
        most: usize,
        mut look: impl FnMut(u32, &Control) -> bool,
    ) -> Option<usize> {
        let places = self.places.borrow();
        let end = from.saturating_add(most);
        for at in from..end.min(places.capacity()) {
            if let (Some(Entry::Here(control)), Ok(slot)) = (places.get(at), u32::try_from(at))
                && !look(slot, control)
            {
                return (at + 1 < places.capacity()).then_some(at + 1);
            }
        }
        (end < places.capacity()).then_some(end)
    }

    /// A client by its place alone.
    pub(super) fn at(&self, slot: u32) -> Option<Whereabouts> {
        Some(match self.places.borrow().get(slot as usize)? {
            Entry::Here(control) => Whereabouts::Here(Rc::clone(control)),
            Entry::Away(home) => Whereabouts::Away(Arc::clone(home)),
        })
    }

    /// Finds a client by its place and what it was given to cancel with. The
    /// time that it takes says nothing about that.
    pub fn find(&self, slot: u32, key: &[u8]) -> Option<Whereabouts> {
        match self.places.borrow().get(slot as usize)? {
            Entry::Here(control) => match &control.key {
                Key::Own(secret) if secret.is(key) => Some(Whereabouts::Here(Rc::clone(control))),
                // Nobody was told a place to which somebody has moved.
                _ => None,
            },
            Entry::Away(home) if home.secret.is(key) => Some(Whereabouts::Away(Arc::clone(home))),
            Entry::Away(_) => None,
        }
    }

    /// Finds a client that has come from elsewhere.
    pub(super) fn guest(&self, slot: u32, home: &Arc<Home>) -> Option<Rc<Control>> {
        match self.places.borrow().get(slot as usize)? {
            Entry::Here(control) if control.is_guest(home) => Some(Rc::clone(control)),
            _ => None,
        }
    }

    /// Tells each client, those too that will come.
    pub fn tell_all(&self, wish: Wishes) {
        self.told.set(Wishes(self.told.get().0 | wish.0));
        for (_, entry) in self.places.borrow().iter() {
            if let Entry::Here(control) = entry {
                control.want(wish);
                control.wake();
            }
        }
    }

    /// Tells those that are here now, of this database or of all.
    pub fn tell(&self, group: Option<usize>, wish: Wishes) {
        for (_, entry) in self.places.borrow().iter() {
            if let Entry::Here(control) = entry
                && group.is_none_or(|group| control.group as usize == group)
            {
                control.want(wish);
                control.wake();
            }
        }
    }

    /// Has the client at this place look, if one is there.
    pub fn wake(&self, slot: u32) {
        if let Some(Entry::Here(control)) = self.places.borrow().get(slot as usize) {
            control.wake();
        }
    }

    /// Asks up to `most` clients to move, those whose turn it is. Looks at so
    /// many places and no more, however many clients there are.
    pub(super) fn ask_to_move(&self, most: usize) {
        let places = self.places.borrow();
        let mut asked = 0;
        for _ in 0..LOOK.min(places.capacity()) {
            if asked >= most {
                return;
            }
            let at = self.cursor.get() % places.capacity();
            self.cursor.set(at + 1);
            if let Some(Entry::Here(control)) = places.get(at)
                && !control.wishes.get().has(Wishes::MOVE)
            {
                control.want(Wishes::MOVE);
                control.wake();
                asked += 1;
            }
        }
    }

    /// Asks a part of the clients to leave if they have no transaction, those
    /// whose turn it is.
    pub(super) fn ask_to_leave(&self) {
        let places = self.places.borrow();
        let mut asked = 0;
        let most = self.here.get().div_ceil(SHED_PART);
        for _ in 0..places.capacity() {
            if asked >= most {
                return;
            }
            let at = self.cursor.get() % places.capacity();
            self.cursor.set(at + 1);
            if let Some(Entry::Here(control)) = places.get(at) {
                control.want(Wishes::SHED);
                control.wake();
                asked += 1;
            }
        }
    }

    /// How many are here.
    pub fn len(&self) -> usize {
        self.here.get()
    }

    /// Whether nobody is here.
    pub fn is_empty(&self) -> bool {
        self.here.get() == 0
    }

    /// Places that are taken: of clients that are here, and for the keys of
    /// clients that have moved.
    #[cfg(test)]
    fn taken(&self) -> usize {
        self.places.borrow().len()
    }
}

/// The part of the clients that is asked to leave in one go: a sixteenth.
const SHED_PART: usize = 16;
/// Places looked at in one go.
const LOOK: usize = 256;

#[cfg(test)]
mod tests {
    use super::super::standing::Doing;
    use super::*;

    fn enter(clients: &Clients, key: Key) -> (u32, Rc<Control>) {
        clients.enter(key, 0, About::nobodys(), 0)
    }

    fn secret() -> (CancelSecret, Box<[u8]>) {
        let secret = CancelSecret::short();
        let shown = secret.expose().into();
        (secret, shown)
    }

    #[test]
    fn a_place_is_kept_until_who_has_its_key_has_left() {
        let clients = Clients::default();
        let (own, shown) = secret();
        let copy = own.clone();
        let (slot, _) = enter(&clients, Key::Own(own));
        assert!(matches!(
            clients.find(slot, &shown),
            Some(Whereabouts::Here(_))
        ));
        let home = Arc::new(Home::new(copy, 0, slot));
        clients.send_away(slot, Arc::clone(&home));
        assert!(clients.is_empty());
        let (other, _) = enter(&clients, Key::Own(CancelSecret::short()));
        assert_ne!(other, slot);
        match clients.find(slot, &shown) {
            Some(Whereabouts::Away(found)) => assert!(Arc::ptr_eq(&found, &home)),
            _ => panic!("the key is not known any more"),
        }
        assert!(clients.find(slot, b"else").is_none());
        clients.free(slot);
        assert!(clients.find(slot, &shown).is_none());
        assert_eq!((clients.len(), clients.taken()), (1, 1));
        assert_eq!(clients.by_state(), [1, 0, 0, 0]);
    }

    #[test]
    fn a_guest_is_found_by_its_home_and_by_no_key() {
        let clients = Clients::default();
        let (own, shown) = secret();
        let home = Arc::new(Home::new(own, 3, 9));
        let (slot, _) = enter(&clients, Key::Guest(Arc::clone(&home)));
        assert!(clients.find(slot, &shown).is_none());
        assert!(clients.find(slot, b"").is_none());
        assert!(clients.guest(slot, &home).is_some());
        let stranger = Arc::new(Home::new(CancelSecret::short(), 3, 9));
        assert!(clients.guest(slot, &stranger).is_none());
    }

    #[test]
    fn clients_are_asked_to_move_in_turn_and_few_at_a_time() {
        let clients = Clients::default();
        let all: Vec<_> = (0..1000)
            .map(|_| enter(&clients, Key::Own(CancelSecret::short())).1)
            .collect();
        let asked = || {
            let moves = |control: &&Rc<Control>| control.wishes.get().has(Wishes::MOVE);
            all.iter().filter(moves).count()
        };
        clients.ask_to_move(3);
        assert_eq!(asked(), 3);
        clients.ask_to_move(3);
        assert_eq!(asked(), 6);
        clients.ask_to_move(usize::MAX);
        assert_eq!(asked(), 6 + LOOK);
    }

    /// There is one of each for every client, and most are idle.
    #[test]
    fn what_a_client_is_known_by_is_small() {
        assert_eq!(size_of::<Entry>(), 16);
        // With the counts of its `Rc` 168 bytes, which is just what an allocator gives.
        assert_eq!(size_of::<Control>(), 152);
    }

    #[test]
    fn who_comes_later_is_told_what_all_were_told() {
        let clients = Clients::default();
        let early = enter(&clients, Key::Own(CancelSecret::short())).1;
        clients.tell_all(Wishes::LEAVE);
        let late = enter(&clients, Key::Own(CancelSecret::short())).1;
        for control in [early, late] {
            assert!(control.wishes.get().has(Wishes::LEAVE));
            assert!(!control.wishes.get().has(Wishes::STOP));
        }
    }

    #[test]
    fn clients_are_counted_by_what_they_do_and_walked_in_slices() {
        let clients = Clients::default();
        let all: Vec<_> = (0..5)
            .map(|_| enter(&clients, Key::Own(CancelSecret::short())))
            .collect();
        let note = |at: usize, doing, now| clients.note(&all[at].1, doing, now);
        note(0, Doing::WAITING, 10);
        note(1, Doing::ACTIVE, 20);
        note(1, Doing::with_server(false, true, false), 30);
        note(2, Doing::ACTIVE, 40);
        note(2, Doing::IN_TRANSACTION, 50);
        assert_eq!(clients.by_state(), [2, 1, 1, 1]);
        let since = |at: usize| all[at].1.standing.get().since();
        assert_eq!([since(1), since(2)], [20, 50], "since the state began");
        let mut seen = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            next = clients.walk(from, 2, |slot, _| {
                seen.push(slot);
                seen.len() % 3 != 0
            });
        }
        assert_eq!(seen, [0, 1, 2, 3, 4]);
        clients.leave(all[1].0);
        clients.leave(all[3].0);
        assert_eq!(clients.by_state(), [1, 1, 0, 1]);
    }
}
