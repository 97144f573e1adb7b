//! diesel over libpq: its query builder, a cache of statements with names of its own, everything in binary.

use diesel::connection::{AnsiTransactionManager, CacheSize, TransactionManager};
use diesel::pg::{CopyFormat, PgConnection};
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Double, Integer, Nullable, Oid, Text};
use diesel::{insert_into, sql_query, update};
use drivers::{CLIENTS, SLEEPERS, env, errors, types};
use std::io::Read;

diesel::table! {
    shelf (id) {
        id -> Integer,
        name -> Text,
        tags -> Array<Text>,
        raw -> Nullable<Binary>,
    }
}

diesel::table! {
    thing (id) {
        id -> Integer,
        shelf_id -> Integer,
        number -> BigInt,
    }
}

diesel::joinable!(thing -> shelf (shelf_id));
diesel::allow_tables_to_appear_in_same_query!(shelf, thing);

#[derive(Debug, Queryable, Insertable, Selectable)]
#[diesel(table_name = shelf)]
struct Shelf {
    id: i32,
    name: String,
    tags: Vec<String>,
    raw: Option<Vec<u8>>,
}

#[derive(QueryableByName)]
struct Shown {
    #[diesel(sql_type = Text)]
    value: String,
    #[diesel(sql_type = Bool)]
    none: bool,
}

fn main() -> QueryResult<()> {
    println!("== types");
    all_types()?;
    println!("== models");
    models()?;
    println!("== transactions");
    transactions()?;
    println!("== copies");
    copies()?;
    println!("== notifications");
    notifications()?;
    println!("== large objects");
    large_objects()?;
    println!("== errors");
    failures()?;
    println!("== fifty");
    fifty();
    println!("== end");
    Ok(())
}

fn connect() -> PgConnection {
    // All of the PG* environment is libpq's.
    let options = format!("sslmode={}", env("PGSSLMODE"));
    PgConnection::establish(&options).expect("a connection")
}

fn show(error: &Error) -> String {
    match error {
        Error::DatabaseError(kind, facts) => {
            let constraint = facts.constraint_name();
            format!(
                "{kind:?} {} {:?} {:?} {constraint:?}",
                facts.message(),
                facts.details(),
                facts.hint()
            )
        }
        other => other.to_string(),
    }
}

fn all_types() -> QueryResult<()> {
    let conn = &mut connect();
    for (name, value) in types() {
        let text = format!("select $1::{name}::text as value, (null::{name}) is null as none");
        for _ in 0..2 {
            let shown: Shown = sql_query(&text)
                .bind::<Text, _>(&value)
                .get_result(conn)
                .or_else(|error| {
                    println!("{}", show(&error));
                    sql_query(text.replace("$1", "$1::text"))
                        .bind::<Text, _>(&value)
                        .get_result(conn)
                })?;
            println!("{name} {} {}", shown.value, shown.none);
        }
    }
    let row: (i64, f64, Vec<u8>, Vec<i32>, Option<i32>) = diesel::select((
        (1_i64 << 60).into_sql::<BigInt>(),
        1.5.into_sql::<Double>(),
        vec![0_u8, 255].into_sql::<Binary>(),
        vec![1, 2, 3].into_sql::<Array<Integer>>(),
        None::<i32>.into_sql::<Nullable<Integer>>(),
    ))
    .get_result(conn)?;
    println!("{row:?}");
    Ok(())
}

fn models() -> QueryResult<()> {
    let conn = &mut connect();
    sql_query(
        "create table shelf(id int primary key, name text unique, tags text[] not null, raw bytea)",
    )
    .execute(conn)?;
    sql_query(
        "create table thing(id serial primary key, shelf_id int references shelf, number int8)",
    )
    .execute(conn)?;
    for cache in [CacheSize::Unbounded, CacheSize::Disabled] {
        conn.set_prepared_statement_cache_size(cache);
        diesel::delete(thing::table).execute(conn)?;
        diesel::delete(shelf::table).execute(conn)?;
        let shelves: Vec<Shelf> = (0..3)
            .map(|id| Shelf {
                id,
                name: format!("shelf {id}"),
                tags: vec!["x".into(), "y, z".into()],
                raw: Some(vec![0, 255]),
            })
            .collect();
        println!(
            "{:?}",
            insert_into(shelf::table)
                .values(&shelves)
                .returning(shelf::id)
                .get_results::<i32>(conn)?
        );
        for number in 0..30_i64 {
            let row = (
                thing::shelf_id.eq((number % 3) as i32),
                thing::number.eq(number),
            );
            insert_into(thing::table).values(row).execute(conn)?;
        }
        let joined: Vec<(String, i64)> = thing::table
            .inner_join(shelf::table)
            .filter(thing::number.gt(25))
            .order(thing::number)
            .select((shelf::name, thing::number))
            .load(conn)?;
        println!("{joined:?}");
        let changed = update(shelf::table.find(1))
            .set(shelf::name.eq("changed"))
            .get_result::<Shelf>(conn)?;
        println!("{changed:?}");
        let streamed = thing::table
            .select(thing::number)
            .load_iter::<i64, diesel::pg::PgRowByRowLoadingMode>(conn)?;
        println!("{:?}", streamed.sum::<QueryResult<i64>>());
    }
    Ok(())
}

fn transactions() -> QueryResult<()> {
    let conn = &mut connect();
    for (inner_fails, outer_fails) in [(false, false), (true, false), (false, true)] {
        let outcome = conn.transaction(|conn| {
            let name = format!("{inner_fails} {outer_fails}");
            sql_query("insert into thing(number) values (100)").execute(conn)?;
            let inner = conn.transaction(|conn| {
                sql_query("insert into thing(number) values (1000)").execute(conn)?;
                let id = if inner_fails {
                    1
                } else {
                    10 + i32::from(outer_fails)
                };
                insert_into(shelf::table)
                    .values((
                        shelf::id.eq(id),
                        shelf::name.eq(&name),
                        shelf::tags.eq(vec![""]),
                    ))
                    .execute(conn)
            });
            println!("{:?}", inner.map_err(|error| show(&error)));
            if outer_fails {
                Err(Error::RollbackTransaction)
            } else {
                Ok(())
            }
        });
        println!(
            "{outcome:?} {}",
            thing::table
                .filter(thing::number.ge(100))
                .count()
                .get_result::<i64>(conn)?
        );
    }
    let level = conn
        .build_transaction()
        .serializable()
        .read_only()
        .deferrable()
        .run(|conn| {
            diesel::select(diesel::dsl::sql::<Text>(
                "current_setting('transaction_isolation')",
            ))
            .get_result::<String>(conn)
        })?;
    println!("{level}");
    AnsiTransactionManager::begin_transaction(conn)?;
    AnsiTransactionManager::rollback_transaction(conn)
}

fn copies() -> QueryResult<()> {
    let conn = &mut connect();
    let count = diesel::copy_from(thing::table)
        .from_raw_data((thing::shelf_id, thing::number), |sink| {
            for number in 0..2000 {
                writeln!(sink, "1\t{number}")
                    .map_err(|error| Error::SerializationError(error.into()))?;
            }
            QueryResult::Ok(())
        })
        .with_format(CopyFormat::Text)
        .execute(conn)?;
    println!("{count}");
    let mut text = String::new();
    let mut out = diesel::copy_to(thing::table)
        .with_format(CopyFormat::Csv)
        .load_raw(conn)?;
    out.read_to_string(&mut text).expect("text");
    println!("{}", text.len());
    drop(out);
    let failed = diesel::copy_from(thing::table)
        .from_raw_data((thing::shelf_id, thing::number), |sink| {
            sink.write_all(&b"1\tno number\n".repeat(1000))
                .map_err(|error| Error::SerializationError(error.into()))
        })
        .execute(conn);
    println!("{:?}", failed.map_err(|error| show(&error)));
    println!("{}", thing::table.count().get_result::<i64>(conn)?);
    Ok(())
}

fn notifications() -> QueryResult<()> {
    let (listener, sender) = (&mut connect(), &mut connect());
    sql_query("listen dn").execute(listener)?;
    for word in ["one", "two"] {
        sql_query("select pg_notify('dn', $1)")
            .bind::<Text, _>(word)
            .execute(sender)?;
    }
    let mut seen = 0;
    while seen < 2 {
        sql_query("select 1").execute(listener)?;
        for got in listener.notifications_iter() {
            let got = got?;
            println!("{} {}", got.channel, got.payload);
            seen += 1;
        }
    }
    Ok(())
}

fn large_objects() -> QueryResult<()> {
    connect().transaction(|conn| {
        use diesel::dsl::sql;
        let bytes = vec![7_u8; 200_000];
        let make = sql::<Oid>("lo_from_bytea(0, ")
            .bind::<Binary, _>(bytes)
            .sql(")");
        let oid: u32 = diesel::select(make).get_result(conn)?;
        let rest: Vec<u8> = diesel::select(
            sql::<Binary>("lo_get(")
                .bind::<Oid, _>(oid)
                .sql(", 199995, 100)"),
        )
        .get_result(conn)?;
        let gone: i32 = diesel::select(sql::<Integer>("lo_unlink(").bind::<Oid, _>(oid).sql(")"))
            .get_result(conn)?;
        println!("{rest:?} {gone}");
        Ok(())
    })
}

fn failures() -> QueryResult<()> {
    use diesel::connection::SimpleConnection;
    let conn = &mut connect();
    for text in errors() {
        let outcomes = [
            conn.batch_execute(&text).map(|()| 0),
            sql_query(&text).execute(conn),
        ];
        for outcome in outcomes {
            println!("{:?}", outcome.map_err(|error| show(&error)));
        }
        println!(
            "{}",
            diesel::select(3.into_sql::<Integer>()).get_result::<i32>(conn)?
        );
    }
    // diesel cannot cancel: a timeout of the server's does.
    conn.batch_execute("set statement_timeout = '100ms'")?;
    let timed_out = sql_query("select pg_sleep(30)").execute(conn);
    assert!(!matches!(
        timed_out,
        Err(Error::DatabaseError(DatabaseErrorKind::ClosedConnection, _))
    ));
    println!("{:?}", timed_out.map_err(|error| show(&error)));
    println!(
        "{}",
        diesel::select(diesel::dsl::sql::<BigInt>(&format!("({SLEEPERS})")))
            .get_result::<i64>(conn)?
    );
    Ok(())
}

fn fifty() {
    let work = |number: i32| -> QueryResult<i64> {
        let conn = &mut connect();
        let mut sum = 0;
        for round in 0..10 {
            sum += conn.transaction(|conn| {
                diesel::select(number.into_sql::<Integer>() + round).get_result::<i32>(conn)
            })? as i64;
        }
        Ok(sum)
    };
    let threads: Vec<_> = (0..CLIENTS)
        .map(|number| std::thread::spawn(move || work(number)))
        .collect();
    for thread in threads {
        println!("{:?}", thread.join().map_err(|_| "panicked"));
    }
}
