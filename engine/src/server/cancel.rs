//! Telling a server to stop.

use super::{CancelKey, Server, secure};
use crate::limits::{CANCEL, CANCELS, CANCELS_OF_SERVER};
use crate::shard::{Guard, ShardPool, bump};
use protocol::startup::CancelRequest;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

/// The cancel requests on their way to a server. While one exists, the server
/// must not change hands: it could hit the next client's query.
#[derive(Debug, Default)]
pub struct Cancels(Cell<u32>);

impl Cancels {
    /// How many are on their way.
    pub fn under_way(&self) -> u32 {
        self.0.get() & !LOST
    }

    /// One may arrive at any time from now on: nobody has heard what became
    /// of it. Such a server must never serve another client.
    pub fn are_lost(&self) -> bool {
        self.0.get() & LOST != 0
    }
}

/// A cancel request on its way. Who waits for its end is woken when it is
/// dropped.
struct InFlight {
    pool: Rc<ShardPool>,
    cancels: Rc<Cancels>,
    /// It has been handed over and its end has not been seen.
    sent: Cell<bool>,
    waker: Option<Waker>,
    /// Who asked hears of the end by these.
    _guards: Vec<Guard>,
}

/// What it takes to cancel a server's query without holding the server.
pub struct Handle {
    key: Option<Rc<CancelKey>>,
    cancels: Rc<Cancels>,
    /// The server has TLS, so that the request must not tell its key.
    secure: bool,
}

impl Server {
    /// See [`Handle`].
    pub fn cancel_handle(&self) -> Handle {
        Handle {
            key: self.cancel_key.clone(),
            cancels: Rc::clone(&self.cancels),
            secure: self.socket.security().is_some(),
        }
    }
}

impl InFlight {
    fn new(
        pool: &Rc<ShardPool>,
        cancels: Rc<Cancels>,
        waker: Option<Waker>,
        guards: Vec<Guard>,
    ) -> Self {
        cancels.0.set(cancels.0.get() + 1);
        let under_way = &pool.shard.cancels.sent;
        under_way.set(under_way.get() + 1);
        Self {
            pool: Rc::clone(pool),
            cancels,
            sent: Cell::new(false),
            waker,
            _guards: guards,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let lost = if self.sent.get() { LOST } else { 0 };
        self.cancels.0.set((self.cancels.0.get() - 1) | lost);
        let under_way = &self.pool.shard.cancels.sent;
        under_way.set(under_way.get() - 1);
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

/// Sends a cancel request for what the server does now, beside the
/// connection, and holds the server until it has arrived. False when too many
/// are under way.
pub fn send(
    pool: &Rc<ShardPool>,
    handle: Handle,
    waker: Option<Waker>,
    guards: Vec<Guard>,
) -> bool {
    let Some(key) = handle.key else { return true };
    let shard = &pool.shard;
    if shard.cancels.sent.get() >= CANCELS || handle.cancels.under_way() >= CANCELS_OF_SERVER {
        bump(&shard.counters.cancels_dropped);
        return false;
    }
    let in_flight = InFlight::new(pool, handle.cancels, waker, guards);
    let secure = handle.secure;
    crate::ring::task::spawn(async move {
        let shard = &in_flight.pool.shard;
        bump(&shard.counters.cancels_sent);
        let deadline = Instant::now() + CANCEL;
        let delivered = shard
            .ring
            .until(Some(deadline), deliver(&in_flight, &key, secure));
        let error = match delivered.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        let database = in_flight.pool.group().name.clone();
        tracing::warn!(%database, %error, "a cancel request could not be delivered");
    });
    true
}

/// PostgreSQL closes the connection once the signal has been sent, so its
/// end says that the request can hit nobody later.
async fn deliver(in_flight: &InFlight, key: &CancelKey, secure: bool) -> io::Result<()> {
    let mut request = Vec::new();
    CancelRequest {
        pid: key.pid,
        key: &key.key,
    }
    .encode(&mut request)
    .map_err(|error| io::Error::other(error.text()))?;
    let socket = secure::reconnect(&in_flight.pool, key.address.clone(), secure).await?;
    in_flight.sent.set(true);
    socket.write(&request);
    socket.drained().await;
    in_flight.sent.set(false);
    Ok(())
}

/// See [`Cancels::are_lost`].
const LOST: u32 = 1 << 31;
