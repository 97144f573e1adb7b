//! What servers report at login, shared by all shards: learnt once by any of
//! them, so that a login rarely needs a server, and never one that is busy
//! with somebody else's transaction.
//!
//! Touched only by the first login with a label on a shard.

use super::PoolId;
use crate::settings::{Entries, Label};
use protocol::backend::ParameterStatus;
use protocol::frame::{Deframer, Side, Step};
use std::collections::HashMap;
use std::sync::{Arc, RwLock};

/// Encoded `ParameterStatus` messages by pool and settings.
#[derive(Default)]
pub struct Reports(RwLock<HashMap<Key, Arc<[u8]>>>);

/// The application's name is free text that PostgreSQL reports as it is, so
/// it is not part of the key: the report is made out for whoever asks.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    /// Roles differ in settings of their own, and in what they are.
    pool: PoolId,
    settings: Entries,
    named: bool,
}

impl Key {
    fn new(pool: PoolId, label: &Label) -> Self {
        let name = plain_name(label);
        let mut settings = label.entries().clone();
        if name.is_some() {
            settings.retain(|(setting, _)| **setting != *APPLICATION_NAME);
        }
        Self {
            pool,
            settings,
            named: name.is_some(),
        }
    }
}

impl Reports {
    /// What a server of the group reports with this label, if it is known.
    pub fn find(&self, pool: PoolId, label: &Label) -> Option<Vec<u8>> {
        // Nobody panics while holding the lock.
        let known = self.0.read().ok()?;
        let report = known.get(&Key::new(pool, label))?;
        match plain_name(label) {
            Some(name) => renamed(report, name),
            None => Some(report.to_vec()),
        }
    }

    /// Remembers what a server has reported.
    pub fn remember(&self, pool: PoolId, label: &Label, report: &[u8]) {
        if let Ok(mut known) = self.0.write() {
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(Key::new(pool, label), report.into());
        }
    }

    /// What the pool's servers report has changed.
    pub fn forget(&self, pool: PoolId) {
        if let Ok(mut known) = self.0.write() {
            known.retain(|key, _| key.pool != pool);
        }
    }
}

/// The application's name, if PostgreSQL takes it as it is: printable ASCII
/// (`pg_clean_ascii`), shorter than `NAMEDATALEN`.
fn plain_name(label: &Label) -> Option<&[u8]> {
    let name = label.get(APPLICATION_NAME)?;
    let plain = name.len() < 64 && name.iter().all(|byte| (b' '..=b'~').contains(byte));
    plain.then_some(name)
}

/// The report with another application name.
fn renamed(report: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let mut frames = Deframer::new(Side::Backend);
    let mut out = Vec::with_capacity(report.len() + name.len());
    let mut rest = report;
    while !rest.is_empty() {
        let Ok(Step::Head(head)) = frames.step(rest) else {
            return None;
        };
        let body = rest.get(head.consumed..head.consumed + head.body_len as usize)?;
        frames.step(body).ok()?;
        let mut status = ParameterStatus::decode(body).ok()?;
        if status.name == APPLICATION_NAME {
            status.value = name;
        }
        status.encode(&mut out).ok()?;
        rest = &rest[head.consumed + body.len()..];
    }
    Some(out)
}

const APPLICATION_NAME: &[u8] = b"application_name";
/// Labels differ in a few drivers' defaults; made-up ones must not add up.
const KNOWN_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Labels;

    fn label(labels: &Labels, entries: &[(&str, &str)]) -> std::rc::Rc<Label> {
        labels.intern(
            entries
                .iter()
                .map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into())),
        )
    }

    fn report(name: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in [("server_version", "15.1"), ("application_name", name)] {
            ParameterStatus {
                name: name.as_bytes(),
                value: value.as_bytes(),
            }
            .encode(&mut out)
            .expect("short");
        }
        out
    }

    #[test]
    fn one_report_serves_every_application_name() {
        let (labels, reports) = (Labels::default(), Reports::default());
        reports.remember(
            PoolId::of(0),
            &label(&labels, &[("application_name", "psql")]),
            &report("psql"),
        );
        assert_eq!(
            reports.find(PoolId::of(0), &label(&labels, &[("application_name", "x")])),
            Some(report("x"))
        );
        assert_eq!(
            reports.find(PoolId::of(0), &label(&labels, &[])),
            None,
            "the default name is not known"
        );
        assert_eq!(
            reports.find(PoolId::of(1), &label(&labels, &[("application_name", "x")])),
            None
        );
    }

    #[test]
    fn other_settings_tell_labels_apart() {
        let (labels, reports) = (Labels::default(), Reports::default());
        reports.remember(
            PoolId::of(0),
            &label(&labels, &[("timezone", "UTC")]),
            &report(""),
        );
        assert_eq!(
            reports.find(
                PoolId::of(0),
                &label(&labels, &[("timezone", "Asia/Seoul")])
            ),
            None
        );
        reports.forget(PoolId::of(0));
        assert_eq!(
            reports.find(PoolId::of(0), &label(&labels, &[("timezone", "UTC")])),
            None
        );
    }

    #[test]
    fn a_name_that_postgresql_would_change_is_asked_for() {
        let (labels, reports) = (Labels::default(), Reports::default());
        reports.remember(
            PoolId::of(0),
            &label(&labels, &[("application_name", "psql")]),
            &report("psql"),
        );
        assert_eq!(
            reports.find(
                PoolId::of(0),
                &label(&labels, &[("application_name", "\u{e4}")])
            ),
            None
        );
    }
}
