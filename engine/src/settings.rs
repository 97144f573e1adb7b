//! The settings label: which session settings a client expects, and which a
//! server has.
//!
//! A label is a sorted list of names and values, interned in its pool, so that
//! two labels are equal exactly when they are the same object. The empty label
//! is a session as PostgreSQL makes it for the pool's role and database.

use crate::server::Note;
use protocol::encode::EncodeError;
use protocol::frontend::{Bind, Execute, Parse, Sync};
use protocol::ledger::{Kind, Ledger, Whose};
use protocol::list::List;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

/// Names and values, sorted by name, each name once.
pub type Entries = Vec<Setting>;

/// A name and a value.
pub type Setting = (Box<[u8]>, Box<[u8]>);

/// An interned label; see the module's text.
#[derive(Debug, Default)]
pub struct Label {
    entries: Entries,
    /// What a server with this label reports at login: the encoded
    /// `ParameterStatus` messages. Filled by the first client that has it.
    report: RefCell<Option<Rc<[u8]>>>,
}

impl Label {
    /// Names and values, sorted by name.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The value of a setting, if the label has one.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self
            .entries
            .binary_search_by(|(key, _)| (**key).cmp(name))
            .ok()?;
        Some(&self.entries[at].1)
    }

    /// What a client with this label is told at login, once that is known.
    pub fn report(&self) -> Option<Rc<[u8]>> {
        self.report.borrow().clone()
    }

    fn forget_report(&self) {
        *self.report.borrow_mut() = None;
    }

    /// Remembers what a server with this label reports.
    pub fn set_report(&self, report: Rc<[u8]>) {
        *self.report.borrow_mut() = Some(report);
    }
}

/// The labels in use in one pool.
#[derive(Default)]
pub struct Labels {
    empty: Rc<Label>,
    known: RefCell<HashMap<Entries, Weak<Label>>>,
}

impl Labels {
    /// The label without entries.
    pub fn empty(&self) -> Rc<Label> {
        Rc::clone(&self.empty)
    }

    /// What servers report has changed from outside: it is learnt anew.
    pub fn forget_reports(&self) {
        self.empty.forget_report();
        for label in self.known.borrow().values().filter_map(Weak::upgrade) {
            label.forget_report();
        }
    }

    /// The one label with these entries. A later entry of a name replaces an
    /// earlier one.
    pub fn intern(&self, entries: impl IntoIterator<Item = (Box<[u8]>, Box<[u8]>)>) -> Rc<Label> {
        let mut sorted: Entries = Vec::new();
        for (name, value) in entries {
            match sorted.binary_search_by(|(key, _)| key.cmp(&name)) {
                Ok(at) => sorted[at].1 = value,
                Err(at) => sorted.insert(at, (name, value)),
            }
        }
        if sorted.is_empty() {
            return self.empty();
        }
        let mut known = self.known.borrow_mut();
        if let Some(label) = known.get(&sorted).and_then(Weak::upgrade) {
            return label;
        }
        if known.len() >= SWEEP && known.len().is_power_of_two() {
            known.retain(|_, label| label.strong_count() > 0);
        }
        let label = Rc::new(Label {
            entries: sorted.clone(),
            report: RefCell::new(None),
        });
        known.insert(sorted, Rc::downgrade(&label));
        label
    }
}

/// What turns a server with label `from` into one with label `to`: messages
/// for the server, and entries for its ledger, all of them ours.
///
/// `set_config` with bound parameters: no text is built from a value, lists
/// and quotes arrive as they are, and a NULL value is `RESET`. The role goes
/// back first and comes last, so that everything is set as the pool's user.
/// Before all else the encoding: the other values are bytes in the encoding
/// of the client that they come from. A `statement_timeout` is over right
/// behind that and begins at the end: it must not hit what is set here.
pub fn change(
    from: &Label,
    to: &Label,
    out: &mut Vec<u8>,
    ledger: &mut Ledger<Note>,
) -> Result<(), EncodeError> {
    let query = &b"SELECT pg_catalog.set_config($1, $2, false)"[..];
    Parse {
        name: b"",
        query,
        param_types: List::new(&[TEXT_OID, TEXT_OID]),
    }
    .encode(out)?;
    ledger.push(Kind::Parse, Whose::Ours, None);
    let mut set = |name: &[u8], value: Option<&[u8]>| -> Result<(), EncodeError> {
        encode_bind(name, value, out)?;
        ledger.push(Kind::Bind, Whose::Ours, None);
        Execute {
            portal: b"",
            max_rows: 0,
        }
        .encode(out)?;
        ledger.push(Kind::Execute, Whose::Ours, None);
        Ok(())
    };
    if from.get(ENCODING) != to.get(ENCODING) {
        set(ENCODING, to.get(ENCODING))?;
    }
    if from.get(TIMEOUT).is_some() && from.get(TIMEOUT) != to.get(TIMEOUT) {
        set(TIMEOUT, None)?;
    }
    for name in IDENTITY {
        if from.get(name).is_some() && from.get(name) != to.get(name) {
            set(name, None)?;
        }
    }
    for (name, _) in from.entries.iter().filter(|(name, _)| !is_special(name)) {
        if to.get(name).is_none() {
            set(name, None)?;
        }
    }
    let differing = |name: &[u8], value: &[u8]| from.get(name) != Some(value);
    for (name, value) in to.entries.iter().filter(|(name, _)| !is_special(name)) {
        if differing(name, value) {
            set(name, Some(value))?;
        }
    }
    for name in IDENTITY.iter().rev().chain([&TIMEOUT]) {
        if let Some(value) = to.get(name)
            && differing(name, value)
        {
            set(name, Some(value))?;
        }
    }
    Sync.encode(out)?;
    ledger.push(Kind::Sync, Whose::Ours, None);
    Ok(())
}

fn encode_bind(name: &[u8], value: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    Bind {
        portal: b"",
        statement: b"",
        param_formats: List::empty(),
        params: List::new(&[Some(name), value]),
        result_formats: List::empty(),
    }
    .encode(out)
}

fn is_special(name: &[u8]) -> bool {
    IDENTITY.contains(&name) || name == ENCODING || name == TIMEOUT
}

const ENCODING: &[u8] = b"client_encoding";
const TIMEOUT: &[u8] = b"statement_timeout";
/// In the order in which they go back.
const IDENTITY: [&[u8]; 2] = [b"role", b"session_authorization"];
/// `TEXTOID` of PostgreSQL's catalog/pg_type.dat.
const TEXT_OID: u32 = 25;
/// Labels known before unused ones are looked for.
const SWEEP: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn label(labels: &Labels, entries: &[(&str, &str)]) -> Rc<Label> {
        let entries = entries.iter();
        labels
            .intern(entries.map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into())))
    }

    /// The settings in the order in which they are set; `-` in front of those
    /// that are reset.
    fn changed(from: &Label, to: &Label) -> Vec<String> {
        let (mut out, mut ledger) = (Vec::new(), Ledger::default());
        change(from, to, &mut out, &mut ledger).expect("short names");
        let mut rest = &out[..];
        let mut names = Vec::new();
        while let Some((&[tag, a, b, c, d], body)) = rest.split_first_chunk::<5>() {
            let length = u32::from_be_bytes([a, b, c, d]) as usize - 4;
            if tag == b'B' {
                let bind = Bind::decode(&body[..length]).expect("a Bind");
                let values: Vec<_> = bind.params.iter().collect();
                let name = String::from_utf8_lossy(values[0].expect("a name"));
                names.push(if values[1].is_some() {
                    name.into()
                } else {
                    format!("-{name}")
                });
            }
            rest = &body[length..];
        }
        names
    }

    #[test]
    fn the_encoding_changes_before_values_in_it_and_role_and_timeout_last() {
        let labels = Labels::default();
        let to = label(
            &labels,
            &[
                ("app.x", "1"),
                ("client_encoding", "LATIN1"),
                ("role", "r"),
                ("statement_timeout", "1"),
                ("work_mem", "9"),
            ],
        );
        let order = [
            "client_encoding",
            "app.x",
            "work_mem",
            "role",
            "statement_timeout",
        ];
        assert_eq!(changed(&labels.empty(), &to), order);
        let back = [
            "-client_encoding",
            "-statement_timeout",
            "-role",
            "-app.x",
            "-work_mem",
        ];
        assert_eq!(changed(&to, &labels.empty()), back);
    }

    #[test]
    fn only_what_differs_is_changed() {
        let labels = Labels::default();
        let from = label(&labels, &[("a", "1"), ("b", "2"), ("c", "3")]);
        let to = label(&labels, &[("b", "2"), ("c", "4"), ("d", "5")]);
        assert_eq!(changed(&from, &to), ["-a", "c", "d"]);
    }

    #[test]
    fn equal_labels_are_the_same_object_whatever_the_order() {
        let labels = Labels::default();
        let one = label(&labels, &[("b", "2"), ("a", "1")]);
        let other = label(&labels, &[("a", "0"), ("b", "2"), ("a", "1")]);
        assert!(Rc::ptr_eq(&one, &other));
        assert!(Rc::ptr_eq(&label(&labels, &[]), &labels.empty()));
    }
}
