//! sqlx: a cache of statements with names of its own, and a pool that asks each connection whether it lives.

use drivers::{CLIENTS, SLEEPERS, env, errors, literal, types};
use futures_util::{TryStreamExt, future::join_all};
use sqlx::postgres::{
    PgConnectOptions, PgListener, PgPoolCopyExt, PgPoolOptions, PgRow, PgSslMode, PgValueFormat,
};
use sqlx::{Connection, Error, Executor, PgConnection, PgPool, Row, TypeInfo, ValueRef};

type Outcome = Result<(), Error>;

#[tokio::main]
async fn main() -> Outcome {
    println!("== types");
    all_types().await?;
    println!("== statements");
    statements().await?;
    println!("== transactions");
    transactions().await?;
    println!("== copies");
    copies().await?;
    println!("== notifications");
    notifications().await?;
    println!("== large objects");
    large_objects().await?;
    println!("== errors");
    failures().await?;
    println!("== cancels");
    cancels().await?;
    println!("== fifty");
    fifty().await?;
    println!("== end");
    Ok(())
}

fn options() -> PgConnectOptions {
    // The rest of the PG* environment sqlx reads by itself.
    let mode = env("PGSSLMODE").parse().unwrap_or(PgSslMode::Prefer);
    PgConnectOptions::new().ssl_mode(mode)
}

async fn connect() -> Result<PgConnection, Error> {
    PgConnection::connect_with(&options()).await
}

fn show(error: &Error) -> String {
    match error.as_database_error() {
        Some(error) => format!(
            "{:?} {} {:?}",
            error.code(),
            error.message(),
            error.constraint()
        ),
        None => error.to_string(),
    }
}

fn raw(row: &PgRow) -> String {
    let value = row.try_get_raw(0).expect("a column");
    let binary = value.format() == PgValueFormat::Binary;
    let name = value.type_info().name().to_string();
    format!(
        "{name} {binary} {:?}",
        value.as_bytes().map(<[u8]>::to_vec).ok()
    )
}

async fn all_types() -> Outcome {
    let mut conn = connect().await?;
    for (name, value) in types() {
        let text = format!("select {}", literal(&name, &value));
        println!(
            "{name} {}",
            raw(&sqlx::raw_sql(&text).fetch_one(&mut conn).await?)
        );
        let text = format!("select $1::text::{name}");
        for persistent in [true, false] {
            let query = sqlx::query(&text).bind(&value).persistent(persistent);
            println!("{name} {}", raw(&query.fetch_one(&mut conn).await?));
        }
    }
    let row: (i64, f64, Vec<u8>, Vec<Option<String>>, bool, Option<i16>) =
        sqlx::query_as("select $1, $2, $3, $4, $5, $6")
            .bind(1_i64 << 60)
            .bind(1.5_f64)
            .bind([0_u8, 255].as_slice())
            .bind(vec![Some("x"), None])
            .bind(true)
            .bind(None::<i16>)
            .fetch_one(&mut conn)
            .await?;
    println!("{row:?}");
    conn.close().await
}

async fn statements() -> Outcome {
    let mut conn = PgConnection::connect_with(&options().statement_cache_capacity(10)).await?;
    let mut sum = 0;
    for round in 0..4_i32 {
        for number in 0..30 {
            let text = format!("select $1::int * {number}");
            sum += sqlx::query_scalar::<_, i32>(&text)
                .bind(round)
                .fetch_one(&mut conn)
                .await?;
        }
    }
    println!("{sum} {}", conn.cached_statements_size());
    conn.clear_cached_statements().await?;
    let described = conn
        .describe("select $1::int8 as a, 'x'::text as b")
        .await?;
    println!("{:?} {:?}", described.columns.len(), described.parameters);
    let done = conn
        .execute(sqlx::raw_sql(
            "create table sx(a int primary key, b text); insert into sx values (1, 'one')",
        ))
        .await?;
    println!("{}", done.rows_affected());
    let mut rows = sqlx::query_scalar::<_, i32>("select generate_series(1, 1000)").fetch(&mut conn);
    // The rest is left unread, and read away before the next query.
    println!("{:?}", rows.try_next().await?);
    drop(rows);
    conn.ping().await?;
    conn.close().await
}

async fn transactions() -> Outcome {
    let mut conn = connect().await?;
    let mut outer = conn.begin().await?;
    sqlx::query("insert into sx values (2, 'two')")
        .execute(&mut *outer)
        .await?;
    let mut inner = outer.begin().await?;
    if let Err(error) = sqlx::query("insert into sx values (1, $1)")
        .bind("again")
        .execute(&mut *inner)
        .await
    {
        println!("{}", show(&error));
    }
    inner.rollback().await?;
    let mut inner = outer.begin().await?;
    sqlx::query("insert into sx values (3, 'three')")
        .execute(&mut *inner)
        .await?;
    inner.commit().await?;
    outer.commit().await?;
    // Given up by being dropped.
    let mut dropped = conn.begin().await?;
    sqlx::query("delete from sx").execute(&mut *dropped).await?;
    drop(dropped);
    let left: Vec<(i32, String)> = sqlx::query_as("select * from sx order by a")
        .fetch_all(&mut conn)
        .await?;
    println!("{left:?}");
    conn.close().await
}

async fn copies() -> Outcome {
    let pool = PgPool::connect_with(options()).await?;
    let mut sink = pool.copy_in_raw("copy sx from stdin").await?;
    for number in 0..2000 {
        sink.send(format!("{}\trow {number}\n", number + 10).into_bytes())
            .await?;
    }
    println!("{}", sink.finish().await?);
    let out = pool
        .copy_out_raw("copy (select * from sx order by a) to stdout")
        .await?;
    println!(
        "{}",
        out.try_fold(0, async |sum, piece| Ok(sum + piece.len()))
            .await?
    );
    let mut sink = pool.copy_in_raw("copy sx from stdin").await?;
    sink.send("no number\tx\n".repeat(1000).into_bytes())
        .await?;
    println!("{:?}", sink.finish().await.map_err(|error| show(&error)));
    let sink = pool.copy_in_raw("copy sx from stdin").await?;
    sink.abort("given up").await?;
    println!(
        "{}",
        sqlx::query_scalar::<_, i64>("select count(*) from sx")
            .fetch_one(&pool)
            .await?
    );
    pool.close().await;
    Ok(())
}

async fn notifications() -> Outcome {
    let pool = PgPool::connect_with(options()).await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen_all(["sxn", "sxm"]).await?;
    for (channel, word) in [("sxn", "one"), ("sxm", "two"), ("sxn", "three")] {
        sqlx::query("select pg_notify($1, $2)")
            .bind(channel)
            .bind(word)
            .execute(&pool)
            .await?;
        let got = listener.recv().await?;
        println!("{} {}", got.channel(), got.payload());
    }
    listener.unlisten_all().await?;
    drop(listener);
    pool.close().await;
    Ok(())
}

async fn large_objects() -> Outcome {
    let mut conn = connect().await?;
    let mut work = conn.begin().await?;
    let oid: sqlx::postgres::types::Oid = sqlx::query_scalar("select lo_from_bytea(0, $1)")
        .bind(vec![7_u8; 200_000])
        .fetch_one(&mut *work)
        .await?;
    let row: (Vec<u8>, i32) = sqlx::query_as("select lo_get($1, 199995, 100), lo_unlink($1)")
        .bind(oid)
        .fetch_one(&mut *work)
        .await?;
    println!("{row:?}");
    work.commit().await?;
    conn.close().await
}

async fn failures() -> Outcome {
    let mut conn = connect().await?;
    for text in errors() {
        let simple = conn.execute(sqlx::raw_sql(&text)).await.map(drop);
        let prepared = sqlx::query(&text).execute(&mut conn).await.map(drop);
        for outcome in [simple, prepared] {
            println!("{:?}", outcome.map_err(|error| show(&error)));
        }
        println!(
            "{}",
            sqlx::query_scalar::<_, i32>("select $1")
                .bind(3)
                .fetch_one(&mut conn)
                .await?
        );
    }
    conn.close().await
}

/// sqlx has no cancel requests: a query whose future is dropped takes its connection out of the pool.
async fn cancels() -> Outcome {
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect_with(options())
        .await?;
    let asleep = async {
        while sqlx::query_scalar::<_, i64>(SLEEPERS)
            .fetch_one(&pool)
            .await?
            == 0
        {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        Ok::<_, Error>(())
    };
    let mut conn = connect().await?;
    tokio::select! {
        _ = sqlx::query("select pg_sleep(2)").execute(&mut conn) => println!("not dropped"),
        outcome = asleep => println!("{outcome:?}"),
    }
    conn.close_hard().await?;
    println!(
        "{}",
        sqlx::query_scalar::<_, i32>("select 4")
            .fetch_one(&pool)
            .await?
    );
    pool.close().await;
    Ok(())
}

async fn fifty() -> Outcome {
    let patience = std::time::Duration::from_secs(60);
    let pool = PgPoolOptions::new()
        .max_connections(CLIENTS as u32)
        .min_connections(CLIENTS as u32)
        .acquire_timeout(patience)
        .connect_with(options())
        .await?;
    let work = async |number: i32| -> Result<i32, Error> {
        let mut sum = 0;
        for round in 0..10 {
            let mut transaction = pool.begin().await?;
            sum += sqlx::query_scalar::<_, i32>("select $1 + $2")
                .bind(number)
                .bind(round)
                .fetch_one(&mut *transaction)
                .await?;
            transaction.commit().await?;
        }
        Ok(sum)
    };
    for answer in join_all((0..CLIENTS).map(work)).await {
        println!("{answer:?}");
    }
    pool.close().await;
    Ok(())
}
