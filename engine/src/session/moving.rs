//! A client that moves to another shard, between two transactions.
//!
//! Only a session that has nothing under way moves: no server, no place in a
//! queue, nothing half read, nothing owed or unsent. What is left is what the
//! client knows of itself (its settings, its statements) and what it is known
//! by; that is packed by what it means, since labels and definitions are
//! interned in their shard. Until the other shard has it, the session is whole
//! and goes on where it is if it cannot go.

use super::body::Body;
use super::custom::CustomNames;
use super::statements::{PackedStatements, Statements};
use super::{End, Session};
use crate::client::{self, Entered, Refused, Traveller};
use crate::link::{DetachedLink, Link};
use crate::ring::task;
use crate::server::{Keys, Parameters};
use crate::settings::Entries;
use crate::shard::{Counted, Mail, PoolId, Shard, Wishes};
use ::pool::config::PoolMode;
use protocol::error::SqlState;
use protocol::frame::Deframer;
use std::pin::pin;
use std::rc::Rc;
use std::task::Context;

/// A client on its way to another shard. Dropping it closes the connection.
pub struct Guest {
    link: DetachedLink,
    traveller: Traveller,
    pool: PoolId,
    mode: PoolMode,
    /// As whom its servers are logged in, and with what, where that is the
    /// client's own role.
    role: Option<(String, Option<Keys>)>,
    label: Entries,
    /// Where it is not the same.
    startup: Option<Entries>,
    statements: Option<PackedStatements>,
    frames: Deframer,
    custom: Option<Box<CustomNames>>,
    told: Option<Box<Parameters>>,
    /// For how long it has been idle, in microseconds.
    idle_for: u64,
}

impl Session {
    /// Ends the session here if it is to move and may.
    pub(super) fn move_if_wanted(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let control = &self.entered.control;
        if control.wishes.get().has(Wishes::RESTLESS)
            && (self.server.is_some() || self.is_waiting())
        {
            control.want(Wishes::DUE);
        }
        let wishes = control.wishes.get();
        if !wishes.has(WANTED) || !self.may_move() || !self.has_sent_all(cx) {
            return Ok(());
        }
        let (loads, here) = (&self.shard.loads, self.shard.id);
        let to = match wishes.has(Wishes::DUE) {
            true => loads.send_round(here),
            false => loads.send(here),
        };
        if let Some(to) = to {
            return Err(End::Moving(to));
        }
        // Enough others have gone.
        control.unwant(WANTED);
        Ok(())
    }

    /// Nothing is under way. What belongs to a lease is left out: the next one
    /// begins with it anew.
    fn may_move(&self) -> bool {
        let unkept = |statements: &Statements| statements.unnamed_is_unkept();
        self.server.is_none()
            && !self.is_waiting()
            && self.settling.is_none()
            && self.refusal.is_none()
            && self.reported.is_none()
            && self.fate.is_none()
            && !self.skipping
            && !self.withheld
            && !self.goodbye
            && self.cancels_bound == 0
            && self.frames.at_boundary()
            && !matches!(self.request, Body::Collect(_))
            && !self.statements.as_deref().is_some_and(unkept)
            && self.entered.control.cancel.borrow().is_empty()
            && !self.socket.has_bytes()
            && !self.socket.ended()
    }

    /// Whether the client's last answer has left; if not, this task is woken
    /// when it has.
    fn has_sent_all(&self, cx: &mut Context<'_>) -> bool {
        let flushed = pin!(self.socket.flushed());
        flushed.poll(cx).is_ready()
    }

    /// Has another shard serve the client. If that is not to be, nothing has
    /// changed.
    pub(super) async fn move_to(&mut self, to: usize) -> bool {
        let mut booked = Booked {
            shard: Rc::clone(&self.shard),
            to,
            gone: false,
        };
        let link = self.socket.take_off().await;
        booked.gone = link.is_some_and(|link| self.hand_over(to, link));
        if !booked.gone {
            self.entered.control.unwant(WANTED);
        }
        booked.gone
    }

    fn hand_over(&mut self, to: usize, link: DetachedLink) -> bool {
        let guest = self.pack(to, link);
        let home = guest.traveller.home();
        match self.shard.try_post(to, Mail::Guest(Box::new(guest))) {
            Ok(()) => {
                self.entered.left(home);
                true
            }
            Err(mail) => {
                if let Mail::Guest(guest) = mail {
                    self.socket = Link::attach(&self.shard.ring, guest.link);
                    self.entered.stayed(guest.traveller);
                }
                false
            }
        }
    }

    fn pack(&mut self, to: usize, link: DetachedLink) -> Guest {
        let traveller = self.entered.depart(to);
        let pool = &self.pool;
        let role = pool.id().is_role();
        let same = Rc::ptr_eq(&self.label, &self.startup);
        Guest {
            link,
            traveller,
            pool: pool.id(),
            mode: self.mode,
            role: role.then(|| (pool.user().to_string(), pool.keys())),
            label: self.label.entries().clone(),
            startup: (!same).then(|| self.startup.entries().clone()),
            statements: self.statements.as_deref().map(Statements::pack),
            frames: self.frames,
            custom: self.custom.clone(),
            told: self.told.clone(),
            idle_for: self.idle_for(),
        }
    }
}

/// A client that counts for the shard to which it goes. If it does not get
/// there, whatever the reason, it counts here again.
struct Booked {
    shard: Rc<Shard>,
    to: usize,
    gone: bool,
}

impl Drop for Booked {
    fn drop(&mut self) {
        if !self.gone {
            self.shard.loads.stayed(self.shard.id, self.to);
        }
    }
}

impl Guest {
    /// The client goes on on this shard.
    pub fn settle_in(self: Box<Self>, shard: &Rc<Shard>) {
        let counted = Counted::arrived(shard);
        let guest = *self;
        let socket = Link::attach(&shard.ring, guest.link);
        let entered = Entered::arrive(shard, guest.traveller, guest.pool.group);
        let gone = || {
            let text = "the database is not in the configuration any more";
            Refused::fatal(SqlState::DATABASE_DROPPED, text)
        };
        let pool = match guest.role {
            None => shard.pool(guest.pool.group).ok_or_else(gone),
            Some((user, keys)) => shard.pool_of_guest(guest.pool.group, &user, keys),
        };
        let pool = match pool {
            Ok(pool) => pool,
            Err(refused) => {
                task::spawn(refuse(counted, socket, entered, refused));
                return;
            }
        };
        if pool.is_removed() {
            entered.control.want(Wishes::REMOVED);
        }
        let label = pool.labels.intern(guest.label);
        let startup = guest.startup.map(|entries| pool.labels.intern(entries));
        let startup = startup.unwrap_or_else(|| Rc::clone(&label));
        let mut session = Session::new(Rc::clone(shard), socket, pool, startup, entered);
        session.label = label;
        session.mode = guest.mode;
        let unpack = |packed| Box::new(Statements::unpack(packed, shard));
        session.statements = guest.statements.map(unpack);
        session.custom = guest.custom;
        session.told = guest.told;
        session.frames = guest.frames;
        session.was_idle_for(guest.idle_for);
        task::spawn(client::serve_guest(counted, session));
    }
}

/// There is no pool for its role any more.
async fn refuse(_counted: Counted, socket: Link, _entered: Entered, refused: Refused) {
    if let Refused::Saying(words) = refused {
        client::say_and_close(&socket, &words).await;
    }
}

/// What makes a client move.
const WANTED: Wishes = Wishes::MOVE.or(Wishes::DUE);
