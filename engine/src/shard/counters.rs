//! What a shard counts: plain cells that it alone writes.

use admin::histogram::Recorder;
use admin::stats::ShardStats;
use std::cell::Cell;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// See the module's text.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Cell<u64>,)*
        }

        impl Counters {
            /// A copy that may leave the shard.
            pub fn snapshot(&self) -> ShardStats {
                ShardStats { $($name: self.$name.get(),)* ..ShardStats::default() }
            }
        }
    };
}

counters! {
    /// Connections accepted.
    connections,
    /// Connections that were accepted here and are served by another shard.
    passed_on,
    /// Clients that have come from another shard between two transactions.
    clients_moved,
    /// Clients that logged in.
    logins,
    /// Logins that failed.
    login_failures,
    /// Logins given up because the place at the door was another's due.
    logins_ousted,
    /// Clients refused by a limit once they had proved who they are.
    limit_refusals,
    /// Clients refused, or sent away, because of maintenance.
    maintenance_refusals,
    /// Simple queries and batches that were answered to the end.
    queries,
    /// Bytes read from clients.
    bytes_from_clients,
    /// Bytes read from servers for clients.
    bytes_from_servers,
    /// Leases that ended with a server given back clean, of pools that are gone; of the others see
    /// [`ShardPool::transactions`](super::ShardPool::transactions).
    transactions,
    /// Servers opened.
    servers_opened,
    /// Servers closed, for whatever reason.
    servers_closed,
    /// Server logins that failed.
    server_login_failures,
    /// Servers opened though no client waited for one.
    pool_warm_connections,
    /// Logins for that which failed.
    pool_warm_errors,
    /// Idle servers that were asked whether they are alive.
    health_checks,
    /// Of these, those that were not.
    health_check_failures,
    /// Servers that died while a client used them.
    servers_died,
    /// Servers closed because their host's name has lost their address.
    servers_moved_away,
    /// Clients refused because a circuit breaker was open.
    breaker_refusals,
    /// Servers given to other shards.
    handovers_given,
    /// Servers got from other shards.
    handovers_taken,
    /// Clients that had to wait for a server.
    waits,
    /// Clients that waited in vain.
    wait_timeouts,
    /// Requests that had no time left.
    query_timeouts,
    /// Of these, those whose server did not stop.
    disobedient_servers,
    /// Clients that did nothing for too long outside a transaction.
    client_idle_timeouts,
    /// Clients that did nothing for too long in a transaction.
    idle_transaction_timeouts,
    /// Transactions that had no time left.
    transaction_timeouts,
    /// Logins that had no time left.
    login_timeouts,
    /// Clients that were told that they wait.
    wait_notices,
    /// Logins refused for want of memory.
    memory_refusals,
    /// Idle clients sent away for want of memory.
    clients_shed,
    /// Replies that answered nothing asked: both connections were closed.
    violations,
    /// Cancel requests received.
    cancels,
    /// Cancel requests sent to servers.
    cancels_sent,
    /// Cancel requests passed on to other instances.
    cancels_forwarded,
    /// Cancel requests dropped because too many were under way.
    cancels_dropped,
    /// Replication connections that were passed through.
    replications,
    /// Sessions that had to keep their server behind a transaction.
    pins,
    /// Messages for which a shard had no room; what they carried was kept.
    mail_refused,
}

/// How long things took. A turn's length is the smallest difference that is
/// seen: the clock is read once a turn.
#[derive(Debug, Default)]
pub struct Times {
    /// Clients that had to wait for a server, until they had one or an error.
    pub wait: Recorder,
    /// From a query until it was answered to the end.
    pub query: Recorder,
    /// From the grant of a server until it came back clean.
    pub lease: Recorder,
    /// Clients from their connection until they were logged in.
    pub client_login: Recorder,
    /// Servers from the first attempt to connect until they were logged in.
    pub server_login: Recorder,
    /// Servers from the decision that they move until the other shard had them.
    pub handover: Recorder,
}

impl Times {
    /// Puts a copy into what leaves the shard.
    pub fn copy_to(&self, stats: &mut ShardStats) {
        stats.wait = self.wait.snapshot();
        stats.query = self.query.snapshot();
        stats.lease = self.lease.snapshot();
        stats.client_login = self.client_login.snapshot();
        stats.server_login = self.server_login.snapshot();
        stats.handover = self.handover.snapshot();
    }
}

/// Adds to a counter.
#[inline]
pub fn add(counter: &Cell<u64>, more: usize) {
    counter.set(counter.get().wrapping_add(more as u64));
}

/// Adds one to a counter.
pub fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
