//! The page that Prometheus reads.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tests::cluster::{Cluster, PASSWORD};
use tests::on_shards;
use tests::pgmux::yaml_string;
use tests::process::{signal_pid, target_dir};
use tests::wire::{Login, Session, frontend};

use crate::support::{Stand, stand};

on_shards!(
    a_strict_parser_reads_the_page_whatever_names_are_in_it,
    figures_are_those_of_the_log_and_grow_with_the_work,
    a_query_takes_its_time_and_a_transaction_what_is_between,
    errors_are_counted_by_who_made_them,
    made_up_names_leave_no_series,
    clients_without_number_cost_a_shard_nothing,
    waiting_falls_to_nothing_when_servers_cannot_be_had,
);

/// What Prometheus' own client reads, by name and labels.
fn parsed(stand: &Stand) -> BTreeMap<String, f64> {
    let answer = stand.api.get("/metrics");
    let kind = answer.header("content-type").expect("a content type");
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    let python = match std::env::var_os("PGMUX_TEST_PYTHON") {
        Some(python) => PathBuf::from(python),
        None => target_dir().join("drivers/venv/bin/python"),
    };
    let mut check = Command::new(python)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/drivers/prometheus/check.py"
        ))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python");
    let mut input = check.stdin.take().expect("its input");
    // It may have given up already, and then says why.
    let _ = input.write_all(answer.body.as_bytes());
    drop(input);
    let output = check.wait_with_output().expect("its output");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{}", answer.body);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines()
        .map(|line| {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            (sample.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

fn a_strict_parser_reads_the_page_whatever_names_are_in_it(shards: usize) {
    // BR-130: two databases, two users each.
    let cluster = Cluster::shared();
    let odd = "quote\" back\\slash \u{e9}";
    let database = cluster.fresh_database();
    let password = yaml_string(PASSWORD);
    let stand = stand(shards, |config| {
        config
            .set(
                &format!("databases.{}.writer", yaml_string(odd)),
                format!("{{host: 127.0.0.1, port: {}}}", cluster.port()),
            )
            .set(
                &format!("databases.{}.backend", yaml_string(odd)),
                format!("{{database: {database}}}"),
            )
            .set(
                "auth.users",
                format!(
                    "[{{username: app, password: {password}}}, {{username: {}, password: {password}}}]",
                    yaml_string(odd)
                ),
            )
    });
    let endpoint = stand.pgmux.endpoint();
    let clients: Vec<Session> = [
        ("app", odd),
        (odd, odd),
        ("app", &stand.database),
        (odd, &stand.database),
    ]
    .map(|(user, database)| Session::open(&endpoint, &Login::new(user, PASSWORD, database)))
    .into();
    let page = parsed(&stand);
    let label = |name: &str| serde_json::to_string(name).expect("JSON");
    // Python writes what is not ASCII as escapes.
    let odd_label = label(odd).replace('\u{e9}', "\\u00e9");
    for (name, key) in [
        ("user", &odd_label),
        ("user", &label("app")),
        ("database", &odd_label),
    ] {
        let sample = format!("pgmux_active_connections_by_{name} {{\"{name}\": {key}}}");
        assert_eq!(page.get(&sample), Some(&2.0), "{sample} in {page:#?}");
    }
    drop(clients);
    stand.end();
}

fn figures_are_those_of_the_log_and_grow_with_the_work(shards: usize) {
    let stand = stand(shards, |config| config);
    let mut client = stand.pgmux.client();
    let before = parsed(&stand);
    for _ in 0..50 {
        client.query("select 1");
    }
    client.rows_extended("select $1::int", &["7"]);
    let after = parsed(&stand);
    let grown = |sample: &str| after[sample] - before[sample];
    assert_eq!(
        grown("pgmux_queries_routed_total {\"target\": \"writer\"}"),
        51.0
    );
    assert_eq!(
        grown("pgmux_query_duration_seconds_count {\"target\": \"writer\"}"),
        51.0
    );
    assert!(grown("pgmux_transactions_total {}") >= 51.0);
    assert!(grown("pgmux_bytes_total {\"from\": \"clients\"}") > 50.0 * 14.0);
    assert!(grown("pgmux_bytes_total {\"from\": \"servers\"}") > 50.0 * 40.0);
    let pool = format!(
        "{{\"addr\": \"127.0.0.1:{}\", \"database\": \"{}\", \"role\": \"writer\"}}",
        Cluster::shared().port(),
        stand.database
    );
    assert!(grown(&format!("pgmux_pool_acquires_total {pool}")) >= 51.0);
    assert_eq!(after[&format!("pgmux_pool_connections_max {pool}")], 4.0);
    assert_eq!(
        after["pgmux_pool_acquire_duration_seconds_count {\"role\": \"writer\"}"],
        after[&format!("pgmux_pool_acquires_total {pool}")]
    );
    let figures = stand.pgmux.figures();
    for (sample, figure) in [
        ("pgmux_client_logins_total {\"result\": \"ok\"}", "logins"),
        ("pgmux_servers_opened_total {}", "servers_opened"),
        ("pgmux_task_panics_total {}", "panics"),
    ] {
        assert_eq!(after[sample], figures[figure] as f64, "{sample}");
    }
    for shard in 0..shards {
        assert_eq!(
            after[&format!("pgmux_shard_up {{\"shard\": \"{shard}\"}}")],
            1.0
        );
    }
    let sum = |name: &str| {
        (0..shards)
            .map(|shard| after[&format!("{name} {{\"shard\": \"{shard}\"}}")])
            .sum::<f64>()
    };
    assert_eq!(sum("pgmux_shard_clients"), 1.0);
    assert!(sum("pgmux_shard_cpu_seconds_total") > 0.0);
    let stats = stand.api.json("/admin/stats");
    assert_eq!(stats["figures"]["logins"], figures["logins"]);
    assert_eq!(stats["pool"][&stand.database]["writer"]["max"], 4);
    drop(client);
    stand.end();
}

fn a_query_takes_its_time_and_a_transaction_what_is_between(shards: usize) {
    // BR-135: a query of 0.1 s in a transaction of 1.1 s.
    let stand = stand(shards, |config| config);
    let mut client = stand.pgmux.client();
    let sums = |stand: &Stand| {
        let names = [
            "pgmux_query_duration_seconds_sum{target=\"writer\"}",
            "pgmux_transaction_duration_seconds_sum",
        ];
        names.map(|name| stand.series(name))
    };
    let before = sums(&stand);
    client.query("begin");
    std::thread::sleep(Duration::from_secs(1));
    client.query("select pg_sleep(0.1)");
    client.query("commit");
    let after = sums(&stand);
    let [queries, transactions] = [0, 1].map(|at| after[at] - before[at]);
    assert!((0.1..0.9).contains(&queries), "{queries}");
    assert!(
        transactions >= 1.1 && transactions - queries > 0.9,
        "{transactions} and {queries}"
    );
    // Ten in a pipeline behind one Sync are one; three in a query too.
    let count = "pgmux_queries_routed_total{target=\"writer\"}";
    let before = stand.series(count);
    let mut pipeline = Vec::new();
    for _ in 0..10 {
        pipeline.extend(
            [
                frontend::parse("", "select 1", &[]),
                frontend::bind_text("", "", &[]),
                frontend::execute("", 0),
            ]
            .concat(),
        );
    }
    client.send(&[pipeline, frontend::sync()].concat());
    client.replies();
    client.query("select 1; select 2; select 3");
    assert_eq!(stand.series(count) - before, 2.0);
    drop(client);
    stand.end();
}

fn errors_are_counted_by_who_made_them(shards: usize) {
    let stand = stand(shards, |config| {
        config.set("pool.connection_timeout", "2s").servers(1)
    });
    let mut client = stand.pgmux.client();
    for _ in 0..3 {
        assert_eq!(client.sqlstate("select 1/0"), "22012");
    }
    assert_eq!(client.sqlstate("selct"), "42601");
    let mut late = stand.pgmux.client();
    client.query("begin");
    assert_eq!(late.sqlstate("select 1"), "53300");
    client.query("commit");
    let stranger = Login::new("app", "wrong", &stand.database);
    assert!(Session::try_open(&stand.pgmux.endpoint(), &stranger).is_err());
    for (source, code, count) in [
        ("server", "22012", 3.0),
        ("server", "42601", 1.0),
        ("pgmux", "53300", 1.0),
        ("pgmux", "28P01", 1.0),
    ] {
        let name = format!("pgmux_errors_total{{source=\"{source}\",sqlstate=\"{code}\"}}");
        assert_eq!(stand.series(&name), count, "{name}");
    }
    drop((client, late));
    stand.end();
}

fn made_up_names_leave_no_series(shards: usize) {
    let stand = stand(shards, |config| config);
    let series = || {
        stand
            .api
            .get("/metrics")
            .body
            .lines()
            .filter(|line| !line.starts_with('#'))
            .count()
    };
    // The errors have a series from the first of them on.
    let refuse = |name: &str| {
        let login = Login::new(name, "wrong", name);
        assert!(Session::try_open(&stand.pgmux.endpoint(), &login).is_err());
    };
    refuse("first");
    let before = series();
    for number in 0..10 {
        refuse(&format!("nobody{number}"));
    }
    assert_eq!(series(), before);
    stand.end();
}

fn clients_without_number_cost_a_shard_nothing(shards: usize) {
    let stand = stand(shards, |config| config);
    let best = || {
        let costs = (0..30).map(|_| {
            stand.api.json("/admin/stats")["figures"]["collecting_ns"]
                .as_u64()
                .expect("a figure")
        });
        costs.min().expect("a cost")
    };
    let without = best();
    let clients: Vec<Session> = (0..1000).map(|_| stand.pgmux.client()).collect();
    assert_eq!(stand.series("pgmux_clients{state=\"idle\"}"), 1000.0);
    let with = best();
    assert!(
        with < without * 3 + 20_000,
        "{with} ns with a thousand clients, {without} ns without"
    );
    drop(clients);
    stand.end();
}

fn waiting_falls_to_nothing_when_servers_cannot_be_had(shards: usize) {
    // BR-132: a stopped server, a hundred requests that fail.
    let mut cluster = Cluster::start(&Default::default());
    let database = cluster.fresh_database();
    let port = tests::process::free_port();
    let config = tests::pgmux::Config::new(&cluster, &database)
        .shards(shards)
        .set("pool.connection_timeout", "2s");
    let config = crate::support::with_api(config, port);
    let pgmux = tests::pgmux::Pgmux::start(&config);
    let mut clients: Vec<Session> = (0..20).map(|_| pgmux.client()).collect();
    cluster.crash();
    for _ in 0..5 {
        for client in &mut clients {
            client.send(&frontend::query("select 1"));
        }
        for client in &mut clients {
            assert!(client.replies().iter().any(|message| message.tag == b'E'));
        }
    }
    let api = tests::http::Http { port };
    let page = api.get("/metrics").body;
    let value = |name: &str| {
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("{name} in\n{page}"))
    };
    assert_eq!(value("pgmux_clients{state=\"waiting\"}"), 0.0);
    let errors = page
        .lines()
        .filter(|line| line.starts_with("pgmux_errors_total{source=\"pgmux\""));
    let errors: f64 = errors
        .map(|line| {
            line.rsplit(' ')
                .next()
                .and_then(|n| n.parse::<f64>().ok())
                .expect("a count")
        })
        .sum();
    assert_eq!(errors, 100.0, "{page}");
    let ready = api.get("/readyz");
    assert_eq!(ready.status, 503, "{ready:?}");
    assert!(ready.body.contains("primary unreachable"), "{ready:?}");
    let health = api.json("/admin/health");
    assert_eq!(health["databases"][&database]["writer"]["healthy"], false);
    drop(clients);
    pgmux.stop();
}

/// The whole process stopped: a probe must not hang for ever, and afterwards all goes on. (One shard cannot be stopped
/// alone from outside.)
#[test]
fn a_stopped_process_answers_when_it_goes_on() {
    let stand = stand(4, |config| config);
    let pid = stand.pgmux.pid();
    signal_pid(pid, rustix::process::Signal::STOP);
    let mut probe = stand.api.raw();
    probe.send("GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
    signal_pid(pid, rustix::process::Signal::CONT);
    let answer = probe.answer().expect("an answer");
    assert_eq!(answer.status, 200);
    stand.end();
}
