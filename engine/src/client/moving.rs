//! A client's place among the clients of its shard, when it moves to another.

use super::Entered;
use super::places::Place;
use crate::shard::{About, Guard, Home, Key, Shard};
use std::rc::Rc;
use std::sync::Arc;

/// What a client is to its shard, on its way to another.
pub(crate) struct Traveller {
    home: Arc<Home>,
    place: Option<Place>,
    about: About,
    /// It wanted something cancelled that has not been read yet.
    cancels: Vec<Guard>,
}

/// What the place of a client is that has gone: it is not to be given up.
const GONE: u32 = u32::MAX;

impl Entered {
    /// The client leaves for that shard. Before anything else is awaited it
    /// must be said whether it has [`Entered::left`] or [`Entered::stayed`].
    pub(crate) fn depart(&mut self, to: usize) -> Traveller {
        let home = match &self.control.key {
            Key::Own(secret) => Arc::new(Home::new(secret.clone(), self.shard.id, self.slot)),
            Key::Guest(home) => Arc::clone(home),
        };
        home.is_under_way(to);
        let cancels = self.control.cancel.take();
        let place = self.place.take();
        Traveller {
            home,
            place,
            about: self.control.about.clone(),
            cancels,
        }
    }

    /// It has gone to another shard, which may have it already.
    pub(crate) fn left(&mut self, home: Arc<Home>) {
        match &self.control.key {
            Key::Own(_) => self.shard.clients.send_away(self.slot, home),
            Key::Guest(_) => self.shard.clients.leave(self.slot),
        }
        self.slot = GONE;
    }

    /// It could not go.
    pub(crate) fn stayed(&mut self, traveller: Traveller) {
        self.place = traveller.place;
        traveller.home.is_at(self.shard.id, self.slot);
        self.control.cancel.replace(traveller.cancels);
    }

    /// It has come to this shard.
    pub(crate) fn arrive(shard: &Rc<Shard>, traveller: Traveller, group: usize) -> Self {
        let Traveller {
            home,
            place,
            about,
            cancels,
        } = traveller;
        let (key, now) = (Key::Guest(Arc::clone(&home)), shard.ring.micros());
        let (slot, control) = shard.clients.enter(key, group, about, now);
        control.cancel.replace(cancels);
        home.is_at(shard.id, slot);
        Self {
            shard: Rc::clone(shard),
            slot,
            place,
            control,
        }
    }
}

impl Traveller {
    /// Where it is found by its cancel key.
    pub(crate) fn home(&self) -> Arc<Home> {
        Arc::clone(&self.home)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.slot == GONE {
            return;
        }
        self.shard.clients.leave(self.slot);
        if let Key::Guest(home) = &self.control.key {
            self.shard.free_key(home);
        }
    }
}
