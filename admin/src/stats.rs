//! The counters of all shards, merged.
//!
//! Each shard counts in plain cells of its own. Whoever wants to know asks
//! every shard by message and adds the answers here.

use crate::histogram::Histogram;
use std::fmt;

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),* $(,)? ; $($(#[$about:meta])* $time:ident),* $(,)?) => {
        /// What one shard has counted, or several together.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct ShardStats {
            $($(#[$doc])* pub $name: u64,)*
            $($(#[$about])* pub $time: Histogram,)*
        }

        impl ShardStats {
            /// Adds another shard's figures.
            pub fn merge(&mut self, other: &ShardStats) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
                $(self.$time.merge(&other.$time);)*
            }

            /// Names and figures, in the order of the fields; of durations the count, the sum and quantiles, in
            /// microseconds.
            pub fn figures(&self) -> impl Iterator<Item = (&'static str, u64)> {
                let counts = [$((stringify!($name), self.$name),)*];
                let times = [$([
                    (concat!(stringify!($time), "_count"), self.$time.count()),
                    (concat!(stringify!($time), "_sum_us"), self.$time.sum()),
                    (concat!(stringify!($time), "_p50_us"), self.$time.quantile(500)),
                    (concat!(stringify!($time), "_p95_us"), self.$time.quantile(950)),
                    (concat!(stringify!($time), "_p99_us"), self.$time.quantile(990)),
                    (concat!(stringify!($time), "_max_us"), self.$time.quantile(1000)),
                ],)*];
                counts.into_iter().chain(times.into_iter().flatten())
            }

            /// Names and durations, in the order of the fields.
            pub fn times(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
                [$((stringify!($time), &self.$time),)*].into_iter()
            }
        }
    };
}

stats! {
    /// Connections accepted since the start.
    connections,
    /// Of these, accepted by a shard that had more clients than the one that served them.
    passed_on,
    /// Moves of clients to another shard between two transactions.
    clients_moved,
    /// Clients that logged in since the start.
    logins,
    /// Logins that failed since the start.
    login_failures,
    /// Logins that were given up because their place was due to a client from another address, or because they stood still.
    logins_ousted,
    /// Of the failed ones, those that a limit of clients refused.
    limit_refusals,
    /// Clients refused, or sent away, because of maintenance.
    maintenance_refusals,
    /// Clients now.
    clients,
    /// Of these, those that have asked nothing and have no transaction.
    clients_idle,
    /// Of these, those that wait for a server.
    clients_waiting,
    /// Of these, those that a server works for.
    clients_active,
    /// Of these, those that ask nothing in a transaction.
    clients_in_transaction,
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
    /// Simple queries and batches that were answered to the end.
    queries,
    /// Bytes of clients' messages that were read.
    bytes_from_clients,
    /// Bytes of servers' messages that were read for clients.
    bytes_from_servers,
    /// Servers opened since the start.
    servers_opened,
    /// Servers closed since the start.
    servers_closed,
    /// Server logins that failed since the start.
    server_login_failures,
    /// Servers opened since the start though no client waited for one, to reach `pool.min_connections`.
    pool_warm_connections,
    /// Logins for that which failed since the start.
    pool_warm_errors,
    /// Idle servers asked since the start whether they are alive.
    health_checks,
    /// Of these, those that did not answer in time or badly.
    health_check_failures,
    /// Servers that died since the start while a client used them.
    servers_died,
    /// Servers retired since the start because their host's name has lost their address.
    servers_moved_away,
    /// Clients refused since the start because a circuit breaker was open.
    breaker_refusals,
    /// Times since the start that a circuit breaker has opened.
    breaker_opens,
    /// Targets now whose circuit breaker is open.
    breakers_open,
    /// Targets now whose circuit breaker is half-open.
    breakers_half_open,
    /// Targets now that did not let us in when they were last tried.
    targets_unwell,
    /// Replication connections passed through since the start.
    replications,
    /// Servers given to other shards since the start.
    handovers_given,
    /// Servers got from other shards since the start.
    handovers_taken,
    /// Clients that had to wait for a server since the start.
    waits,
    /// Of these, those that waited in vain.
    wait_timeouts,
    /// Requests that had no time left (`pgmux_query_timeout_total`).
    query_timeouts,
    /// Of these, those whose server did not stop and was closed.
    disobedient_servers,
    /// Clients that did nothing for too long outside a transaction (`pgmux_client_idle_timeout_total`).
    client_idle_timeouts,
    /// Clients that did nothing for too long in a transaction.
    idle_transaction_timeouts,
    /// Transactions that had no time left.
    transaction_timeouts,
    /// Logins of clients that had no time left.
    login_timeouts,
    /// Notices to clients that they wait for a server.
    wait_notices,
    /// Resident memory of the process now, in bytes.
    memory_bytes,
    /// Logins refused for want of memory.
    memory_refusals,
    /// Idle clients sent away for want of memory.
    clients_shed,
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
    /// Messages between shards that found a mailbox full; what they carried was kept.
    mail_refused,
    /// Tasks that ended by a panic.
    panics,
    /// Calls of `io_uring_enter`.
    ring_enters,
    /// Of these, those that were allowed to sleep.
    ring_sleeps,
    /// Sends that did not fit the peer's window at once.
    short_sends,
    /// What it took to collect these figures, in nanoseconds of the shards' time.
    collecting_ns,
    ;
    /// How long clients waited for a server that had to wait for one, those who waited in vain included.
    wait,
    /// From a query, or the first message of a batch, until it was answered to
    /// the end; the wait for a server is left out.
    query,
    /// Turns of the shards' loops that ended without sleep.
    turn,
    /// From the grant of a server until it came back clean: transactions, or sessions where the mode is so.
    lease,
    /// From a client's connection until it was logged in.
    client_login,
    /// From the first attempt to connect to a server until it was logged in.
    server_login,
    /// Servers from the decision that they move until the other shard had them.
    handover,
}

impl fmt::Display for ShardStats {
    /// `name=figure` pairs, as they stand in a log line; last the times, where
    /// there are any.
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
    use crate::histogram::Recorder;

    #[test]
    fn merging_adds_every_figure() {
        let recorder = Recorder::default();
        recorder.record(9);
        let mut sum = ShardStats {
            wait: recorder.snapshot(),
            clients: 1,
            panics: 2,
            ..ShardStats::default()
        };
        sum.merge(&ShardStats {
            clients: 10,
            waits: 3,
            wait: recorder.snapshot(),
            ..ShardStats::default()
        });
        assert_eq!((sum.wait.count(), sum.wait.quantile(500)), (2, 9));
        sum.wait = Histogram::default();
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
