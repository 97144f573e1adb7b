//! Lists of clients, and cancelling what they ask.

use std::time::{Duration, Instant};

use serde_json::Value;
use tests::on_shards;
use tests::process::{PATIENCE, eventually};
use tests::wire::{Session, frontend};

use crate::support::{Stand, stand};

on_shards!(
    clients_are_told_by_what_they_do,
    a_thousand_clients_come_in_pages_each_of_them_once,
    a_query_is_cancelled_and_its_session_lives,
    a_client_that_waits_for_a_server_is_cancelled_too,
    clients_that_move_all_the_time_are_told_and_cancelled,
    no_text_of_a_query_is_told,
);

fn sessions(stand: &Stand, query: &str) -> Vec<Value> {
    let page = stand.api.json(&format!("/admin/sessions{query}"));
    page["sessions"].as_array().expect("a list").clone()
}

fn id(client: &Session) -> u64 {
    let (pid, _) = client.key.as_ref().expect("a key");
    u64::try_from(*pid).expect("a positive process id")
}

fn of(stand: &Stand, client: &Session) -> Value {
    let all = sessions(stand, "");
    let found = all.iter().find(|session| session["id"] == id(client));
    found
        .unwrap_or_else(|| panic!("{} is not in {all:?}", id(client)))
        .clone()
}

/// Waits until the client is told to be in this state.
fn wait_for(stand: &Stand, client: &Session, state: &str) -> Value {
    let told = || Some(of(stand, client)).filter(|told| told["state"] == state);
    let told = eventually(PATIENCE, told);
    told.unwrap_or_else(|| panic!("not {state}: {}", of(stand, client)))
}

fn clients_are_told_by_what_they_do(shards: usize) {
    let mut stand = stand(shards, |config| config.servers(2));
    let idle = stand.pgmux.client();
    let mut open = stand.pgmux.client();
    let mut active = stand.pgmux.client();
    let mut waiter = stand.pgmux.client();
    open.query("begin");
    active.send(&frontend::query("select pg_sleep(60)"));
    stand.direct.expect_sleeper();
    waiter.send(&frontend::query("select 1"));
    let told = wait_for(&stand, &waiter, "waiting");
    assert!(
        told["wait_ms"].is_u64() && told["in_transaction"] == false,
        "{told}"
    );
    let told = wait_for(&stand, &open, "in_transaction");
    assert_eq!(told["in_transaction"], true);
    let server = told["backend_addr"].as_str().expect("a server");
    assert!(server.starts_with("127.0.0.1:"), "{told}");
    wait_for(&stand, &active, "active");
    let told = wait_for(&stand, &idle, "idle");
    assert_eq!(told["user"], "app");
    assert_eq!(told["database"], stand.database.as_str());
    assert_eq!(told["client_addr"], "127.0.0.1");
    assert!(
        told.get("backend_addr").is_none() && told["pinned"] == false,
        "{told}"
    );
    for (state, count) in [
        ("idle", 1),
        ("waiting", 1),
        ("active", 1),
        ("in_transaction", 1),
    ] {
        assert_eq!(
            sessions(&stand, &format!("?state={state}")).len(),
            count,
            "{state}"
        );
        stand.wait_for(
            &format!("pgmux_clients{{state=\"{state}\"}}"),
            f64::from(count as u32),
        );
    }
    assert_eq!(sessions(&stand, "?user=app").len(), 4);
    assert_eq!(sessions(&stand, "?user=nobody").len(), 0);
    assert_eq!(sessions(&stand, "?database=nowhere").len(), 0);
    let answer = stand
        .api
        .post(&format!("/admin/sessions/{}/cancel", id(&active)));
    assert_eq!(answer.json()["status"], "cancelled");
    active.replies();
    waiter.replies();
    drop((idle, open, active, waiter));
    stand.wait_for("pgmux_clients{state=\"idle\"}", 0.0);
    stand.wait_for("pgmux_clients{state=\"in_transaction\"}", 0.0);
    stand.end();
}

fn a_thousand_clients_come_in_pages_each_of_them_once(shards: usize) {
    let stand = stand(shards, |config| config);
    let clients: Vec<Session> = (0..1000).map(|_| stand.pgmux.client()).collect();
    let mut expected: Vec<u64> = clients.iter().map(id).collect();
    expected.sort_unstable();
    let (mut told, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = stand.api.json(&format!("/admin/sessions?limit=97{after}"));
        let some = page["sessions"].as_array().expect("a list");
        assert!(some.len() <= 97);
        told.extend(
            some.iter()
                .map(|session| session["id"].as_u64().expect("a number")),
        );
        pages += 1;
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    told.sort_unstable();
    assert_eq!(told, expected);
    assert!(pages >= 11, "{pages}");
    assert_eq!(stand.api.get("/admin/sessions?after=x").status, 400);
    assert_eq!(
        stand.api.json("/admin/sessions?after=99.0")["sessions"],
        Value::Array(Vec::new())
    );
    drop(clients);
    stand.end();
}

fn a_query_is_cancelled_and_its_session_lives(shards: usize) {
    let mut stand = stand(shards, |config| config);
    let mut client = stand.pgmux.client();
    let path = format!("/admin/sessions/{}/cancel", id(&client));
    let answer = stand.api.post(&path);
    assert_eq!(
        (answer.status, answer.json()["status"].as_str()),
        (200, Some("no_active_query"))
    );
    let begun = Instant::now();
    client.send(&frontend::query("select pg_sleep(60)"));
    stand.direct.expect_sleeper();
    assert_eq!(stand.api.post(&path).json()["status"], "cancelled");
    let replies = client.replies();
    let error = replies.iter().find(|message| message.tag == b'E');
    let error = tests::wire::describe(error.expect("an error"));
    assert!(error.contains("57014"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(50));
    assert_eq!(client.value("select 1"), "1");
    for (path, status) in [
        ("/admin/sessions/4294967295/cancel", 404),
        ("/admin/sessions/0/cancel", 404),
        ("/admin/sessions/x/cancel", 400),
    ] {
        assert_eq!(stand.api.post(path).status, status, "{path}");
    }
    assert_eq!(stand.api.get(&path).status, 405);
    drop(client);
    stand.end();
}

fn a_client_that_waits_for_a_server_is_cancelled_too(shards: usize) {
    let stand = stand(shards, |config| config.servers(1));
    let mut holder = stand.pgmux.client();
    let mut waiter = stand.pgmux.client();
    holder.query("begin");
    waiter.send(&frontend::query("select 1"));
    wait_for(&stand, &waiter, "waiting");
    let answer = stand
        .api
        .post(&format!("/admin/sessions/{}/cancel", id(&waiter)));
    assert_eq!(answer.json()["status"], "cancelled");
    let error = tests::wire::describe(&waiter.replies()[0]);
    assert!(error.contains("57014"), "{error}");
    drop((holder, waiter));
    stand.end();
}

fn clients_that_move_all_the_time_are_told_and_cancelled(shards: usize) {
    let mut stand = stand(shards, |config| config.set("engine.balance", "restless"));
    let mut clients: Vec<Session> = (0..8).map(|_| stand.pgmux.client()).collect();
    for round in 0..20 {
        for client in &mut clients {
            assert_eq!(client.value(&format!("select {round}")), round.to_string());
        }
    }
    for client in &mut clients {
        client.send(&frontend::query("select pg_sleep(60)"));
        let told = wait_for(&stand, client, "active");
        assert_eq!(told["user"], "app");
        stand.direct.expect_sleeper();
        let answer = stand
            .api
            .post(&format!("/admin/sessions/{}/cancel", id(client)));
        assert_eq!(answer.json()["status"], "cancelled");
        let error = client
            .replies()
            .iter()
            .map(tests::wire::describe)
            .collect::<Vec<_>>()
            .join("\n");
        assert!(error.contains("57014"), "{error}");
    }
    drop(clients);
    stand.wait_for("pgmux_clients{state=\"idle\"}", 0.0);
    stand.wait_for("pgmux_clients{state=\"active\"}", 0.0);
    stand.end();
}

fn no_text_of_a_query_is_told(shards: usize) {
    let mut stand = stand(shards, |config| config);
    let mut client = stand.pgmux.client();
    client.send(&frontend::query("select pg_sleep(60), 'geheim' as geheim"));
    stand.direct.expect_sleeper();
    for path in [
        "/admin/sessions",
        "/admin/stats",
        "/metrics",
        "/admin/connections",
    ] {
        let page = stand.api.get(path).body;
        assert!(!page.contains("geheim"), "{path}: {page}");
    }
    stand
        .api
        .post(&format!("/admin/sessions/{}/cancel", id(&client)));
    client.replies();
    drop(client);
    stand.end();
}
