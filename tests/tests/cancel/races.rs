//! Cancel requests that come while pgmux is at something of its own: they must hit what the client asked, or nothing.

use super::support::{ask_to_cancel, batch, cancel, end_of, error_in, key_of, stand, tags};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tests::hostile::{FakeServer, honest_reply};
use tests::on_shards;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually};
use tests::wire::{Conn, Session, frontend};

on_shards!(
    the_next_client_is_never_hit,
    settings_that_go_ahead_are_not_hit,
    questions_of_ours_are_not_hit,
    settings_that_come_back_are_not_hit,
    what_was_sent_just_before_is_found,
);

/// Runs a query and cancels it after so long.
fn cancelled_after(pgmux: &Pgmux, client: &mut Session, request: &[u8], pause: Duration) -> String {
    let conn = Conn::open(&pgmux.endpoint()).expect("a connection");
    let key = key_of(client);
    client.send(request);
    std::thread::sleep(pause);
    let conn = ask_to_cancel(conn, &key);
    let replies = client.replies();
    end_of(conn);
    let error = error_in(&replies);
    assert!(
        error.is_none() || error.as_deref() == Some("57014"),
        "{error:?}"
    );
    tags(&replies)
}

/// BR-028: the server changes hands at the moment at which it is cancelled.
fn the_next_client_is_never_hit(shards: usize) {
    const ROUNDS: u64 = 150;
    let stand = stand(shards, |config| config.servers(1));
    let pgmux = &stand.pgmux;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut client = pgmux.client();
            for round in 0..ROUNDS {
                client.send(&frontend::query("select pg_sleep(0.004)"));
                // Around the query's end, before and after it.
                std::thread::sleep(Duration::from_micros(3000 + 20 * round));
                cancel(pgmux, &key_of(&client));
                client.replies();
            }
        });
        scope.spawn(move || {
            let mut bystander = pgmux.client();
            for _ in 0..ROUNDS {
                bystander.rows("select pg_sleep(0.004)");
            }
        });
    });
    stand.end();
}

/// Two clients with settings of their own take turns on one server, so that each request has them set ahead.
fn settings_that_go_ahead_are_not_hit(shards: usize) {
    let stand = stand(shards, |config| config.servers(1));
    let login = stand.pgmux.login();
    let open = |name| {
        let login = login.clone().param("application_name", name);
        Session::open(&stand.pgmux.endpoint(), &login.param("work_mem", "5MB"))
    };
    let mut clients = [open("one"), open("two")];
    let mut hits = 0;
    for round in 0..200_u64 {
        let client = &mut clients[usize::from(round % 2 == 0)];
        let pause = Duration::from_micros(round % 10 * 100);
        let request = frontend::query("select pg_sleep(0.2)");
        let replies = cancelled_after(&stand.pgmux, client, &request, pause);
        // PostgreSQL ignores a signal that comes before it has read the request.
        assert!(
            ["TEZ", "EZ", "TDCZ"].contains(&replies.as_str()),
            "{replies}"
        );
        hits += usize::from(replies != "TDCZ");
        let name = if round % 2 == 0 { "two" } else { "one" };
        assert_eq!(client.value("show application_name"), name);
    }
    assert!(hits > 100, "{hits} of 200 were in time");
    stand.end();
}

/// Behind a `SET` the server is asked what it has left, in the same write: it changes hands only when all is over.
fn questions_of_ours_are_not_hit(shards: usize) {
    let stand = stand(shards, |config| config.servers(1));
    let pgmux = &stand.pgmux;
    let texts = [
        "set work_mem = '6MB'",
        "select set_config('work_mem', '7MB', false)",
        "select 1; set work_mem = '8MB'; select 2",
        "create temporary table x(a int); drop table x",
    ];
    std::thread::scope(|scope| {
        let bystander = scope.spawn(move || {
            let mut bystander = pgmux.client();
            for _ in 0..600 {
                assert_eq!(error_in(&bystander.query("select pg_sleep(0.001)")), None);
                assert_eq!(bystander.value("show work_mem"), "4MB");
            }
        });
        let mut client = pgmux.client();
        let mut round = 0;
        while !bystander.is_finished() {
            let text = texts[round % texts.len()];
            let pause = Duration::from_micros(round as u64 % 20 * 100);
            cancelled_after(pgmux, &mut client, &frontend::query(text), pause);
            round += 1;
        }
    });
    stand.end();
}

/// A `RESET` has the startup packet's values set again behind it.
fn settings_that_come_back_are_not_hit(shards: usize) {
    let stand = stand(shards, |config| config.servers(1));
    let login = stand.pgmux.login().param("work_mem", "5MB");
    let mut client = Session::open(&stand.pgmux.endpoint(), &login);
    for round in 0..200_u64 {
        let pause = Duration::from_micros(round % 20 * 50);
        for text in ["reset work_mem", "reset all", "select 1; reset work_mem"] {
            cancelled_after(&stand.pgmux, &mut client, &frontend::query(text), pause);
            assert_eq!(
                client.value("show work_mem"),
                "5MB",
                "round {round}, {text}"
            );
        }
    }
    stand.end();
}

/// The mail from shard to shard may be quicker than the request, and an earlier cancel request may keep it from being
/// read. (A scripted server, because PostgreSQL ignores a signal that comes before it has read the request.)
fn what_was_sent_just_before_is_found(shards: usize) {
    let heard = Arc::new(AtomicUsize::new(0));
    let fake = FakeServer::start({
        let heard = Arc::clone(&heard);
        move |peer, _| {
            if peer.log_in().is_err() {
                heard.fetch_add(1, Ordering::SeqCst);
                // Its end comes after the answer to what it was for, and after the next request.
                std::thread::sleep(Duration::from_millis(20));
                return Ok(());
            }
            let mut answered = 0;
            loop {
                let request = peer.read_request()?;
                let cancelled = eventually(PATIENCE, || {
                    (heard.load(Ordering::SeqCst) > answered).then_some(())
                });
                if cancelled.is_some() {
                    peer.send(&honest_reply(&request, "fake"))?;
                }
                answered += 1;
            }
        }
    });
    let pgmux = Pgmux::start(&Config::fake(fake.port()).shards(shards).servers(1));
    let mut client = Session::open(&pgmux.endpoint(), &pgmux.login());
    let key = key_of(&client);
    let mut conns = Vec::new();
    for round in 0..100 {
        let conn = Conn::open(&pgmux.endpoint()).expect("a connection");
        let (request, reply) = match round % 2 {
            0 => (frontend::query("select 1"), "TDCZ"),
            _ => (batch("select 1"), "12TDCZ"),
        };
        client.send(&request);
        conns.push(ask_to_cancel(conn, &key));
        assert_eq!(tags(&client.replies()), reply, "round {round}");
    }
    conns.into_iter().for_each(end_of);
    assert_eq!(pgmux.figures()["cancels_sent"], 100);
    pgmux.stop();
}
