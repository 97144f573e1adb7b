//! What a shard counts: plain cells that it alone writes.

use admin::histogram::{CELLS, Histogram, cell_of};
use admin::stats::ShardStats;
use std::cell::Cell;
use std::time::Duration;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// See the module's text.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Cell<u64>,)*
            /// From the decision that a server moves to its being of use here.
            pub handover_times: Times,
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
    /// Leases that ended with a server given back clean.
    transactions,
    /// Servers opened.
    servers_opened,
    /// Servers closed, for whatever reason.
    servers_closed,
    /// Server logins that failed.
    server_login_failures,
    /// Servers given to other shards.
    handovers_given,
    /// Servers got from other shards.
    handovers_taken,
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

/// How long something took, each time.
#[derive(Debug)]
pub struct Times([Cell<u64>; CELLS]);

impl Default for Times {
    fn default() -> Self {
        Self([const { Cell::new(0) }; CELLS])
    }
}

impl Times {
    /// Once more.
    pub fn record(&self, time: Duration) {
        bump(&self.0[cell_of(time)]);
    }

    /// A copy that may leave the shard.
    pub fn snapshot(&self) -> Histogram {
        Histogram::new(std::array::from_fn(|cell| self.0[cell].get()))
    }
}

/// Adds one to a counter.
pub fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
