//! What a client may do with the protocol that a script cannot say: parameters, sizes, restarts, random bytes.

use std::time::Duration;

use rustix::process::Signal;
use tests::cluster::{Cluster, Options, PASSWORD};
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::process::rss_kib;
use tests::wire::{Conn, Endpoint, Login, Session, Slicing, describe, frontend};
use tests::{canary, on_shards};

on_shards!(
    parameter_status_is_the_servers,
    startup_parameters_reach_the_server_that_serves,
    unknown_startup_setting_is_refused_as_direct,
    restart_of_the_server_costs_no_client,
    terminated_idle_servers_are_noticed_before_use,
    row_of_seventeen_megabytes_streams_in_constant_memory,
    parameter_of_seventeen_megabytes_streams_in_constant_memory,
    messages_around_buffer_sizes_are_whole,
    sixty_five_thousand_parameters_in_one_bind,
    random_bytes_hurt_nobody,
    a_notification_close_behind_listen_reaches_the_listener,
);

struct Stand {
    pgmux: Pgmux,
    direct: Direct,
}

fn stand(shards: usize, servers: usize) -> Stand {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .servers(servers);
    Stand {
        pgmux: Pgmux::start(&config),
        direct: Direct::open(cluster, &database),
    }
}

impl Stand {
    fn check(&mut self) {
        canary::check(&self.pgmux.endpoint(), &self.pgmux.login());
        self.direct.expect_idle();
    }
}

fn parameter_status_is_the_servers(shards: usize) {
    let stand = stand(shards, 2);
    let direct = Session::open(
        &Endpoint::local(Cluster::shared().port()),
        &stand.pgmux.login(),
    );
    let through = stand.pgmux.client();
    assert_eq!(through.parameters, direct.parameters);
    let (_, key) = through.key.expect("BackendKeyData");
    assert_eq!(key.len(), 4, "protocol 3.0 has keys of four bytes");
    let keys: std::collections::BTreeSet<_> = (0..50).map(|_| stand.pgmux.client().key).collect();
    assert_eq!(keys.len(), 50, "every client has a key of its own");
    stand.pgmux.stop();
}

fn startup_parameters_reach_the_server_that_serves(shards: usize) {
    let mut stand = stand(shards, 1);
    stand
        .direct
        .run("create schema elsewhere; grant all on schema elsewhere to public");
    let wishes: [&[(&str, &str)]; 4] = [
        &[("application_name", "one"), ("TimeZone", "Asia/Seoul")],
        &[
            ("options", "-csearch_path=elsewhere -c work_mem=1MB"),
            ("DateStyle", "German"),
        ],
        &[("client_encoding", "LATIN1"), ("extra_float_digits", "0")],
        &[],
    ];
    let settings = [
        "application_name",
        "TimeZone",
        "search_path",
        "work_mem",
        "DateStyle",
        "client_encoding",
        "extra_float_digits",
    ];
    let direct = Endpoint::local(Cluster::shared().port());
    let mut pairs: Vec<(Session, Session)> = wishes
        .iter()
        .map(|wish| {
            let login = wish
                .iter()
                .fold(stand.pgmux.login(), |login, (key, value)| {
                    login.param(key, value)
                });
            (
                Session::open(&direct, &login),
                Session::open(&stand.pgmux.endpoint(), &login),
            )
        })
        .collect();
    for (direct, through) in &pairs {
        assert_eq!(through.parameters, direct.parameters);
    }
    // Three rounds, so that each client follows each other one on the only server.
    for _ in 0..3 {
        for (direct, through) in &mut pairs {
            for setting in settings {
                let sql = format!("show \"{setting}\"");
                assert_eq!(through.value(&sql), direct.value(&sql), "{setting}");
            }
        }
    }
    drop(pairs);
    stand.pgmux.stop();
}

fn unknown_startup_setting_is_refused_as_direct(shards: usize) {
    let mut stand = stand(shards, 1);
    let direct = Endpoint::local(Cluster::shared().port());
    for (key, value) in [
        ("no_such_setting", "1"),
        ("TimeZone", "Nowhere/At_All"),
        ("work_mem", "plenty"),
    ] {
        let login = stand.pgmux.login().param(key, value);
        let expected = Session::try_open(&direct, &login)
            .map(|_| ())
            .expect_err("a refusal");
        let got = Session::try_open(&stand.pgmux.endpoint(), &login)
            .map(|_| ())
            .expect_err("a refusal");
        assert_eq!(class(&got), class(&expected), "{key}: {got} for {expected}");
    }
    stand.check();
    stand.pgmux.stop();
}

fn restart_of_the_server_costs_no_client(shards: usize) {
    let mut cluster = Cluster::start(&Options::default());
    cluster.create_database("shop");
    let pgmux = Pgmux::start(&Config::new(&cluster, "shop").shards(shards));
    let mut clients: Vec<Session> = (0..4).map(|_| pgmux.client()).collect();
    let mut inside = pgmux.client();
    for client in &mut clients {
        canary::ask(client);
    }
    inside.query("begin");
    cluster.crash();
    // Who was inside a transaction is told so; everybody else does not notice once the server is back.
    let farewell = inside.farewell().expect("the end of the session");
    assert!(farewell.is_some(), "a session that ends without a word");
    cluster.resume();
    for client in &mut clients {
        canary::ask(client);
    }
    canary::check(&pgmux.endpoint(), &pgmux.login());
    pgmux.stop();
}

fn terminated_idle_servers_are_noticed_before_use(shards: usize) {
    let mut stand = stand(shards, 4);
    let mut clients: Vec<Session> = (0..4).map(|_| stand.pgmux.client()).collect();
    for _ in 0..5 {
        for client in &mut clients {
            client.query("begin");
        }
        for client in &mut clients {
            client.query("commit");
        }
        stand.direct.run(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
             where datname = current_database() and pid <> pg_backend_pid() and application_name <> 'referee'",
        );
        for client in &mut clients {
            canary::ask(client);
        }
    }
    stand.pgmux.stop();
}

fn row_of_seventeen_megabytes_streams_in_constant_memory(shards: usize) {
    const SIZE: usize = 17_000_000;
    let mut stand = stand(shards, 2);
    let mut client = stand.pgmux.client();
    canary::ask(&mut client);
    let before = rss_kib(stand.pgmux.pid());
    for _ in 0..3 {
        assert_eq!(
            client.value(&format!("select repeat('x', {SIZE})")).len(),
            SIZE
        );
        let rows = client.rows_extended("select repeat('y', $1::int)", &[&SIZE.to_string()]);
        assert_eq!(rows[0][0].as_ref().map(String::len), Some(SIZE));
    }
    let grown = rss_kib(stand.pgmux.pid()).saturating_sub(before);
    assert!(
        grown < 8 * 1024,
        "{grown} KiB more for rows of {SIZE} bytes"
    );
    canary::ask(&mut client);
    stand.check();
    stand.pgmux.stop();
}

fn parameter_of_seventeen_megabytes_streams_in_constant_memory(shards: usize) {
    const SIZE: usize = 17_000_000;
    let mut stand = stand(shards, 2);
    let mut client = stand.pgmux.client();
    canary::ask(&mut client);
    let before = rss_kib(stand.pgmux.pid());
    let large = "z".repeat(SIZE);
    for _ in 0..3 {
        let rows = client.rows_extended("select length($1::text)::text", &[&large]);
        assert_eq!(rows, [[Some(SIZE.to_string())]]);
    }
    let grown = rss_kib(stand.pgmux.pid()).saturating_sub(before);
    assert!(
        grown < 8 * 1024,
        "{grown} KiB more for parameters of {SIZE} bytes"
    );
    canary::ask(&mut client);
    stand.check();
    stand.pgmux.stop();
}

fn messages_around_buffer_sizes_are_whole(shards: usize) {
    let mut stand = stand(shards, 2);
    let mut client = stand.pgmux.client();
    for power in [9, 10, 11, 12, 13, 14, 15, 16, 18] {
        for delta in -9_i32..=9 {
            let size = usize::try_from((1 << power) + delta).expect("positive");
            let text = "q".repeat(size);
            // In turns: the text of a Query, a comment in Parse, a parameter, a row, and the statement's own name.
            let name = &text[..size.min(9000)];
            let mut batch = frontend::query(&format!("select length('{text}')"));
            batch.extend(frontend::parse(
                name,
                &format!("select $1::text -- {text}"),
                &[],
            ));
            batch.extend(frontend::bind_text("", name, &[&text]));
            batch.extend(frontend::execute("", 0));
            batch.extend(frontend::close(b'S', name));
            batch.extend(frontend::sync());
            client.send(&batch);
            assert_eq!(client.replies()[1].row(), [Some(size.to_string())]);
            let replies = client.replies();
            let tags: Vec<u8> = replies.iter().map(|message| message.tag).collect();
            assert_eq!(
                tags,
                b"12DC3Z",
                "size {size}: {:?}",
                replies.first().map(describe)
            );
            assert_eq!(replies[2].row(), [Some(text)], "size {size}");
        }
    }
    stand.check();
    stand.pgmux.stop();
}

fn sixty_five_thousand_parameters_in_one_bind(shards: usize) {
    let mut stand = stand(shards, 1);
    let mut client = stand.pgmux.client();
    let places: Vec<String> = (1..=65_535).map(|number| format!("${number}")).collect();
    let values: Vec<String> = (1..=65_535).map(|number: u32| number.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let sql = format!(
        "select cardinality(array[{}]::int[])::text",
        places.join(",")
    );
    assert_eq!(
        client.rows_extended(&sql, &values),
        [[Some("65535".to_string())]]
    );
    stand.check();
    stand.pgmux.stop();
}

fn random_bytes_hurt_nobody(shards: usize) {
    let mut stand = stand(shards, 2);
    // xorshift: the seed is fixed, so that a failing run repeats itself.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..200 {
        let mut bytes: Vec<u8> = (0..random() % 3000)
            .map(|_| random().to_be_bytes()[3])
            .collect();
        let mut conn = Conn::open(&stand.pgmux.endpoint()).expect("a connection");
        if round % 2 == 1 {
            // Behind a login, and half of them with lengths that make sense, so that more than the frame is read.
            conn = stand.pgmux.client().conn;
            if round % 4 == 1 {
                let tags = b"QPBEDCSHFdcf";
                let tag = tags[usize::try_from(random() % 12).expect("small")];
                bytes = frontend::tagged(tag, &bytes);
            }
        }
        let _ = conn.send(&bytes);
        if round % 20 == 19 {
            stand.check();
        }
    }
    stand.check();
    stand.pgmux.stop();
}

#[test]
fn unix_sockets_serve_clients_and_reach_servers() {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let dir = tests::process::TempDir::new("socket").expect("a directory");
    let port = tests::process::free_port();
    let config = Config::new(cluster, &database)
        .set(
            "proxy.listen",
            format!("['127.0.0.1:{port}', '{}']", dir.path().display()),
        )
        .set(
            &format!("databases.{database}.writer.host"),
            format!("'{}'", cluster.socket_dir().display()),
        );
    let pgmux = Pgmux::start(&config);
    let unix = Endpoint::Unix(dir.path().join(format!(".s.PGSQL.{port}")));
    canary::check(&unix, &pgmux.login());
    canary::check(&Endpoint::local(port), &pgmux.login());
    pgmux.stop();
}

#[test]
fn ipv6_clients_are_served() {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let port = tests::process::free_port();
    let config = Config::new(cluster, &database).set("proxy.listen", format!("['[::1]:{port}']"));
    let pgmux = Pgmux::start(&config);
    let endpoint = Endpoint::Tcp(format!("[::1]:{port}").parse().expect("an address"));
    canary::check(&endpoint, &pgmux.login());
    pgmux.stop();
}

#[test]
fn whole_login_and_first_query_in_single_bytes() {
    let stand = stand(1, 1);
    let login = Login::new("app", PASSWORD, "x");
    assert_eq!(login.database, "x");
    let mut conn = Conn::open(&stand.pgmux.endpoint()).expect("a connection");
    let user = [
        ("user", "app"),
        ("database", stand.pgmux.login().database.leak() as &str),
    ];
    conn.send_sliced(&frontend::startup(3, 0, &user), Slicing::Bytes)
        .expect("startup");
    assert_eq!(
        describe(&conn.recv().expect("a request")),
        "AuthenticationSASL \"SCRAM-SHA-256\""
    );
    let mut scram = tests::wire::ScramClient::new(PASSWORD);
    let first = frontend::sasl_initial("SCRAM-SHA-256", &scram.first());
    conn.send_sliced(&first, Slicing::Bytes)
        .expect("the first message");
    let challenge = conn.recv().expect("a challenge");
    let last = scram.last(&challenge.body[4..]).expect("an answer");
    conn.send_sliced(&frontend::sasl_response(&last), Slicing::Bytes)
        .expect("the answer");
    conn.recv_until(b'Z').expect("the end of the login");
    stand.pgmux.stop();
}

/// Severity and SQLSTATE of an error's line.
fn class(line: &str) -> String {
    line.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// What pgmux asks after LISTEN, and the first notification, may come in one piece.
fn a_notification_close_behind_listen_reaches_the_listener(shards: usize) {
    let mut stand = stand(shards, 2);
    let mut listener = stand.pgmux.client();
    listener.send(&frontend::query("listen early; select pg_sleep(0.5)"));
    stand.direct.expect_sleeper();
    // What the server says from now on lies there until pgmux goes on.
    stand.pgmux.signal(Signal::STOP);
    stand.direct.expect_idle();
    stand.direct.run("notify early, 'bird'");
    // A notification that is later than this comes by the easier way.
    std::thread::sleep(Duration::from_millis(300));
    stand.pgmux.signal(Signal::CONT);
    listener.replies();
    let message = listener.conn.recv().expect("a notification");
    assert_eq!(
        describe(&message),
        "NotificationResponse \"early\" \"bird\""
    );
    canary::ask(&mut listener);
    drop(listener);
    stand.check();
    stand.pgmux.stop();
}
