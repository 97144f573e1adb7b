//! Pausing, going on, replacing servers, ending clients: what `pause.rs` shows of them, reached by HTTP.

use tests::on_shards;
use tests::process::{PATIENCE, eventually};
use tests::wire::{Session, frontend};

use crate::support::{Stand, expect_farewell, stand};

on_shards!(
    a_pause_waits_for_transactions_and_is_told_to_be_under_way,
    clients_are_ended_and_servers_replaced_on_order,
);

fn post(stand: &Stand, path: &str) -> (u16, String) {
    let answer = stand.api.post(path);
    let told = answer.json();
    let words = told["status"].as_str().or(told["error"].as_str());
    (answer.status, words.unwrap_or_default().to_owned())
}

fn a_pause_waits_for_transactions_and_is_told_to_be_under_way(shards: usize) {
    let mut stand = stand(shards, |config| config);
    let mut busy = stand.pgmux.client();
    busy.query("begin");
    assert_eq!(post(&stand, "/admin/pause"), (202, "pausing".into()));
    assert_eq!(stand.api.get("/readyz").status, 503);
    let mut waiting = stand.pgmux.client();
    waiting.send(&frontend::query("select 'served'"));
    busy.query("commit");
    assert_eq!(post(&stand, "/admin/pause"), (200, "paused".into()));
    assert!(stand.direct.servers().is_empty());
    assert_eq!(post(&stand, "/admin/resume"), (200, "resumed".into()));
    let row = waiting.replies();
    assert!(row.iter().any(|message| message.body.ends_with(b"served")));
    assert_eq!(stand.api.get("/readyz").status, 200);
    let own = format!("/admin/resume?database={}", stand.database);
    assert_eq!(post(&stand, &own).0, 200);
    assert_eq!(post(&stand, "/admin/pause?database=nowhere").0, 404);
    assert_eq!(post(&stand, "/admin/pause?patience=1").0, 400);
    stand.end();
}

fn clients_are_ended_and_servers_replaced_on_order(shards: usize) {
    let mut stand = stand(shards, |config| config);
    let mut client = stand.pgmux.client();
    client.query("select 1");
    let before = stand.direct.servers();
    assert_eq!(
        post(&stand, "/admin/reconnect"),
        (200, "reconnecting".into())
    );
    let replaced = eventually(PATIENCE, || {
        client.query("select 1");
        let now = stand.direct.servers();
        now.iter().all(|pid| !before.contains(pid)).then_some(())
    });
    assert!(replaced.is_some(), "{before:?} are still there");
    let mut other: Session = stand.pgmux.client();
    other.query("begin");
    assert_eq!(post(&stand, "/admin/kill"), (200, "paused".into()));
    expect_farewell(&mut other, "57P01", "");
    assert_eq!(post(&stand, "/admin/resume"), (200, "resumed".into()));
    stand.end();
}
