//! What an application does with a pooler all day: reads, writes, transactions, COPY, prepared statements, logins.
//!
//! The list is the one of the Go predecessor's end-to-end tests that concern pooling, done over the `postgres` crate
//! (extended protocol, named and unnamed statements) and raw messages.

use std::io::Write as _;

use postgres::{Client, NoTls};
use tests::clean::{Inspector, Suspicions};
use tests::cluster::{Cluster, PASSWORD};
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::wire::{Login, Session};

tests::on_shards!(
    reads_come_back_in_order,
    parameterised_write_is_seen_and_cleaned_up,
    transaction_sees_its_own_row_and_rolls_back,
    same_query_twice_gives_the_same,
    twenty_concurrent_writers_on_a_pool_of_four,
    uncommitted_rows_are_seen_by_their_transaction_only,
    settings_of_one_client_do_not_reach_another,
    concurrent_transactions_all_succeed,
    full_pool_serves_again_after_release,
    fifty_concurrent_parameterised_selects_and_inserts,
    copy_in_inside_a_transaction,
    copy_out_gives_every_row,
    large_result_is_complete,
    several_statements_in_one_query,
    prepared_statements_are_reused,
    right_and_wrong_logins,
);

/// A pgmux in front of a fresh database with the table `users` of three people.
struct Shop {
    pgmux: Pgmux,
    direct: Direct,
    inspector: Inspector,
}

impl Shop {
    fn open(shards: usize) -> Self {
        let cluster = Cluster::shared();
        let database = cluster.fresh_database();
        let mut direct = Direct::open(cluster, &database);
        direct.run(
            "set role app; create table users(id serial primary key, name text, email text); \
             insert into users(name, email) values ('alice', 'a@x'), ('bob', 'b@x'), ('charlie', 'c@x'); \
             create table log(worker int, value text)",
        );
        let pgmux = Pgmux::start(&Config::new(cluster, &database).shards(shards));
        Self {
            inspector: Inspector::new(cluster, &pgmux.endpoint(), &pgmux.login(), 4),
            pgmux,
            direct,
        }
    }

    fn close(mut self) {
        self.inspector
            .expect_clean(&mut self.direct, &Suspicions::default());
        self.pgmux.stop();
    }
}

fn reads_come_back_in_order(shards: usize) {
    let shop = Shop::open(shards);
    let mut client = shop.pgmux.rust_client();
    let rows = client
        .query("select name from users order by id", &[])
        .expect("select");
    let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(names, ["alice", "bob", "charlie"]);
    shop.close();
}

fn parameterised_write_is_seen_and_cleaned_up(shards: usize) {
    let shop = Shop::open(shards);
    let mut client = shop.pgmux.rust_client();
    let written = client
        .execute(
            "insert into users(name, email) values ($1, $2)",
            &[&"dora", &"d@x"],
        )
        .expect("insert");
    assert_eq!(written, 1);
    assert_eq!(count(&mut client, "users"), 4);
    client
        .execute("delete from users where name = $1", &[&"dora"])
        .expect("delete");
    assert_eq!(count(&mut client, "users"), 3);
    shop.close();
}

fn transaction_sees_its_own_row_and_rolls_back(shards: usize) {
    let shop = Shop::open(shards);
    let mut client = shop.pgmux.rust_client();
    let mut transaction = client.transaction().expect("begin");
    transaction
        .execute("insert into users(name) values ($1)", &[&"eve"])
        .expect("insert");
    let seen: i64 = transaction
        .query_one("select count(*) from users where name = $1", &[&"eve"])
        .expect("select")
        .get(0);
    assert_eq!(seen, 1);
    transaction.rollback().expect("rollback");
    assert_eq!(count(&mut client, "users"), 3);
    shop.close();
}

fn same_query_twice_gives_the_same(shards: usize) {
    let shop = Shop::open(shards);
    let mut client = shop.pgmux.client();
    let first = client.trace("select * from users order by id");
    assert_eq!(first, client.trace("select * from users order by id"));
    shop.close();
}

fn twenty_concurrent_writers_on_a_pool_of_four(shards: usize) {
    let shop = Shop::open(shards);
    in_parallel(20, |worker| {
        let mut client = shop.pgmux.rust_client();
        client
            .execute("insert into log values ($1, 'w')", &[&worker])
            .expect("insert");
    });
    assert_eq!(count(&mut shop.pgmux.rust_client(), "log"), 20);
    shop.close();
}

fn uncommitted_rows_are_seen_by_their_transaction_only(shards: usize) {
    let shop = Shop::open(shards);
    let mut inside = shop.pgmux.rust_client();
    let mut outside = shop.pgmux.rust_client();
    let mut transaction = inside.transaction().expect("begin");
    transaction
        .execute("insert into log values (1, $1)", &[&"x"])
        .expect("insert");
    let seen: i64 = transaction
        .query_one("select count(*) from log", &[])
        .expect("select")
        .get(0);
    assert_eq!((seen, count(&mut outside, "log")), (1, 0));
    transaction.commit().expect("commit");
    assert_eq!(count(&mut outside, "log"), 1);
    shop.close();
}

fn settings_of_one_client_do_not_reach_another(shards: usize) {
    let shop = Shop::open(shards);
    let mut first = shop.pgmux.client();
    first.query("begin");
    first.query("set application_name = 'leak'");
    assert_eq!(first.value("show application_name"), "leak");
    first.query("commit");
    let mut others: Vec<Session> = (0..4).map(|_| shop.pgmux.client()).collect();
    for other in &mut others {
        other.query("begin");
        assert_eq!(other.value("show application_name"), "");
    }
    drop(others);
    shop.close();
}

fn concurrent_transactions_all_succeed(shards: usize) {
    let shop = Shop::open(shards);
    in_parallel(10, |worker| {
        let mut client = shop.pgmux.rust_client();
        let mut transaction = client.transaction().expect("begin");
        transaction
            .execute("insert into log values ($1, 't')", &[&worker])
            .expect("insert");
        let seen: i64 = transaction
            .query_one("select count(*) from log where worker = $1", &[&worker])
            .expect("select")
            .get(0);
        assert_eq!(seen, 1);
        transaction.commit().expect("commit");
    });
    assert_eq!(count(&mut shop.pgmux.rust_client(), "log"), 10);
    shop.close();
}

fn full_pool_serves_again_after_release(shards: usize) {
    let shop = Shop::open(shards);
    let mut holders: Vec<Session> = (0..4).map(|_| shop.pgmux.client()).collect();
    for holder in &mut holders {
        holder.query("begin");
    }
    for holder in holders.iter_mut().take(2) {
        holder.query("commit");
    }
    let mut client = shop.pgmux.rust_client();
    client
        .execute("insert into log values (1, $1)", &[&"x"])
        .expect("insert");
    drop(holders);
    shop.close();
}

fn fifty_concurrent_parameterised_selects_and_inserts(shards: usize) {
    let shop = Shop::open(shards);
    in_parallel(50, |worker| {
        let mut client = shop.pgmux.rust_client();
        let sum: i32 = client
            .query_one("select $1::int + $2::int", &[&worker, &20])
            .expect("select")
            .get(0);
        assert_eq!(sum, worker + 20);
        client
            .execute(
                "insert into log values ($1, $2)",
                &[&worker, &worker.to_string()],
            )
            .expect("insert");
        let back: String = client
            .query_one("select value from log where worker = $1", &[&worker])
            .expect("select")
            .get(0);
        assert_eq!(back, worker.to_string());
    });
    assert_eq!(count(&mut shop.pgmux.rust_client(), "log"), 50);
    shop.close();
}

fn copy_in_inside_a_transaction(shards: usize) {
    let shop = Shop::open(shards);
    let mut client = shop.pgmux.rust_client();
    let mut transaction = client.transaction().expect("begin");
    let mut copy = transaction.copy_in("copy log from stdin").expect("copy");
    for row in 0..100 {
        writeln!(copy, "{row}\trow {row}").expect("a row");
    }
    assert_eq!(copy.finish().expect("the end of COPY"), 100);
    transaction.commit().expect("commit");
    assert_eq!(count(&mut client, "log"), 100);
    shop.close();
}

fn copy_out_gives_every_row(shards: usize) {
    let shop = Shop::open(shards);
    let mut client = shop.pgmux.rust_client();
    let mut text = String::new();
    let mut copy = client
        .copy_out("copy (select generate_series(1, 10000)) to stdout")
        .expect("copy");
    std::io::Read::read_to_string(&mut copy, &mut text).expect("the data");
    drop(copy);
    assert_eq!(text.lines().count(), 10_000);
    assert_eq!(text.lines().last(), Some("10000"));
    shop.close();
}

fn large_result_is_complete(shards: usize) {
    let shop = Shop::open(shards);
    let mut client = shop.pgmux.rust_client();
    let rows = client
        .query(
            "select i, repeat('x', 500) || i from generate_series(1, 20000) i",
            &[],
        )
        .expect("select");
    assert_eq!(rows.len(), 20_000);
    let last: String = rows[19_999].get(1);
    assert_eq!(last, format!("{}20000", "x".repeat(500)));
    shop.close();
}

fn several_statements_in_one_query(shards: usize) {
    let shop = Shop::open(shards);
    let mut client = shop.pgmux.rust_client();
    client
        .batch_execute("insert into log values (1, 'a'); insert into log values (2, 'b')")
        .expect("two inserts");
    assert_eq!(count(&mut client, "log"), 2);
    shop.close();
}

fn prepared_statements_are_reused(shards: usize) {
    let shop = Shop::open(shards);
    let mut client = shop.pgmux.rust_client();
    let insert = client
        .prepare("insert into log values ($1, 'p')")
        .expect("prepare");
    for value in [80, 85, 91, 96, 98] {
        client.execute(&insert, &[&value]).expect("insert");
    }
    let select = client
        .prepare("select value from log where worker > $1")
        .expect("prepare");
    for (threshold, expected) in [(90, 3), (95, 2), (200, 0)] {
        let rows = client.query(&select, &[&threshold]).expect("select");
        assert_eq!(rows.len(), expected);
    }
    shop.close();
}

fn right_and_wrong_logins(shards: usize) {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let config = Config::new(cluster, &database)
        .shards(shards)
        .users(&["app", "limited"]);
    let pgmux = Pgmux::start(&config);
    let login = |user: &str, password: &str| {
        Session::try_open(&pgmux.endpoint(), &Login::new(user, password, &database)).map(|_| ())
    };
    assert_eq!(login("app", PASSWORD), Ok(()));
    assert_eq!(login("limited", PASSWORD), Ok(()));
    for (user, password) in [
        ("app", "wrong"),
        ("nobody", PASSWORD),
        ("nobody", ""),
        ("app", ""),
    ] {
        let refusal = login(user, password).expect_err("a refusal");
        let expected = format!(
            "ErrorResponse FATAL 28P01 \"password authentication failed for user \\\"{user}\\\"\""
        );
        assert_eq!(refusal, expected);
    }
    // The role of the server is the configured one, whoever logged in.
    let client = postgres::Config::new()
        .host("127.0.0.1")
        .port(pgmux.port())
        .user("limited")
        .password(PASSWORD)
        .dbname(&database)
        .connect(NoTls);
    let user: String = client
        .expect("a login")
        .query_one("select current_user::text", &[])
        .expect("select")
        .get(0);
    assert_eq!(user, "app");
    pgmux.stop();
}

fn count(client: &mut Client, table: &str) -> i64 {
    client
        .query_one(&format!("select count(*) from {table}"), &[])
        .expect("count")
        .get(0)
}

fn in_parallel(workers: i32, work: impl Fn(i32) + Sync) {
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let work = &work;
            scope.spawn(move || work(worker));
        }
    });
}
