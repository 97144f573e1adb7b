//! The clock of a session: what it is at, and since when. What comes of that
//! is `patience`.

use crate::config::TimeLimits;
use std::rc::Rc;

/// The times of a session that has limits.
pub(super) struct Clock {
    pub(super) limits: Rc<TimeLimits>,
    pub(super) phase: Phase,
    /// When that began, or what it waits for happened last.
    pub(super) since: u64,
    /// When the transaction began.
    pub(super) began: u64,
    /// When the request had no time left.
    pub(super) expired: Option<u64>,
    /// The server has been told to stop.
    pub(super) told_server: bool,
    /// When it is to be told again, because it could not be.
    pub(super) retry: u64,
    /// An error by which a request is cancelled comes of that.
    pub(super) blamed: bool,
    /// The client has been told that it waits.
    pub(super) told_client: bool,
}

/// What a session is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Waiting,
    /// Its server is asked something of ours.
    Settling,
    /// The server works.
    Asking,
    /// The server waits for the rest of a message, or for COPY data.
    Sending,
    /// The server waits for the client in a transaction, or in a batch that
    /// has no end yet.
    Open {
        owed: bool,
    },
}

/// What has happened since the clock was looked at.
#[derive(Clone, Copy, Default)]
pub(super) struct News(u8);

impl News {
    /// The client has sent something.
    pub(super) const HEARD: u8 = 1;
    /// A request has been answered.
    pub(super) const ANSWERED: u8 = 2;
    /// A transaction has ended.
    pub(super) const ENDED: u8 = 4;

    #[inline]
    pub(super) fn note(&mut self, what: u8) {
        self.0 |= what;
    }

    fn has(self, what: u8) -> bool {
        self.0 & what != 0
    }
}

impl Clock {
    pub(super) fn new(limits: Rc<TimeLimits>, now: u64) -> Self {
        Self {
            limits,
            phase: Phase::Idle,
            since: now,
            began: now,
            expired: None,
            told_server: false,
            retry: 0,
            blamed: false,
            told_client: false,
        }
    }

    /// What was found before holds no more.
    fn restart(&mut self, now: u64) {
        self.since = now;
        self.expired = None;
        self.told_server = false;
        self.told_client = false;
    }

    /// Follows the session.
    pub(super) fn follow(&mut self, phase: Phase, news: News, now: u64) {
        let before = std::mem::replace(&mut self.phase, phase);
        if !before.is_of_transaction() || news.has(News::ENDED) {
            self.began = now;
        }
        let awaited = match phase {
            Phase::Asking => news.has(News::ANSWERED),
            Phase::Idle | Phase::Sending => news.has(News::ANSWERED | News::HEARD),
            Phase::Open { .. } => news.has(News::ANSWERED | News::HEARD),
            Phase::Waiting | Phase::Settling => false,
        };
        // One that has no time left, and only goes on to be read or sent, stays so.
        let same_request =
            self.expired.is_some() && phase.has_request() && !news.has(News::ANSWERED);
        if (before != phase || awaited) && !same_request {
            self.restart(now);
        }
    }

    pub(super) fn until(&self, limit: u64) -> u64 {
        self.since.saturating_add(limit)
    }
}

impl Phase {
    pub(super) fn is_of_transaction(self) -> bool {
        self.has_request() || self == Phase::Open { owed: false }
    }

    /// Something is owed.
    pub(super) fn has_request(self) -> bool {
        matches!(
            self,
            Phase::Asking | Phase::Sending | Phase::Open { owed: true }
        )
    }
}
