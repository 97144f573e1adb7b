//! Drivers and tools that people use, direct and through pgmux: drivers/README.md says which and what they need.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use tests::driver::{Counter, Way, drivers, expect_same, installed};
use tests::process::target_dir;
use tests::version::Version;

/// A test of each function on each way: in clear and by TLS, to one shard and to four.
macro_rules! on_each_way {
    ($($name:ident),* $(,)?) => {
        on_way!(on_1_shard, 1, false, $($name,)*);
        on_way!(on_4_shards, 4, false, $($name,)*);
        on_way!(on_1_shard_by_tls, 1, true, $($name,)*);
        on_way!(on_4_shards_by_tls, 4, true, $($name,)*);
    };
}

macro_rules! on_way {
    ($module:ident, $shards:literal, $tls:literal, $($name:ident,)*) => {
        mod $module {
            use tests::driver::Way;
            const WAY: Way = Way { shards: $shards, tls: $tls };
            $(#[test] fn $name() { super::$name(WAY); })*
        }
    };
}

on_each_way!(
    pgbench_simple,
    pgbench_extended,
    pgbench_prepared,
    psql,
    pg_dump_and_restore,
    psycopg,
    psycopg_asynchronous,
    psycopg_pipeline,
    asyncpg,
    pg8000,
    sqlalchemy,
    django,
    django_with_server_side_binding,
    node_pg,
    node_postgres,
    prisma,
    go_lib_pq,
    go_pgx,
    jdbc,
    ruby_pg,
    ruby_pg_mapped,
    activerecord,
    activerecord_unprepared,
    php_pdo,
    perl_dbd_pg,
    rust_tokio_postgres,
    rust_sqlx,
    rust_diesel,
);

fn psql(way: Way) {
    expect_same("psql", way, || script("sh", "psql/driver.sh", &[]));
}

fn pgbench_simple(way: Way) {
    pgbench(way, "simple");
}

fn pgbench_extended(way: Way) {
    pgbench(way, "extended");
}

fn pgbench_prepared(way: Way) {
    pgbench(way, "prepared");
}

fn pgbench(way: Way, protocol: &str) {
    let counter = Counter::open(way);
    counter.run(Command::new(server_tool("pgbench")).args(["-i", "-q", "-s", "1"]));
    // A thread for each client of transactions: pgbench prepares statements by a call that blocks the whole thread, so a
    // client that waits for a server would keep the other clients of its thread from ending their transactions.
    for (builtin, clients, threads) in [("select-only", "20", "2"), ("tpcb-like", "8", "8")] {
        let output = counter.run(Command::new(server_tool("pgbench")).args([
            "-n", "-M", protocol, "-b", builtin, "-c", clients, "-j", threads, "-t", "100",
        ]));
        assert!(
            output.contains("number of failed transactions: 0"),
            "{output}"
        );
    }
    counter.close();
}

fn psycopg(way: Way) {
    expect_same("psycopg", way, || python("psycopg/sync.py"));
}

fn psycopg_asynchronous(way: Way) {
    expect_same("psycopg, asynchronous", way, || {
        python("psycopg/asynchronous.py")
    });
}

fn psycopg_pipeline(way: Way) {
    expect_same("psycopg, pipeline mode", way, || {
        python("psycopg/pipeline.py")
    });
}

fn asyncpg(way: Way) {
    expect_same("asyncpg", way, || python("asyncpg/driver.py"));
}

fn pg8000(way: Way) {
    expect_same("pg8000", way, || python("pg8000/driver.py"));
}

fn sqlalchemy(way: Way) {
    expect_same("SQLAlchemy", way, || python("sqlalchemy/driver.py"));
}

fn django(way: Way) {
    expect_same("Django", way, || python("django/driver.py"));
}

fn django_with_server_side_binding(way: Way) {
    expect_same("Django, server-side binding", way, || {
        let mut command = python("django/driver.py");
        command.arg("bind");
        command
    });
}

fn go_lib_pq(way: Way) {
    expect_same("lib/pq", way, || Command::new(go_program("go_lib_pq")));
}

fn go_pgx(way: Way) {
    expect_same("pgx", way, || Command::new(go_program("go_pgx")));
}

fn node_pg(way: Way) {
    expect_same("node's pg", way, || node("node_pg/driver.js"));
}

fn node_postgres(way: Way) {
    expect_same("node's postgres", way, || node("node_postgres/driver.js"));
}

fn prisma(way: Way) {
    expect_same("Prisma", way, || node("prisma/driver.js"));
}

fn jdbc(way: Way) {
    expect_same("pgjdbc", way, || {
        let jar = Path::new("/usr/share/java/postgresql.jar");
        assert!(
            jar.exists(),
            "no {}: `make install` brings it",
            jar.display()
        );
        let mut command = Command::new("java");
        // The source is compiled at each start: a small heap and one compiler are enough for both.
        command
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"])
            .arg(jar);
        command.arg(drivers().join("jdbc/Driver.java"));
        command
    });
}

fn ruby_pg(way: Way) {
    expect_same("Ruby's pg", way, || {
        script("ruby", "ruby_pg/driver.rb", &[])
    });
}

fn ruby_pg_mapped(way: Way) {
    expect_same("Ruby's pg, types mapped", way, || {
        script("ruby", "ruby_pg/driver.rb", &["mapped"])
    });
}

fn activerecord(way: Way) {
    expect_same("ActiveRecord", way, || {
        script("ruby", "activerecord/driver.rb", &[])
    });
}

fn activerecord_unprepared(way: Way) {
    expect_same("ActiveRecord, unprepared", way, || {
        script("ruby", "activerecord/driver.rb", &["unprepared"])
    });
}

fn php_pdo(way: Way) {
    expect_same("PHP's PDO", way, || {
        script("php", "php_pdo/driver.php", &[])
    });
}

fn perl_dbd_pg(way: Way) {
    expect_same("Perl's DBD::Pg", way, || {
        script("perl", "perl_dbd_pg/driver.pl", &[])
    });
}

fn rust_tokio_postgres(way: Way) {
    expect_same("tokio-postgres", way, || {
        Command::new(rust_program("tokio_postgres"))
    });
}

fn rust_sqlx(way: Way) {
    expect_same("sqlx", way, || Command::new(rust_program("sqlx")));
}

fn rust_diesel(way: Way) {
    expect_same("diesel", way, || Command::new(rust_program("diesel")));
}

/// Debian's pg_dump refuses a newer server than itself, so on PostgreSQL 18 there is nothing to compare.
fn pg_dump_and_restore(way: Way) {
    if Version::chosen() != Version::Distribution {
        return;
    }
    expect_same("pg_dump and pg_restore", way, || {
        script("sh", "pg_dump/driver.sh", &[])
    });
}

fn script(interpreter: &str, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(drivers().join(program)).args(arguments);
    command
}

fn node(program: &str) -> Command {
    let mut command = script("node", program, &[]);
    command.env("NODE_PATH", installed("node/node_modules"));
    command
}

fn python(program: &str) -> Command {
    let python = match std::env::var_os("PGMUX_TEST_PYTHON") {
        Some(python) => PathBuf::from(python),
        None => installed("venv/bin/python"),
    };
    let mut command = Command::new(python);
    command
        .arg(drivers().join(program))
        .env("PYTHONPATH", drivers().join("shared"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
/// Builds a Go program once, by Debian's packages, without asking any module proxy.
fn go_program(name: &'static str) -> PathBuf {
    static BUILT: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let program = target_dir().join("drivers/go").join(name);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if built.contains(name) {
        return program;
    }
    let gopath =
        std::env::var_os("PGMUX_TEST_GOPATH").unwrap_or_else(|| "/usr/share/gocode".into());
    std::fs::create_dir_all(target_dir().join("drivers/go")).expect("the drivers' folder");
    let output = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg("main.go")
        .current_dir(drivers().join(name))
        .env("GO111MODULE", "off")
        .env("GOFLAGS", "")
        .env("GOCACHE", target_dir().join("drivers/go-cache"))
        .env("GOPATH", gopath)
        .output()
        .expect("go");
    assert!(
        output.status.success(),
        "go build of {name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    built.insert(name);
    program
}

/// Builds the Rust programs once, each driver's from crates.io as the lock file says.
fn rust_program(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let target = target_dir().join("drivers/rust");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["build", "--quiet", "--locked", "--bins", "--target-dir"])
            .arg(&target)
            .current_dir(drivers().join("rust"))
            .output()
            .expect("cargo");
        assert!(
            output.status.success(),
            "cargo build: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        target.join("debug")
    });
    built.join(name)
}

fn server_tool(name: &str) -> PathBuf {
    Version::Distribution.bin_dir().join(name)
}
