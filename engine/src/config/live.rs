//! The sections `log` and `config`: what is logged, and how changes of the file get in.

use serde::Deserialize;

use super::keys::{Key, Kind, Unset};
use super::report::Report;
use crate::logging;

pub(super) const KEYS: &[Key] = &[
    Key {
        path: "log.level",
        kind: Kind::Text,
        unset: Unset::Nothing("debug"),
        about: "What is logged: error, warn, info, debug, trace, off, or directives such as info,engine::session=debug; --log-level and PGMUX_LOG win over it.",
    },
    Key {
        path: "config.watch",
        kind: Kind::Switch,
        unset: Unset::Is("false"),
        about: "Whether this file and the files that it names are read again when they change, a second after the last change; SIGHUP reads them in any case.",
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogSection {
    pub(super) level: Option<String>,
}

impl LogSection {
    pub(super) fn resolve(self, report: &mut Report) -> Option<Self> {
        if let Some(level) = &self.level
            && let Err(text) = logging::check(level)
        {
            report.at("log.level", text);
            return None;
        }
        Some(self)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigSection {
    pub(super) watch: bool,
}
