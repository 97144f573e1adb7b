//! What a shard counts: plain cells that it alone writes.

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
    /// Clients that logged in.
    logins,
    /// Logins that failed.
    login_failures,
    /// Clients refused by a limit once they had proved who they are.
    limit_refusals,
    /// Leases that ended with a server given back clean.
    transactions,
    /// Servers opened.
    servers_opened,
    /// Servers closed, for whatever reason.
    servers_closed,
    /// Server logins that failed.
    server_login_failures,
    /// Clients that had to wait for a server.
    waits,
    /// Clients that waited in vain.
    wait_timeouts,
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
}

/// Adds one to a counter.
pub fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
