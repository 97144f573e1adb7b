//! The sections `log`, `control` and `config`: what is logged, how orders and changes of the file get in.

use std::path::PathBuf;

use serde::Deserialize;

use super::keys::{Key, Kind, Unset};
use super::listen::UNIX_PATH_MAX;
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
        path: "control.socket",
        kind: Kind::Text,
        unset: Unset::Nothing("/run/pgmux/control.sock"),
        about: "A unix socket for orders (reload, pause, resume, reconnect, kill, status), by which a new process with the same file takes over too; a relative path starts at this file's directory.",
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
pub(super) struct ControlSection {
    socket: Option<PathBuf>,
}

impl ControlSection {
    /// `Some(None)`: there is none.
    pub(super) fn resolve(self, report: &mut Report) -> Option<Option<PathBuf>> {
        let Some(socket) = self.socket else {
            return Some(None);
        };
        let socket = report.directory().join(socket);
        // A process has one of its own beside it, which ends in its number.
        if socket.as_os_str().len() + PID_CHARS > UNIX_PATH_MAX {
            let most = UNIX_PATH_MAX - PID_CHARS;
            report.at(
                "control.socket",
                format!(
                    "expected a path of at most {most} bytes, got {}",
                    socket.display()
                ),
            );
            return None;
        }
        Some(Some(socket))
    }
}

/// A dot, and the largest number of a process.
const PID_CHARS: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigSection {
    pub(super) watch: bool,
}
