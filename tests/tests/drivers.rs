//! Drivers and tools that people use, each through pgmux. What they need is in drivers/REQUIREMENTS.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tests::clean::{Inspector, Suspicions};
use tests::cluster::{Cluster, PASSWORD};
use tests::direct::Direct;
use tests::pgmux::{Config, Pgmux};
use tests::process::target_dir;
use tests::version::Version;

tests::on_shards!(
    psql,
    pgbench_simple,
    pgbench_extended,
    pgbench_prepared,
    psycopg,
    asyncpg,
    go_lib_pq,
);

fn psql(shards: usize) {
    let counter = Counter::open(shards);
    let script = "\\set ON_ERROR_STOP on\n\
                  create table p(a int primary key, b text);\n\
                  insert into p values (1, 'one'), (2, 'two');\n\
                  \\copy p from stdin\n3\tthree\n\\.\n\
                  begin; savepoint s; delete from p; rollback to s; commit;\n\
                  select count(*) = 3 as complete from p \\gset\n\
                  \\if :complete\n\\else\nselect 1/0;\n\\endif\n\
                  select $1::int + $2::int \\bind 1 2 \\g\n\
                  \\copy (select * from p order by a) to stdout\n\
                  \\d p\n\
                  \\echo :SERVER_VERSION_NUM\n";
    // \bind is psql 16's.
    let script = match psql_major() {
        ..16 => script.replace("select $1::int + $2::int \\bind 1 2 \\g\n", ""),
        _ => script.into(),
    };
    let output = counter.run(Command::new("psql").args(["-X", "-q", "-c", "show server_version"]));
    assert!(output.contains("server_version"), "{output}");
    let file = counter.file("script.sql", &script);
    let output = counter.run(Command::new("psql").args(["-X", "-q", "-f"]).arg(file));
    assert!(output.contains("3\tthree"), "{output}");
    assert!(output.contains("Indexes:"), "{output}");
    counter.close();
}

fn pgbench_simple(shards: usize) {
    pgbench(shards, "simple");
}

fn pgbench_extended(shards: usize) {
    pgbench(shards, "extended");
}

fn pgbench_prepared(shards: usize) {
    pgbench(shards, "prepared");
}

fn pgbench(shards: usize, protocol: &str) {
    let counter = Counter::open(shards);
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

fn psycopg(shards: usize) {
    python(shards, "psycopg_driver.py");
}

fn asyncpg(shards: usize) {
    python(shards, "asyncpg_driver.py");
}

fn python(shards: usize, program: &str) {
    let counter = Counter::open(shards);
    let python = match std::env::var_os("PGMUX_TEST_PYTHON") {
        Some(python) => PathBuf::from(python),
        None => target_dir().join("drivers/venv/bin/python"),
    };
    assert!(
        python.exists(),
        "no {}: `make test` prepares it, see drivers/REQUIREMENTS",
        python.display()
    );
    counter.run(Command::new(python).arg(drivers().join("python").join(program)));
    counter.close();
}

fn go_lib_pq(shards: usize) {
    let counter = Counter::open(shards);
    counter.run(&mut Command::new(go_program()));
    counter.close();
}

/// Where a driver is run: a fresh database behind pgmux.
struct Counter {
    pgmux: Pgmux,
    direct: Direct,
    database: String,
    dir: tests::process::TempDir,
}

impl Counter {
    fn open(shards: usize) -> Self {
        let cluster = Cluster::shared();
        let database = cluster.fresh_database();
        Self {
            pgmux: Pgmux::start(&Config::new(cluster, &database).shards(shards)),
            direct: Direct::open(cluster, &database),
            database,
            dir: tests::process::TempDir::new("driver").expect("a directory"),
        }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// Runs a program to its end, which must be a good one, and gives what it wrote.
    fn run(&self, command: &mut Command) -> String {
        let output = command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.pgmux.port().to_string())
            .env("PGUSER", "app")
            .env("PGPASSWORD", PASSWORD)
            .env("PGDATABASE", &self.database)
            .env("PGSSLMODE", "prefer")
            .output()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            output.status.success(),
            "{:?}: {}\n{text}\npgmux:\n{}",
            command.get_program(),
            output.status,
            self.pgmux.log()
        );
        text
    }

    fn close(mut self) {
        let (endpoint, login) = (self.pgmux.endpoint(), self.pgmux.login());
        Inspector::new(Cluster::shared(), &endpoint, &login, 4)
            .expect_clean(&mut self.direct, &Suspicions::default());
        self.pgmux.stop();
    }
}

/// Builds the Go program once, by Debian's lib/pq, without asking any module proxy.
fn go_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = target_dir().join("drivers/go-lib-pq");
        std::fs::create_dir_all(program.parent().expect("a parent")).expect("the drivers' folder");
        let output = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg("main.go")
            .current_dir(drivers().join("go"))
            .env("GO111MODULE", "off")
            .env("GOFLAGS", "")
            .env("GOCACHE", target_dir().join("drivers/go-cache"))
            .env(
                "GOPATH",
                std::env::var_os("PGMUX_TEST_GOPATH").unwrap_or_else(|| "/usr/share/gocode".into()),
            )
            .output()
            .expect("go");
        assert!(
            output.status.success(),
            "go build: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        program
    })
}

fn server_tool(name: &str) -> PathBuf {
    Version::Distribution.bin_dir().join(name)
}

fn psql_major() -> u32 {
    let output = Command::new("psql")
        .arg("--version")
        .output()
        .expect("psql");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_whitespace().nth(2).unwrap_or_default();
    version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or(0)
}

fn drivers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers")
}
