//! A client that waits for a server is cancelled too: its wait ends, it stays connected.

use super::support::{batch, cancel, error_in, expect_cancelled, key_of, stand, tags};
use tests::canary;
use tests::process::{PATIENCE, eventually};
use tests::wire::{Message, Session, describe, frontend};

tests::on_1_2_and_4_shards!(
    a_wait_ends_with_an_error_and_the_session_goes_on,
    a_batch_that_waits_is_skipped_to_its_end,
    only_the_first_of_a_pipeline_is_refused,
    a_place_in_the_queue_is_given_up,
);

/// Waits until so many clients wait for a server.
fn expect_waiting(pgmux: &tests::pgmux::Pgmux, count: u64) {
    let waiting = eventually(PATIENCE, || {
        (pgmux.figures()["waiting"] == count).then_some(())
    });
    assert!(waiting.is_some(), "{:?}", pgmux.figures());
}

fn told(client: &mut Session) -> Vec<String> {
    client.replies().iter().map(describe).collect()
}

fn a_wait_ends_with_an_error_and_the_session_goes_on(shards: usize) {
    let stand = stand(shards, |config| config.servers(1));
    let mut holder = stand.pgmux.client();
    let mut waiter = stand.pgmux.client();
    holder.query("begin");
    for _ in 0..8 {
        waiter.send(&frontend::query("select 1"));
        expect_waiting(&stand.pgmux, 1);
        cancel(&stand.pgmux, &key_of(&waiter));
        assert_eq!(
            told(&mut waiter),
            [
                "ErrorResponse ERROR 57014 \"canceling statement due to user request\"",
                "ReadyForQuery I"
            ]
        );
        expect_waiting(&stand.pgmux, 0);
    }
    holder.query("commit");
    canary::ask(&mut waiter);
    assert_eq!(stand.pgmux.figures()["cancels_sent"], 0);
    stand.end();
}

fn a_batch_that_waits_is_skipped_to_its_end(shards: usize) {
    let stand = stand(shards, |config| config.servers(1));
    let mut holder = stand.pgmux.client();
    let mut waiter = stand.pgmux.client();
    holder.query("begin");
    let named = [
        frontend::parse("s", "select 1", &[]),
        frontend::bind_text("", "s", &[]),
        frontend::execute("", 0),
        frontend::flush(),
    ];
    waiter.send(&named.concat());
    expect_waiting(&stand.pgmux, 1);
    cancel(&stand.pgmux, &key_of(&waiter));
    // At once, and nothing more before the Sync.
    assert_eq!(waiter.conn.recv().expect("an error").sqlstate(), "57014");
    waiter.send(&[frontend::describe(b'S', "s"), frontend::sync()].concat());
    assert_eq!(told(&mut waiter), ["ReadyForQuery I"]);
    holder.query("commit");
    // What was refused has not been defined.
    waiter.send(&[frontend::describe(b'S', "s"), frontend::sync()].concat());
    assert_eq!(error_in(&waiter.replies()).as_deref(), Some("26000"));
    canary::ask(&mut waiter);
    stand.end();
}

fn only_the_first_of_a_pipeline_is_refused(shards: usize) {
    let stand = stand(shards, |config| config.servers(1));
    for (first, second) in [
        (batch("select 1"), batch("select 2")),
        (frontend::query("select 1"), batch("select 2")),
        (batch("select 1"), frontend::query("select 2")),
    ] {
        let mut holder = stand.pgmux.client();
        let mut waiter = stand.pgmux.client();
        holder.query("begin");
        waiter.send(&[first, second].concat());
        expect_waiting(&stand.pgmux, 1);
        cancel(&stand.pgmux, &key_of(&waiter));
        assert_eq!(tags(&waiter.replies()), "EZ");
        expect_waiting(&stand.pgmux, 1);
        holder.query("commit");
        let replies = waiter.replies();
        let row = replies.iter().find(|message| message.tag == b'D');
        assert_eq!(row.map(Message::row), Some(vec![Some("2".into())]));
    }
    stand.end();
}

fn a_place_in_the_queue_is_given_up(shards: usize) {
    let mut stand = stand(shards, |config| config.servers(1));
    let mut holder = stand.pgmux.client();
    let mut gone = stand.pgmux.client();
    let mut served = stand.pgmux.client();
    stand
        .direct
        .run("create table seen(a int); grant all on seen to app");
    holder.query("begin");
    gone.send(&frontend::query("insert into seen values (1)"));
    expect_waiting(&stand.pgmux, 1);
    served.send(&frontend::query("insert into seen values (2)"));
    expect_waiting(&stand.pgmux, 2);
    cancel(&stand.pgmux, &key_of(&gone));
    expect_cancelled(&mut gone);
    holder.query("commit");
    assert_eq!(tags(&served.replies()), "CZ");
    assert_eq!(stand.direct.number("select sum(a) from seen"), 2);
    stand.end();
}
