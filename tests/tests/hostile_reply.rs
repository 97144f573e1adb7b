//! Servers that lie, die and babble after the login. A server may only hurt its own lease: no invented bytes, no shifted
//! reply, and everybody else is served.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tests::cluster::PASSWORD;
use tests::hostile::{
    Duel, FakeServer, HONEST, data_row, error, honest_reply, read_all, ready, row_description,
};
use tests::process::{PATIENCE, eventually};
use tests::wire::{Endpoint, Login, Message, Session, frontend};
use tests::{on_shards, side_by_side};

on_shards!(
    honest_server_is_used,
    garbage_instead_of_a_reply_ends_the_lease,
    reply_that_is_cut_anywhere_is_never_filled_up,
    server_that_never_answers_is_dropped_with_its_client,
    odd_error_responses_are_passed_on_as_they_are,
    odd_rows_are_passed_on_as_they_are,
    replies_that_nobody_asked_for_end_the_lease,
    chatter_between_any_two_messages_counts_for_nothing,
    chatter_on_an_idle_server_is_no_harm,
    idle_server_that_dies_or_babbles_is_not_used_again,
    fatal_in_a_pipeline_is_told_once,
);

fn honest_server_is_used(shards: usize) {
    let duel = Duel::start(shards, |peer, _| {
        peer.log_in()?;
        peer.serve("fake")
    });
    let mut client = duel.pgmux.client();
    for _ in 0..3 {
        assert_eq!(client.trace("select 'fake'"), HONEST);
    }
    assert_eq!(
        client.rows_extended("select 'fake'", &[]),
        [[Some("fake".to_string())]]
    );
    duel.pgmux.stop();
}

fn garbage_instead_of_a_reply_ends_the_lease(shards: usize) {
    let replies: Vec<(&str, Vec<u8>)> = vec![
        ("length 3", vec![b'Z', 0, 0, 0, 3]),
        ("length 0", vec![b'D', 0, 0, 0, 0]),
        (
            "a claim of 4 GiB",
            vec![b'D', 0xff, 0xff, 0xff, 0xff, 1, 2, 3],
        ),
        ("HTTP", b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
        ("tag 0", frontend::tagged(0, b"x")),
        ("a tag of clients", frontend::tagged(b'Q', b"select 1\0")),
        (
            "a login request",
            frontend::tagged(b'R', &3_u32.to_be_bytes()),
        ),
        ("CopyBoth", frontend::tagged(b'W', &[0, 0, 0])),
        ("status X", frontend::tagged(b'Z', b"X")),
        ("no status", frontend::tagged(b'Z', b"")),
        ("a long status", frontend::tagged(b'Z', b"II")),
        ("a key", frontend::tagged(b'K', &[0, 0, 0, 1, 0, 0, 0, 1])),
    ];
    side_by_side(replies, |(what, reply)| {
        let duel = Duel::start(shards, move |peer, _| {
            peer.log_in()?;
            // The first request of a connection is answered well, so that the client is logged in by then.
            let request = peer.read_request()?;
            peer.send(&honest_reply(&request, "fake"))?;
            peer.read_request()?;
            peer.send(&reply)?;
            peer.drain()
        });
        let mut client = duel.pgmux.client();
        assert_eq!(client.trace("select 'fake'"), HONEST, "before {what}");
        client.send(&frontend::query("select 'fake'"));
        let seen = read_all(&mut client);
        let errors = seen
            .iter()
            .filter(|line| line.starts_with("ErrorResponse"))
            .count();
        assert!(errors <= 1, "{what}: {seen:?}");
        assert!(
            !seen.contains(&HONEST[1].to_string()),
            "{what}: an invented row: {seen:?}"
        );
        duel.server.expect_abandoned();
        duel.check();
        duel.pgmux.stop();
    });
}

fn reply_that_is_cut_anywhere_is_never_filled_up(shards: usize) {
    let request = [Message {
        tag: b'Q',
        body: b"select 'fake'\0".to_vec(),
    }];
    let length = honest_reply(&request, "fake").len();
    // Eight servers, each with every eighth place.
    side_by_side(0..8, |first| {
        let cut = Arc::new(AtomicUsize::new(0));
        let limit = Arc::clone(&cut);
        let duel = Duel::start(shards, move |peer, _| {
            peer.log_in()?;
            let request = peer.read_request()?;
            let reply = honest_reply(&request, "fake");
            peer.send(&reply[..limit.load(Ordering::SeqCst).min(reply.len())])
        });
        for at in (first..length).step_by(8) {
            cut.store(at, Ordering::SeqCst);
            let mut client = duel.pgmux.client();
            client.send(&frontend::query("select 'fake'"));
            let seen = read_all(&mut client);
            let honest = seen
                .iter()
                .zip(HONEST)
                .take_while(|(got, honest)| got == honest)
                .count();
            let rest: Vec<_> = seen[honest..]
                .iter()
                .map(|line| line.split(' ').next().unwrap_or_default())
                .collect();
            let proper: [&[&str]; 3] = [
                &["ErrorResponse", "ReadyForQuery"],
                &["ErrorResponse", "<closed>"],
                &["<closed>"],
            ];
            assert!(proper.contains(&rest.as_slice()), "cut at {at}: {seen:?}");
            assert!(
                rest.len() == 2 || honest < HONEST.len() && at > 0,
                "cut at {at}, nothing said: {seen:?}"
            );
        }
        duel.check();
        duel.pgmux.stop();
    });
}

fn server_that_never_answers_is_dropped_with_its_client(shards: usize) {
    let (asked, questions) = mpsc::channel();
    let duel = Duel::start(shards, move |peer, _| {
        peer.log_in()?;
        peer.read_request()?;
        let _ = asked.send(());
        peer.drain()
    });
    for _ in 0..3 {
        let mut client = duel.pgmux.client();
        client.send(&frontend::query("select 'fake'"));
        questions
            .recv_timeout(PATIENCE)
            .expect("the query has arrived");
        client.conn.reset();
        duel.server.expect_abandoned();
    }
    duel.check();
    duel.pgmux.stop();
}

fn odd_error_responses_are_passed_on_as_they_are(shards: usize) {
    let bodies: Vec<Vec<u8>> = vec![
        b"\0".to_vec(),
        b"SERROR\0Mboom\0\0".to_vec(),
        b"SERROR\0Mboom\0".to_vec(),
        b"SERROR\0C22012\0Mboom\0Qunknown field\0zanother\0\0".to_vec(),
        b"C\0M\0S\0\0".to_vec(),
        b"SERROR\0C22012\0M\xff\xfe\x80\0\0".to_vec(),
        [&b"SERROR\0C22012\0M"[..], &vec![b'x'; 200_000], b"\0\0"].concat(),
        Vec::new(),
    ];
    side_by_side(bodies, |body| {
        let told = body.clone();
        let duel = Duel::start(shards, move |peer, _| {
            peer.log_in()?;
            loop {
                let request = peer.read_request()?;
                if request[0].body.starts_with(b"select 'error'") {
                    peer.say(b'E', &told)?;
                    peer.send(&ready())?;
                } else {
                    peer.send(&honest_reply(&request, "fake"))?;
                }
            }
        });
        let mut client = duel.pgmux.client();
        let replies = client.query("select 'error'");
        assert_eq!(replies.len(), 2);
        assert_eq!(replies[0].body, body);
        assert_eq!(client.trace("select 'fake'"), HONEST);
        duel.pgmux.stop();
    });
}

fn odd_rows_are_passed_on_as_they_are(shards: usize) {
    let wide = [&65_535_u16.to_be_bytes()[..], &[0xff; 65_535 * 4]].concat();
    let rows: Vec<Vec<u8>> = vec![
        frontend::tagged(b'D', &[0, 0]),
        frontend::tagged(b'D', &wide),
        frontend::tagged(b'D', &[0, 1, 0xff, 0xff, 0xff, 0xfe]),
        frontend::tagged(b'D', &[0x7f, 0xff]),
        frontend::tagged(b'D', b""),
        frontend::tagged(b'T', &[0, 0]),
    ];
    let reply = [
        rows.concat(),
        frontend::tagged(b'C', b"SELECT 1\0"),
        ready(),
    ]
    .concat();
    let told = reply.clone();
    let duel = Duel::start(shards, move |peer, _| {
        peer.log_in()?;
        loop {
            let request = peer.read_request()?;
            match request[0].body.starts_with(b"select 'odd'") {
                true => peer.send(&told)?,
                false => peer.send(&honest_reply(&request, "fake"))?,
            }
        }
    });
    let mut client = duel.pgmux.client();
    let seen: Vec<u8> = client
        .query("select 'odd'")
        .iter()
        .flat_map(Message::to_bytes)
        .collect();
    assert!(seen == reply, "the bytes differ");
    assert_eq!(client.trace("select 'fake'"), HONEST);
    duel.pgmux.stop();
}

fn replies_that_nobody_asked_for_end_the_lease(shards: usize) {
    // Behind or in place of an honest reply; the connection's number is the row's value, so that a shifted stream
    // would show.
    let extras: [(&str, Vec<u8>); 6] = [
        ("a second ReadyForQuery", ready()),
        ("ParseComplete", frontend::tagged(b'1', b"")),
        (
            "another reply",
            [
                row_description(),
                data_row("stolen"),
                frontend::tagged(b'C', b"SELECT 1\0"),
                ready(),
            ]
            .concat(),
        ),
        ("a row", data_row("stolen")),
        ("BackendKeyData", frontend::tagged(b'K', &[0; 8])),
        ("an error", error("ERROR", "22012", "stolen")),
    ];
    side_by_side(extras, |(what, extra)| {
        let told = extra.clone();
        let duel = Duel::start(shards, move |peer, number| {
            peer.log_in()?;
            loop {
                let request = peer.read_request()?;
                let mut reply = honest_reply(&request, &number.to_string());
                if request[0].body.starts_with(b"select 'extra'") {
                    reply.extend(&told);
                }
                peer.send(&reply)?;
            }
        });
        for _ in 0..5 {
            let mut guilty = duel.pgmux.client();
            guilty.send(&frontend::query("select 'extra'"));
            read_all(&mut guilty);
            let mut next = duel.pgmux.client();
            let trace = next.trace("select 'next'");
            assert_eq!(trace.len(), 4, "after {what}: {trace:?}");
            assert!(
                !trace.concat().contains("stolen"),
                "after {what}: {trace:?}"
            );
        }
        duel.check();
        duel.pgmux.stop();
    });
}

fn chatter_between_any_two_messages_counts_for_nothing(shards: usize) {
    let chatter: [Vec<u8>; 3] = [
        frontend::tagged(b'N', b"SNOTICE\0C00000\0Mchatter\0\0"),
        frontend::tagged(b'A', b"\0\0\0\x01channel\0payload\0"),
        frontend::tagged(b'S', b"in_hot_standby\0on\0"),
    ];
    let place = Arc::new(AtomicUsize::new(0));
    let (current, talk) = (Arc::clone(&place), chatter.clone());
    let duel = Duel::start(shards, move |peer, _| {
        peer.log_in()?;
        loop {
            let request = peer.read_request()?;
            let at = current.load(Ordering::SeqCst);
            let (position, kind) = (at / talk.len(), at % talk.len());
            let reply = honest_reply(&request, "fake");
            for (index, message) in split(&reply).into_iter().enumerate() {
                if index == position {
                    peer.send(&talk[kind])?;
                }
                peer.send(&message)?;
            }
        }
    });
    let mut client = duel.pgmux.client();
    let mut batch = frontend::parse("s", "select 'fake'", &[]);
    batch.extend(frontend::bind_text("", "s", &[]));
    batch.extend(frontend::describe(b'P', ""));
    batch.extend(frontend::execute("", 0));
    batch.extend(frontend::close(b'S', "s"));
    batch.extend(frontend::sync());
    let asked = |client: &mut Session, bytes: &[u8]| -> String {
        client.send(bytes);
        let replies = client.conn.recv_until(b'Z');
        replies
            .unwrap_or_else(|error| panic!("{error} at place {}", place.load(Ordering::SeqCst)))
            .iter()
            .map(|message| char::from(message.tag))
            .filter(|tag| !"NAS".contains(*tag))
            .collect()
    };
    for at in 0..7 * chatter.len() {
        place.store(at, Ordering::SeqCst);
        assert_eq!(
            asked(&mut client, &frontend::query("select 'fake'")),
            "TDCZ",
            "place {at}"
        );
        assert_eq!(asked(&mut client, &batch), "12TDC3Z", "place {at}");
    }
    duel.pgmux.stop();
}

fn chatter_on_an_idle_server_is_no_harm(shards: usize) {
    let duel = Duel::start(shards, |peer, number| {
        peer.log_in()?;
        loop {
            let request = peer.read_request()?;
            peer.send(&honest_reply(&request, &number.to_string()))?;
            peer.say(b'N', b"SNOTICE\0C00000\0Mchatter\0\0")?;
            peer.say(b'S', b"in_hot_standby\0on\0")?;
            peer.say(b'A', b"\0\0\0\x01channel\0payload\0")?;
        }
    });
    let mut clients: Vec<Session> = (0..3).map(|_| duel.pgmux.client()).collect();
    for _ in 0..5 {
        for client in &mut clients {
            let replies = client.query("select 'fake'");
            assert!(replies.iter().any(|message| message.tag == b'D'));
            assert!(replies.iter().all(|message| message.tag != b'E'));
        }
    }
    duel.check();
    duel.pgmux.stop();
}

fn idle_server_that_dies_or_babbles_is_not_used_again(shards: usize) {
    let last_words: [(&str, Vec<u8>); 7] = [
        ("EOF", Vec::new()),
        (
            "FATAL",
            error(
                "FATAL",
                "57P01",
                "terminating connection due to administrator command",
            ),
        ),
        ("a row", data_row("stolen")),
        ("ReadyForQuery", ready()),
        ("half a message", vec![b'D', 0, 0, 1]),
        ("garbage", vec![0xff; 100]),
        ("an error", error("ERROR", "XX000", "stolen")),
    ];
    side_by_side(last_words, |(what, words)| {
        let said = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&said);
        let duel = Duel::start(shards, move |peer, _| {
            peer.log_in()?;
            let request = peer.read_request()?;
            peer.send(&honest_reply(&request, "fake"))?;
            // Idle now; the client has its answer before the last words come.
            peer.pause(Duration::from_millis(60));
            peer.send(&words)?;
            count.fetch_add(1, Ordering::SeqCst);
            match words.is_empty() {
                true => Ok(()),
                false => peer.drain(),
            }
        });
        let mut client = duel.pgmux.client();
        for round in 1..=3 {
            assert_eq!(
                client.trace("select 'fake'"),
                HONEST,
                "{what}, round {round}"
            );
            let heard = eventually(PATIENCE, || {
                (said.load(Ordering::SeqCst) >= round && duel.server.open() == 0).then_some(())
            });
            assert!(heard.is_some(), "{what}: the server is kept");
        }
        duel.check();
        duel.pgmux.stop();
    });
}

fn fatal_in_a_pipeline_is_told_once(shards: usize) {
    let duel = Duel::start(shards, |peer, _| {
        peer.log_in()?;
        let request = peer.read_request()?;
        peer.send(&honest_reply(&request, "fake"))?;
        peer.read_request()?;
        peer.error(
            "FATAL",
            "57P01",
            "terminating connection due to administrator command",
        )
    });
    let mut client = duel.pgmux.client();
    client.send(&frontend::query("select 'fake'").repeat(4));
    assert_eq!(read_all(&mut client), HONEST);
    let seen = read_all(&mut client);
    assert_eq!(
        seen,
        [
            "ErrorResponse FATAL 57P01 \"terminating connection due to administrator command\"",
            "<closed>"
        ]
    );
    duel.check();
    duel.pgmux.stop();
}

/// Cuts bytes into messages.
fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while bytes.len() >= 5 {
        let length = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        let (message, rest) = bytes.split_at(1 + usize::try_from(length).expect("64-bit"));
        messages.push(message.to_vec());
        bytes = rest;
    }
    messages
}

#[test]
fn scripted_servers_agree_with_a_real_client() {
    // The referee is refereed: the postgres crate logs in to the scripted server and reads its row.
    let server = FakeServer::start(|peer, _| {
        peer.log_in()?;
        peer.serve("fake")
    });
    let mut client = postgres::Config::new()
        .host("127.0.0.1")
        .port(server.port())
        .user("app")
        .password(PASSWORD)
        .dbname("fake")
        .connect(postgres::NoTls)
        .expect("a login");
    let rows = client.simple_query("select 'fake'").expect("a row");
    assert!(rows.iter().any(
        |row| matches!(row, postgres::SimpleQueryMessage::Row(row) if row.get(0) == Some("fake"))
    ));
    let raw = Session::open(
        &Endpoint::local(server.port()),
        &Login::new("app", PASSWORD, "fake"),
    );
    assert_eq!(
        raw.parameters.get("server_version").map(String::as_str),
        Some("15.18")
    );
}
