//! Maintenance: open transactions end as they would, all else is sent away, exactly as the protocol has it.

use tests::cluster::PASSWORD;
use tests::on_shards;
use tests::wire::{Login, Session, frontend};

use crate::support::{Stand, expect_farewell, readies, stand};

on_shards!(
    who_has_no_transaction_is_sent_away_when_it_speaks_and_others_go_on,
    batches_end_with_exactly_one_ready_or_with_none,
    one_database_is_closed_and_the_other_is_not,
    a_request_that_waits_already_is_served,
    a_session_of_its_own_server_ends_between_transactions,
    whoever_says_goodbye_is_told_nothing,
    the_api_says_what_has_changed,
);

const TEXT: &str = "pgmux is in maintenance mode";

fn begin(stand: &Stand, query: &str) {
    let answer = stand.api.post(&format!("/admin/maintenance{query}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["status"], "maintenance_entered");
}

fn end(stand: &Stand, query: &str) {
    let answer = stand.api.delete(&format!("/admin/maintenance{query}"));
    assert_eq!(answer.json()["status"], "maintenance_exited");
}

fn expect_sent_away(client: &mut Session) {
    expect_farewell(client, "57P01", TEXT);
}

fn refusal(stand: &Stand, login: &Login) -> String {
    match Session::try_open(&stand.pgmux.endpoint(), login) {
        Ok(_) => panic!("a client is let in to {}", login.database),
        Err(refusal) => refusal,
    }
}

fn who_has_no_transaction_is_sent_away_when_it_speaks_and_others_go_on(shards: usize) {
    let stand = stand(shards, |config| config);
    let mut idle: Vec<Session> = (0..4).map(|_| stand.pgmux.client()).collect();
    let mut patient = stand.pgmux.client();
    let mut busy = stand.pgmux.client();
    busy.query("begin");
    busy.query("create table t (n int)");
    begin(&stand, "");
    let ready = stand.api.get("/readyz");
    assert_eq!(
        (ready.status, ready.json()["reason"].as_str()),
        (503, Some(TEXT))
    );
    assert_eq!(stand.api.get("/healthz").status, 200);
    let words = refusal(&stand, &stand.pgmux.login());
    assert!(words.contains("57P01") && words.contains(TEXT), "{words}");
    for client in &mut idle {
        client.send(&frontend::query("select 1"));
        expect_sent_away(client);
    }
    assert_eq!(
        busy.trace("insert into t values (7)")
            .last()
            .map(String::as_str),
        Some("ReadyForQuery T")
    );
    assert_eq!(busy.value("select n from t"), "7");
    assert_eq!(
        busy.trace("commit").last().map(String::as_str),
        Some("ReadyForQuery I")
    );
    busy.send(&frontend::query("select 1"));
    expect_sent_away(&mut busy);
    assert_eq!(stand.series("pgmux_maintenance_mode"), 1.0);
    assert_eq!(stand.series("pgmux_maintenance_rejected_total"), 6.0);
    end(&stand, "");
    assert_eq!(stand.api.get("/readyz").status, 200);
    assert_eq!(
        patient.value("select n from t"),
        "7",
        "it has said nothing meanwhile"
    );
    assert_eq!(stand.series("pgmux_maintenance_mode"), 0.0);
    drop(patient);
    stand.end();
}

fn batch(sql: &str) -> Vec<u8> {
    [
        frontend::parse("", sql, &[]),
        frontend::bind_text("", "", &[]),
        frontend::describe(b'P', ""),
        frontend::execute("", 0),
        frontend::sync(),
    ]
    .concat()
}

fn batches_end_with_exactly_one_ready_or_with_none(shards: usize) {
    let stand = stand(shards, |config| config);
    let mut idle = stand.pgmux.client();
    let mut alone = stand.pgmux.client();
    let mut open = stand.pgmux.client();
    open.send(&batch("begin"));
    assert_eq!(readies(&open.replies()), 1);
    // A batch that has begun, with its Sync to come.
    let mut halfway = stand.pgmux.client();
    let mut begun = batch("select 5");
    begun.truncate(begun.len() - frontend::sync().len());
    halfway.send(&[begun, frontend::flush()].concat());
    let come = halfway.conn.recv_until(b'C').expect("an answer");
    assert_eq!(readies(&come), 0);
    begin(&stand, "");
    halfway.send(&frontend::sync());
    let rest = halfway.replies();
    assert_eq!((rest.len(), readies(&rest)), (1, 1), "{rest:?}");
    for sql in ["select 1", "select 1/0"] {
        open.send(&batch(sql));
        let replies = open.replies();
        assert_eq!(readies(&replies), 1, "{sql}: {replies:?}");
    }
    // The last of the transaction and the first behind it, in one write: both came in time.
    open.send(&[batch("rollback"), batch("select 2")].concat());
    assert_eq!(readies(&open.replies()), 1);
    let behind = open.conn.recv().expect("an answer or the end");
    match behind.tag {
        b'E' => assert!(tests::wire::describe(&behind).contains("57P01")),
        _ => assert_eq!(readies(&open.replies()), 1),
    }
    idle.send(&batch("select 1"));
    expect_sent_away(&mut idle);
    alone.send(&frontend::sync());
    expect_sent_away(&mut alone);
    end(&stand, "");
    drop((halfway, open));
    stand.end();
}

fn one_database_is_closed_and_the_other_is_not(shards: usize) {
    let cluster = tests::cluster::Cluster::shared();
    let second = cluster.fresh_database();
    let stand = stand(shards, |config| config.database(&second, cluster.port()));
    let closed = format!("?database={}", stand.database);
    let login = Login::new("app", PASSWORD, &second);
    let mut here = stand.pgmux.client();
    let mut there = Session::open(&stand.pgmux.endpoint(), &login);
    begin(&stand, &closed);
    assert_eq!(
        stand.api.get(&format!("/readyz?database={second}")).status,
        200
    );
    assert_eq!(stand.api.get(&format!("/readyz{closed}")).status, 503);
    assert_eq!(stand.api.get("/readyz").status, 503);
    here.send(&frontend::query("select 1"));
    expect_sent_away(&mut here);
    assert!(refusal(&stand, &stand.pgmux.login()).contains("57P01"));
    assert_eq!(there.value("select 1"), "1");
    Session::open(&stand.pgmux.endpoint(), &login);
    let told = stand.api.json("/admin/maintenance");
    assert_eq!(told["enabled"], false);
    assert!(told["databases"][&stand.database].is_string(), "{told}");
    // Which databases are closed is no business of who has not proved who it is.
    let stranger = Login::new("app", "wrong", &stand.database);
    assert!(refusal(&stand, &stranger).contains("28P01"));
    end(&stand, &closed);
    assert_eq!(stand.api.get("/readyz").status, 200);
    drop(there);
    stand.end();
}

fn a_request_that_waits_already_is_served(shards: usize) {
    let stand = stand(shards, |config| config.servers(1));
    let mut waiter = stand.pgmux.client();
    let mut holder = stand.pgmux.client();
    holder.query("begin");
    waiter.send(&frontend::query("select 41 + 1"));
    stand.wait_for("pgmux_clients{state=\"waiting\"}", 1.0);
    begin(&stand, "");
    holder.query("commit");
    let replies = waiter.replies();
    assert_eq!(readies(&replies), 1, "{replies:?}");
    waiter.send(&frontend::query("select 1"));
    expect_sent_away(&mut waiter);
    end(&stand, "");
    drop(holder);
    stand.end();
}

fn a_session_of_its_own_server_ends_between_transactions(shards: usize) {
    let stand = stand(shards, |config| config.set("pool.mode", "session"));
    let mut client = stand.pgmux.client();
    client.query("create temp table t (n int)");
    client.query("begin");
    begin(&stand, "");
    assert_eq!(client.value("select count(*) from t"), "0");
    client.query("commit");
    client.send(&frontend::query("select 1"));
    expect_sent_away(&mut client);
    end(&stand, "");
    stand.end();
}

fn whoever_says_goodbye_is_told_nothing(shards: usize) {
    let stand = stand(shards, |config| config);
    let mut client = stand.pgmux.client();
    begin(&stand, "");
    client.send(&frontend::terminate());
    assert!(client.farewell().expect("an end in order").is_none());
    end(&stand, "");
    stand.end();
}

fn the_api_says_what_has_changed(shards: usize) {
    let stand = stand(shards, |config| config);
    let api = stand.api;
    let told = api.json("/admin/maintenance");
    assert_eq!(
        (&told["enabled"], told.get("entered_at")),
        (&false.into(), None)
    );
    assert_eq!(
        api.delete("/admin/maintenance").json()["status"],
        "not in maintenance mode"
    );
    begin(&stand, "");
    assert_eq!(
        api.post("/admin/maintenance").json()["status"],
        "already in maintenance mode"
    );
    let told = api.json("/admin/maintenance");
    assert_eq!(told["enabled"], true);
    let since = told["entered_at"].as_str().expect("a time");
    assert!(since.len() == 20 && since.ends_with('Z'), "{since}");
    for method in ["GET", "POST", "DELETE"] {
        let answer = api.ask(method, "/admin/maintenance?database=nowhere", &[]);
        assert_eq!(answer.status, 404, "{method}: {answer:?}");
    }
    let answer = api.post("/admin/maintenance?databse=x");
    assert_eq!(
        answer.status, 400,
        "a slip must not close everything: {answer:?}"
    );
    end(&stand, "");
    stand.end();
}
