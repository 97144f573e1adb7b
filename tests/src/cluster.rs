//! Real PostgreSQL clusters in temp directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use postgres::{Client, NoTls};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Guarded, PATIENCE, TempDir, eventually, free_port};
use crate::version::{Version, running_as_root};

/// The password of every role that a test cluster has.
pub const PASSWORD: &str = "correct horse 'battery' staple";

/// The roles of a test cluster. Their names say which authentication the server asks of them over TCP.
pub const ROLES: [&str; 5] = ["app", "app_md5", "app_password", "app_trust", "other"];

/// What a cluster is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose server it is.
    pub version: Version,
    /// `max_connections` of the server.
    pub max_connections: u32,
    /// Further lines of postgresql.conf.
    pub settings: Vec<String>,
    /// Lines of pg_hba.conf that come before the usual ones.
    pub hba: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: Version::chosen(),
            max_connections: 400,
            settings: Vec::new(),
            hba: Vec::new(),
        }
    }
}

/// A running cluster. It is stopped at once, and its files go, when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    postgres: Option<Guarded>,
    dir: TempDir,
    port: u16,
    data: PathBuf,
    version: Version,
}

impl Cluster {
    /// The cluster that all tests of this process share which do not choose a version.
    pub fn shared() -> &'static Self {
        Self::of(Version::chosen())
    }

    /// The cluster of a version that all tests of this process share.
    pub fn of(version: Version) -> &'static Self {
        static SHARED: [OnceLock<Cluster>; Version::ALL.len()] =
            [const { OnceLock::new() }; Version::ALL.len()];
        SHARED[version as usize].get_or_init(|| {
            Self::start(&Options {
                version,
                ..Options::default()
            })
        })
    }

    /// Makes a new cluster and starts it.
    pub fn start(options: &Options) -> Self {
        let dir = TempDir::new("cluster").expect("a directory for the cluster");
        if running_as_root() {
            let owner = postgres_ids();
            std::os::unix::fs::chown(dir.path(), Some(owner.0), Some(owner.1)).expect("chown");
        }
        let data = dir.path().join("data");
        let port = free_port();
        init(options.version, &data);
        configure(&data, dir.path(), port, options);
        let mut cluster = Self {
            postgres: None,
            dir,
            port,
            data,
            version: options.version,
        };
        cluster.resume();
        cluster.create_roles();
        cluster
    }

    /// Stops the server at once, as a crash would; the data stay.
    pub fn crash(&mut self) {
        self.postgres = None;
    }

    /// Starts the server again after [`Self::crash`], on the same port.
    pub fn resume(&mut self) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("the server's log");
        let mut command = self.version.program("postgres");
        command
            .arg("-D")
            .arg(&self.data)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log);
        // SIGQUIT is PostgreSQL's immediate shutdown: it ends its children too.
        let mut postgres =
            Guarded::spawn(&mut command, Signal::QUIT, self.dir.path()).expect("postgres");
        let up = eventually(PATIENCE, || {
            if let Some(status) = postgres.try_wait() {
                panic!("postgres ended with {status}: {}", self.log());
            }
            self.try_superuser("postgres").ok()
        });
        assert!(up.is_some(), "postgres does not answer: {}", self.log());
        self.postgres = Some(postgres);
    }

    /// Kills one of its processes, as the OOM killer does: PostgreSQL ends all others and recovers. Returns when it
    /// lets clients in again; at once when the process was gone already.
    pub fn kill_child(&self, pid: u32) {
        const ENDED: &str = "all server processes terminated; reinitializing";
        let restarts = || self.log().matches(ENDED).count();
        let before = restarts();
        let child = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let killed = child.is_some_and(|child| kill_process(child, Signal::KILL).is_ok());
        let back = || (restarts() > before && self.try_superuser("postgres").is_ok()).then_some(());
        assert!(
            !killed || eventually(PATIENCE, back).is_some(),
            "no recovery: {}",
            self.log()
        );
    }

    /// Whose server it is.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the unix socket.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The postmaster's process id.
    pub fn pid(&self) -> u32 {
        self.postgres.as_ref().expect("a running server").pid()
    }

    /// All that the server has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// A new database that `app` owns and nobody else uses.
    pub fn fresh_database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("db{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.create_database(&name);
        name
    }

    /// A new database of a given name that `app` owns.
    pub fn create_database(&self, name: &str) {
        let sql = format!("create database {name} owner app");
        self.superuser("postgres")
            .batch_execute(&sql)
            .expect("create database");
        self.superuser(name)
            .batch_execute("grant all on schema public to public")
            .expect("open the public schema");
    }

    /// A connection past pgmux, as superuser, over the unix socket.
    pub fn superuser(&self, database: &str) -> Client {
        self.try_superuser(database).expect("a direct connection")
    }

    fn try_superuser(&self, database: &str) -> Result<Client, postgres::Error> {
        postgres::Config::new()
            .host_path(self.socket_dir())
            .port(self.port)
            .user("postgres")
            .dbname(database)
            .application_name("referee")
            .connect(NoTls)
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn create_roles(&self) {
        let mut admin = self.superuser("postgres");
        let password = PASSWORD.replace('\'', "''");
        for role in ROLES {
            let encryption = if role == "app_md5" {
                "md5"
            } else {
                "scram-sha-256"
            };
            admin
                .batch_execute(&format!(
                    "set password_encryption = '{encryption}'; create role {role} login password '{password}'"
                ))
                .expect("create role");
        }
        // So that `app` has a role that it may change to.
        admin
            .batch_execute("grant other to app")
            .expect("grant a role");
    }
}

/// Has a file belong to the server's user, if that is not ours.
pub fn give_to_server(path: &Path) {
    if running_as_root() {
        let owner = postgres_ids();
        std::os::unix::fs::chown(path, Some(owner.0), Some(owner.1)).expect("chown");
    }
}

fn init(version: Version, data: &Path) {
    let output = version
        .program("initdb")
        .arg("-D")
        .arg(data)
        .args(["-U", "postgres", "-A", "trust", "-N"])
        .args(["-E", "UTF8", "--locale=C.UTF-8"])
        .output()
        .expect("initdb");
    assert!(
        output.status.success(),
        "initdb: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn configure(data: &Path, sockets: &Path, port: u16, options: &Options) {
    let mut conf = format!(
        "port = {port}\n\
         listen_addresses = '127.0.0.1'\n\
         unix_socket_directories = '{}'\n\
         max_connections = {}\n\
         max_prepared_transactions = 10\n\
         shared_buffers = 64MB\n\
         fsync = off\n\
         synchronous_commit = off\n\
         full_page_writes = off\n\
         autovacuum = off\n\
         timezone = 'UTC'\n\
         log_timezone = 'UTC'\n\
         log_connections = on\n\
         log_disconnections = on\n\
         log_line_prefix = '%p %u@%d '\n",
        sockets.display(),
        options.max_connections
    );
    for line in &options.settings {
        conf.push_str(line);
        conf.push('\n');
    }
    let usual = "local all postgres trust\n\
               local all app_trust trust\n\
               local all all scram-sha-256\n\
               host all app_trust 127.0.0.1/32 trust\n\
               host all app_password 127.0.0.1/32 password\n\
               host all app_md5 127.0.0.1/32 md5\n\
               host all all 127.0.0.1/32 scram-sha-256\n\
               host replication all 127.0.0.1/32 scram-sha-256\n";
    let hba: String = options.hba.iter().map(|line| format!("{line}\n")).collect();
    let hba = hba + usual;
    // The files belong to the server's user already: they are appended to or replaced in place.
    append(&data.join("postgresql.conf"), &conf);
    fs::write(data.join("pg_hba.conf"), hba).expect("pg_hba.conf");
}

fn append(path: &Path, text: &str) {
    let mut all = fs::read_to_string(path).expect("postgresql.conf");
    all.push_str(text);
    fs::write(path, all).expect("postgresql.conf");
}

fn postgres_ids() -> (u32, u32) {
    let passwd = fs::read_to_string("/etc/passwd").expect("the list of users");
    let line = passwd
        .lines()
        .find(|line| line.starts_with("postgres:"))
        .expect("a user named postgres");
    let mut fields = line.split(':').skip(2);
    let mut id = || {
        fields
            .next()
            .and_then(|field| field.parse().ok())
            .expect("an id")
    };
    (id(), id())
}
