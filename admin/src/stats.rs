//! The counters of all shards, merged.
//!
//! Each shard counts in plain cells of its own. Whoever wants to know asks
//! every shard by message and adds the answers here.

use std::fmt;

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What one shard has counted, or several together.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ShardStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl ShardStats {
            /// Adds another shard's figures.
            pub fn merge(&mut self, other: &ShardStats) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }

            /// Names and figures, in the order of the fields.
            pub fn figures(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

stats! {
    /// Connections accepted since the start.
    connections,
    /// Of these, accepted by a shard that had more clients than the one that served them.
    passed_on,
    /// Clients that logged in since the start.
    logins,
    /// Logins that failed since the start.
    login_failures,
    /// Of these, those that a limit of clients refused.
    limit_refusals,
    /// Clients now.
    clients,
    /// Connections that have not logged in now.
    logging_in,
    /// Sockets of any kind now, closing ones included.
    sockets,
    /// Receive buffers that hold bytes of somebody now.
    buffers_lent,
    /// Clients that wait for a server now.
    waiting,
    /// Servers now.
    servers,
    /// Of these, idle.
    servers_idle,
    /// Leases that ended with a server given back clean.
    transactions,
    /// Servers opened since the start.
    servers_opened,
    /// Servers closed since the start.
    servers_closed,
    /// Server logins that failed since the start.
    server_login_failures,
    /// Replication connections passed through since the start.
    replications,
    /// Clients that had to wait for a server since the start.
    waits,
    /// Of these, those that waited in vain.
    wait_timeouts,
    /// Replies that answered nothing asked.
    violations,
    /// Cancel requests received.
    cancels,
    /// Cancel requests under way now, those received and those sent.
    cancels_under_way,
    /// Cancel requests sent to servers.
    cancels_sent,
    /// Cancel requests passed on to other instances.
    cancels_forwarded,
    /// Cancel requests dropped because too many were under way.
    cancels_dropped,
    /// Sessions that had to keep their server behind a transaction.
    pins,
    /// Tasks that ended by a panic.
    panics,
    /// Calls of `io_uring_enter`.
    ring_enters,
    /// Of these, those that were allowed to sleep.
    ring_sleeps,
    /// Sends that did not fit the peer's window at once.
    short_sends,
}

impl fmt::Display for ShardStats {
    /// `name=figure` pairs, as they stand in a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, figure)) in self.figures().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{name}={figure}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_adds_every_figure() {
        let mut sum = ShardStats {
            clients: 1,
            panics: 2,
            ..ShardStats::default()
        };
        sum.merge(&ShardStats {
            clients: 10,
            waits: 3,
            ..ShardStats::default()
        });
        assert_eq!(
            sum,
            ShardStats {
                clients: 11,
                panics: 2,
                waits: 3,
                ..ShardStats::default()
            }
        );
    }

    #[test]
    fn a_log_line_has_every_figure_by_name() {
        let line = ShardStats {
            clients: 7,
            ..ShardStats::default()
        }
        .to_string();
        assert!(line.contains("clients=7"), "{line}");
        assert_eq!(
            line.split(' ').count(),
            ShardStats::default().figures().count()
        );
    }
}
