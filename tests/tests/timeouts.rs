//! How long what may take: each limit has its own error, hits what it is about and nothing else, and is free when it is off.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tests::cluster::{Cluster, PASSWORD};
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux, yaml_string};
use tests::process::{PATIENCE, eventually, signal_pid};
use tests::wire::{Conn, Login, Message, Session, frontend};
use tests::{canary, on_shards};

on_shards!(
    idle_client_is_told_so_and_closed,
    idle_client_that_keeps_its_server_frees_it,
    client_that_works_or_has_a_transaction_is_never_idle,
    copy_longer_than_the_idle_timeout_is_not_cut,
    idle_timeout_goes_on_while_clients_move,
    statement_is_cancelled_and_the_session_goes_on,
    statement_is_cancelled_in_a_transaction_which_fails,
    time_between_statements_is_not_a_statements,
    each_statement_of_a_pipeline_has_the_whole_time,
    timeout_of_one_client_never_hits_another,
    server_that_does_not_obey_is_closed,
    server_that_is_stopped_during_an_upload_is_closed,
    client_that_does_not_read_is_closed_by_the_query_timeout,
    silence_in_copy_ends_by_the_query_timeout,
    client_that_does_nothing_in_a_transaction_is_closed,
    transaction_that_takes_too_long_is_closed,
    database_and_user_have_limits_of_their_own,
    hint_shortens_and_lengthens_to_its_maximum,
    hint_is_one_only_where_it_is_a_comment,
    client_that_waits_for_a_server_is_told_so_once,
    login_that_takes_too_long_is_told_so,
    nothing_is_limited_without_a_limit,
    limits_of_a_reload_hold_for_clients_that_are_there,
);

struct Stand {
    pgmux: Pgmux,
    direct: Direct,
}

fn stand(shards: usize, configure: impl FnOnce(Config) -> Config) -> Stand {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = configure(Config::new(cluster, &database).shards(shards).servers(1));
    Stand {
        pgmux: Pgmux::start(&config),
        direct: Direct::open(cluster, &database),
    }
}

impl Stand {
    /// The only server must serve a stranger, and nothing be left of who had it.
    fn end(mut self) {
        canary::check(&self.pgmux.endpoint(), &self.pgmux.login());
        self.direct.expect_idle();
        self.pgmux.stop();
    }
}

/// The client must be told this and closed.
fn must_end(client: &mut Session, sqlstate: &str, text: &str) {
    let last = client.farewell().expect("the end");
    let last = last.expect("an error before the end");
    assert_eq!(
        (last.sqlstate().as_str(), last.field(b'M').as_str()),
        (sqlstate, text)
    );
    assert_eq!(last.field(b'S'), "FATAL");
}

const IDLE: (&str, &str) = ("57P01", "terminating connection due to idle timeout");
const IDLE_TRANSACTION: (&str, &str) = (
    "25P03",
    "terminating connection due to idle-in-transaction timeout",
);
const TRANSACTION: (&str, &str) = ("25P04", "terminating connection due to transaction timeout");

/// A request must be answered by pgmux's error about its time, and nothing else; the status behind it.
fn must_be_cancelled(replies: &[Message]) -> String {
    let error = replies.iter().find(|message| message.tag == b'E');
    let error = error.unwrap_or_else(|| panic!("an error expected in {replies:?}"));
    assert_eq!(error.sqlstate(), "57014");
    assert_eq!(
        error.field(b'M'),
        "canceling statement due to query timeout"
    );
    assert!(error.field(b'D').contains("pgmux"), "{error:?}");
    assert_eq!(error.field(b'S'), "ERROR");
    let last = replies.last().expect("ReadyForQuery");
    String::from_utf8_lossy(&last.body).into_owned()
}

fn batch(sql: &str) -> Vec<u8> {
    [
        frontend::parse("", sql, &[]),
        frontend::bind_text("", "", &[]),
        frontend::execute("", 0),
    ]
    .concat()
}

fn idle_client_is_told_so_and_closed(shards: usize) {
    let stand = stand(shards, |config| {
        config.set("proxy.client_idle_timeout", "500ms")
    });
    let begun = Instant::now();
    let mut fresh = stand.pgmux.client();
    let mut used = stand.pgmux.client();
    used.query("select 1");
    let mut half = stand.pgmux.client();
    half.send(&frontend::query("select 1")[..7]);
    for client in [&mut fresh, &mut used, &mut half] {
        must_end(client, IDLE.0, IDLE.1);
    }
    assert!(begun.elapsed() >= Duration::from_millis(500), "too early");
    stand.pgmux.wait_for("client_idle_timeouts", 3);
    stand.pgmux.wait_for("clients", 0);
    stand.end();
}

fn idle_client_that_keeps_its_server_frees_it(shards: usize) {
    let mut stand = stand(shards, |config| {
        config.set("proxy.client_idle_timeout", "500ms")
    });
    for holding in ["listen chat", "create temp table mine(a int)"] {
        let mut client = stand.pgmux.client();
        client.query(holding);
        must_end(&mut client, IDLE.0, IDLE.1);
        canary::check(&stand.pgmux.endpoint(), &stand.pgmux.login());
        stand.direct.expect_idle();
    }
    stand.end();
    let stand = self::stand(shards, |config| {
        config
            .set("proxy.client_idle_timeout", "500ms")
            .set("pool.mode", "session")
    });
    let mut client = stand.pgmux.client();
    client.query("select 1");
    must_end(&mut client, IDLE.0, IDLE.1);
    stand.end();
}

fn client_that_works_or_has_a_transaction_is_never_idle(shards: usize) {
    let stand = stand(shards, |config| {
        config.set("proxy.client_idle_timeout", "1s").servers(3)
    });
    let mut inside = stand.pgmux.client();
    inside.query("begin");
    let mut failed = stand.pgmux.client();
    failed.query("begin");
    failed.query("select 1/0");
    let mut working = stand.pgmux.client();
    working.query("select pg_sleep(2.5)");
    for _ in 0..10 {
        working.query("select pg_sleep(0.1)");
        assert!(working.conn.is_quiet(Duration::from_millis(100)));
    }
    assert_eq!(inside.value("select 5"), "5");
    for client in [&mut inside, &mut failed] {
        assert_eq!(client.query("rollback").last().expect("status").body, b"I");
        must_end(client, IDLE.0, IDLE.1);
    }
    stand.end();
}

fn copy_longer_than_the_idle_timeout_is_not_cut(shards: usize) {
    let mut stand = stand(shards, |config| {
        config.set("proxy.client_idle_timeout", "1s")
    });
    stand
        .direct
        .run("create table copied(a int); grant all on copied to app");
    let mut client = stand.pgmux.client();
    client.send(&frontend::query("copy copied from stdin"));
    assert_eq!(client.conn.recv().expect("CopyInResponse").tag, b'G');
    // No byte for longer than the timeout, then a little at a time.
    assert!(client.conn.is_quiet(Duration::from_millis(2000)));
    for row in 0..5 {
        client.send(&frontend::copy_data(format!("{row}\n").as_bytes()));
        assert!(client.conn.is_quiet(Duration::from_millis(300)));
    }
    client.send(&frontend::copy_done());
    client.replies();
    // Nor is a message that takes as long to come.
    for byte in frontend::query("select 1").chunks(3) {
        client.send(byte);
        assert!(client.conn.is_quiet(Duration::from_millis(300)) || !client.replies().is_empty());
    }
    assert_eq!(stand.direct.number("select count(*) from copied"), 5);
    must_end(&mut client, IDLE.0, IDLE.1);
    stand.end();
}

fn idle_timeout_goes_on_while_clients_move(shards: usize) {
    let stand = stand(shards, |config| {
        config
            .set("proxy.client_idle_timeout", "1s")
            .set("engine.balance", "restless")
    });
    let mut clients: Vec<Session> = (0..8).map(|_| stand.pgmux.client()).collect();
    for _ in 0..3 {
        for client in &mut clients {
            client.query("select 1");
        }
    }
    for client in &mut clients {
        must_end(client, IDLE.0, IDLE.1);
    }
    stand.end();
}

fn statement_is_cancelled_and_the_session_goes_on(shards: usize) {
    let stand = stand(shards, |config| config.set("pool.query_timeout", "300ms"));
    let mut client = stand.pgmux.client();
    let pid = client.value("select pg_backend_pid()");
    for _ in 0..3 {
        let begun = Instant::now();
        let replies = client.query("select pg_sleep(60)");
        assert_eq!(must_be_cancelled(&replies), "I");
        assert!(begun.elapsed() >= Duration::from_millis(300), "too early");
        client.send(&[batch("select pg_sleep(60)"), frontend::sync()].concat());
        assert_eq!(must_be_cancelled(&client.replies()), "I");
        assert_eq!(client.value("select 7"), "7");
    }
    assert_eq!(client.value("select pg_backend_pid()"), pid);
    stand.pgmux.wait_for("query_timeouts", 6);
    stand.end();
}

fn statement_is_cancelled_in_a_transaction_which_fails(shards: usize) {
    let stand = stand(shards, |config| config.set("pool.query_timeout", "300ms"));
    let mut client = stand.pgmux.client();
    client.query("begin");
    assert_eq!(must_be_cancelled(&client.query("select pg_sleep(60)")), "E");
    assert_eq!(client.sqlstate("select 1"), "25P02");
    client.query("rollback");
    client.query("begin");
    client.query("savepoint s");
    client.send(&[batch("select pg_sleep(60)"), frontend::sync()].concat());
    assert_eq!(must_be_cancelled(&client.replies()), "E");
    client.query("rollback to s");
    assert_eq!(client.value("select 7"), "7");
    client.query("commit");
    stand.end();
}

fn time_between_statements_is_not_a_statements(shards: usize) {
    let stand = stand(shards, |config| config.set("pool.query_timeout", "1500ms"));
    let mut client = stand.pgmux.client();
    client.query("begin");
    assert!(client.conn.is_quiet(Duration::from_millis(2000)));
    for _ in 0..4 {
        assert_eq!(client.value("select pg_sleep(0.5)"), "");
    }
    client.query("commit");
    // Nor is the wait for a server.
    let mut waiter = stand.pgmux.client();
    client.query("begin");
    waiter.send(&frontend::query("select 3"));
    assert!(waiter.conn.is_quiet(Duration::from_millis(2000)));
    client.query("commit");
    assert_eq!(waiter.replies().len(), 4);
    stand.end();
}

fn each_statement_of_a_pipeline_has_the_whole_time(shards: usize) {
    let stand = stand(shards, |config| config.set("pool.query_timeout", "2s"));
    let mut client = stand.pgmux.client();
    client.send(&frontend::query("select pg_sleep(0.6)").repeat(5));
    for _ in 0..5 {
        let replies = client.replies();
        assert!(
            replies.iter().all(|message| message.tag != b'E'),
            "{replies:?}"
        );
    }
    // PostgreSQL keeps the answers of a batch back until its end, unless it is told to flush: then each is seen.
    let flushed = [batch("select pg_sleep(0.6)"), frontend::flush()].concat();
    client.send(&[flushed.repeat(5), frontend::sync()].concat());
    let replies = client.replies();
    assert!(
        replies.iter().all(|message| message.tag != b'E'),
        "{replies:?}"
    );
    let batches = [batch("select pg_sleep(0.6)"), frontend::sync()].concat();
    client.send(&batches.repeat(5));
    for _ in 0..5 {
        let replies = client.replies();
        assert!(
            replies.iter().all(|message| message.tag != b'E'),
            "{replies:?}"
        );
    }
    // The one that takes too long is the one that fails.
    let requests = ["select 1", "select pg_sleep(60)", "select 2"];
    client.send(&requests.map(frontend::query).concat());
    assert_eq!(client.replies().len(), 4);
    assert_eq!(must_be_cancelled(&client.replies()), "I");
    assert_eq!(client.replies().len(), 4);
    stand.end();
}

fn timeout_of_one_client_never_hits_another(shards: usize) {
    let stand = stand(shards, |config| config);
    std::thread::scope(|scope| {
        let pgmux = &stand.pgmux;
        let stranger = scope.spawn(|| {
            let mut client = pgmux.client();
            for _ in 0..150 {
                let replies = client.query("select pg_sleep(0.01)");
                assert!(
                    replies.iter().all(|message| message.tag != b'E'),
                    "{replies:?}"
                );
            }
        });
        let mut client = pgmux.client();
        while !stranger.is_finished() {
            // About as long as its time.
            let replies = client.query("/* timeout:10ms */ select pg_sleep(0.01)");
            if replies.iter().any(|message| message.tag == b'E') {
                must_be_cancelled(&replies);
            }
        }
        stranger.join().expect("the stranger");
    });
    stand.end();
}

fn server_that_does_not_obey_is_closed(shards: usize) {
    let mut stand = stand(shards, |config| config.set("pool.query_timeout", "300ms"));
    let mut client = stand.pgmux.client();
    let pid = client
        .value("select pg_backend_pid()")
        .parse()
        .expect("a number");
    client.send(&frontend::query("select pg_sleep(600)"));
    stand.direct.expect_sleeper();
    signal_pid(pid, Signal::STOP);
    let last = client.farewell().expect("the end").expect("an error");
    let freed = eventually(PATIENCE, || {
        Session::try_open(&stand.pgmux.endpoint(), &stand.pgmux.login())
            .is_ok_and(|mut client| client.query("select 1").len() == 4)
            .then_some(())
    });
    signal_pid(pid, Signal::CONT);
    assert_eq!(
        (last.sqlstate().as_str(), last.field(b'S').as_str()),
        ("57014", "FATAL")
    );
    assert!(last.field(b'M').contains("pgmux"), "{last:?}");
    assert!(freed.is_some(), "its place was never freed");
    stand.pgmux.wait_for("disobedient_servers", 1);
    stand.end();
}

fn server_that_is_stopped_during_an_upload_is_closed(shards: usize) {
    let stand = stand(shards, |config| config.set("pool.query_timeout", "1s"));
    let mut client = stand.pgmux.client();
    let pid = client
        .value("select pg_backend_pid()")
        .parse()
        .expect("a number");
    client.query("begin");
    signal_pid(pid, Signal::STOP);
    let text = format!("select '{}'", "x".repeat(8_000_000));
    client
        .conn
        .send_within(&frontend::parse("s", &text, &[]), Duration::from_secs(2));
    let last = client.farewell();
    let freed = eventually(PATIENCE, || {
        Session::try_open(&stand.pgmux.endpoint(), &stand.pgmux.login())
            .is_ok_and(|mut client| client.query("select 1").len() == 4)
            .then_some(())
    });
    signal_pid(pid, Signal::CONT);
    let last = last.expect("the end").expect("an error and no bare end");
    assert_eq!(
        (last.sqlstate().as_str(), last.field(b'S').as_str()),
        ("57014", "FATAL")
    );
    assert!(freed.is_some(), "its place was never freed");
    stand.end();
}

fn client_that_does_not_read_is_closed_by_the_query_timeout(shards: usize) {
    let stand = stand(shards, |config| config.set("pool.query_timeout", "500ms"));
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], stand.pgmux.port()));
    let conn = Conn::open_narrow(address, 4096).expect("a connection");
    let mut deaf = Session::log_in(conn, &stand.pgmux.login()).expect("a login");
    deaf.send(&frontend::query(
        "select repeat('x', 1000000) from generate_series(1, 10000)",
    ));
    // The only server is free again, though its client never reads a byte.
    canary::check(&stand.pgmux.endpoint(), &stand.pgmux.login());
    stand.pgmux.wait_for("query_timeouts", 1);
    stand.pgmux.wait_for("clients", 0);
    stand.end();
}

fn silence_in_copy_ends_by_the_query_timeout(shards: usize) {
    let mut stand = stand(shards, |config| config.set("pool.query_timeout", "1s"));
    stand
        .direct
        .run("create table copied(a int); grant all on copied to app");
    let mut client = stand.pgmux.client();
    client.send(&frontend::query("copy copied from stdin"));
    assert_eq!(client.conn.recv().expect("CopyInResponse").tag, b'G');
    // As long as data come, however slowly, it goes on.
    for row in 0..8 {
        client.send(&frontend::copy_data(format!("{row}\n").as_bytes()));
        assert!(client.conn.is_quiet(Duration::from_millis(200)));
    }
    assert_eq!(must_be_cancelled(&client.replies()), "I");
    client.send(&[frontend::copy_data(b"9\n"), frontend::copy_done()].concat());
    assert_eq!(client.value("select 7"), "7");
    client.send(&[batch("copy copied from stdin"), frontend::flush()].concat());
    while client.conn.recv().expect("CopyInResponse").tag != b'G' {}
    assert_eq!(client.conn.recv().expect("an error").sqlstate(), "57014");
    client.send(&frontend::sync());
    client.replies();
    assert_eq!(client.value("select count(*) from copied"), "0");
    stand.end();
}

fn client_that_does_nothing_in_a_transaction_is_closed(shards: usize) {
    let mut stand = stand(shards, |config| {
        config.set("pool.idle_transaction_timeout", "500ms")
    });
    stand
        .direct
        .run("create table kept(a int); grant all on kept to app");
    let in_transaction = frontend::query("begin; insert into kept values (1)");
    let failed = frontend::query("begin; select 1/0");
    let open_batch = [batch("insert into kept values (2)"), frontend::flush()].concat();
    let unsent_batch = batch("insert into kept values (3)");
    let copy = frontend::query("copy kept from stdin");
    let half = frontend::query(&format!("select '{}'", "x".repeat(100_000)));
    let beginnings = [
        in_transaction,
        failed,
        open_batch,
        unsent_batch,
        copy,
        half[..80_000].to_vec(),
    ];
    for bytes in &beginnings {
        let mut client = stand.pgmux.client();
        client.send(bytes);
        must_end(&mut client, IDLE_TRANSACTION.0, IDLE_TRANSACTION.1);
        canary::check(&stand.pgmux.endpoint(), &stand.pgmux.login());
        stand.direct.expect_idle();
    }
    assert_eq!(stand.direct.number("select count(*) from kept"), 0);
    // A statement that works is not idle, nor is who has no transaction.
    let mut client = stand.pgmux.client();
    client.query("begin");
    client.query("select pg_sleep(1)");
    client.query("commit");
    assert!(client.conn.is_quiet(Duration::from_secs(1)));
    client.query("select 1");
    let figure = beginnings.len() as u64;
    stand.pgmux.wait_for("idle_transaction_timeouts", figure);
    stand.end();
}

fn transaction_that_takes_too_long_is_closed(shards: usize) {
    let mut stand = stand(shards, |config| {
        config.set("pool.transaction_timeout", "1s")
    });
    stand
        .direct
        .run("create table kept(a int); grant all on kept to app");
    let mut idle = stand.pgmux.client();
    idle.query("begin; insert into kept values (1)");
    must_end(&mut idle, TRANSACTION.0, TRANSACTION.1);
    let mut busy = stand.pgmux.client();
    busy.query("begin; insert into kept values (1)");
    busy.send(&frontend::query("select pg_sleep(600)"));
    must_end(&mut busy, TRANSACTION.0, TRANSACTION.1);
    canary::check(&stand.pgmux.endpoint(), &stand.pgmux.login());
    stand.direct.expect_idle();
    assert_eq!(stand.direct.number("select count(*) from kept"), 0);
    // Several transactions, one behind the other, have each their own time, also in one write.
    let mut client = stand.pgmux.client();
    client.send(&frontend::query("select pg_sleep(0.3)").repeat(6));
    for _ in 0..6 {
        assert_eq!(client.replies().len(), 4);
    }
    stand.pgmux.wait_for("transaction_timeouts", 2);
    stand.end();
}

fn database_and_user_have_limits_of_their_own(shards: usize) {
    let cluster = Cluster::shared();
    let [plain, own] = [(); 2].map(|()| cluster.fresh_database());
    let password = yaml_string(PASSWORD);
    let users = format!(
        "[{{username: app, password: {password}}}, {{username: other, password: {password}, query_timeout: 0, \
         client_idle_timeout: 800ms, idle_transaction_timeout: 400ms}}, {{username: app_md5, password: {password}, \
         query_timeout: 200ms, transaction_timeout: 900ms}}]"
    );
    let config = Config::new(cluster, &plain)
        .database(&own, cluster.port())
        .shards(shards)
        .set("auth.users", users)
        .set("pool.query_timeout", "60s")
        .set(
            &format!("databases.{own}.pool"),
            "{query_timeout: 300ms, idle_transaction_timeout: 500ms}",
        );
    let pgmux = Pgmux::start(&config);
    let open = |user: &str, database: &str| {
        Session::open(&pgmux.endpoint(), &Login::new(user, PASSWORD, database))
    };
    let sleep = "select pg_sleep(1)";
    assert_eq!(open("app", &plain).value(sleep), "");
    must_be_cancelled(&open("app", &own).query(sleep));
    assert_eq!(open("other", &own).value(sleep), "");
    must_be_cancelled(&open("app_md5", &plain).query(sleep));
    let mut client = open("app", &own);
    client.query("begin");
    must_end(&mut client, IDLE_TRANSACTION.0, IDLE_TRANSACTION.1);
    let mut client = open("other", &plain);
    client.query("begin");
    must_end(&mut client, IDLE_TRANSACTION.0, IDLE_TRANSACTION.1);
    must_end(&mut open("other", &plain), IDLE.0, IDLE.1);
    let mut client = open("app_md5", &plain);
    client.query("begin");
    must_end(&mut client, TRANSACTION.0, TRANSACTION.1);
    assert!(open("app", &plain).conn.is_quiet(Duration::from_secs(1)));
    pgmux.stop();
}

fn hint_shortens_and_lengthens_to_its_maximum(shards: usize) {
    let stand = stand(shards, |config| {
        config
            .set("pool.query_timeout", "1s")
            .set("pool.timeout_hint_max", "3s")
    });
    let mut client = stand.pgmux.client();
    let begun = Instant::now();
    must_be_cancelled(&client.query("/* timeout:200ms */ select pg_sleep(60)"));
    assert_eq!(client.value("/* timeout:5s */ select 42"), "42");
    assert_eq!(client.value("/* timeout:2.9s */ select pg_sleep(1.5)"), "");
    must_be_cancelled(&client.query("select pg_sleep(1.5)"));
    must_be_cancelled(&client.query("/* timeout:600m */ select pg_sleep(60)"));
    // The longest of them is not nearly as long as the text has asked for.
    assert!(begun.elapsed() < PATIENCE * 2);
    // A statement has its hint wherever it is used.
    let prepare = frontend::parse(
        "s",
        "/* timeout:200ms */ select pg_sleep($1::text::float8)",
        &[],
    );
    client.send(&[prepare, frontend::sync()].concat());
    client.replies();
    for _ in 0..2 {
        let run = [
            frontend::bind_text("", "s", &["60"]),
            frontend::execute("", 0),
            frontend::sync(),
        ];
        client.send(&run.concat());
        must_be_cancelled(&client.replies());
        // Behind it the usual limit holds.
        assert_eq!(client.value("select pg_sleep(0.5)"), "");
    }
    let two_rounds = frontend::parse("", "select /* timeout:200ms */ pg_sleep(60)", &[]);
    client.send(&[two_rounds, frontend::describe(b'S', ""), frontend::sync()].concat());
    client.replies();
    let run = [
        frontend::bind_text("", "", &[]),
        frontend::execute("", 0),
        frontend::sync(),
    ];
    client.send(&run.concat());
    must_be_cancelled(&client.replies());
    stand.end();
}

fn hint_is_one_only_where_it_is_a_comment(shards: usize) {
    let stand = stand(shards, |config| config);
    let mut client = stand.pgmux.client();
    for text in [
        "select '/* timeout:1ms */' || pg_sleep(0.2)",
        "select pg_sleep(0.2) /* see /* timeout:1ms */ */",
        "select pg_sleep(0.2) -- /* timeout:1ms */",
        "select $$/* timeout:1ms */$$ || pg_sleep(0.2)",
        "select pg_sleep(0.2) as \"/* timeout:1ms */\"",
    ] {
        client.value(text);
    }
    must_be_cancelled(&client.query("select 1, pg_sleep(60) /* timeout:100ms */"));
    stand.pgmux.wait_for("query_timeouts", 1);
    stand.end();
}

fn client_that_waits_for_a_server_is_told_so_once(shards: usize) {
    let stand = stand(shards, |config| {
        config.set("pool.wait_notice_after", "300ms")
    });
    let mut holder = stand.pgmux.client();
    holder.query("begin");
    for _ in 0..2 {
        let mut waiter = stand.pgmux.client();
        waiter.send(&frontend::query("select 3"));
        let notice = waiter.conn.recv().expect("a notice");
        assert_eq!((notice.tag, notice.sqlstate().as_str()), (b'N', "00000"));
        assert_eq!(notice.field(b'S'), "NOTICE");
        assert!(notice.field(b'M').contains("waiting"), "{notice:?}");
        assert!(waiter.conn.is_quiet(Duration::from_millis(700)));
        holder.query("commit");
        let tags: Vec<u8> = waiter.replies().iter().map(|message| message.tag).collect();
        assert_eq!(tags, b"TDCZ");
        holder.query("begin");
    }
    holder.query("commit");
    stand.pgmux.wait_for("wait_notices", 2);
    stand.end();
}

fn login_that_takes_too_long_is_told_so(shards: usize) {
    let stand = stand(shards, |config| config.set("proxy.login_timeout", "500ms"));
    // Before it says who it is, as from PostgreSQL, nothing; then why.
    let mut silent = Conn::open(&stand.pgmux.endpoint()).expect("a connection");
    assert_eq!(silent.recv_to_end().expect("the end"), Vec::<u8>::new());
    let mut conn = Conn::open(&stand.pgmux.endpoint()).expect("a connection");
    let login = stand.pgmux.login();
    let startup = frontend::startup(
        3,
        0,
        &[("user", &login.user), ("database", &login.database)],
    );
    conn.send(&startup).expect("sent");
    let messages = conn.recv_until(b'E').expect("an error");
    let error = messages.last().expect("an error");
    assert_eq!(error.sqlstate(), "57014");
    assert_eq!(error.field(b'M'), "canceling authentication due to timeout");
    stand.pgmux.wait_for("login_timeouts", 2);
    stand.end();
}

fn nothing_is_limited_without_a_limit(shards: usize) {
    let stand = stand(shards, |config| {
        config.set("proxy.login_timeout", 0).servers(2)
    });
    let mut slow = Conn::open(&stand.pgmux.endpoint()).expect("a connection");
    let mut idle = stand.pgmux.client();
    let mut inside = stand.pgmux.client();
    inside.query("begin");
    let mut busy = stand.pgmux.client();
    busy.query("select pg_sleep(1.5)");
    assert!(slow.is_quiet(Duration::from_millis(100)));
    canary::ask(&mut idle);
    assert_eq!(inside.query("commit").last().expect("status").body, b"I");
    let figures = stand.pgmux.figures();
    let timeouts = figures
        .iter()
        .filter(|(name, _)| name.ends_with("_timeouts"));
    assert_eq!(timeouts.map(|(_, figure)| figure).sum::<u64>(), 0);
    stand.end();
}

fn limits_of_a_reload_hold_for_clients_that_are_there(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database).shards(shards).servers(4);
    let pgmux = Pgmux::start(&config);
    let mut idle: Vec<Session> = (0..4).map(|_| pgmux.client()).collect();
    idle[1].query("select 1");
    let mut inside = pgmux.client();
    inside.query("begin");
    let limited = config
        .clone()
        .set("proxy.client_idle_timeout", "700ms")
        .set("pool.query_timeout", "400ms");
    assert!(pgmux.reload(&limited), "{}", pgmux.log());
    for client in &mut idle {
        must_end(client, IDLE.0, IDLE.1);
    }
    must_be_cancelled(&inside.query("select pg_sleep(60)"));
    inside.query("rollback");
    let mut fresh = pgmux.client();
    assert!(pgmux.reload(&config), "{}", pgmux.log());
    // Limits that are gone hold for nobody.
    assert!(fresh.conn.is_quiet(Duration::from_millis(1500)));
    assert_eq!(fresh.value("select pg_sleep(1)"), "");
    pgmux.stop();
}
