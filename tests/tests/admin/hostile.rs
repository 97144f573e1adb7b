//! What others send to the admin API, and that no client of PostgreSQL notices.

use std::time::{Duration, Instant};

use tests::canary;
use tests::on_shards;
use tests::process::{PATIENCE, eventually, open_fds, rss_kib};

use crate::support::stand;

on_shards!(
    whatever_is_wrong_with_a_request_is_told_and_the_next_is_served,
    one_connection_serves_request_after_request_also_behind_errors,
    heads_and_bodies_have_limits,
    who_is_slow_is_told_and_closed,
    ten_thousand_connects_and_slow_requests_starve_nobody,
    garbage_ends_its_connection_only,
    an_answer_that_nobody_takes_is_given_up,
);

fn whatever_is_wrong_with_a_request_is_told_and_the_next_is_served(shards: usize) {
    let stand = stand(shards, |config| config);
    for (request, status) in [
        ("GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n", 404),
        ("PUT /admin/stats HTTP/1.1\r\nhost: x\r\n\r\n", 405),
        ("OPTIONS /admin/reload HTTP/1.1\r\nhost: x\r\n\r\n", 405),
        ("GET /admin/stats?x=1 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (
            "GET /admin/sessions?state=x HTTP/1.1\r\nhost: x\r\n\r\n",
            400,
        ),
        ("GET /readyz?database=%zz HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        ("GET /admin/stats HTTP/9.9\r\nhost: x\r\n\r\n", 400),
        ("GET  /admin/stats HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        ("G\u{1}T / HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (
            "GET / HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n",
            400,
        ),
        (
            "POST /admin/reload HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            400,
        ),
    ] {
        let mut raw = stand.api.raw();
        raw.send(request);
        let answer = raw
            .answer()
            .unwrap_or_else(|| panic!("no answer to {request:?}"));
        assert_eq!(answer.status, status, "{request:?}: {answer:?}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/json"),
            "{request:?}"
        );
        assert!(answer.json()["error"].is_string(), "{answer:?}");
        assert_eq!(
            status == 405,
            answer.header("allow").is_some(),
            "{answer:?}"
        );
    }
    stand.end();
}

fn one_connection_serves_request_after_request_also_behind_errors(shards: usize) {
    // BR-144.
    let stand = stand(shards, |config| config);
    let mut raw = stand.api.raw();
    for (line, status) in [
        ("GET /healthz", 200),
        ("GET /nowhere", 404),
        ("DELETE /admin/stats", 405),
        ("POST /admin/sessions/x/cancel", 400),
        ("HEAD /healthz", 200),
        ("GET /readyz?database=nowhere", 404),
        ("GET /metrics", 200),
    ] {
        raw.send(format!("{line} HTTP/1.1\r\nhost: x\r\n\r\n"));
        if line.starts_with("HEAD") {
            // An answer without its body, though with its length: the next begins behind the head.
            raw.send("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            raw = stand.api.raw();
            continue;
        }
        let answer = raw
            .answer()
            .unwrap_or_else(|| panic!("no answer to {line}"));
        assert_eq!(answer.status, status, "{line}");
    }
    // Two in one write.
    raw.send("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n");
    let statuses = [(); 2].map(|()| raw.answer().expect("an answer").status);
    assert_eq!(statuses, [200, 404]);
    stand.end();
}

fn heads_and_bodies_have_limits(shards: usize) {
    let stand = stand(shards, |config| config);
    let mut raw = stand.api.raw();
    raw.send(format!(
        "GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n",
        "x".repeat(100_000)
    ));
    let answer = raw.answer().expect("an answer");
    assert_eq!(answer.status, 431, "{answer:?}");
    assert!(answer.json()["error"].is_string());
    let mut raw = stand.api.raw();
    let many: String = (0..200).map(|n| format!("x{n}: 1\r\n")).collect();
    raw.send(format!("GET /healthz HTTP/1.1\r\n{many}\r\n"));
    assert_eq!(raw.answer().expect("an answer").status, 431);
    // The limit, and one byte more.
    for (bytes, status) in [(65_536, 200), (65_537, 413)] {
        let mut raw = stand.api.raw();
        raw.send(format!(
            "POST /admin/maintenance HTTP/1.1\r\ncontent-length: {bytes}\r\n\r\n"
        ));
        raw.send(vec![b'x'; bytes]);
        let answer = raw.answer().expect("an answer");
        assert_eq!(answer.status, status, "{answer:?}");
        stand.api.delete("/admin/maintenance");
    }
    let mut raw = stand.api.raw();
    raw.send("POST /admin/maintenance HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000)).repeat(5);
    raw.send(chunk);
    assert_eq!(raw.answer().expect("an answer").status, 413);
    assert_eq!(stand.api.json("/admin/maintenance")["enabled"], false);
    let mut raw = stand.api.raw();
    raw.send("POST /admin/maintenance HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n");
    assert_eq!(raw.answer().expect("an answer").status, 400);
    assert_eq!(stand.api.json("/admin/maintenance")["enabled"], false);
    stand.end();
}

fn who_is_slow_is_told_and_closed(shards: usize) {
    let stand = stand(shards, |config| config);
    let begun = Instant::now();
    let mut silent = stand.api.raw();
    let mut head = stand.api.raw();
    head.send("GET /healthz HTTP/1.1\r\nx: ");
    let mut body = stand.api.raw();
    body.send("POST /admin/maintenance HTTP/1.1\r\ncontent-length: 10\r\n\r\nx");
    assert_eq!(body.answer().expect("an answer").status, 408);
    let answer = head.answer().expect("an answer");
    assert_eq!(answer.status, 408, "{answer:?}");
    assert!(answer.json()["error"].is_string());
    assert!(silent.ends_within(PATIENCE), "it is told nothing");
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!(stand.api.json("/admin/maintenance")["enabled"], false);
    stand.end();
}

fn ten_thousand_connects_and_slow_requests_starve_nobody(shards: usize) {
    // M-2: each keeps its connection until it is thrown out for the next.
    let stand = stand(shards, |config| config);
    let mut kept = Vec::new();
    for round in 0..10_000 {
        let mut slow = stand.api.raw();
        slow.send("GET /metrics HTTP/1.1\r\nx: ");
        kept.push(slow);
        if kept.len() > 300 {
            kept.remove(0);
        }
        if round % 1000 == 500 {
            assert_eq!(stand.api.get("/healthz").status, 200);
            canary::check(&stand.pgmux.endpoint(), &stand.pgmux.login());
        }
    }
    assert!(stand.series("pgmux_admin_connections") <= 128.0);
    assert!(stand.series("pgmux_admin_crowded_out_total") > 5000.0);
    let fds = open_fds(stand.pgmux.pid());
    assert!(fds < 600, "{fds} descriptors");
    drop(kept);
    let gone = || (stand.series("pgmux_admin_connections") <= 2.0).then_some(());
    assert!(eventually(PATIENCE, gone).is_some());
    stand.end();
}

fn garbage_ends_its_connection_only(shards: usize) {
    let stand = stand(shards, |config| config);
    let before = rss_kib(stand.pgmux.pid());
    let mut seed = 1_u64;
    for _ in 0..500 {
        let mut raw = stand.api.raw();
        let bytes: Vec<u8> = (0..4096)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                seed.to_be_bytes()[0]
            })
            .collect();
        raw.send(bytes);
    }
    // What PostgreSQL and TLS begin with.
    for bytes in [
        &b"\0\0\0\x08\x04\xd2\x16\x2f"[..],
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"\r\n\r\n\r\n",
    ] {
        stand.api.raw().send(bytes);
    }
    assert_eq!(stand.api.get("/healthz").status, 200);
    assert_eq!(stand.series("pgmux_admin_panics_total"), 0.0);
    let grown = rss_kib(stand.pgmux.pid()).saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB");
    stand.end();
}

fn an_answer_that_nobody_takes_is_given_up(shards: usize) {
    let stand = stand(shards, |config| config);
    let mut deaf = stand.api.raw();
    let request = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(200);
    // As many answers as fit the kernel's buffers, and more.
    for _ in 0..20 {
        deaf.send(&request);
    }
    assert_eq!(stand.api.get("/healthz").status, 200);
    let gone = || (stand.series("pgmux_admin_connections") <= 1.0).then_some(());
    let waited = Duration::from_secs(60);
    assert!(
        eventually(waited, gone).is_some(),
        "it still has its connection"
    );
    drop(deaf);
    stand.end();
}
