//! Getting a server, and giving it back.

use super::body::{Body, Verdict};
use super::settle::{Settled, Settling};
use super::{End, Session};
use crate::client::fatal;
use crate::server::{Server, Slot};
use crate::settings;
use crate::shard::{Acquired, bump};
use ::pool::config::PoolMode;
use protocol::error::SqlState;
use protocol::ledger::Kind;
use router::effects::Effects;
use std::rc::Rc;
use std::task::Context;

impl Session {
    /// Makes sure that there is a server for a message of this kind.
    /// `Relay`: there is. `Blocked`: not yet. `Drop`: there will be none, and
    /// the client has been told.
    pub(super) fn need_server(&mut self, cx: &mut Context<'_>, kind: Kind) -> Result<Verdict, End> {
        if self.server.is_some() {
            return Ok(Verdict::Relay);
        }
        if let Some(refusal) = self.refusal.take() {
            self.refuse(kind, &refusal);
            return Ok(Verdict::Drop);
        }
        match self.pool.acquire(cx.waker()) {
            Acquired::Server(server) => {
                self.adopt(cx, server)?;
                Ok(Verdict::Relay)
            }
            Acquired::Waiting(wait) => {
                self.wait = Some(wait);
                Ok(Verdict::Blocked)
            }
        }
    }

    /// Looks whether the pool has granted what the client waits for.
    pub(super) fn take_grant(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let Some(granted) = self.wait.as_mut().and_then(|wait| wait.take()) else {
            return Ok(());
        };
        self.wait = None;
        match granted {
            Ok(server) => self.adopt(cx, server),
            Err(refusal) => {
                self.refusal = Some(Box::new(refusal));
                Ok(())
            }
        }
    }

    /// Takes a server over. Where its settings differ from the client's, the
    /// change goes ahead of the request, in the same write.
    fn adopt(&mut self, cx: &Context<'_>, mut server: Box<Server>) -> Result<(), End> {
        server.socket.set_waker(cx.waker());
        if !Rc::ptr_eq(&server.label, &self.label) {
            let mut out = self.shard.take_scratch();
            let written =
                settings::change(&server.label, &self.label, &mut out, &mut server.ledger);
            server.socket.write(&out);
            self.shard.put_scratch(out);
            server.unnamed = Slot::Unknown;
            server.label = Rc::clone(&self.label);
            if written.is_err() {
                // A label that was applied once can be written again.
                self.pool.discard(server);
                return Err(End::Torn(None));
            }
        }
        self.reply = Body::Relay;
        self.server = Some(server);
        Ok(())
    }

    /// Gives the server back if nothing holds it. True if it went.
    pub(super) fn release_if_free(&mut self, cx: &Context<'_>) -> bool {
        let Some(server) = &self.server else {
            return false;
        };
        if !server.is_at_rest() || server.cancels.get() > 0 || self.holds_server() {
            return false;
        }
        self.forgive();
        let Some(server) = &self.server else {
            return false;
        };
        if !server.suspect.is_clean() {
            self.settle(cx);
            return true;
        }
        if server.pinned {
            return false;
        }
        if let Some(server) = self.server.take() {
            self.pool.release(server);
        }
        true
    }

    /// Texts that only take away (`UNLISTEN *`, `RESET ALL`) change nothing
    /// where there was nothing: drivers send them after every use.
    fn forgive(&mut self) {
        if let Some(server) = &mut self.server
            && !server.suspect.is_clean()
            && !server.suspect.leaves()
            && !server.pinned
            && !server.tainted
            && server.label.entries().is_empty()
        {
            server.suspect = Effects::NONE;
        }
    }

    fn holds_server(&self) -> bool {
        let amid_message = matches!(self.request, Body::Relay) && self.frames.body_remaining() > 0;
        let unkept = self
            .statements
            .as_ref()
            .is_some_and(|statements| statements.unnamed_is_unkept());
        amid_message || unkept || self.pool.mode() == PoolMode::Session
    }

    /// Texts were sent that may have changed the session: asks the server
    /// what has become of it.
    fn settle(&mut self, cx: &Context<'_>) {
        let Some(server) = self.server.take() else {
            return;
        };
        let custom = self.custom.as_deref().cloned().unwrap_or_default();
        self.settling = Some(Settling::start(&self.pool, server, custom, cx.waker()));
    }

    /// Looks whether that has been answered.
    pub(super) fn take_settled(&mut self, cx: &Context<'_>) -> Result<(), End> {
        let Some(settled) = self.settling.as_ref().and_then(|settling| settling.take()) else {
            return Ok(());
        };
        self.settling = None;
        match settled {
            Settled::Free { settings, returns } => self.expect_settings(settings, returns),
            Settled::Pinned {
                server,
                settings,
                returns,
            } => {
                bump(&self.shard.counters.pins);
                self.expect_settings(settings, returns);
                server.socket.set_waker(cx.waker());
                self.server = Some(server);
                // With a setting back at its startup value the server differs.
                if let Some(server) = self.server.take() {
                    self.adopt(cx, server)?;
                }
            }
            Settled::Lost => {}
        }
        Ok(())
    }

    /// From now on the client expects what its server has; after a RESET,
    /// what its startup packet said comes back where nothing else was set.
    fn expect_settings(&mut self, settings: settings::Entries, returns: bool) {
        let base = if returns {
            self.startup.entries().clone()
        } else {
            settings::Entries::new()
        };
        self.label = self.pool.labels.intern(base.into_iter().chain(settings));
    }

    /// In statement mode a transaction that stays open is refused.
    pub(super) fn forbid_transaction(&self) -> End {
        let text =
            "transactions of more than one statement are not possible with pool.mode: statement";
        End::Saying(fatal(SqlState::FEATURE_NOT_SUPPORTED, text))
    }
}
