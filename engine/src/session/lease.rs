//! Getting a server, and giving it back.

use super::body::{Body, Verdict};
use super::requests::READY_IDLE;
use super::settle::{Asker, RETURNING, Settling};
use super::{End, Session};
use crate::client::fatal;
use crate::server::probe::IDLE_TIMEOUT;
use crate::server::{Server, Slot};
use crate::settings;
use crate::shard::{Seat, bump};
use ::pool::config::PoolMode;
use protocol::backend::{ParameterStatus, TransactionStatus};
use protocol::error::SqlState;
use protocol::ledger::Kind;
use protocol::tag::frontend_tag as tag;
use router::effects::{Effect, Effects, names_temp_schema};
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
        self.ask_for_server(cx)
    }

    fn ask_for_server(&mut self, cx: &mut Context<'_>) -> Result<Verdict, End> {
        match self.pool.acquire(&mut self.seat, cx.waker()) {
            Some(server) => {
                self.adopt(cx, server)?;
                self.suspect_settings();
                Ok(Verdict::Relay)
            }
            None => Ok(Verdict::Blocked),
        }
    }

    /// Asks for a server before the request is read, if a whole one that needs
    /// a server stands at the front: on a busy pool nearly all must wait, and
    /// would be read twice.
    pub(super) fn ask_ahead(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let ready = self.server.is_none()
            && self.refusal.is_none()
            && !self.skipping
            && matches!(self.request, Body::Relay)
            && self
                .socket
                .front(|bytes| self.frames.whole(bytes))
                .flatten()
                .is_some_and(|head| needs_server(head.tag));
        if ready {
            self.ask_for_server(cx)?;
        }
        Ok(())
    }

    /// In the queue for a server, or granted one.
    pub(super) fn is_waiting(&self) -> bool {
        self.seat.as_ref().is_some_and(Seat::is_taken)
    }

    /// Looks whether the pool has granted what the client waits for.
    pub(super) fn take_grant(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let Some(granted) = self.seat.as_mut().and_then(Seat::take) else {
            return Ok(());
        };
        match granted {
            Ok(server) => {
                self.adopt(cx, server)?;
                self.suspect_settings();
                Ok(())
            }
            Err(refusal) => {
                self.refusal = Some(Box::new(refusal));
                Ok(())
            }
        }
    }

    /// Settings by which a text that does not say so leaves something: with
    /// the temporary schema in its `search_path` a client may make a temporary
    /// object; an idle server must not run under a client's timeout, which
    /// would end it when others have it.
    fn suspect_settings(&mut self) {
        let names_temp = |path| names_temp_schema(path);
        if self.label.get(b"search_path").is_some_and(names_temp)
            || self.label.get(IDLE_TIMEOUT).is_some()
        {
            self.suspect(Effects::of(&[Effect::CreateTemp]));
        }
    }

    /// Takes a server over. Where its settings differ from the client's, the
    /// change goes ahead of the request, in the same write.
    fn adopt(&mut self, cx: &Context<'_>, mut server: Box<Server>) -> Result<(), End> {
        server.socket.set_waker(cx.waker());
        server.asked = None;
        // Nothing of this client is under way on a server that it has only
        // just got. What waited for its answers must not wait for those to
        // our own messages: the server would be given back before it is used.
        (self.barrier, self.changes) = (false, false);
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
        if self.mode == PoolMode::Session {
            // Nobody else's until the client leaves: its names are its own.
            server.native.get_or_insert_default();
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
        if !server.is_at_rest() || server.cancels.under_way() > 0 || self.holds_server() {
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
        self.follow_reported();
        if let Some(server) = self.server.take() {
            self.pool.release(server);
        }
        true
    }

    /// The server reports a setting that has changed, whatever did it.
    pub(super) fn note_reported(&mut self, body: &[u8]) {
        if let Ok(ParameterStatus { name, value }) = ParameterStatus::decode(body) {
            let reported = self.reported.get_or_insert_default();
            if reported.len() < REPORTED_MAX {
                reported.push((name.to_ascii_lowercase().into(), value.into()));
            }
        }
    }

    /// A reported setting has changed though no text said so: it is the
    /// client's from now on, unless it is what a fresh session has.
    fn follow_reported(&mut self) {
        let (Some(reported), Some(server)) = (self.reported.take(), &mut self.server) else {
            return;
        };
        let mut entries = self.label.entries().clone();
        for (name, value) in *reported {
            entries.retain(|(known, _)| *known != name);
            let at_start = self.startup.get(&name);
            if at_start.is_some() || !self.pool.starts_with(&name, &value) {
                entries.push((name, value));
            }
        }
        self.label = self.pool.labels.intern(entries);
        server.label = Rc::clone(&self.label);
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
            && self.startup.entries().is_empty()
        {
            server.suspect = Effects::NONE;
        }
    }

    /// After a RESET the client must not go on before its startup settings
    /// are back and it has been told: until then its `ReadyForQuery` waits.
    pub(super) fn must_withhold(&self, server: &Server) -> bool {
        self.may_put_back(server)
            && server.status == TransactionStatus::Idle
            && server.ledger.is_idle()
            && !self.is_amid_something()
    }

    /// Something was sent that may have returned settings of the startup
    /// packet to the server's own defaults.
    pub(super) fn may_put_back(&self, server: &Server) -> bool {
        server.suspect.intersects(RETURNING) && !self.startup.entries().is_empty()
    }

    fn holds_server(&self) -> bool {
        let for_good = self.mode == PoolMode::Session && !self.withheld;
        for_good || self.is_amid_something()
    }

    /// Half a message has been sent, or the server has the only copy of a
    /// statement.
    pub(super) fn is_amid_something(&self) -> bool {
        let amid_message = matches!(self.request, Body::Relay) && self.frames.body_remaining() > 0;
        let unkept = self
            .statements
            .as_ref()
            .is_some_and(|statements| statements.unnamed_is_unkept());
        amid_message || unkept
    }

    /// Texts were sent that may have changed the session: asks the server
    /// what has become of it.
    pub(super) fn settle(&mut self, cx: &Context<'_>) {
        let asked = self.awaits_answer();
        let Some(server) = self.server.take() else {
            return;
        };
        // The answer will have them.
        self.reported = None;
        self.returning = None;
        let asker = Asker {
            custom: self.custom.as_deref().cloned().unwrap_or_default(),
            startup: Rc::clone(&self.startup),
            asked,
            erred: self.erred,
            told: self.told.take(),
            keeps: self.mode == PoolMode::Session,
        };
        self.settling = Some(Settling::start(&self.pool, server, asker, cx.waker()));
    }

    /// Looks whether that has been answered.
    pub(super) fn take_settled(&mut self, cx: &Context<'_>) -> Result<(), End> {
        let Some(settled) = self.settling.as_ref().and_then(|settling| settling.take()) else {
            return Ok(());
        };
        self.settling = None;
        let Some(label) = settled.label else {
            // What the client did to its session is gone, as when a server of
            // its own ends.
            if !settled.words.is_empty() {
                return Err(End::Torn(Some(settled.words)));
            }
            let text = "the connection to the server was lost";
            return Err(End::Torn(Some(fatal(SqlState::CONNECTION_FAILURE, text))));
        };
        self.label = label;
        for statement in &settled.gone {
            self.statements_mut().remove(statement);
        }
        self.socket.write(&settled.words);
        if std::mem::take(&mut self.withheld) {
            self.socket.write(READY_IDLE);
        }
        if let Some(server) = settled.server {
            bump(&self.shard.counters.pins);
            self.adopt(cx, server)?;
        }
        Ok(())
    }

    /// In statement mode a transaction that stays open is refused.
    pub(super) fn forbid_transaction(&self) -> End {
        let text =
            "transactions of more than one statement are not possible with pool.mode: statement";
        End::Saying(fatal(SqlState::FEATURE_NOT_SUPPORTED, text))
    }
}

/// Messages that cannot be answered without a server, whatever they say.
fn needs_server(tag_byte: u8) -> bool {
    matches!(
        tag_byte,
        tag::QUERY | tag::PARSE | tag::BIND | tag::DESCRIBE | tag::EXECUTE | tag::FUNCTION_CALL
    )
}

/// Changes of one lease that are followed; far more than there are settings
/// that PostgreSQL reports.
const REPORTED_MAX: usize = 1024;
