//! What PostgreSQL itself says about the servers that pgmux holds.

use postgres::Client;

use crate::cluster::Cluster;
use crate::process::{PATIENCE, eventually};

/// A superuser's connection past pgmux, to look at one database.
pub struct Direct {
    client: Client,
    database: String,
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Direct")
            .field("database", &self.database)
            .finish()
    }
}

impl Direct {
    /// Opens the second look at a database.
    pub fn open(cluster: &Cluster, database: &str) -> Self {
        Self {
            client: cluster.superuser(database),
            database: database.into(),
        }
    }

    /// Runs statements.
    pub fn run(&mut self, sql: &str) {
        if let Err(error) = self.client.batch_execute(sql) {
            panic!("{sql}: {error:?}");
        }
    }

    /// The one text value that a query returns.
    pub fn text(&mut self, sql: &str) -> String {
        let row = self
            .client
            .query_one(sql, &[])
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        row.get(0)
    }

    /// The one number that a query returns.
    pub fn number(&mut self, sql: &str) -> i64 {
        let row = self
            .client
            .query_one(sql, &[])
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        row.get(0)
    }

    /// The process ids of all servers in this database but ours.
    pub fn servers(&mut self) -> Vec<i32> {
        let sql = format!("select pid from pg_stat_activity where {OTHERS} order by pid");
        let rows = self
            .client
            .query(&sql, &[&self.database])
            .expect("pg_stat_activity");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// The server that became idle last: the one that the client which spoke last had.
    pub fn last_used(&mut self) -> Option<i32> {
        let sql = format!(
            "select pid from pg_stat_activity where {OTHERS} order by state_change desc limit 1"
        );
        let rows = self
            .client
            .query(&sql, &[&self.database])
            .expect("pg_stat_activity");
        rows.first().map(|row| row.get(0))
    }

    /// Servers that are not idle, or hold a lock, with what they do.
    pub fn busy(&mut self) -> Vec<String> {
        let sql = format!(
            "select concat_ws(' ', a.pid, a.state, a.query) from pg_stat_activity a where {OTHERS} \
             and (a.state <> 'idle' or a.xact_start is not null \
                  or exists (select from pg_locks l where l.pid = a.pid))"
        );
        let rows = self
            .client
            .query(&sql, &[&self.database])
            .expect("pg_stat_activity");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// What all servers in this database do, to be read by a person.
    pub fn activity(&mut self) -> Vec<String> {
        let sql = format!(
            "select (pid, state, wait_event, query)::text from pg_stat_activity where {OTHERS}"
        );
        let rows = self
            .client
            .query(&sql, &[&self.database])
            .expect("pg_stat_activity");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Waits until a server in this database runs `pg_sleep`: the request has arrived.
    pub fn expect_sleeper(&mut self) {
        let sql = "select count(*) from pg_stat_activity \
                   where datname = current_database() and wait_event = 'PgSleep'";
        let asleep = eventually(PATIENCE, || (self.number(sql) > 0).then_some(()));
        if asleep.is_none() {
            panic!("nobody sleeps: {:#?}", self.activity());
        }
    }

    /// Waits until every server in this database is idle, without a transaction and without locks.
    pub fn expect_idle(&mut self) {
        let mut busy = Vec::new();
        let idle = eventually(PATIENCE, || {
            busy = self.busy();
            busy.is_empty().then_some(())
        });
        assert!(
            idle.is_some(),
            "servers of {} are not idle: {busy:#?}",
            self.database
        );
    }

    /// Waits until there are so many servers in this database.
    pub fn expect_servers(&mut self, count: usize) {
        let mut found = Vec::new();
        let there = eventually(PATIENCE, || {
            found = self.servers();
            (found.len() == count).then_some(())
        });
        assert!(there.is_some(), "{count} servers expected, found {found:?}");
    }

    /// Nobody has left a prepared transaction in this database.
    pub fn expect_nothing_prepared(&mut self) {
        let sql = "select coalesce(string_agg(gid, ', '), '') from pg_prepared_xacts \
                   where database = current_database()";
        assert_eq!(self.text(sql), "", "prepared transactions");
    }
}

const OTHERS: &str = "datname = $1 and backend_type = 'client backend' and pid <> pg_backend_pid() \
                      and application_name <> 'referee'";
