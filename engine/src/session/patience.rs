//! How long what may take.
//!
//! A session that has no limit has no clock. One that has looks at it when it
//! has been woken and all else is done; `Deadlines` wakes it when nothing else
//! does. Times are those at which the turn began.
//!
//! | the client | its time runs from | and when it is up |
//! |---|---|---|
//! | is idle | its last byte, or its last answer | FATAL 57P01 |
//! | waits for a server | its request | NOTICE |
//! | waits for an answer | the request's way to the server, or the answer before it | the server is told to cancel, ERROR 57014; it does not obey: FATAL |
//! | sends a body, or COPY data | its last byte | the same |
//! | does nothing in a transaction, or has sent a batch without an end | its last byte, or its last answer | FATAL 25P03 |
//! | has a transaction | the first request of it | FATAL 25P04 |

use super::body::Body;
use super::clock::{Clock, Phase};
use super::{End, Session};
use crate::client::fatal;
use crate::config::{OFF, TimeLimits};
use crate::limits::OBEDIENCE;
use crate::server::cancel;
use crate::shard::{Shard, ShardPool, bump};
use protocol::backend::TransactionStatus;
use protocol::error::{ErrorFields, Severity, SqlState};
use std::rc::{Rc, Weak};
use std::task::Context;
use std::time::Duration;

/// Whose time is up.
enum Up {
    Idle,
    Wait,
    Request,
    OpenTransaction,
    Transaction,
}

impl Session {
    /// The limits that hold from now on. What is under way has all of them from
    /// now on.
    pub(super) fn follow_limits(&mut self) {
        let limits = self.shard.time_limits(&self.pool, self.entered.user());
        let now = self.shard.ring.micros();
        match &mut self.clock {
            Some(clock) => clock.limits = limits,
            None if limits.are_off() => {}
            None => self.clock = Some(Box::new(Clock::new(limits, now))),
        }
    }

    /// For how long the client has been idle, for the shard to which it moves.
    pub(super) fn idle_for(&self) -> u64 {
        let now = self.shard.ring.micros();
        let clock = self.clock.as_ref();
        clock.map_or(0, |clock| now.saturating_sub(clock.since))
    }

    /// It has been idle for so long before it came here.
    pub(super) fn was_idle_for(&mut self, micros: u64) {
        if let Some(clock) = &mut self.clock {
            clock.since = clock.since.saturating_sub(micros);
        }
    }

    /// The text of what was sent last asks for so much time.
    #[cold]
    pub(super) fn note_hint(&mut self, hint: u32) {
        if self.clock.is_none() {
            let limits = self.shard.time_limits(&self.pool, self.entered.user());
            let now = self.shard.ring.micros();
            self.clock = Some(Box::new(Clock::new(limits, now)));
        }
        if let Some(server) = &mut self.server {
            server.ledger.mark(hint);
        }
    }

    /// The statement that has just been bound asks for so much time, 0 for none.
    pub(super) fn note_bound_hint(&mut self, hint: u32) {
        self.bound_hint = hint;
        if hint != 0 {
            self.note_hint(hint);
        }
    }

    /// Looks whether the time of what the client is at is up, and has it looked
    /// at again in time.
    pub(super) fn mind_time(&mut self, cx: &Context<'_>) -> Result<(), End> {
        let Some(mut clock) = self.clock.take() else {
            return Ok(());
        };
        let outcome = self.mind(&mut clock, cx);
        self.clock = Some(clock);
        outcome
    }

    fn mind(&mut self, clock: &mut Clock, cx: &Context<'_>) -> Result<(), End> {
        let now = self.shard.ring.micros();
        let news = std::mem::take(&mut self.news);
        clock.follow(self.phase(), news, now);
        if clock.blamed && !clock.phase.has_request() && !self.is_being_cancelled() {
            clock.blamed = false;
        }
        let mut due = OFF;
        for _ in 0..TRIES {
            let (at, up) = self.next_end(clock);
            due = at;
            if at > now {
                break;
            }
            self.on_time_up(clock, up, now, cx)?;
        }
        if due != OFF {
            self.shard.deadlines.book(self.entered.slot(), due);
        }
        Ok(())
    }

    fn phase(&self) -> Phase {
        if self.is_waiting() {
            return Phase::Waiting;
        }
        let Some(server) = &self.server else {
            return match self.settling {
                Some(_) => Phase::Settling,
                None => Phase::Idle,
            };
        };
        let ledger = &server.ledger;
        let owed = !ledger.is_empty();
        if ledger.is_copy_in() || self.is_amid_message() {
            Phase::Sending
        } else if ledger.will_be_sent() {
            Phase::Asking
        } else if owed || ledger.has_open_batch() || server.status != TransactionStatus::Idle {
            Phase::Open { owed }
        } else {
            Phase::Idle
        }
    }

    /// Part of a message has gone to the server.
    fn is_amid_message(&self) -> bool {
        matches!(self.request, Body::Relay) && self.frames.body_remaining() > 0
    }

    /// What the client is at has time until then.
    fn next_end(&self, clock: &Clock) -> (u64, Up) {
        let limits = &clock.limits;
        let (mut due, mut up) = (OFF, Up::Idle);
        let mut earlier = |at: u64, what: Up| {
            if at < due {
                (due, up) = (at, what);
            }
        };
        match clock.phase {
            Phase::Idle => earlier(clock.until(limits.client_idle), Up::Idle),
            Phase::Waiting if !clock.told_client => {
                earlier(clock.until(limits.wait_notice), Up::Wait);
            }
            Phase::Waiting | Phase::Settling => {}
            Phase::Asking => earlier(self.request_end(clock), Up::Request),
            Phase::Sending => {
                earlier(self.request_end(clock), Up::Request);
                earlier(clock.until(limits.idle_transaction), Up::OpenTransaction);
            }
            Phase::Open { owed } => {
                if owed {
                    earlier(self.request_end(clock), Up::Request);
                }
                earlier(clock.until(limits.idle_transaction), Up::OpenTransaction);
            }
        }
        if clock.phase.is_of_transaction() {
            let end = clock.began.saturating_add(limits.transaction);
            earlier(end, Up::Transaction);
        }
        (due, up)
    }

    fn request_end(&self, clock: &Clock) -> u64 {
        if let Some(expired) = clock.expired {
            let obeys = expired.saturating_add(micros_of(OBEDIENCE));
            return match clock.told_server {
                true => obeys,
                false => clock.retry.min(obeys),
            };
        }
        let server = self.server.as_ref();
        let hint = server.and_then(|server| server.ledger.marked());
        let limit = match hint {
            Some(hint) => clock.limits.hinted(u64::from(hint).saturating_mul(1000)),
            None => clock.limits.query,
        };
        clock.until(limit)
    }

    #[cold]
    fn on_time_up(
        &mut self,
        clock: &mut Clock,
        up: Up,
        now: u64,
        cx: &Context<'_>,
    ) -> Result<(), End> {
        let counters = &self.shard.counters;
        let (code, text) = match up {
            Up::Idle => {
                bump(&counters.client_idle_timeouts);
                // PostgreSQL has 57P05 for its idle_session_timeout; 57P01 is what pgmux has always said.
                let text = "terminating connection due to idle timeout";
                return Err(End::Saying(fatal(SqlState::ADMIN_SHUTDOWN, text)));
            }
            Up::Wait => {
                bump(&counters.wait_notices);
                clock.told_client = true;
                self.socket.write(&waits(&self.pool.group().name));
                return Ok(());
            }
            Up::Request if clock.expired.is_none() => {
                bump(&counters.query_timeouts);
                clock.expired = Some(now);
                clock.blamed = true;
                self.stop_server(clock, now, cx);
                return Ok(());
            }
            Up::Request if !clock.told_server && !obedience_is_over(clock, now) => {
                self.stop_server(clock, now, cx);
                return Ok(());
            }
            Up::Request => {
                bump(&counters.disobedient_servers);
                let text = "terminating connection because the server does not stop a statement that has no time left (pgmux: query_timeout)";
                (SqlState::QUERY_CANCELED, text)
            }
            Up::OpenTransaction => {
                bump(&counters.idle_transaction_timeouts);
                let text = "terminating connection due to idle-in-transaction timeout";
                (SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, text)
            }
            Up::Transaction => {
                bump(&counters.transaction_timeouts);
                let text = "terminating connection due to transaction timeout";
                (SqlState::TRANSACTION_TIMEOUT, text)
            }
        };
        let words = self.may_speak().then(|| fatal(code, text));
        Err(match up {
            // Nobody knows what it is at.
            Up::Request => End::Torn(words),
            _ => End::Cut(words),
        })
    }

    fn stop_server(&mut self, clock: &mut Clock, now: u64, cx: &Context<'_>) {
        clock.told_server = self.tell_server_to_stop(cx);
        clock.retry = now.saturating_add(RETRY);
    }

    /// False if that could not be done now.
    fn tell_server_to_stop(&mut self, cx: &Context<'_>) -> bool {
        let amid = self.is_amid_message();
        let Some(server) = &mut self.server else {
            return true;
        };
        // PostgreSQL takes no cancel request while it waits for COPY data.
        if server.ledger.is_copy_in() && !amid {
            return server.fail_copy(b"the time for it is up").is_ok();
        }
        // What makes the server ready for the request must not fail.
        if server.ledger.is_at_ours() {
            return false;
        }
        let handle = server.cancel_handle();
        cancel::send(&self.pool, handle, Some(cx.waker().clone()), Vec::new())
    }

    /// What stands in the middle of a message would be taken for a part of it.
    fn may_speak(&self) -> bool {
        let server = self.server.as_ref();
        server.is_none_or(|server| server.frames.at_boundary())
    }

    /// The error of a request that was cancelled because its time was up, in
    /// place of the server's.
    pub(super) fn timed_out(&self) -> Option<Vec<u8>> {
        let blamed = self.clock.as_ref().is_some_and(|clock| clock.blamed);
        blamed.then(|| {
            let text = "canceling statement due to query timeout";
            let detail = "pgmux has told the server to stop: by query_timeout, or by the statement's own timeout hint.";
            let mut out = Vec::new();
            // Short texts always fit.
            let _ = ErrorFields::error(SqlState::QUERY_CANCELED, text)
                .with_detail(detail)
                .encode(&mut out);
            out
        })
    }
}

impl Shard {
    /// The limits of a client of this pool, by the configuration that holds
    /// now. Clients with the same limits share them.
    fn time_limits(&self, pool: &ShardPool, user: Option<&[u8]>) -> Rc<TimeLimits> {
        let limits = self.config().time_limits(&pool.group(), user);
        let mut known = self.limits.borrow_mut();
        let same = known.iter().filter_map(Weak::upgrade);
        if let Some(same) = same.into_iter().find(|same| **same == limits) {
            return same;
        }
        let limits = Rc::new(limits);
        known.retain(|known| known.strong_count() > 0);
        known.push(Rc::downgrade(&limits));
        limits
    }
}

fn obedience_is_over(clock: &Clock, now: u64) -> bool {
    let expired = clock.expired.unwrap_or(now);
    expired.saturating_add(micros_of(OBEDIENCE)) <= now
}

fn micros_of(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(OFF)
}

/// What a client is told that waits for a server.
fn waits(database: &str) -> Vec<u8> {
    let text = format!("waiting for a server of database \"{database}\"");
    let fields = ErrorFields::new(Severity::Notice, SqlState::SUCCESSFUL_COMPLETION, &text);
    let mut out = Vec::new();
    // A configured name is short.
    let _ = fields.encode_notice(&mut out);
    out
}

/// When a server is told again that could not be told to stop.
const RETRY: u64 = 20_000;
/// What may be up one behind the other in one look.
const TRIES: u32 = 3;
