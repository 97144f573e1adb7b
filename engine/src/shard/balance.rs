//! A shard that has more clients than others gives some away, between their
//! transactions.
//!
//! It does not know which are idle: it asks some to move, and each does when it
//! has no transaction, if it is still wanted then. Those that cannot move, or
//! not for long, hold nobody up, because others are asked meanwhile.

use super::{Home, Mail, Shard};
use crate::ring::task;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// See the module's text.
#[derive(Default)]
pub struct Balancer {
    /// It is at it.
    works: Cell<bool>,
}

impl Shard {
    /// A client has left; the shards may have drifted apart by that.
    pub(super) fn after_departure(&self) {
        if let Some(fullest) = self.loads.leave(self.id) {
            self.post(fullest, Mail::Balance);
        }
    }

    /// What a shard is told that has the most clients.
    pub(super) fn give_clients_away(self: &Rc<Self>) {
        if !self.balancer.works.replace(true) {
            task::spawn(Rc::clone(self).balance());
        }
    }

    /// A client that has moved here from its home has left: its key there means
    /// nobody any more. That must not be lost, or its place would be taken for
    /// ever.
    pub fn free_key(self: &Rc<Self>, home: &Home) {
        let (to, slot) = (home.shard, home.slot);
        let Err(mut mail) = self.try_post(to, Mail::Left { slot }) else {
            return;
        };
        let shard = Rc::clone(self);
        task::spawn(async move {
            // A shard that ends takes its places along.
            while !shard.drain.is_given() {
                shard.ring.sleep(FULL_POLL).await;
                match shard.try_post(to, mail) {
                    Ok(()) => return,
                    Err(back) => mail = back,
                }
            }
        });
    }

    async fn balance(self: Rc<Self>) {
        let mut pause = PAUSE_MIN;
        loop {
            let before = self.loads.surplus(self.id);
            if before == 0 {
                break;
            }
            self.clients.ask_to_move((before as usize).min(AT_ONCE));
            self.ring.sleep(pause).await;
            pause = match self.loads.surplus(self.id) < before {
                true => PAUSE_MIN,
                // They are busy, or hold their servers.
                false => (2 * pause).min(PAUSE_MAX),
            };
            self.pass_balance_on();
        }
        self.balancer.works.set(false);
        self.pass_balance_on();
    }

    /// Another shard may have the most by now.
    fn pass_balance_on(&self) {
        if let Some(fullest) = self.loads.drifted().filter(|&fullest| fullest != self.id) {
            self.post(fullest, Mail::Balance);
        }
    }
}

/// Clients asked at once.
const AT_ONCE: usize = 64;
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Before a full mailbox is tried again.
const FULL_POLL: Duration = Duration::from_millis(50);
