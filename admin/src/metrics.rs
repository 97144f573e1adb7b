//! The page that Prometheus reads. Names and meanings are those of pgmux's
//! reference where it has them. Labels are bounded: databases and shards are
//! configured, users are the most numerous only, SQLSTATEs are capped.

use crate::exposition::{Exposition, seconds};
use crate::handle::{DatabaseFigures, Figures};
use crate::stats::ShardStats;
use std::fs;
use std::time::UNIX_EPOCH;

/// All of it.
pub(crate) fn page(figures: &Figures) -> String {
    let mut page = Exposition::default();
    process(&mut page, figures);
    clients(&mut page, &figures.all);
    connections(&mut page, figures);
    queries(&mut page, figures);
    pools(&mut page, figures);
    servers(&mut page, &figures.all);
    health(&mut page, &figures.all);
    timeouts(&mut page, &figures.all);
    cancels(&mut page, &figures.all);
    shards(&mut page, figures);
    maintenance(&mut page, figures);
    thread(&mut page, figures);
    page.page()
}

fn process(page: &mut Exposition, figures: &Figures) {
    page.gauge("pgmux_build_info", "Always 1; the label is the version.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    if let Some(since) = figures
        .started
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
    {
        page.gauge(
            "process_start_time_seconds",
            "When the process started, in seconds after 1970.",
        )
        .sample(&[], since.as_secs());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    if let Some(kilobytes) = resident {
        page.gauge(
            "process_resident_memory_bytes",
            "Memory of the process that is in RAM.",
        )
        .sample(&[], kilobytes * 1024);
    }
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        page.gauge("process_open_fds", "Open file descriptors of the process.")
            .sample(&[], entries.count());
    }
}

fn clients(page: &mut Exposition, all: &ShardStats) {
    page.gauge("pgmux_clients", "Clients now, by what they do.")
        .sample(&[("state", "logging_in")], all.logging_in)
        .sample(&[("state", "idle")], all.clients_idle)
        .sample(&[("state", "waiting")], all.clients_waiting)
        .sample(&[("state", "active")], all.clients_active)
        .sample(&[("state", "in_transaction")], all.clients_in_transaction);
    page.counter("pgmux_client_connections_total", "Connections accepted.")
        .sample(&[], all.connections);
    page.counter(
        "pgmux_client_logins_total",
        "Clients that have logged in, and logins that have failed.",
    )
    .sample(&[("result", "ok")], all.logins)
    .sample(&[("result", "failed")], all.login_failures);
    page.counter(
        "pgmux_connection_limit_rejected_total",
        "Clients that a limit of clients has refused, once they had proved who they are.",
    )
    .sample(&[], all.limit_refusals);
    page.seconds(
        "pgmux_client_login_duration_seconds",
        "Clients from their connection until they were logged in.",
    )
    .histogram(&[], &all.client_login, 0);
    page.counter(
        "pgmux_session_pinned_total",
        "Sessions that had to keep their server behind a transaction.",
    )
    .sample(&[], all.pins);
    page.counter(
        "pgmux_replications_total",
        "Replication connections that were passed through.",
    )
    .sample(&[], all.replications);
}

fn connections(page: &mut Exposition, figures: &Figures) {
    let connections = &figures.connections;
    let mut family = page.gauge(
        "pgmux_active_connections_by_user",
        "Clients now, of the users that have the most; all others together have the user \"\".",
    );
    for user in connections.by_user.iter().take(USERS_MAX) {
        family.sample(&[("user", &user.name)], user.active);
    }
    let beyond = connections.by_user.iter().skip(USERS_MAX);
    let beyond: u64 = beyond.map(|user| u64::from(user.active)).sum();
    let others = beyond + connections.other_users.active;
    if others > 0 {
        family.sample(&[("user", "")], others);
    }
    let mut family = page.gauge(
        "pgmux_active_connections_by_database",
        "Clients now, by database.",
    );
    for database in &connections.by_database {
        family.sample(&[("database", &database.name)], database.active);
    }
}

fn queries(page: &mut Exposition, figures: &Figures) {
    let all = &figures.all;
    let writer = [("target", "writer")];
    page.counter(
        "pgmux_queries_routed_total",
        "Simple queries and batches up to a Sync that were answered to the end, by where they went; a query of several statements is one.",
    )
    .sample(&writer, all.queries);
    page.seconds(
        "pgmux_query_duration_seconds",
        "From the first message to a server until the answer's end; neither the wait for a server nor what a client does between two queries is in it.",
    )
    .histogram(&writer, &all.query, 0);
    page.counter(
        "pgmux_transactions_total",
        "Leases that ended with a server given back clean: transactions where pool.mode is so.",
    )
    .sample(&[], all.transactions);
    page.seconds(
        "pgmux_transaction_duration_seconds",
        "From the grant of a server until it came back clean.",
    )
    .histogram(&[], &all.lease, 0);
    page.counter(
        "pgmux_bytes_total",
        "Bytes of messages that were read, by who sent them.",
    )
    .sample(&[("from", "clients")], all.bytes_from_clients)
    .sample(&[("from", "servers")], all.bytes_from_servers);
    let mut family = page.counter(
        "pgmux_errors_total",
        "Errors that clients got, by who made them and SQLSTATE; codes beyond the first hundred are \"other\".",
    );
    for (source, code, count) in &figures.errors {
        family.sample(&[("source", source), ("sqlstate", code)], count);
    }
    page.counter(
        "pgmux_protocol_violations_total",
        "Servers that said what they must not; both connections were closed.",
    )
    .sample(&[], all.violations);
}

fn pools(page: &mut Exposition, figures: &Figures) {
    let databases = &figures.databases;
    let mut each = |name, kind: Kind, help: &str, figure: fn(&DatabaseFigures) -> u64| {
        let mut family = match kind {
            Kind::Counter => page.counter(name, help),
            Kind::Gauge => page.gauge(name, help),
        };
        for database in databases {
            let labels = [
                ("database", database.name.as_str()),
                ("role", "writer"),
                ("addr", &database.address),
            ];
            family.sample(&labels, figure(database));
        }
    };
    each(
        "pgmux_pool_connections_open",
        Kind::Gauge,
        "Servers now.",
        |d| d.open,
    );
    each(
        "pgmux_pool_connections_idle",
        Kind::Gauge,
        "Servers now that no client has.",
        |d| d.idle,
    );
    each(
        "pgmux_pool_connections_max",
        Kind::Gauge,
        "The most servers that the pool of the database's own user may have.",
        |d| d.max,
    );
    each(
        "pgmux_pool_waiting",
        Kind::Gauge,
        "Clients now that wait for a server.",
        |d| d.waiting,
    );
    each(
        "pgmux_pool_acquires_total",
        Kind::Counter,
        "Servers given to clients.",
        |d| d.acquires,
    );
    let mut family = page.gauge("pgmux_pool_paused", "Whether the database is paused.");
    for database in databases {
        family.sample(&[("database", &database.name)], u8::from(database.paused));
    }
    let all = &figures.all;
    let acquires: u64 = databases.iter().map(|database| database.acquires).sum();
    page.seconds("pgmux_pool_acquire_duration_seconds", "How long clients waited for a server; those that found one at once are in the first bucket.")
        .histogram(&[("role", "writer")], &all.wait, acquires.saturating_sub(all.wait.count()));
    page.counter(
        "pgmux_pool_wait_timeouts_total",
        "Clients that waited in vain for pool.connection_timeout.",
    )
    .sample(&[], all.wait_timeouts);
}

enum Kind {
    Counter,
    Gauge,
}

fn servers(page: &mut Exposition, all: &ShardStats) {
    let working = all.servers.saturating_sub(all.servers_idle);
    page.gauge(
        "pgmux_servers",
        "Servers now, by whether a client has them.",
    )
    .sample(&[("state", "idle")], all.servers_idle)
    .sample(&[("state", "leased")], working);
    page.counter("pgmux_servers_opened_total", "Servers logged in to.")
        .sample(&[], all.servers_opened);
    page.counter(
        "pgmux_servers_closed_total",
        "Servers closed, for whatever reason.",
    )
    .sample(&[], all.servers_closed);
    page.counter(
        "pgmux_server_login_failures_total",
        "Logins to servers that failed.",
    )
    .sample(&[], all.server_login_failures);
    page.seconds(
        "pgmux_server_login_duration_seconds",
        "Servers from the first attempt to connect until they were logged in.",
    )
    .histogram(&[], &all.server_login, 0);
}

fn health(page: &mut Exposition, all: &ShardStats) {
    let role = [("role", "writer")];
    page.counter(
        "pgmux_pool_warm_connections_total",
        "Servers opened though no client waited for one, to reach pool.min_connections.",
    )
    .sample(&role, all.pool_warm_connections);
    page.counter(
        "pgmux_pool_warm_errors_total",
        "Logins for that which failed.",
    )
    .sample(&role, all.pool_warm_errors);
    page.counter(
        "pgmux_health_checks_total",
        "Idle servers asked whether they are alive, by what came of it.",
    )
    .sample(
        &[("result", "ok")],
        all.health_checks.saturating_sub(all.health_check_failures),
    )
    .sample(&[("result", "failed")], all.health_check_failures);
    page.counter(
        "pgmux_servers_died_total",
        "Servers that died while a client used them.",
    )
    .sample(&[], all.servers_died);
    page.gauge(
        "pgmux_circuit_breakers",
        "Targets now whose circuit breaker is not closed, by its state.",
    )
    .sample(&[("state", "open")], all.breakers_open)
    .sample(&[("state", "half_open")], all.breakers_half_open);
    page.counter(
        "pgmux_circuit_breaker_opens_total",
        "Times that a circuit breaker has opened.",
    )
    .sample(&[], all.breaker_opens);
    page.counter(
        "pgmux_circuit_breaker_refusals_total",
        "Clients refused because a circuit breaker was open.",
    )
    .sample(&[], all.breaker_refusals);
}

fn timeouts(page: &mut Exposition, all: &ShardStats) {
    page.counter(
        "pgmux_query_timeout_total",
        "Requests that had no time left.",
    )
    .sample(&[("target", "writer")], all.query_timeouts);
    page.counter(
        "pgmux_client_idle_timeout_total",
        "Clients that did nothing for too long outside a transaction.",
    )
    .sample(&[], all.client_idle_timeouts);
    page.counter(
        "pgmux_transaction_timeout_total",
        "Transactions that had no time left, by what they had it for.",
    )
    .sample(&[("kind", "idle")], all.idle_transaction_timeouts)
    .sample(&[("kind", "whole")], all.transaction_timeouts);
    page.counter(
        "pgmux_login_timeout_total",
        "Logins of clients that had no time left.",
    )
    .sample(&[], all.login_timeouts);
    page.counter(
        "pgmux_memory_refusals_total",
        "Logins refused, and idle clients sent away, for want of memory.",
    )
    .sample(&[("what", "login")], all.memory_refusals)
    .sample(&[("what", "idle")], all.clients_shed);
}

fn cancels(page: &mut Exposition, all: &ShardStats) {
    page.counter("pgmux_cancel_requests_total", "Cancel requests of clients, by what became of them; one may be passed on or sent more than once.")
        .sample(&[("event", "received")], all.cancels)
        .sample(&[("event", "sent")], all.cancels_sent)
        .sample(&[("event", "forwarded")], all.cancels_forwarded)
        .sample(&[("event", "dropped")], all.cancels_dropped);
}

fn shards(page: &mut Exposition, figures: &Figures) {
    let all = &figures.all;
    let ids: Vec<String> = (0..figures.shards.len()).map(|id| id.to_string()).collect();
    let shards = || ids.iter().zip(&figures.shards);
    let mut family = page.gauge("pgmux_shard_up", "Whether the shard has answered this scrape in time; if not, what it told last stands here.");
    for (id, shard) in shards() {
        family.sample(&[("shard", id)], u8::from(shard.answered));
    }
    let mut family = page.gauge(
        "pgmux_shard_answer_seconds",
        "How long the shard took to answer this scrape: the turn that it was at, and its way.",
    );
    for (id, shard) in shards().filter(|(_, shard)| shard.answered) {
        let micros = u64::try_from(shard.took.as_micros()).unwrap_or(u64::MAX);
        family.sample(&[("shard", id)], seconds(micros));
    }
    let mut family = page.gauge("pgmux_shard_clients", "Clients of the shard now.");
    for (id, shard) in shards() {
        family.sample(&[("shard", id)], shard.clients);
    }
    let mut family = page.counter(
        "pgmux_shard_turns_total",
        "Turns of the shard's loop: calls of io_uring_enter.",
    );
    for (id, shard) in shards() {
        family.sample(&[("shard", id)], shard.turns);
    }
    let mut family = page.counter(
        "pgmux_shard_cpu_seconds_total",
        "CPU time of the shard's thread.",
    );
    for (id, shard) in shards() {
        let micros = u64::try_from(shard.cpu.as_micros()).unwrap_or(u64::MAX);
        family.sample(&[("shard", id)], seconds(micros));
    }
    page.seconds("pgmux_shard_turn_seconds", "Turns that ended without sleep, from one return of the kernel to the next; the clock is not read for the others.")
        .histogram(&[], &all.turn, 0);
    page.counter(
        "pgmux_client_moves_total",
        "Clients that went to another shard, before their login or between two transactions.",
    )
    .sample(&[("when", "accepted")], all.passed_on)
    .sample(&[("when", "idle")], all.clients_moved);
    page.counter(
        "pgmux_server_handovers_total",
        "Servers that went to another shard.",
    )
    .sample(&[("side", "given")], all.handovers_given)
    .sample(&[("side", "taken")], all.handovers_taken);
    page.seconds(
        "pgmux_server_handover_seconds",
        "Servers from the decision that they move until the other shard had them.",
    )
    .histogram(&[], &all.handover, 0);
    page.gauge(
        "pgmux_sockets",
        "Sockets of the shards now, closing ones included.",
    )
    .sample(&[], all.sockets);
    page.gauge(
        "pgmux_buffers_lent",
        "Receive buffers that hold somebody's bytes now.",
    )
    .sample(&[], all.buffers_lent);
    page.counter(
        "pgmux_short_sends_total",
        "Sends that did not fit the peer's window at once.",
    )
    .sample(&[], all.short_sends);
    page.counter(
        "pgmux_task_panics_total",
        "Tasks of the shards that ended by a panic, each with its connection.",
    )
    .sample(&[], all.panics);
    page.gauge(
        "pgmux_collecting_seconds",
        "What it took the shards together to collect these figures.",
    )
    .sample(&[], format!("{}e-9", all.collecting_ns));
}

fn maintenance(page: &mut Exposition, figures: &Figures) {
    let maintenance = &figures.maintenance;
    page.gauge(
        "pgmux_maintenance_mode",
        "Whether there is maintenance for all databases.",
    )
    .sample(&[], u8::from(maintenance.holds(None)));
    let mut family = page.gauge(
        "pgmux_database_maintenance_mode",
        "Whether there is maintenance for the database, its own or for all.",
    );
    for database in &figures.databases {
        let holds = maintenance.holds(Some(&database.name));
        family.sample(&[("database", &database.name)], u8::from(holds));
    }
    page.counter(
        "pgmux_maintenance_rejected_total",
        "Clients refused or sent away because of maintenance.",
    )
    .sample(&[], figures.all.maintenance_refusals);
}

fn thread(page: &mut Exposition, figures: &Figures) {
    let thread = &figures.thread;
    page.counter(
        "pgmux_admin_requests_total",
        "Requests to the admin API, this page included.",
    )
    .sample(&[], thread.requests);
    page.gauge(
        "pgmux_admin_connections",
        "Connections to the admin API now.",
    )
    .sample(&[], thread.connections);
    page.counter(
        "pgmux_admin_crowded_out_total",
        "Connections to the admin API refused or closed because there were too many.",
    )
    .sample(&[], thread.crowded_out);
    page.counter("pgmux_admin_panics_total", "Panics of the admin thread.")
        .sample(&[], thread.panics);
}

/// Users that have a series of their own.
const USERS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::{Connections, Left, ShardFigures, Share};

    fn share(name: &str, active: u32) -> Share {
        Share {
            name: name.to_owned(),
            active,
            limit: 0,
        }
    }

    fn figures() -> Figures {
        let database = |name: &str, open| DatabaseFigures {
            name: name.to_owned(),
            address: "10.0.0.1:5432".to_owned(),
            open,
            acquires: 7,
            ..DatabaseFigures::default()
        };
        Figures {
            shards: vec![ShardFigures::default(), ShardFigures::default()],
            databases: vec![database("a", 1), database("q\"\\\n", 2)],
            errors: vec![("server", "23505".to_owned(), 2)],
            connections: Connections {
                by_user: (0..150).map(|n| share(&format!("u{n}"), 2)).collect(),
                other_users: Left {
                    names: 5,
                    active: 9,
                },
                by_database: vec![share("a", 3)],
                ..Connections::default()
            },
            ..Figures::default()
        }
    }

    #[test]
    fn each_name_is_explained_once_and_no_sample_comes_twice() {
        let page = page(&figures());
        let mut names = std::collections::HashSet::new();
        let mut samples = std::collections::HashSet::new();
        let mut family = "";
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split(' ').next().expect("a name");
                assert!(names.insert(family), "{family} twice");
            } else if !line.starts_with('#') {
                assert!(
                    line.starts_with(family),
                    "{line} does not belong to {family}"
                );
                let (sample, value) = line.rsplit_once(' ').expect("a value");
                assert!(samples.insert(sample), "{sample} twice");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(page.contains("pgmux_pool_connections_open{database=\"q\\\"\\\\\\n\",role=\"writer\",addr=\"10.0.0.1:5432\"} 2\n"));
        assert!(page.contains("pgmux_pool_acquire_duration_seconds_count{role=\"writer\"} 14\n"));
    }

    #[test]
    fn users_beyond_a_hundred_share_one_series() {
        let page = page(&figures());
        let series = page.matches("pgmux_active_connections_by_user{").count();
        assert_eq!(series, USERS_MAX + 1);
        assert!(page.contains("pgmux_active_connections_by_user{user=\"\"} 109\n"));
    }
}
