//! What the classifier calls a read, PostgreSQL runs in a transaction that is read only.

#[path = "../../router/tests/corpus/mod.rs"]
mod corpus;

use corpus::{Case, cases};
use postgres::{Client, SimpleQueryMessage};
use router::classify::{by_tree, by_words};
use router::functions::{Builtin, Functions};
use router::scan::Options;
use router::verdict::Class;
use tests::cluster::Cluster;
use tests::version::Version;

const SETUP: &str = include_str!("../../router/tests/corpus/setup.sql");

#[test]
fn every_read_runs_in_a_read_only_transaction_on_postgresql_15() {
    every_read_runs(Version::Distribution);
}

#[test]
fn every_read_runs_in_a_read_only_transaction_on_postgresql_18() {
    every_read_runs(Version::Pg18);
}

fn every_read_runs(version: Version) {
    let cluster = Cluster::of(version);
    let mut client = cluster.superuser(&cluster.fresh_database());
    client.batch_execute(SETUP).expect("the setup");
    let has = number(
        &mut client,
        "select current_setting('server_version_num')::int / 10000",
    );
    let mut faults = Vec::new();
    let mut run = 0;
    for case in cases().iter().filter(|case| is_read(case)) {
        if since(case) > has {
            continue;
        }
        run += 1;
        if let Err(fault) = read_only(&mut client, case) {
            let may_fail = case.has("fails") && !fault.contains("25006");
            if !may_fail {
                faults.push(format!("line {}: {:?}: {fault}", case.line, case.text));
            }
        }
    }
    assert!(run > 100, "{run}");
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Whether the table, or one of the two judges, calls it a read.
fn is_read(case: &Case) -> bool {
    let options = options(case);
    let tree = by_tree(case.text.as_bytes(), options, &Builtin);
    let words = by_words(case.text.as_bytes(), options, &Builtin);
    case.class == "read"
        || words.class() == Class::Read
        || tree.is_ok_and(|verdict| verdict.class() == Class::Read)
}

fn options(case: &Case) -> Options {
    Options {
        standard_conforming_strings: !case.has("scs=off"),
    }
}

fn since(case: &Case) -> i64 {
    let version = case
        .flags
        .iter()
        .find_map(|flag| flag.strip_prefix("since="));
    version.map_or(0, |version| version.parse().expect("a version"))
}

/// Runs it as the server of a replica would, or says what the server said.
fn read_only(client: &mut Client, case: &Case) -> Result<(), String> {
    let reading = if case.has("scs=off") { "off" } else { "on" };
    let begin = format!("set standard_conforming_strings = {reading}; begin read only");
    client.batch_execute(&begin).map_err(said)?;
    let result = match case.text.to_lowercase().starts_with("copy") {
        true => copy(client, &case.text),
        false => client.simple_query(&case.text).map(drop).map_err(said),
    };
    client
        .batch_execute("rollback; set standard_conforming_strings = on")
        .map_err(said)?;
    result
}

fn copy(client: &mut Client, text: &str) -> Result<(), String> {
    let mut rows = client.copy_out(text).map_err(said)?;
    std::io::copy(&mut rows, &mut std::io::sink())
        .map(drop)
        .map_err(|error| error.to_string())
}

fn said(error: postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} {}", error.code().code(), error.message()),
        None => error.to_string(),
    }
}

fn number(client: &mut Client, text: &str) -> i64 {
    let messages = client.simple_query(text).expect("a number");
    let value = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    });
    value.expect("a number")
}

/// The list of PostgreSQL's functions that are no writes is true of both versions.
#[test]
fn functions_that_are_called_safe_are_stable_or_immutable_or_known_to_be_harmless() {
    for version in Version::ALL {
        let cluster = Cluster::of(version);
        let mut client = cluster.superuser(&cluster.fresh_database());
        let volatile =
            "select distinct proname from pg_proc where provolatile = 'v' or prokind = 'p'";
        let messages = client.simple_query(volatile).expect("the catalog");
        let names = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(String::from),
            _ => None,
        });
        let called_safe: Vec<_> = names
            .filter(|name| Builtin.function(None, name.as_bytes()).is_some())
            .collect();
        let unknown: Vec<_> = called_safe
            .iter()
            .filter(|name| !HARMLESS.contains(&name.as_str()))
            .collect();
        assert!(unknown.is_empty(), "{version:?}: {unknown:?}");
        assert!(called_safe.len() > 10, "{called_safe:?}");
    }
}

#[test]
fn operators_that_are_called_safe_are_stable_or_immutable() {
    for version in Version::ALL {
        let cluster = Cluster::of(version);
        let mut client = cluster.superuser(&cluster.fresh_database());
        let volatile = "select distinct oprname from pg_operator join pg_proc on pg_proc.oid = oprcode where provolatile = 'v'";
        let messages = client.simple_query(volatile).expect("the catalog");
        let rows = messages
            .iter()
            .filter(|message| matches!(message, SimpleQueryMessage::Row(_)));
        assert_eq!(rows.count(), 0, "{version:?}");
    }
}

/// Volatile for what they answer, not for what they do.
const HARMLESS: &[&str] = &[
    "bernoulli",
    "clock_timestamp",
    "gen_random_uuid",
    "pg_database_size",
    "pg_indexes_size",
    "pg_is_in_recovery",
    "pg_relation_size",
    "pg_sleep",
    "pg_sleep_for",
    "pg_sleep_until",
    "pg_table_size",
    "pg_tablespace_size",
    "pg_total_relation_size",
    "random",
    "system",
    "timeofday",
];
