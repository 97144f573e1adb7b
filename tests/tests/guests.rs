//! Clients that move from shard to shard between their transactions: when others have left and the shards have drifted
//! apart, or (`engine.balance: restless`) after each transaction. Whoever moves has what it had, and is told nothing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tests::canary;
use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::tls::{Authority, Tls};
use tests::wire::{Conn, Message, Session, frontend};

tests::on_many_shards!(
    shards_that_have_drifted_apart_have_as_many_again,
    nobody_moves_where_that_is_turned_off,
    a_client_that_moves_keeps_its_settings_and_its_statements,
    a_client_that_has_moved_is_cancelled_by_the_key_that_it_was_given,
    a_key_whose_client_has_left_elsewhere_hits_nobody,
    a_client_that_moves_counts_once_for_the_limits,
    clients_with_tls_move_too,
    clients_of_a_role_of_their_own_move_too,
    a_client_that_holds_a_server_stays_and_is_served,
    clients_that_leave_while_they_move_leave_nothing_behind,
    clients_that_move_while_the_process_stops_are_told_so,
    each_client_gets_its_own_answers_while_others_come_and_go,
);

struct Stand {
    pgmux: Pgmux,
    direct: Direct,
    shards: usize,
}

fn stand(shards: usize, configure: impl FnOnce(Config) -> Config) -> Stand {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = configure(Config::new(cluster, &database).shards(shards));
    Stand {
        pgmux: Pgmux::start(&config),
        direct: Direct::open(cluster, &database),
        shards,
    }
}

fn restless(shards: usize) -> Stand {
    stand(shards, |config| config.set("engine.balance", "restless"))
}

impl Stand {
    fn moves(&self) -> u64 {
        self.pgmux.figures()["clients_moved"]
    }

    /// Does something again and again until the client has been on every shard and back.
    fn all_round(&self, mut act: impl FnMut(usize)) {
        let before = self.moves();
        let mut round = 0;
        while self.moves() < before + self.shards as u64 + 1 {
            assert!(round < 500, "the client does not move");
            act(round);
            round += 1;
        }
    }

    fn end(mut self) {
        self.direct.expect_idle();
        let figures = self.pgmux.figures();
        assert_eq!((figures["violations"], figures["panics"]), (0, 0));
        self.pgmux.stop();
    }
}

/// The shard to which a client came.
fn first_shard(client: &Session) -> i32 {
    client.key.as_ref().expect("a key to cancel with").0 >> 20
}

fn cancel(pgmux: &Pgmux, (pid, key): &(i32, Vec<u8>)) {
    let mut conn = Conn::open(&pgmux.endpoint()).expect("a connection");
    conn.send(&frontend::cancel_request(*pid, key))
        .expect("sent");
    assert_eq!(conn.recv_to_end().expect("an end"), b"");
}

fn error_in(replies: &[Message]) -> Option<String> {
    let error = replies.iter().find(|message| message.tag == b'E');
    error.map(Message::sqlstate)
}

fn shards_that_have_drifted_apart_have_as_many_again(shards: usize) {
    let stand = stand(shards, |config| config);
    let mut clients: Vec<Session> = (0..4 * shards).map(|_| stand.pgmux.client()).collect();
    let first = first_shard(&clients[0]);
    clients.retain(|client| first_shard(client) != first);
    // Of four each on all shards but one: one of each, or two of the only one.
    let moves = if shards == 2 { 2 } else { 3 };
    stand.pgmux.wait_for("clients_moved", moves);
    stand.pgmux.wait_for("clients", clients.len() as u64);
    clients.iter_mut().for_each(canary::ask);
    // A new client goes where there are fewest: to every shard one, so all had as many.
    let new: Vec<Session> = (0..shards).map(|_| stand.pgmux.client()).collect();
    let places: BTreeSet<i32> = new.iter().map(first_shard).collect();
    assert_eq!(places.len(), shards);
    clients.iter_mut().for_each(canary::ask);
    assert_eq!(stand.moves(), moves, "nobody moves twice");
    stand.end();
}

fn nobody_moves_where_that_is_turned_off(shards: usize) {
    let stand = stand(shards, |config| config.set("engine.balance", "off"));
    let mut clients: Vec<Session> = (0..4 * shards).map(|_| stand.pgmux.client()).collect();
    let first = first_shard(&clients[0]);
    clients.retain(|client| first_shard(client) != first);
    stand.pgmux.wait_for("clients", clients.len() as u64);
    // Who comes now finds that shard empty.
    let new: Vec<Session> = (0..4).map(|_| stand.pgmux.client()).collect();
    assert!(new.iter().all(|client| first_shard(client) == first));
    assert_eq!(stand.moves(), 0);
    stand.end();
}

fn a_client_that_moves_keeps_its_settings_and_its_statements(shards: usize) {
    let stand = restless(shards);
    let login = stand
        .pgmux
        .login()
        .param(
            "options",
            "-c search_path=pg_catalog,public -c work_mem=5MB",
        )
        .param("application_name", "wanderer");
    let mut client = Session::open(&stand.pgmux.endpoint(), &login);
    client.query("set statement_timeout = '77s'");
    client.query("set app.mine = 'x'");
    let mut bytes = frontend::parse("named", "select $1::int + 1", &[]);
    bytes.extend(frontend::parse("", "select $1::int + 2", &[]));
    bytes.extend(frontend::sync());
    client.send(&bytes);
    assert_eq!(error_in(&client.replies()), None);
    let mut use_it = |name: &str, value: usize| {
        let mut bytes = frontend::bind_text("", name, &[&value.to_string()]);
        bytes.extend(frontend::execute("", 0));
        bytes.extend(frontend::sync());
        client.send(&bytes);
        let replies = client.replies();
        let row = replies.iter().find(|message| message.tag == b'D');
        let row = row.unwrap_or_else(|| panic!("{name}: {replies:?}")).row();
        row[0].clone().expect("a value")
    };
    stand.all_round(|round| {
        assert_eq!(use_it("named", round), (round + 1).to_string());
        assert_eq!(use_it("", round), (round + 2).to_string());
    });
    // By SQL, on a server that has never heard of it.
    stand.all_round(|_| assert_eq!(client.value("execute named(41)"), "42"));
    let settings = "select concat_ws(' ', current_setting('search_path'), current_setting('work_mem'), \
        current_setting('application_name'), current_setting('statement_timeout'), current_setting('app.mine'))";
    stand.all_round(|_| {
        let expected = "pg_catalog,public 5MB wanderer 77s x";
        assert_eq!(client.value(settings), expected);
    });
    // RESET goes back to the startup packet, and the client is told.
    client.query("set application_name = 'else'");
    stand.all_round(|_| canary::ask(&mut client));
    let told = client.query("reset application_name");
    let status = told.iter().find(|message| message.tag == b'S');
    assert_eq!(
        status.map(|message| &message.body[..]),
        Some(&b"application_name\0wanderer\0"[..])
    );
    let again = client.trace("prepare named as select 1").concat();
    assert!(again.contains("42P05"), "{again}");
    stand.end();
}

fn a_client_that_has_moved_is_cancelled_by_the_key_that_it_was_given(shards: usize) {
    let mut stand = restless(shards);
    for minor in [0, 2] {
        let login = stand.pgmux.login().minor(minor);
        let mut client = Session::open(&stand.pgmux.endpoint(), &login);
        let key = client.key.clone().expect("a key");
        for _ in 0..2 * shards {
            client.send(&frontend::query("select pg_sleep(60)"));
            stand.direct.expect_sleeper();
            cancel(&stand.pgmux, &key);
            assert_eq!(error_in(&client.replies()).as_deref(), Some("57014"));
            // It is idle, or on its way.
            cancel(&stand.pgmux, &key);
            canary::ask(&mut client);
            let mut wrong = key.clone();
            wrong.1[0] ^= 1;
            client.send(&frontend::query("select pg_sleep(0.05)"));
            cancel(&stand.pgmux, &wrong);
            assert_eq!(error_in(&client.replies()), None);
        }
    }
    assert!(stand.moves() >= 4 * shards as u64);
    stand.end();
}

fn a_key_whose_client_has_left_elsewhere_hits_nobody(shards: usize) {
    let stand = restless(shards);
    let mut gone = Vec::new();
    for _ in 0..20 * shards {
        let mut client = stand.pgmux.client();
        (0..shards).for_each(|_| canary::ask(&mut client));
        gone.push(client.key.clone().expect("a key"));
    }
    stand.pgmux.wait_for("clients", 0);
    // Places are free again when who had their keys has left, wherever that was.
    let highest = gone.iter().map(|(pid, _)| pid & 0xf_ffff).max();
    assert!(
        highest < Some(10),
        "place {highest:?} of clients that were there one by one"
    );
    let mut others: Vec<Session> = (0..4).map(|_| stand.pgmux.client()).collect();
    for other in &mut others {
        other.send(&frontend::query("select pg_sleep(0.3)"));
    }
    gone.iter().for_each(|key| cancel(&stand.pgmux, key));
    for other in &mut others {
        assert_eq!(error_in(&other.replies()), None);
    }
    stand.end();
}

fn a_client_that_moves_counts_once_for_the_limits(shards: usize) {
    let stand = stand(shards, |config| {
        config
            .set("engine.balance", "restless")
            .set("proxy.max_clients", 2)
    });
    let mut clients = [stand.pgmux.client(), stand.pgmux.client()];
    stand.all_round(|_| clients.iter_mut().for_each(canary::ask));
    let third = || Session::try_open(&stand.pgmux.endpoint(), &stand.pgmux.login());
    let refusal = third().expect_err("two have places");
    assert!(refusal.contains("53300"), "{refusal}");
    drop(clients);
    stand.pgmux.wait_for("clients", 0);
    let _others = [stand.pgmux.client(), stand.pgmux.client()];
    assert!(third().is_err());
    stand.end();
}

fn clients_with_tls_move_too(shards: usize) {
    let authority = Authority::new("guests");
    let pair = authority.sign("localhost", &["localhost", "127.0.0.1"]);
    let stand = stand(shards, |config| {
        config
            .set("engine.balance", "restless")
            .set("tls.enabled", true)
            .set("tls.cert_file", pair.cert.display())
            .set("tls.key_file", pair.key.display())
    });
    let tls = Tls::default();
    let conn = Conn::open(&stand.pgmux.endpoint()).expect("a connection");
    let conn = conn.secure(&tls).expect("TLS");
    let mut client = Session::log_in(conn, &stand.pgmux.login()).expect("a login");
    stand.all_round(|round| {
        let long = format!("select repeat('x', {})", 1 + 997 * round);
        assert_eq!(client.value(&long).len(), 1 + 997 * round);
    });
    stand.end();
}

fn clients_of_a_role_of_their_own_move_too(shards: usize) {
    let stand = stand(shards, |config| {
        config
            .set("engine.balance", "restless")
            .unset("backend.password")
            .set("backend.user", "passthrough")
    });
    let mut client = stand.pgmux.client();
    stand.all_round(|_| assert_eq!(client.value("select session_user"), "app"));
    stand.end();
}

fn a_client_that_holds_a_server_stays_and_is_served(shards: usize) {
    let stand = restless(shards);
    for (take, give_back) in [
        ("begin", "commit"),
        ("listen something", "unlisten *"),
        ("create temp table t(a int)", "drop table t"),
        ("declare c cursor with hold for select 1", "close c"),
    ] {
        let mut client = stand.pgmux.client();
        assert_eq!(error_in(&client.query(take)), None);
        let before = stand.moves();
        for _ in 0..10 {
            assert_eq!(client.value("select 1"), "1");
        }
        assert_eq!(stand.moves(), before, "{take}");
        assert_eq!(error_in(&client.query(give_back)), None);
        stand.all_round(|_| canary::ask(&mut client));
        drop(client);
        stand.pgmux.wait_for("clients", 0);
    }
    stand.end();
}

fn clients_that_leave_while_they_move_leave_nothing_behind(shards: usize) {
    let stand = restless(shards);
    let leave = |count: usize| {
        for round in 0..count {
            let mut client = stand.pgmux.client();
            match round % 3 {
                // Its answer is read, and it is about to move.
                0 => canary::ask(&mut client),
                1 => client.send(&frontend::query("select 1")),
                _ => {
                    canary::ask(&mut client);
                    client.send(&frontend::terminate());
                }
            }
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| leave(60)))));
    stand.pgmux.wait_for("clients", 0);
    assert!(stand.moves() > 0);
    let mut client = stand.pgmux.client();
    stand.all_round(|_| canary::ask(&mut client));
    stand.end();
}

fn clients_that_move_while_the_process_stops_are_told_so(shards: usize) {
    let mut stand = restless(shards);
    let stopping = AtomicBool::new(false);
    let serve = |mut client: Session| {
        // Whatever it was doing, it hears why it ends, and never half an answer.
        for question in 0.. {
            if client
                .conn
                .send(&frontend::query(&format!("select {question}")))
                .is_err()
            {
                assert!(stopping.load(Ordering::SeqCst));
            }
            let mut answer = None;
            loop {
                match client.conn.recv() {
                    Ok(message) if message.tag == b'E' => return message.sqlstate(),
                    Ok(message) if message.tag == b'D' => answer = message.row()[0].clone(),
                    Ok(message) if message.tag == b'Z' => break,
                    Ok(_) => {}
                    Err(error) => panic!("an end without a word: {error}"),
                }
            }
            assert_eq!(answer, Some(question.to_string()));
            thread::sleep(Duration::from_micros(question % 7 * 100));
        }
        unreachable!()
    };
    let clients: Vec<Session> = (0..3 * shards).map(|_| stand.pgmux.client()).collect();
    thread::scope(|scope| {
        let serve = &serve;
        let ends: Vec<_> = clients
            .into_iter()
            .map(|client| scope.spawn(move || serve(client)))
            .collect();
        while stand.moves() < 20 * shards as u64 {
            thread::yield_now();
        }
        stopping.store(true, Ordering::SeqCst);
        stand.pgmux.signal(Signal::TERM);
        for end in ends {
            assert_eq!(end.join().expect("a client"), "57P01");
        }
    });
    let status = stand.pgmux.wait();
    assert!(status.success(), "{}", stand.pgmux.log());
}

/// Steady clients ask 20,000 questions with pauses in which they may move, while their neighbours come and go.
fn each_client_gets_its_own_answers_while_others_come_and_go(shards: usize) {
    let stand = stand(shards, |config| config);
    let (steady, questions) = (8, 2500);
    let done = AtomicBool::new(false);
    let ask = |number: usize| {
        let mut client = stand.pgmux.client();
        for question in 0..questions {
            let expected = format!("{number}:{question}");
            assert_eq!(client.value(&format!("select '{expected}'")), expected);
            if question % 16 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
    };
    thread::scope(|scope| {
        let askers: Vec<_> = (0..steady)
            .map(|number| {
                let ask = &ask;
                scope.spawn(move || ask(number))
            })
            .collect();
        scope.spawn(|| {
            // Those of one shard leave together, so that the others have too many.
            while !done.load(Ordering::SeqCst) {
                let mut crowd: Vec<Session> =
                    (0..4 * shards).map(|_| stand.pgmux.client()).collect();
                crowd.iter_mut().for_each(canary::ask);
                let first = first_shard(&crowd[0]);
                crowd.retain(|client| first_shard(client) != first);
                crowd.iter_mut().for_each(canary::ask);
            }
        });
        let ended: Vec<_> = askers
            .into_iter()
            .map(|asker| asker.join().is_ok())
            .collect();
        done.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(|ok| *ok));
    });
    stand.pgmux.wait_for("clients", 0);
    assert!(stand.moves() > 0);
    stand.end();
}
