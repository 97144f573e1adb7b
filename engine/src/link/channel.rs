//! A link's TLS after the handshake: which bytes wait where.

use super::records::{Over, PLAIN_MAX, Packed, Records};
use super::{Secured, Security, buffers};
use crate::ring::{Chunk, Late, Socket};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub(super) struct Channel {
    records: RefCell<Records>,
    /// Written and not sealed: less than a record's worth.
    gathered: RefCell<Vec<u8>>,
    /// The ring will have it sealed.
    listed: Cell<bool>,
    security: Security,
}

/// A [`Channel`] on its way to another thread.
pub(super) struct PackedChannel {
    records: Packed,
    security: Security,
}

impl Channel {
    pub(super) fn new(secured: Secured) -> Rc<Self> {
        Rc::new(Self {
            records: RefCell::new(secured.records),
            gathered: RefCell::default(),
            listed: Cell::new(false),
            security: secured.security,
        })
    }

    /// For another thread; all that was written is sealed.
    pub(super) fn pack(self) -> PackedChannel {
        debug_assert!(self.gathered.borrow().is_empty() && !self.listed.get());
        PackedChannel {
            records: self.records.into_inner().pack(),
            security: self.security,
        }
    }

    pub(super) fn unpack(packed: PackedChannel) -> Rc<Self> {
        Self::new(Secured {
            records: Records::unpack(packed.records),
            security: packed.security,
        })
    }

    pub(super) fn security(&self) -> &Security {
        &self.security
    }

    pub(super) fn take(&self, socket: &Socket) -> Option<Chunk> {
        self.fill(socket);
        self.records.borrow_mut().take()
    }

    pub(super) fn put_back(&self, chunk: Chunk) {
        self.records.borrow_mut().put_back(chunk);
    }

    pub(super) fn front<T>(&self, socket: &Socket, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.fill(socket);
        self.records.borrow().front().map(look)
    }

    pub(super) fn has_bytes(&self, socket: &Socket) -> bool {
        self.fill(socket);
        self.records.borrow().has_opened()
    }

    pub(super) fn ended(&self) -> bool {
        self.records.borrow().over().is_some()
    }

    pub(super) fn is_broken(&self) -> bool {
        matches!(self.records.borrow().over(), Some(Over::Broken(_)))
    }

    pub(super) fn is_over(&self, socket: &Socket) -> bool {
        self.fill(socket);
        let records = self.records.borrow();
        match records.over() {
            Some(Over::Broken(_)) => true,
            Some(Over::Closed) => !records.has_opened(),
            None => socket.is_over() && !records.has_opened(),
        }
    }

    pub(super) fn is_quiet(&self, socket: &Socket) -> bool {
        self.fill(socket);
        let records = self.records.borrow();
        !records.has_opened()
            && !records.is_amid_record()
            && records.over().is_none()
            && self.gathered.borrow().is_empty()
            && socket.is_quiet()
    }

    #[cfg(test)]
    pub(super) fn is_amid_record(&self) -> bool {
        self.records.borrow().is_amid_record()
    }

    /// Opens what has come, as long as nothing is opened already.
    fn fill(&self, socket: &Socket) {
        let mut records = self.records.borrow_mut();
        while !records.has_opened() && records.over().is_none() {
            let Some(chunk) = socket.take() else { return };
            records.add(&chunk);
            drop(chunk);
            records.open(&mut |bytes| socket.write(bytes));
            if let Some(Over::Broken(error)) = records.over() {
                tracing::debug!(%error, "a TLS connection broke");
            }
        }
    }

    pub(super) fn write(self: &Rc<Self>, socket: &Socket, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut gathered = self.gathered.borrow_mut();
        if gathered.capacity() == 0 {
            *gathered = buffers::take();
        }
        gathered.extend_from_slice(bytes);
        let full = gathered.len() - gathered.len() % PLAIN_MAX;
        if full > 0 {
            let mut records = self.records.borrow_mut();
            records.seal(&gathered[..full], &mut |bytes| socket.write(bytes));
            gathered.drain(..full);
        }
        if gathered.is_empty() {
            buffers::give(std::mem::take(&mut gathered));
        } else if !self.listed.replace(true) {
            socket.at_turn_end(Rc::clone(self) as Rc<dyn Late>);
        }
    }

    pub(super) fn seal(&self, socket: &Socket) {
        self.seal_gathered(&mut |bytes| socket.write(bytes));
    }

    pub(super) fn close(&self, socket: &Socket) {
        self.seal(socket);
        let mut records = self.records.borrow_mut();
        records.close(&mut |bytes| socket.write(bytes));
    }

    fn seal_gathered(&self, send: &mut dyn FnMut(&[u8])) {
        let gathered = self.gathered.take();
        if !gathered.is_empty() {
            self.records.borrow_mut().seal(&gathered, send);
        }
        buffers::give(gathered);
    }
}

impl Late for Channel {
    fn due(&self, write: &mut dyn FnMut(&[u8])) {
        self.listed.set(false);
        self.seal_gathered(write);
    }
}
