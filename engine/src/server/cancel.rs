//! Telling a server to stop.

use super::{CancelKey, Server, secure};
use crate::limits::{CANCEL, CANCELS};
use crate::shard::{Guard, ShardPool};
use protocol::startup::CancelRequest;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

/// A cancel request on its way. While one exists, its server must not change
/// hands: it could hit the next client's query. Who waits for that is woken
/// when it is dropped.
pub struct InFlight {
    cancels: Rc<Cell<u32>>,
    waker: Option<Waker>,
    /// Who asked hears of the end by these.
    _guards: Vec<Guard>,
}

/// What it takes to cancel a server's query without holding the server.
#[derive(Clone)]
pub struct Handle {
    key: Option<CancelKey>,
    cancels: Rc<Cell<u32>>,
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
    fn new(cancels: Rc<Cell<u32>>, waker: Option<Waker>, guards: Vec<Guard>) -> Self {
        cancels.set(cancels.get() + 1);
        Self {
            cancels,
            waker,
            _guards: guards,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.cancels.set(self.cancels.get() - 1);
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

/// Sends a cancel request for what the server does now, beside the
/// connection, and holds the server until it has arrived.
pub fn send(pool: &Rc<ShardPool>, handle: Handle, waker: Option<Waker>, guards: Vec<Guard>) {
    let Some(key) = handle.key else { return };
    let shard = &pool.shard;
    if shard.cancels.get() >= CANCELS {
        return;
    }
    shard.cancels.set(shard.cancels.get() + 1);
    let in_flight = InFlight::new(handle.cancels, waker, guards);
    let (pool, secure) = (Rc::clone(pool), handle.secure);
    crate::ring::task::spawn(async move {
        let mut out = Vec::new();
        if (CancelRequest {
            pid: key.pid,
            key: &key.key,
        })
        .encode(&mut out)
        .is_ok()
        {
            let deadline = Instant::now() + CANCEL;
            let sent = pool
                .shard
                .ring
                .until(Some(deadline), deliver(&pool, secure, &out))
                .await;
            if let Ok(Err(error)) = sent {
                tracing::warn!(%error, "a cancel request could not be delivered");
            }
        }
        pool.shard.cancels.set(pool.shard.cancels.get() - 1);
        drop(in_flight);
    });
}

/// PostgreSQL closes the connection once the signal has been sent, so its
/// end says that the request can hit nobody later.
async fn deliver(pool: &ShardPool, secure: bool, request: &[u8]) -> io::Result<()> {
    let address = pool
        .address()
        .ok_or_else(|| io::Error::other("the server's address is not known"))?;
    let socket = secure::reconnect(pool, address, secure).await?;
    socket.write(request);
    while !socket.ended() {
        while socket.take().is_some() {}
        if socket.ended() {
            break;
        }
        socket.readable().await;
    }
    Ok(())
}
