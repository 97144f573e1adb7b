//! Output that is made when the turn ends, out of all that was written in it.

use super::Ring;
use std::rc::Rc;

/// Who makes bytes for a socket at the end of a turn: TLS, so that what was
/// written in the turn goes into one record.
pub trait Late {
    /// Hands the bytes over. The socket's owner may be gone.
    fn due(&self, write: &mut dyn FnMut(&[u8]));
}

/// By socket. An entry cannot meet a stranger: the list is emptied before the
/// turn removes the sockets that were closed, and who is on it is not detached.
pub(super) type List = Vec<(u32, Rc<dyn Late>)>;

impl Ring {
    pub(super) fn run_late(&self) {
        if self.0.late.borrow().is_empty() {
            return;
        }
        let mut list = self.0.late.take();
        for (id, late) in list.drain(..) {
            late.due(&mut |bytes| self.0.sockets.borrow_mut().append(id, bytes));
        }
        // Its room is used again; nobody has been listed meanwhile.
        self.0.late.replace(list);
    }
}
