//! tokio-postgres: everything by names of its own and in binary, pipelined when it is asked at once.

use std::pin::pin;

use drivers::{CLIENTS, SLEEPERS, env, errors, literal, types};
use futures_util::{SinkExt, StreamExt, TryStreamExt, future::join_all, stream};
use tokio_postgres::types::{FromSql, Type};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::SslMode;
use tokio_postgres::{AsyncMessage, Client, Error, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    println!("== types");
    all_types().await?;
    println!("== statements");
    statements().await?;
    println!("== pipeline");
    pipeline().await?;
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

fn config() -> tokio_postgres::Config {
    let mut config = tokio_postgres::Config::new();
    config
        .host(env("PGHOST"))
        .port(env("PGPORT").parse().expect("a port"))
        .user(env("PGUSER"))
        .password(env("PGPASSWORD"))
        .dbname(env("PGDATABASE"));
    if env("PGSSLMODE") != "prefer" {
        config.ssl_mode(SslMode::Require);
    }
    config
}

/// TLS with whom PGSSLROOTCERT has signed; without that, with nobody.
fn tls() -> MakeRustlsConnect {
    let mut roots = RootCertStore::empty();
    if let Some(file) = std::env::var_os("PGSSLROOTCERT") {
        let root = CertificateDer::from_pem_file(file).expect("a certificate");
        roots.add(root).expect("a certificate");
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    MakeRustlsConnect::new(config)
}

async fn connect() -> Result<Client, Error> {
    let (client, connection) = config().connect(tls()).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn show(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => format!(
            "{:?} {} {:?} {:?} {:?}",
            error.code(),
            error.message(),
            error.detail(),
            error.hint(),
            error.position()
        ),
        None => error.to_string(),
    }
}

/// The bytes of a value of any type.
struct Raw(Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

async fn all_types() -> Outcome {
    let client = connect().await?;
    for (name, value) in types() {
        for message in client
            .simple_query(&format!("select {}", literal(&name, &value)))
            .await?
        {
            if let SimpleQueryMessage::Row(row) = message {
                println!("{name} {:?}", row.get(0));
            }
        }
        let row = client
            .query_one(&format!("select $1::text::{name}, null::{name}"), &[&value])
            .await?;
        let null: Option<Raw> = row.get(1);
        println!(
            "{} {:?} {}",
            row.columns()[0].type_(),
            row.get::<_, Raw>(0).0,
            null.is_none()
        );
    }
    let row = client
        .query_one(
            "select $1::int8, $2::float8, $3::bytea, $4::text[], $5::bool, $6::int2",
            &[
                &(1_i64 << 60),
                &1.5_f64,
                &&[0_u8, 255][..],
                &vec![Some("x"), None],
                &true,
                &None::<i16>,
            ],
        )
        .await?;
    println!(
        "{} {} {:?}",
        row.get::<_, i64>(0),
        row.get::<_, f64>(1),
        row.get::<_, Vec<Option<String>>>(3)
    );
    Ok(())
}

async fn statements() -> Outcome {
    let client = connect().await?;
    let mut sum = 0;
    let mut kept = Vec::new();
    for number in 0..40 {
        kept.push(
            client
                .prepare(&format!("select $1::int * {number}"))
                .await?,
        );
    }
    for round in 0..3_i32 {
        for statement in &kept {
            sum += client
                .query_one(statement, &[&round])
                .await?
                .get::<_, i32>(0);
        }
    }
    drop(kept);
    println!("{sum}");
    client
        .batch_execute("create table tp(a int primary key, b text); select 1; select 2")
        .await?;
    let typed = client
        .query_typed("select $1 + 1", &[(&41_i32, Type::INT4)])
        .await?;
    println!("{}", typed[0].get::<_, i32>(0));
    Ok(())
}

async fn pipeline() -> Outcome {
    let client = connect().await?;
    let divide = client.prepare("select $1::int / $2::int").await?;
    let ask = async |number: i32| match client.query_one(&divide, &[&number, &(number % 7)]).await {
        Ok(row) => row.get::<_, i32>(0).to_string(),
        Err(error) => show(&error),
    };
    println!("{:?}", join_all((0..60).map(ask)).await);
    Ok(())
}

async fn transactions() -> Outcome {
    let mut client = connect().await?;
    let mut outer = client.transaction().await?;
    outer
        .execute("insert into tp values (1, 'one')", &[])
        .await?;
    let inner = outer.savepoint("here").await?;
    if let Err(error) = inner
        .execute("insert into tp values (1, $1)", &[&"again"])
        .await
    {
        println!("{}", show(&error));
    }
    inner.rollback().await?;
    let portal = outer.bind("select generate_series(1, 250)", &[]).await?;
    for _ in 0..4 {
        println!("{}", outer.query_portal(&portal, 100).await?.len());
    }
    outer.commit().await?;
    // Given up by being dropped, which sends a ROLLBACK that nobody waits for.
    let dropped = client.transaction().await?;
    dropped.execute("delete from tp", &[]).await?;
    drop(dropped);
    println!(
        "{}",
        client
            .query_one("select count(*) from tp", &[])
            .await?
            .get::<_, i64>(0)
    );
    Ok(())
}

async fn copies() -> Outcome {
    let client = connect().await?;
    let mut sink = pin!(client.copy_in("copy tp from stdin").await?);
    let rows = (0..2000).map(|number| Ok(bytes(format!("{}\trow {number}\n", number + 10))));
    sink.send_all(&mut stream::iter(rows)).await?;
    println!("{}", sink.finish().await?);
    let out = client
        .copy_out("copy (select * from tp order by a) to stdout (format binary)")
        .await?;
    let length = out
        .try_fold(0, async |sum, piece| Ok(sum + piece.len()))
        .await?;
    println!("{length}");
    let mut sink = pin!(client.copy_in("copy tp from stdin").await?);
    sink.send(bytes("no number\tx\n".repeat(1000))).await?;
    if let Err(error) = sink.finish().await {
        println!("{}", show(&error));
    }
    {
        // Dropped in its middle: CopyFail.
        let mut given_up = pin!(client.copy_in("copy tp from stdin").await?);
        given_up.send(bytes("5000\tx\n".into())).await?;
    }
    println!(
        "{}",
        client
            .query_one("select count(*) from tp", &[])
            .await?
            .get::<_, i64>(0)
    );
    Ok(())
}

fn bytes(text: String) -> std::io::Cursor<String> {
    std::io::Cursor::new(text)
}

async fn notifications() -> Outcome {
    let (listener, mut connection) = config().connect(tls()).await?;
    let (seen, mut got) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = stream::poll_fn(|context| connection.poll_message(context))
            .next()
            .await
        {
            if let AsyncMessage::Notification(notification) = message {
                let _ = seen.send(format!(
                    "{} {}",
                    notification.channel(),
                    notification.payload()
                ));
            }
        }
    });
    listener.batch_execute("listen tpn").await?;
    let sender = connect().await?;
    sender.batch_execute("notify tpn, 'one'").await?;
    sender
        .execute("select pg_notify('tpn', $1)", &[&"two"])
        .await?;
    for _ in 0..2 {
        println!("{:?}", got.recv().await);
    }
    Ok(())
}

async fn large_objects() -> Outcome {
    let mut client = connect().await?;
    let work = client.transaction().await?;
    let oid: u32 = work
        .query_one("select lo_from_bytea(0, $1)", &[&vec![7_u8; 200_000]])
        .await?
        .get(0);
    let row = work
        .query_one("select lo_get($1, 199995, 100), lo_unlink($1)", &[&oid])
        .await?;
    println!("{:?}", row.get::<_, Vec<u8>>(0));
    work.commit().await?;
    Ok(())
}

async fn failures() -> Outcome {
    let client = connect().await?;
    for text in errors() {
        for outcome in [
            client.batch_execute(&text).await,
            client.execute(&text, &[]).await.map(drop),
        ] {
            println!("{:?}", outcome.map_err(|error| show(&error)));
            println!(
                "{}",
                client
                    .query_one("select $1::int", &[&3_i32])
                    .await?
                    .get::<_, i32>(0)
            );
        }
    }
    Ok(())
}

async fn cancels() -> Outcome {
    let (client, other) = (connect().await?, connect().await?);
    let token = client.cancel_token();
    let cancel = async {
        while other.query_one(SLEEPERS, &[]).await?.get::<_, i64>(0) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        token.cancel_query(tls()).await
    };
    let (slept, cancelled) = tokio::join!(client.batch_execute("select pg_sleep(30)"), cancel);
    cancelled?;
    println!("{:?}", slept.map_err(|error| show(&error)));
    println!(
        "{}",
        client.query_one("select 4", &[]).await?.get::<_, i32>(0)
    );
    Ok(())
}

async fn fifty() -> Outcome {
    let work = async |number: i32| -> Result<i32, Error> {
        let mut client = connect().await?;
        let statement = client.prepare("select $1::int + $2::int").await?;
        let mut sum = 0;
        for round in 0..10_i32 {
            let transaction = client.transaction().await?;
            sum += transaction
                .query_one(&statement, &[&number, &round])
                .await?
                .get::<_, i32>(0);
            transaction.commit().await?;
        }
        Ok(sum)
    };
    for answer in join_all((0..CLIENTS).map(work)).await {
        println!("{answer:?}");
    }
    Ok(())
}
