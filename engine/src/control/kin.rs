//! The processes that this one has taken over from, and those that have taken over from it. A cancel request may come to
//! any of them, for a client of any.

use std::path::{Path, PathBuf};
use std::sync::RwLock;

/// Where they take cancel requests. Looked at only for a request that means no client of ours.
#[derive(Default)]
pub struct Kin(RwLock<Vec<(Side, PathBuf)>>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

impl Kin {
    /// One that this process takes over from.
    pub fn add_before(&self, socket: PathBuf) {
        self.add(Side::Before, socket);
    }

    /// One that takes over from this process.
    pub fn add_after(&self, socket: PathBuf) {
        self.add(Side::After, socket);
    }

    fn add(&self, side: Side, socket: PathBuf) {
        // Nobody panics while holding the lock.
        if let Ok(mut known) = self.0.write() {
            known.push((side, socket));
        }
    }

    /// Whom a request is passed on to that has come through so many processes: back to older ones always, to younger
    /// ones only by who has heard it first, so that none goes round.
    pub fn to_ask(&self, hops: u8) -> Vec<PathBuf> {
        let known = self.0.read().map(|known| known.clone()).unwrap_or_default();
        let fits = |side: Side| side == Side::Before || hops == 0;
        let asked = known.into_iter().filter(|(side, _)| fits(*side));
        asked.map(|(_, socket)| socket).collect()
    }

    /// Those before this one: they may outlive each other.
    pub fn before(&self) -> Vec<PathBuf> {
        self.to_ask(u8::MAX)
    }

    /// One does not answer: it has gone.
    pub fn forget(&self, socket: &Path) {
        if let Ok(mut known) = self.0.write() {
            known.retain(|(_, other)| other != socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_back_and_forth_once() {
        let kin = Kin::default();
        kin.add_before("/old".into());
        kin.add_after("/new".into());
        assert_eq!(kin.to_ask(0), [Path::new("/old"), Path::new("/new")]);
        assert_eq!(kin.to_ask(1), [Path::new("/old")]);
        kin.forget(Path::new("/old"));
        assert!(kin.to_ask(1).is_empty());
    }
}
