//! Making a server that a client left behind fit for the next, or closing it.

use super::cancel;
use super::dialog::{Broken, LEFT};
use super::{Server, Slot, internal_name};
use crate::limits::{CLEAN, FAREWELL};
use crate::ring::task;
use crate::settings::Label;
use crate::shard::ShardPool;
use ::pool::config::PoolMode;
use protocol::backend::TransactionStatus;
use protocol::frontend::{Describe, Sync, Target};
use protocol::ledger::{Kind, Whose};
use router::effects::Effect;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How the client left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It said goodbye: what it asked for before is carried out, as
    /// PostgreSQL would.
    Polite,
    /// The connection broke: what does not end by itself at once is cancelled.
    Abrupt,
    /// Part of a message was sent, or nobody knows what the server thinks.
    Lost,
}

/// Cleans the server beside the shard's other work and gives it back to its
/// pool, or closes it.
pub fn spawn(pool: Rc<ShardPool>, server: Box<Server>, departure: Departure) {
    let holder = Holder {
        pool,
        server: Some(server),
    };
    if departure == Departure::Lost {
        return;
    }
    task::spawn(async move { holder.clean(departure).await });
}

/// Closes the server when it is dropped while cleaning, whatever the reason.
struct Holder {
    pool: Rc<ShardPool>,
    server: Option<Box<Server>>,
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.pool.discard(server);
        }
    }
}

impl Holder {
    async fn clean(mut self, departure: Departure) {
        let pool = Rc::clone(&self.pool);
        let Some(server) = self.server.as_deref_mut() else {
            return;
        };
        let patience = if departure == Departure::Polite {
            FAREWELL
        } else {
            GRACE
        };
        let nudge = server.ledger.owes_client().then(|| server.cancel_handle());
        let nudge = async {
            pool.shard.ring.sleep(patience).await;
            if let Some(handle) = nudge {
                cancel::send(&pool, handle, None, Vec::new());
            }
            std::future::pending().await
        };
        let work = futures_lite::future::or(end_work(&pool, server), nudge);
        let done = within(&pool, patience + CLEAN, work).await;
        if done.is_some()
            && let Some(server) = self.server.take()
        {
            pool.release(server);
        }
    }
}

async fn within(
    pool: &ShardPool,
    patience: Duration,
    work: impl Future<Output = Result<(), Broken>>,
) -> Option<()> {
    match pool
        .shard
        .ring
        .until(Some(Instant::now() + patience), work)
        .await
    {
        Ok(Ok(())) => Some(()),
        Ok(Err(broken)) => {
            tracing::debug!(%broken, "a server could not be cleaned and is closed");
            None
        }
        Err(_) => None,
    }
}

/// Reads what is owed, ends the transaction, removes what the session holds.
async fn end_work(pool: &Rc<ShardPool>, server: &mut Server) -> Result<(), Broken> {
    end_requests(server)?;
    server.settle().await?;
    if server.ledger.is_uncertain() {
        return Err(Broken::Unexpected(b'Z'));
    }
    if server.status != TransactionStatus::Idle {
        server.query(b"ROLLBACK").await?;
    }
    if server.is_suspect() {
        reset(pool, server).await?;
    }
    while server.cancels.under_way() > 0 {
        pool.shard.ring.sleep(CANCEL_POLL).await;
    }
    // A cancel that came too late for the client's query may have hit one of
    // ours; then the state is not what it should be.
    if server.is_at_rest() {
        Ok(())
    } else {
        Err(Broken::Unexpected(server.status.as_byte()))
    }
}

/// Ends COPY and open batches, so that the server answers. A batch without
/// `Sync` must not be committed by one of ours: it is made to fail first.
fn end_requests(server: &mut Server) -> Result<(), Broken> {
    let mut out = Vec::new();
    let unwritable = |_| Broken::Unexpected(b'S');
    server.fail_copy(LEFT)?;
    if server.ledger.has_open_batch() {
        Describe {
            kind: Target::Statement,
            name: internal_name(0).as_bytes(),
        }
        .encode(&mut out)
        .map_err(unwritable)?;
        server
            .ledger
            .push(Kind::DescribeStatement, Whose::Ours, None);
    }
    if !server.ledger.is_idle() {
        Sync.encode(&mut out).map_err(unwritable)?;
        server.ledger.push(Kind::Sync, Whose::Ours, None);
    }
    server.socket.write(&out);
    Ok(())
}

/// Runs the reset query and believes only what the server then says.
async fn reset(pool: &ShardPool, server: &mut Server) -> Result<(), Broken> {
    let facts = pool.group();
    let query = &facts.pool.reset_query;
    if query.is_empty() {
        return Err(Broken::Closed);
    }
    // A server that has had temporary objects does not notice when a new one
    // hides a table. Between transactions its plans can be dropped, see
    // `session::settle`; within a session nobody could.
    if pool.mode() == PoolMode::Session && server.suspect.contains(Effect::CreateTemp) {
        return Err(Broken::Closed);
    }
    let answer = server.query(query.as_bytes()).await?;
    if answer.error.is_some() || server.tainted {
        return Err(Broken::Unexpected(b'E'));
    }
    if answer
        .tags
        .iter()
        .any(|tag| matches!(&**tag, b"DISCARD ALL" | b"DEALLOCATE ALL"))
    {
        server.prepared.clear();
        server.native = None;
    }
    if server.native.take().is_some() {
        if server.query(b"DEALLOCATE ALL").await?.error.is_some() {
            return Err(Broken::Unexpected(b'E'));
        }
        server.prepared.clear();
    }
    server.unnamed = Slot::Empty;
    let found = server.probe(&pool.user(), []).await?;
    if !found.pins.is_empty() {
        return Err(Broken::Unexpected(b'E'));
    }
    let label: Rc<Label> = pool.labels.intern(found.settings);
    server.label = label;
    server.suspect = Default::default();
    server.pinned = false;
    Ok(())
}

/// What a client asked for right before it vanished may still end by itself,
/// as it would without us.
const GRACE: Duration = Duration::from_millis(100);
/// How often a server that only waits for a cancel request to arrive looks
/// whether it has; the request itself takes a connection's time.
const CANCEL_POLL: Duration = Duration::from_millis(2);
