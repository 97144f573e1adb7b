//! `RESET`, `SET … TO DEFAULT`, `RESET ALL` and `DISCARD ALL` return to what
//! the startup packet said. The server was logged in without that packet, so
//! for it the settings of the packet are like those of a `SET`: what it
//! returns to is its own default.
//!
//! Where the text is such a statement and nothing else, the startup values
//! are set again right behind it, in the same batch: then the value is right
//! for whatever follows, also inside a transaction, and the server reports it
//! once. A simple query becomes a batch for that. What other texts reset is
//! put back when the session is settled.

use super::Session;
use super::body::Verdict;
use crate::server::{Slot, fresh_number, internal_name};
use crate::settings::{Entries, Label};
use protocol::encode::EncodeError;
use protocol::frontend::{Bind, Close, Execute, Parse, Sync, Target};
use protocol::ledger::{Kind, Whose};
use protocol::list::List;
use router::effects::{Effect, Effects};
use router::scan::Options;
use router::statement::{self, Setting, statements};

/// A portal that returns settings to their startup values.
pub(super) struct Returning {
    portal: Box<[u8]>,
    entries: Entries,
}

impl Session {
    /// Sends a simple query that returns settings as a batch. `None`: it is
    /// not such a query, or stands where a batch would not be the same.
    pub(super) fn query_returning(
        &mut self,
        text: &[u8],
        effects: Effects,
        out: &mut Vec<u8>,
    ) -> Result<Option<Verdict>, EncodeError> {
        let entries = self.returned(text, effects);
        let Some(server) = &mut self.server else {
            return Ok(None);
        };
        let ledger = &server.ledger;
        if entries.is_empty() || ledger.is_copy_in() || ledger.has_open_batch() {
            return Ok(None);
        }
        // What is owed may be a COPY, or an error. Not what is ours: to wait for
        // that on a server that was only just got would be to give it back
        // unused, and to meet the same with the next one.
        if ledger.owes_client() {
            self.wants_flush = true;
            return Ok(Some(Verdict::Blocked));
        }
        self.suspect(effects);
        self.note_changes(effects);
        // Nothing is owed to the client, so nothing can make the server skip it.
        self.displace_unnamed();
        Parse {
            name: b"",
            query: text,
            param_types: List::empty(),
        }
        .encode(out)?;
        self.owe(Kind::Parse, Whose::Behalf);
        Bind {
            portal: b"",
            statement: b"",
            param_formats: List::empty(),
            params: List::empty(),
            result_formats: List::empty(),
        }
        .encode(out)?;
        self.owe(Kind::Bind, Whose::Behalf);
        execute(b"", out)?;
        self.owe(Kind::Execute, Whose::Client);
        self.set_again(&entries, out)?;
        close(Target::Statement, b"", out)?;
        self.owe(Kind::Close, Whose::Ours);
        Sync.encode(out)?;
        self.owe(Kind::Sync, Whose::Client);
        if let Some(server) = &mut self.server {
            server.unnamed = Slot::Empty;
        }
        Ok(Some(Verdict::Replace))
    }

    /// A text of several statements may have returned settings, and they are
    /// put back when its answer is complete: what comes behind it waits, if it
    /// came in the same write.
    pub(super) fn must_wait_for_return(&mut self) -> bool {
        let waits = self.server.as_ref().is_some_and(|server| {
            let ledger = &server.ledger;
            self.may_put_back(server)
                && !ledger.is_empty()
                && !ledger.has_open_batch()
                && !ledger.is_copy_in()
        });
        self.wants_flush |= waits;
        waits
    }

    /// Whether [`Self::bind_returning`] must look at a text.
    pub(super) fn may_return(&self, effects: Effects) -> bool {
        self.returning.is_some()
            || effects.intersects(RETURNING) && !self.startup.entries().is_empty()
    }

    /// Notes what a portal will return when it is executed.
    pub(super) fn bind_returning(&mut self, portal: &[u8], text: &[u8], effects: Effects) {
        let entries = self.returned(text, effects);
        if !entries.is_empty() {
            let portal = portal.into();
            self.returning = Some(Box::new(Returning { portal, entries }));
        } else if let Some(returning) = &self.returning
            && *returning.portal == *portal
        {
            self.returning = None;
        }
    }

    /// An `Execute` while there is such a portal.
    pub(super) fn execute_returning(
        &mut self,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Verdict, EncodeError> {
        let executed = Execute::decode(body).ok();
        self.owe(Kind::Execute, Whose::Client);
        let Some(executed) = executed else {
            return Ok(Verdict::Relay);
        };
        let is_it = |returning: &mut Box<Returning>| *returning.portal == *executed.portal;
        let Some(returning) = self.returning.take_if(is_it) else {
            return Ok(Verdict::Relay);
        };
        executed.encode(out)?;
        self.set_again(&returning.entries, out)?;
        Ok(Verdict::Replace)
    }

    /// The settings of the startup packet that a text returns to their
    /// startup values, if that is all it does.
    fn returned(&self, text: &[u8], effects: Effects) -> Entries {
        if self.startup.entries().is_empty() || !effects.intersects(RETURNING) {
            return Entries::new();
        }
        let mut all = statements(text, Options::default())
            .filter(|statement| statement.kind != statement::Kind::Empty);
        let (Some(only), None) = (all.next(), all.next()) else {
            return Entries::new();
        };
        returned_by(&only, &self.startup)
    }

    /// Sets settings within a batch of the client, which sees nothing of it:
    /// not its unnamed statement and portal are used.
    fn set_again(&mut self, entries: &Entries, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let name = internal_name(fresh_number());
        let name = name.as_bytes();
        let mut query = String::from("SELECT ");
        for index in 0..entries.len() {
            let (comma, at) = (if index > 0 { ", " } else { "" }, 2 * index + 1);
            query += &format!("{comma}pg_catalog.set_config(${at}, ${}, false)", at + 1);
        }
        Parse {
            name,
            query: query.as_bytes(),
            param_types: List::empty(),
        }
        .encode(out)?;
        self.owe(Kind::Parse, Whose::Ours);
        let values: Vec<Option<&[u8]>> = entries
            .iter()
            .flat_map(|(name, value)| [Some(&**name), Some(&**value)])
            .collect();
        Bind {
            portal: name,
            statement: name,
            param_formats: List::empty(),
            params: List::new(&values),
            result_formats: List::empty(),
        }
        .encode(out)?;
        self.owe(Kind::Bind, Whose::Ours);
        execute(name, out)?;
        self.owe(Kind::Execute, Whose::Ours);
        for kind in [Target::Portal, Target::Statement] {
            close(kind, name, out)?;
            self.owe(Kind::Close, Whose::Ours);
        }
        Ok(())
    }

    fn owe(&mut self, kind: Kind, whose: Whose) {
        if let Some(server) = &mut self.server {
            server.ledger.push(kind, whose, None);
        }
    }
}

fn returned_by(statement: &statement::Statement<'_>, startup: &Label) -> Entries {
    let one = |setting: &Setting<'_>| {
        let name = setting.name().to_ascii_lowercase();
        let value = startup.get(&name).map(Box::from);
        value
            .map(|value| (name.into(), value))
            .into_iter()
            .collect()
    };
    match (statement.kind, &statement.setting) {
        (statement::Kind::Reset, Some(setting)) => one(setting),
        (statement::Kind::Set, Some(setting)) if is_default(setting) => one(setting),
        (statement::Kind::ResetAll, _) => all_but_identity(startup),
        (statement::Kind::Discard, _) if statement.effects.contains(Effect::DiscardAll) => {
            all_but_identity(startup)
        }
        _ => Entries::new(),
    }
}

fn is_default(setting: &Setting<'_>) -> bool {
    let value = setting.value.trim_ascii();
    value.eq_ignore_ascii_case(b"default")
        || value.eq_ignore_ascii_case(b"local") && *setting.name() == *b"timezone"
}

/// `RESET ALL` does not touch these (`GUC_NO_RESET_ALL`), and `DISCARD ALL`
/// goes back to the role that logged in.
fn all_but_identity(startup: &Label) -> Entries {
    let mut entries = startup.entries().clone();
    entries.retain(|(name, _)| **name != *b"role" && **name != *b"session_authorization");
    entries
}

fn execute(portal: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let max_rows = 0;
    Execute { portal, max_rows }.encode(out)
}

fn close(kind: Target, name: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    Close { kind, name }.encode(out)
}

const RETURNING: Effects = Effects::of(&[
    Effect::Reset,
    Effect::ResetAll,
    Effect::DiscardAll,
    Effect::SetSession,
]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Labels;

    fn names(text: &str) -> String {
        let entry = |name: &str| (name.as_bytes().into(), b"x"[..].into());
        let startup = Labels::default()
            .intern(["role", "timezone", "work_mem", "client_encoding"].map(entry));
        let statement = statements(text.as_bytes(), Options::default()).next();
        let returned = returned_by(&statement.expect("a statement"), &startup);
        let names: Vec<_> = returned
            .iter()
            .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
            .collect();
        names.join(" ")
    }

    #[test]
    fn every_spelling_of_a_return_is_understood() {
        for (text, returned) in [
            ("reset work_mem", "work_mem"),
            ("RESET \"Work_Mem\";", "work_mem"),
            ("reset statement_timeout", ""),
            ("reset role", "role"),
            ("reset time zone", "timezone"),
            ("set time zone default", "timezone"),
            ("set time zone LOCAL", "timezone"),
            ("set names default", "client_encoding"),
            ("set session work_mem = DEFAULT", "work_mem"),
            ("set local work_mem = default", ""),
            ("set work_mem = 'default'", ""),
            ("set work_mem = 5", ""),
            ("reset all", "client_encoding timezone work_mem"),
            ("discard all", "client_encoding timezone work_mem"),
            ("discard plans", ""),
            ("select 1", ""),
        ] {
            assert_eq!(names(text), returned, "{text}");
        }
    }
}
