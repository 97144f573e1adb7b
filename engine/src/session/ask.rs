//! Asking along: when a request may have changed the session and its
//! transaction will be over with it, the question what the server holds now
//! goes behind it in the same write, so that following a setting costs no
//! round trip. After a `SET` of one setting and nothing else, only that
//! setting is asked for, which is some fifty times cheaper.
//!
//! Whether the transaction will be over is guessed from the text; if the guess
//! is wrong, or the client has gone on meanwhile, the answer is dropped and the
//! server is asked again when it is at rest. A guess must never be wrong where
//! a query of ours would do harm: in COPY, or at the start of a transaction,
//! of which the isolation level can be set only before any query.

use super::Session;
use super::body::Body;
use crate::server::probe::{self, IDLE_TIMEOUT};
use crate::server::{Note, Server, Slot};
use ::pool::config::PoolMode;
use protocol::backend::TransactionStatus;
use protocol::frontend::Query;
use protocol::ledger::{Kind, Whose};
use router::effects::{Effect, Effects};
use router::scan::Options;
use router::statement::statements;

/// What is known of the end of the request that was read last.
#[derive(Default)]
pub(super) enum Ending {
    /// Nothing.
    #[default]
    Unknown,
    /// Its transaction is over with it.
    Idle,
    /// The same, and it can only have changed this setting.
    Only(Box<[u8]>),
}

impl Session {
    /// Notes how a simple query will end. To be called before it is pushed.
    pub(super) fn foresee(&mut self, text: &[u8], effects: Effects) {
        let Some(server) = &self.server else { return };
        if server.ledger.owes_client() || effects.intersects(UNFORESEEABLE) {
            return;
        }
        let idle = server.status == TransactionStatus::Idle;
        let ends = effects.intersects(ENDING) && !effects.contains(Effect::RollbackTo);
        if !idle && !ends {
            return;
        }
        let only =
            idle && server.suspect.is_clean() && effects == Effects::of(&[Effect::SetSession]);
        self.ending = match only.then(|| only_setting(text)).flatten() {
            Some(name) => Ending::Only(name),
            None => Ending::Idle,
        };
    }

    /// Notes how a batch will end, whose `Sync` is about to be pushed.
    pub(super) fn foresee_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let Some(server) = &self.server else { return };
        if server.suspect.is_clean() || batch.intersects(UNFORESEEABLE) {
            return;
        }
        let ends = batch.intersects(ENDING) && !batch.contains(Effect::RollbackTo);
        // The status is that of now only if no earlier request is under way.
        let known = !server.ledger.owes_ready();
        if known && (ends || server.status == TransactionStatus::Idle) {
            self.ending = Ending::Idle;
        }
    }

    /// All that has come is read: asks, if it is worth it.
    pub(super) fn ask_along(&mut self) {
        let ending = match std::mem::take(&mut self.ending) {
            Ending::Unknown => return,
            ending if self.socket.has_bytes() || !self.may_ask_along() => return drop(ending),
            ending => ending,
        };
        let Some(server) = &mut self.server else {
            return;
        };
        let question = match &ending {
            Ending::Only(name) => probe::question_for(name),
            _ => {
                let custom = self.custom.iter().flat_map(|names| names.iter());
                probe::question(custom.map(|name| &**name), false)
            }
        };
        let mut out = Vec::with_capacity(question.len() + 6);
        if (Query { text: &question }).encode(&mut out).is_ok() {
            server.socket.write(&out);
            server
                .ledger
                .push(Kind::Query, Whose::Ours, Some(Note::Asks));
            server.unnamed = Slot::Empty;
            self.erred = false;
        }
    }

    fn may_ask_along(&self) -> bool {
        let Some(server) = &self.server else {
            return false;
        };
        let changes = server.suspect.leaves() || !server.label.entries().is_empty();
        changes
            && !server.suspect.is_clean()
            && !server.pinned
            && !server.tainted
            && server.native.is_none()
            && !server.suspect.intersects(NEEDS_MORE)
            && !self.may_put_back(server)
            && self.mode != PoolMode::Session
            && !server.ledger.is_copy_in()
            && !server.ledger.has_open_batch()
            && matches!(self.request, Body::Relay)
            && self.frames.at_boundary()
            && self.fate.is_none()
    }

    /// Whether the answer to a question that went along is all that the
    /// server owes.
    pub(super) fn awaits_answer(&self) -> bool {
        self.server.as_deref().is_some_and(is_answer_next) && !self.withheld
    }
}

/// Whether what the server sends next is the answer to such a question, and
/// the end of what it owes.
pub(super) fn is_answer_next(server: &Server) -> bool {
    let ledger = &server.ledger;
    ledger.len() == 1
        && server.status == TransactionStatus::Idle
        && ledger
            .head()
            .is_some_and(|entry| matches!(entry.note, Some(Note::Asks)))
}

/// The setting of a text that is one `SET`, if it can be asked for by name.
fn only_setting(text: &[u8]) -> Option<Box<[u8]>> {
    let mut found = statements(text, Options::default());
    let setting = found.next()?.setting?;
    let name = setting.name().to_ascii_lowercase();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    // Those that the long question does not take at their word either.
    let special = name.starts_with(b"transaction_") || *name == *b"seed" || *name == *IDLE_TIMEOUT;
    let default = setting.value.eq_ignore_ascii_case(b"default");
    let askable = !name.is_empty() && name.iter().all(plain) && !special && !default;
    (askable && found.next().is_none()).then(|| name.into())
}

/// What makes it unknown whether the transaction is over, or COPY.
const UNFORESEEABLE: Effects = Effects::of(&[
    Effect::Unknown,
    Effect::Unterminated,
    Effect::Begin,
    Effect::Chain,
    Effect::CopyStdin,
]);
const ENDING: Effects = Effects::of(&[Effect::Commit, Effect::Rollback]);
/// After these more than one question is asked.
const NEEDS_MORE: Effects = Effects::of(&[Effect::CreateTemp, Effect::Load, Effect::Unknown]);

#[cfg(test)]
mod tests {
    use super::only_setting;

    #[test]
    fn one_set_of_one_setting_is_asked_for_by_name() {
        for (text, name) in [
            ("set work_mem = '8MB'", "work_mem"),
            ("SET SESSION Search_Path TO a, b;", "search_path"),
            ("set app.user = 'x' -- it", "app.user"),
            ("set time zone 'UTC'", "timezone"),
        ] {
            assert_eq!(
                only_setting(text.as_bytes()).as_deref(),
                Some(name.as_bytes()),
                "{text}"
            );
        }
        for text in [
            "set work_mem = '8MB'; select 1",
            "set \"a b\" = 1",
            "set session characteristics as transaction read only",
            "set idle_session_timeout = 5",
            "set work_mem to DEFAULT",
            "set seed = 0.5",
            "select 1",
        ] {
            assert_eq!(only_setting(text.as_bytes()), None, "{text}");
        }
    }
}
