//! Servers that are given to shards whose clients starve, and those that come.

use super::{PoolId, ShardPool, ends, id};
use crate::ring::task;
use crate::server::{Packed, Parameters, Server};
use crate::shard::{Mail, Shard, bump};
use ::pool::Moving;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// A server on its way to another shard, with its permit. Dropping it closes
/// the server, and then frees the permit.
pub struct Arriving {
    pool: PoolId,
    server: Packed,
    moving: Moving,
    /// When it was decided that it goes.
    since: Instant,
    /// What a fresh session of the pool reports.
    fresh: Option<Arc<Parameters>>,
    /// The generation of the pool that it has left.
    generation: u64,
}

/// A server that is to leave. Whatever happens, the pool hears what became of it.
struct Leaving {
    pool: Rc<ShardPool>,
    slot: u32,
    since: Instant,
    done: bool,
}

impl ShardPool {
    /// A shard whose clients starve is to get the server.
    pub(super) fn give_away(self: &Rc<Self>, server: Box<Server>) {
        server.socket.set_idle(false);
        let leaving = Leaving {
            pool: Rc::clone(self),
            slot: server.slot,
            since: Instant::now(),
            done: false,
        };
        task::spawn(leaving.run(server));
    }

    fn welcome(self: &Rc<Self>, arriving: Arriving) {
        let since = arriving.since;
        self.take_in(arriving);
        let counters = &self.shard.counters;
        bump(&counters.handovers_taken);
        let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.shard.times.handover.record(micros);
    }

    /// Finds a use for a server that no shard has.
    fn take_in(self: &Rc<Self>, arriving: Arriving) {
        let is_old = arriving.generation < self.generation() || self.is_paused();
        if self.fresh.borrow().is_none() && !is_old {
            *self.fresh.borrow_mut() = arriving.fresh;
        }
        let mut server = Box::new(arriving.server.unpack(self));
        if is_old || !server.check_idle() {
            let pool = Some(Rc::clone(self));
            task::spawn(ends::see_off(pool, server.socket, arriving.moving));
            return;
        }
        if server.parameters.take_changed() {
            self.forget_reports();
        }
        let slot = id(self.servers.borrow_mut().insert(None));
        server.slot = slot;
        self.note_origin(&server);
        let mut decide = self.decide.borrow_mut();
        let placed = decide.arrived(slot, arriving.moving, Instant::now());
        drop(decide);
        self.place(server, placed);
        self.start_logins();
    }
}

impl Shard {
    /// A server has come from another shard.
    pub(in crate::shard) fn on_arriving(&self, arriving: Arriving) {
        match self.find_pool(arriving.pool) {
            Some(pool) => pool.welcome(arriving),
            None => {
                let link = arriving.server.into_link(&self.ring);
                task::spawn(ends::see_off(None, link, arriving.moving));
            }
        }
    }
}

impl Leaving {
    async fn run(mut self, server: Box<Server>) {
        if !server.may_move() {
            self.done = true;
            return self.pool.discard(server);
        }
        match server.pack().await {
            Ok(server) => self.send(server),
            Err(server) => {
                self.done = true;
                self.pool.discard(server);
            }
        }
    }

    fn send(mut self, server: Packed) {
        self.done = true;
        let pool = &self.pool;
        let moving = pool.decide.borrow_mut().hand_over(self.slot);
        let Some(moving) = moving else {
            // It was retired meanwhile.
            let mut server = Box::new(server.unpack(pool));
            server.slot = self.slot;
            return pool.discard(server);
        };
        pool.servers.borrow_mut().remove(self.slot as usize);
        pool.origins.borrow_mut().remove(&self.slot);
        let to = moving.to_shard();
        let arriving = Arriving {
            pool: pool.id,
            server,
            moving,
            since: self.since,
            fresh: pool.fresh.borrow().clone(),
            generation: pool.generation(),
        };
        match pool.shard.try_post(to, Mail::Server(Box::new(arriving))) {
            Ok(()) => bump(&pool.shard.counters.handovers_given),
            Err(Mail::Server(arriving)) => pool.take_in(*arriving),
            Err(_) => {}
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.done {
            self.pool.forget_slot(self.slot);
            self.pool.start_logins();
        }
    }
}
