//! A client, from its connection to its session.

mod authenticate;
mod brakes;
mod cancel;
mod credentials;
mod greet;
mod moving;
mod options;
mod packets;
mod places;
mod replicate;
mod rules;
mod secure;

pub use brakes::Brakes;
pub use credentials::{Credentials, Known};
pub(crate) use greet::Entered;
use greet::{Greeted, Heard};
pub(crate) use moving::Traveller;
pub(crate) use places::Place;
pub use places::{Name, Places};

use crate::auth::Source;
use crate::limits::{CANCEL_HEARING, LAST_WORDS};
use crate::link::Link;
use crate::replication::Replication;
use crate::session::Session;
use crate::shard::{Counted, Guest, Shard, bump};
use protocol::encode::backend_message;
use protocol::error::{ErrorFields, Fields, SqlState, field};
use protocol::tag::backend_tag;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Why a login comes to nothing.
pub(crate) enum Refused {
    /// Close without a word: the client has left, or what it sent is not even
    /// PostgreSQL's protocol. Cancel requests end like this too.
    Silently,
    /// Close with these bytes, an `ErrorResponse`.
    Saying(Vec<u8>),
    /// The same, a little later: it has not proved to be this user.
    Failing(Vec<u8>, Vec<u8>),
    /// Close: it has taken too long since it said who it is.
    Late,
}

impl Refused {
    /// A FATAL error.
    pub(crate) fn fatal(code: SqlState, message: &str) -> Self {
        Refused::Saying(fatal(code, message))
    }

    /// A refusal that comes of a failed proof.
    fn of(self, user: &[u8]) -> Self {
        match self {
            Refused::Saying(words) => Refused::Failing(words, user.into()),
            other => other,
        }
    }
}

/// A FATAL `ErrorResponse`.
pub(crate) fn fatal(code: SqlState, message: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let message = message.replace('\0', "?");
    // Short texts without NUL always fit.
    let _ = ErrorFields::fatal(code, &message).encode(&mut out);
    out
}

/// The server's error, which ends the session: with all that it tells the
/// client but where in a text of ours it stands.
pub(crate) fn made_fatal(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let written = backend_message(&mut out, backend_tag::ERROR_RESPONSE, |w| {
        for (kind, text) in Fields::new(body) {
            let text = match kind {
                field::SEVERITY | field::SEVERITY_NON_LOCALIZED => b"FATAL",
                field::POSITION | field::WHERE => continue,
                _ => text,
            };
            w.u8(kind)?;
            w.cstr(text)?;
        }
        w.u8(0)
    });
    if written.is_err() || Fields::new(body).code().is_none() {
        let text = "the settings of the session were refused";
        return fatal(SqlState::INTERNAL_ERROR, text);
    }
    out
}

/// Serves one client to its end.
pub async fn serve(counted: Counted, fd: OwnedFd, source: Source, guest: Guest) {
    let Some(shard) = counted.shard() else {
        return;
    };
    // The login's state is large and short-lived: it lives in a box of its
    // own, so that the task of an idle client stays small.
    let moved = match Box::pin(log_in(shard, fd, source, guest)).await {
        Some(LoggedIn::Session(session)) => session.run().await,
        Some(LoggedIn::Replication(replication, client)) => {
            Box::pin(replication.run(client)).await;
            false
        }
        None => false,
    };
    if moved {
        counted.moved();
    }
}

/// Serves a client that has come from another shard.
pub(crate) async fn serve_guest(counted: Counted, session: Box<Session>) {
    if session.run().await {
        counted.moved();
    }
}

/// Goes on with a login until it is too late for it, until another has come
/// in its place, or until so long after the process was told to stop.
async fn before_the_end<T>(
    shard: &Shard,
    guest: &Guest,
    deadline: Option<Instant>,
    grace: Duration,
    step: impl Future<Output = Result<T, Refused>>,
) -> Option<Result<T, Refused>> {
    futures_lite::future::or(
        async { shard.ring.until(deadline, step).await.ok() },
        futures_lite::future::or(
            async {
                guest.ousted().await;
                bump(&shard.counters.logins_ousted);
                None
            },
            async {
                shard.drain.wait().await;
                if !grace.is_zero() {
                    shard.ring.sleep(grace).await;
                }
                Some(Err(Refused::fatal(
                    SqlState::ADMIN_SHUTDOWN,
                    "terminating connection due to administrator command",
                )))
            },
        ),
    )
    .await
}

enum LoggedIn {
    Session(Box<Session>),
    Replication(Box<Replication>, Link),
}

async fn log_in(shard: Rc<Shard>, fd: OwnedFd, source: Source, guest: Guest) -> Option<LoggedIn> {
    let mut socket = Link::plain(shard.ring.socket(fd));
    let begun = shard.ring.micros();
    let patience = shard.config().proxy.login_timeout;
    let deadline = (!patience.is_zero()).then(|| Instant::now() + patience);
    // A future that others wrap is in each of them twice, as what they were
    // given and as what they wait for: thousands may be half open.
    let hearing = Box::pin(greet::hear(&shard, &mut socket, source));
    let outcome = match before_the_end(&shard, &guest, deadline, CANCEL_HEARING, hearing).await {
        Some(Ok(Heard::Cancel(asked))) => {
            Box::pin(cancel::pass_on(&shard, &socket, asked)).await;
            return None;
        }
        Some(Ok(Heard::Wish(wish, unread))) => {
            guest.moved(Instant::now());
            let login = greet::log_in(&shard, &socket, source, *wish, unread);
            let login = Box::pin(login);
            let outcome = before_the_end(&shard, &guest, deadline, Duration::ZERO, login).await;
            Some(outcome.unwrap_or(Err(Refused::Late)))
        }
        Some(Err(refused)) => Some(Err(refused)),
        None => None,
    };
    match outcome {
        Some(Ok(greeted)) => {
            bump(&shard.counters.logins);
            let took = shard.ring.micros().saturating_sub(begun);
            shard.times.client_login.record(took);
            return Some(match greeted {
                Greeted::Session {
                    pool,
                    label,
                    entered,
                } => {
                    let shard = Rc::clone(&shard);
                    LoggedIn::Session(Session::new(shard, socket, pool, label, entered))
                }
                Greeted::Replication(replication) => LoggedIn::Replication(replication, socket),
            });
        }
        Some(Err(Refused::Saying(words))) => {
            shard.faults.note_own(&words);
            bump(&shard.counters.login_failures);
            say_and_close(&socket, &words).await;
        }
        Some(Err(Refused::Late)) => {
            bump(&shard.counters.login_timeouts);
            let text = "canceling authentication due to timeout";
            say_and_close(&socket, &fatal(SqlState::QUERY_CANCELED, text)).await;
        }
        Some(Err(Refused::Failing(words, user))) => {
            shard.faults.note_own(&words);
            bump(&shard.counters.login_failures);
            let delay = shard.brakes.failed(source, &user, Instant::now());
            if !delay.is_zero() {
                guest.failing();
                futures_lite::future::or(shard.ring.sleep(delay), guest.ousted()).await;
            }
            say_and_close(&socket, &words).await;
        }
        Some(Err(Refused::Silently)) => {}
        // PostgreSQL says nothing either when its authentication_timeout
        // ends a startup.
        None => bump(&shard.counters.login_timeouts),
    }
    None
}

/// Gives the last words time to leave.
pub(crate) async fn say_and_close(socket: &Link, words: &[u8]) {
    socket.write(words);
    let deadline = Instant::now() + LAST_WORDS;
    // Whether they arrived or not, the socket closes.
    let _ = socket.ring().until(Some(deadline), socket.flushed()).await;
}

/// There are too many that have not logged in.
pub fn turn_away(shard: &Shard, fd: OwnedFd) {
    let socket = shard.ring.socket(fd);
    socket.write(&fatal(
        SqlState::TOO_MANY_CONNECTIONS,
        "sorry, too many clients are logging in",
    ));
    socket.linger();
}

#[cfg(test)]
mod tests {
    use super::made_fatal;

    #[test]
    fn a_servers_error_keeps_its_detail_and_hint_and_becomes_fatal() {
        let fatal = made_fatal(b"SFEHLER\0VERROR\0C22023\0Mno\0Dd\0Hh\0P9\0Wx\0Fguc.c\0\0");
        assert_eq!(
            &fatal[5..],
            b"SFATAL\0VFATAL\0C22023\0Mno\0Dd\0Hh\0Fguc.c\0\0"
        );
        assert_eq!(usize::from(fatal[4]), fatal.len() - 1);
    }

    #[test]
    fn an_error_without_a_code_is_replaced() {
        assert!(made_fatal(b"").windows(5).any(|code| code == b"XX000"));
    }
}
