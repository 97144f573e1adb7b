//! After a transaction whose texts may have changed the session: the server
//! is asked what it holds now (see [`crate::server::probe`]), while the
//! client's next request waits.

use super::custom::CustomNames;
use crate::client::made_fatal;
use crate::ring::task;
use crate::server::clean::{self, Departure};
use crate::server::dialog::Broken;
use crate::server::probe::{Found, STATEMENT_PIN, TEMPORARY};
use crate::server::{Parameters, Server, Slot, Statement};
use crate::settings::{self, Label};
use crate::shard::ShardPool;
use router::effects::{Effect, Effects};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// A server being asked.
pub(super) struct Settling {
    outcome: RefCell<Option<Settled>>,
    abandoned: Cell<bool>,
    waker: Waker,
}

/// What came of it.
pub(super) struct Settled {
    /// The server, if it holds something that cannot be moved; otherwise it
    /// is in its pool again.
    pub(super) server: Option<Box<Server>>,
    /// The settings that the client expects from now on. `None`: the server
    /// is gone, and with it what the client did.
    pub(super) label: Option<Rc<Label>>,
    /// Statements of the client's that SQL has deallocated.
    pub(super) gone: Vec<Rc<Statement>>,
    /// What the client has to be told: notifications that came meanwhile, and
    /// reported settings that are not what it was told last. Of a server that
    /// is gone, why it went, if it said so.
    pub(super) words: Vec<u8>,
}

/// What the answers mean depends on who asked.
pub(super) struct Asker {
    /// Custom settings to be asked for.
    pub(super) custom: CustomNames,
    /// The settings of the client's startup packet, to which RESET returns.
    pub(super) startup: Rc<Label>,
    /// What the client was told of reported settings, if that is not what the
    /// server reported last.
    pub(super) told: Option<Box<Parameters>>,
    /// The question is on its way already, see [`super::ask`].
    pub(super) asked: bool,
    /// What it is about has failed.
    pub(super) erred: bool,
    /// The server stays whatever it holds.
    pub(super) keeps: bool,
}

impl Settling {
    /// Starts to ask.
    pub(super) fn start(
        pool: &Rc<ShardPool>,
        server: Box<Server>,
        asker: Asker,
        waker: &Waker,
    ) -> Rc<Self> {
        let settling = Rc::new(Self {
            outcome: RefCell::new(None),
            abandoned: Cell::new(false),
            waker: waker.clone(),
        });
        let asking = Asking {
            pool: Rc::clone(pool),
            server: Some(server),
            settling: Rc::clone(&settling),
        };
        task::spawn(asking.run(asker));
        settling
    }

    /// The outcome, once there is one.
    pub(super) fn take(&self) -> Option<Settled> {
        self.outcome.borrow_mut().take()
    }

    /// The session ends: whatever comes of it, the server is cleaned.
    pub(super) fn abandon(&self, pool: &Rc<ShardPool>) {
        self.abandoned.set(true);
        if let Some(server) = self.take().and_then(|settled| settled.server) {
            clean::spawn(Rc::clone(pool), server, Departure::Polite);
        }
    }

    fn finish(&self, pool: &Rc<ShardPool>, settled: Settled) {
        *self.outcome.borrow_mut() = Some(settled);
        if self.abandoned.get() {
            self.abandon(pool);
        }
        self.waker.wake_by_ref();
    }
}

/// Tells the session of the end even if asking panics.
struct Asking {
    pool: Rc<ShardPool>,
    server: Option<Box<Server>>,
    settling: Rc<Settling>,
}

impl Asking {
    async fn run(mut self, asker: Asker) {
        let Some(server) = self.server.as_deref_mut() else {
            return;
        };
        let Ok(mut settled) = ask(&self.pool, server, &asker).await else {
            return;
        };
        let Some(server) = self.server.take() else {
            return;
        };
        if server.pinned || asker.keeps {
            settled.server = Some(server);
        } else {
            self.pool.release(server);
        }
        self.settling.finish(&self.pool, settled);
    }
}

/// Asks, and after a RESET puts what the startup packet said back where
/// nothing else is set.
async fn ask(pool: &ShardPool, server: &mut Server, asker: &Asker) -> Result<Settled, Broken> {
    let effects = server.suspect;
    let names = asker.custom.iter().map(|name| &**name);
    let mut found = match asker.asked {
        true => server.probe_asked(&pool.user(), names).await?,
        false => server.probe(&pool.user(), names).await?,
    };
    if let Some(only) = found.only {
        server.suspect = Effects::NONE;
        if !asker.erred {
            let entries = server.label.entries().iter().cloned();
            server.label = pool.labels.intern(entries.chain([only]));
        }
        let label = Rc::clone(&server.label);
        return rested(server, asker, label, found.notifications, Vec::new());
    }
    let label = pool.labels.intern(found.settings.iter().cloned());
    server.label = Rc::clone(&label);
    server.tainted |= effects.contains(Effect::Load);
    server.suspect = Effects::NONE;
    // In a server that has had temporary objects before, PostgreSQL does not
    // notice that a new one hides a table that a plan was made for: for it the
    // search path is what it was. In the client's own session it would notice.
    if !server.pinned && found.pins.contains(&TEMPORARY) {
        server.query(b"DISCARD PLANS").await?;
    }
    server.pinned = !found.pins.is_empty() || server.tainted;
    if server.pinned {
        tracing::debug!(reasons = ?found.pins, "the server stays with its client");
    }
    let gone = look_at_statements(server, &found, asker).await?;
    let mut words = std::mem::take(&mut found.notifications);
    if !effects.intersects(RETURNING) {
        return rested(server, asker, label, words, gone);
    }
    let reported = || Box::new(server.parameters.clone());
    let told = asker.told.clone().unwrap_or_else(reported);
    let base = asker.startup.entries().iter().cloned();
    let wanted = pool.labels.intern(base.chain(found.settings));
    if !Rc::ptr_eq(&wanted, &label) {
        let mut out = Vec::new();
        settings::change(&label, &wanted, &mut out, &mut server.ledger)
            .map_err(|_| Broken::Unexpected(b'P'))?;
        server.unnamed = Slot::Unknown;
        server.socket.write(&out);
        let answer = server.settle().await?;
        if answer.error.is_some() {
            return Err(Broken::Unexpected(b'E'));
        }
        server.label = Rc::clone(&wanted);
        words.extend_from_slice(&answer.notifications);
    }
    server
        .parameters
        .encode_changes(&told, &mut words)
        .map_err(|_| Broken::Unexpected(b'S'))?;
    rested(server, asker, wanted, words, gone)
}

/// SQL may have made and deallocated prepared statements. Where it has left
/// none, the server is made one like any other, unless it stays.
async fn look_at_statements(
    server: &mut Server,
    found: &Found,
    asker: &Asker,
) -> Result<Vec<Rc<Statement>>, Broken> {
    if server.native.is_none() {
        // A function may have made one.
        if found.pins.contains(&STATEMENT_PIN) {
            server.native = Some(Box::default());
        }
        return Ok(Vec::new());
    }
    let gone = server.reconcile(&found.statements);
    if !server.pinned && !asker.keeps {
        server.renounce(&found.statements).await?;
    }
    Ok(gone)
}

/// A server that stays may have more to say already, such as a notification:
/// the session reads it. One that goes must not.
fn rested(
    server: &mut Server,
    asker: &Asker,
    label: Rc<Label>,
    words: Vec<u8>,
    gone: Vec<Rc<Statement>>,
) -> Result<Settled, Broken> {
    let stays = server.pinned || asker.keeps;
    if server.is_between_requests() && (stays || server.check_idle()) {
        Ok(Settled {
            server: None,
            label: Some(label),
            gone,
            words,
        })
    } else {
        Err(Broken::Closed)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let words = server.last_words.take();
            self.pool.discard(server);
            let lost = Settled {
                server: None,
                label: None,
                gone: Vec::new(),
                words: words.map_or_else(Vec::new, |words| made_fatal(&words)),
            };
            self.settling.finish(&self.pool, lost);
        }
    }
}

/// What brings settings back to their startup values.
pub(super) const RETURNING: Effects = Effects::of(&[
    Effect::Reset,
    Effect::ResetAll,
    Effect::DiscardAll,
    Effect::Role,
]);
