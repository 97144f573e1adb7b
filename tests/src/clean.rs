//! What a session may leave behind, looked for on every server that pgmux holds.
//!
//! A server is clean when its next client cannot tell it from a fresh login to PostgreSQL itself: so that is what it is
//! compared with.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::direct::Direct;
use crate::process::{PATIENCE, eventually};
use crate::wire::{Endpoint, Login, Session, describe, frontend};

/// How many clients may be needed to meet all servers: each lands on a shard by chance.
const CLIENTS_MAX: usize = 200;

/// Looks at the servers of one database behind one pgmux.
#[derive(Debug)]
pub struct Inspector {
    front: Endpoint,
    login: Login,
    budget: usize,
    /// What a fresh login to PostgreSQL itself sees and is told.
    fresh: Vec<String>,
    fresh_digest: String,
    fresh_reports: Vec<(String, String)>,
}

/// Where and for what to look, beyond what every look covers.
#[derive(Debug, Default)]
pub struct Suspicions {
    /// Process ids that clients were told, the latest first: their shards' servers are looked at before a look at
    /// another shard's can have pgmux close them.
    pub clients: Vec<i32>,
    /// Names of custom settings that were perhaps set. PostgreSQL lists none, and can forget no name, so their values
    /// must be empty.
    pub settings: BTreeSet<String>,
}

impl Inspector {
    /// Takes a fresh login to the cluster as the measure. pgmux is at `front` and may have `budget` servers.
    pub fn new(cluster: &Cluster, front: &Endpoint, login: &Login, budget: usize) -> Self {
        let mut direct = Session::open(&Endpoint::local(cluster.port()), login);
        direct.query("begin");
        Self {
            front: front.clone(),
            login: login.clone(),
            budget,
            fresh: view(&mut direct),
            fresh_digest: direct.value(&digest()),
            fresh_reports: reports(&direct),
        }
    }

    /// Waits until every server is idle, then looks through each of them by clients of pgmux, each in a transaction of
    /// its own.
    pub fn expect_clean(&self, direct: &mut Direct, suspicions: &Suspicions) {
        direct.expect_idle();
        direct.expect_nothing_prepared();
        // A server that pgmux has just closed may still be seen.
        let servers = eventually(PATIENCE, || {
            let servers = direct.servers();
            (servers.len() <= self.budget).then_some(servers)
        });
        let mut unseen: BTreeSet<i32> = servers
            .unwrap_or_else(|| panic!("{:?} for a budget of {}", direct.servers(), self.budget))
            .into_iter()
            .collect();
        let mut shards = shards_of(&suspicions.clients);
        let (mut holders, mut waiting) = (Vec::new(), Vec::new());
        // They stay, so that the next client lands on another shard.
        let mut spent = Vec::new();
        for _ in 0..CLIENTS_MAX {
            if unseen.is_empty() {
                break;
            }
            let mut client = self.client(&mut waiting, shards.last().copied());
            let server = match self.look(&mut client, &suspicions.settings) {
                Ok(server) => server,
                Err(left) => panic!("{left}"),
            };
            if unseen.remove(&server) {
                holders.push(client);
            } else {
                // Nothing is left to see on this shard.
                client.query("rollback");
                spent.push(client);
                shards.pop();
                let servers = direct.servers();
                unseen.retain(|server| servers.contains(server));
            }
        }
        assert!(unseen.is_empty(), "no client has met {unseen:?}");
        for client in &mut holders {
            client.query("rollback");
        }
        direct.expect_idle();
    }

    /// A client that has said nothing yet, on a shard if one is named: one of those that wait, which landed on other
    /// shards than was wished for, or a new one.
    fn client(&self, waiting: &mut Vec<Session>, shard: Option<i32>) -> Session {
        let fits = |client: &Session| shard.is_none_or(|shard| shard_of(client) == Some(shard));
        if let Some(place) = waiting.iter().position(fits) {
            return waiting.swap_remove(place);
        }
        for _ in 0..CLIENTS_MAX {
            let client = Session::open(&self.front, &self.login);
            assert_eq!(
                reports(&client),
                self.fresh_reports,
                "what a fresh client is told"
            );
            if fits(&client) {
                return client;
            }
            waiting.push(client);
        }
        panic!("no client has landed on shard {shard:?}");
    }

    /// Looks at the server that a client gets which has said nothing yet, and gives its process id, or what somebody has
    /// left on it. The client keeps it by a transaction.
    pub fn look(&self, client: &mut Session, settings: &BTreeSet<String>) -> Result<i32, String> {
        // First, because every simple query destroys the unnamed statement.
        client.send(&[frontend::bind_text("", "", &[]), frontend::sync()].concat());
        let reply = client.replies().swap_remove(0);
        if reply.tag != b'E' || reply.sqlstate() != "26000" {
            return Err(format!(
                "an unnamed statement was left: {}",
                describe(&reply)
            ));
        }
        client.query("begin");
        if client.value(&digest()) != self.fresh_digest {
            let seen = view(client);
            let only = |of: &[String], not: &[String]| -> Vec<String> {
                let mut of = of.to_vec();
                of.retain(|line| !not.contains(line));
                of
            };
            let (more, less) = (only(&seen, &self.fresh), only(&self.fresh, &seen));
            return Err(format!("left: {more:?}, in place of {less:?}"));
        }
        if !settings.is_empty() {
            let left = client.rows(&custom(settings));
            if !left.is_empty() {
                return Err(format!("custom settings were left: {left:?}"));
            }
        }
        let server = client.value("select pg_backend_pid()");
        server.parse().map_err(|_| server)
    }
}

/// What a client in a transaction sees, as sorted lines.
fn view(client: &mut Session) -> Vec<String> {
    let sql = format!("select line from ({VIEW}) v(line) order by 1");
    let rows = client.rows(&sql);
    rows.into_iter().flatten().flatten().collect()
}

/// The same in short: almost always it is as it should be.
fn digest() -> String {
    format!("select md5(string_agg(line, ' ' order by line)) from ({VIEW}) v(line)")
}

fn custom(settings: &BTreeSet<String>) -> String {
    let names: Vec<_> = settings.iter().map(|name| format!("'{name}'")).collect();
    let names = names.join(",");
    format!(
        "select name, current_setting(name, true) from unnest(array[{names}]) name \
         where current_setting(name, true) <> '' and name not in (select name from pg_settings)"
    )
}

fn reports(session: &Session) -> Vec<(String, String)> {
    let reports = session.parameters.iter();
    reports
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The shards of clients, each once, in reverse order.
fn shards_of(clients: &[i32]) -> Vec<i32> {
    let mut shards: Vec<i32> = Vec::new();
    for pid in clients {
        let shard = pid >> SHARD_SHIFT;
        if !shards.contains(&shard) {
            shards.push(shard);
        }
    }
    shards.reverse();
    shards
}

fn shard_of(client: &Session) -> Option<i32> {
    client.key.as_ref().map(|(pid, _)| pid >> SHARD_SHIFT)
}

/// pgmux tells clients a process id of the shard and the place in it.
const SHARD_SHIFT: i32 = 20;

/// All that a session can leave on a server and the next one could see. Settings are compared whole: the value, where
/// it is from, and what RESET would make of it. A library that is loaded brings settings of its own, which count only
/// when they were set. Settings of a transaction begin anew with each, but PostgreSQL remembers for good that they were
/// set, and has no way to undo that. pgmux's own copies of statements are hidden by their names.
const VIEW: &str = "\
    select concat_ws(' ', 'setting', name, setting, \
            case when name not like 'transaction\\_%' then source end, reset_val) from pg_settings \
        where name not like '%.%' or source = 'session' \
    union all select 'role ' || current_user || ' of ' || session_user \
    union all select 'channel ' || c from pg_listening_channels() c \
    union all select 'cursor ' || name from pg_cursors \
    union all select 'statement ' || name from pg_prepared_statements \
        where from_sql or name not like 'pgmux:%' \
    union all select 'temporary ' || relname from pg_class where relnamespace = pg_my_temp_schema() \
    union all select 'temporary object of class ' || classid from pg_depend \
        where refclassid = 'pg_namespace'::regclass and refobjid = pg_my_temp_schema() \
    union all select 'advisory lock ' || objid from pg_locks \
        where locktype = 'advisory' and pid = pg_backend_pid()";
