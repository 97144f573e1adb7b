//! The clients of a shard, as others may reach them: to cancel, to end.

use super::{CancelSecret, Guard};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// The clients that have logged in or try to.
#[derive(Default)]
pub struct Clients(RefCell<Slab<Rc<Control>>>);

/// A client's handle for others. The session looks at it whenever it is woken.
pub struct Control {
    /// By which its cancel requests are known.
    pub secret: CancelSecret,
    /// It wants its query cancelled; once for each request.
    pub cancel: RefCell<Vec<Guard>>,
    /// It must leave as soon as it has no transaction.
    pub leave: Cell<bool>,
    /// It must leave at once.
    pub stop: Cell<bool>,
    /// Its task.
    pub waker: RefCell<Option<Waker>>,
}

impl Control {
    /// Has the client's task look.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl Clients {
    /// Enters a client; its place.
    pub fn enter(&self, secret: CancelSecret) -> (u32, Rc<Control>) {
        let control = Rc::new(Control {
            secret,
            cancel: RefCell::default(),
            leave: Cell::default(),
            stop: Cell::default(),
            waker: RefCell::default(),
        });
        let slot = self.0.borrow_mut().insert(Rc::clone(&control));
        (
            u32::try_from(slot).expect("fewer than 2^32 clients"),
            control,
        )
    }

    /// The client has left.
    pub fn leave(&self, slot: u32) {
        self.0.borrow_mut().remove(slot as usize);
    }

    /// Finds a client by its place and what it was given to cancel with.
    pub fn find(&self, slot: u32, key: &[u8]) -> Option<Rc<Control>> {
        let clients = self.0.borrow();
        clients
            .get(slot as usize)
            .filter(|control| control.secret.is(key))
            .cloned()
    }

    /// Does something to each client.
    pub fn each(&self, mut act: impl FnMut(&Control)) {
        for (_, control) in self.0.borrow().iter() {
            act(control);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
