//! The configuration file: read, checked, and resolved into an immutable snapshot.
//!
//! A file goes through four steps, and every problem that any of them finds is reported with its line:
//! `source` makes a tree that knows its lines, `check` types each value by the list in [`keys`] and fills
//! the defaults in, serde moves the values into each section's struct (owned by the crate that the section
//! is about), and the sections' `resolve` find what does not fit together.
//!
//! Relative paths in the file start at the file's directory. `${NAME}` in a value is the environment's
//! text; `$${` writes a literal `${`. Zero means zero; `off` means no limit.

mod auth;
mod backend;
mod breaker;
mod check;
mod databases;
mod defaults;
mod engine;
mod expand;
mod facts;
mod keepalive;
pub mod keys;
mod limits;
mod listen;
mod live;
mod memory;
mod operator;
mod peers;
mod pool;
mod proxy;
mod report;
mod secret;
mod shown;
mod source;
#[cfg(test)]
mod tests;
mod timeouts;
mod tls;
mod units;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::pool::config::PoolSettings;
use serde::de::DeserializeOwned;
use serde_yaml::{Mapping, Value};
use zeroize::Zeroizing;

pub use ::pool::config as pool_config;
pub use auth::{AUTH_QUERY, Auth, AuthMethod, AuthQuery, User, UserSecret};
pub use backend::ServerAuth;
pub use breaker::CircuitBreaker;
pub use databases::{Group, Target};
pub use defaults::defaults_file;
pub use engine::{Balance, EngineOpts, Pin, SHARDS_MAX};
pub use facts::{Difference, Facts, contents};
pub use keepalive::Keepalive;
pub use limits::ConnectionLimits;
pub use listen::{ListenAddr, parse_all as parse_listen};
pub use memory::MemoryMax;
pub use operator::Admin;
pub use peers::{Peer, PeerAddress};
pub use proxy::Proxy;
pub use report::{ConfigErrors, Problem};
pub use secret::Secret;
pub use timeouts::{OFF, TimeLimits, UserTimeouts};
pub use tls::{ChannelBinding, ClientTls, ServerTls, SslMode, TlsVersion};
pub use units::{format_duration, parse_duration, parse_size};

use check::{Checker, Fill, Place};
use report::Report;

/// A whole configuration, complete and consistent.
#[derive(Clone)]
pub struct Config {
    /// Where clients connect.
    pub proxy: Proxy,
    /// How many shards there are and where they run.
    pub engine: EngineOpts,
    /// The other instances behind the same address.
    pub peers: Vec<Peer>,
    /// The databases that clients can name, by name; never empty.
    pub groups: Vec<Group>,
    /// The group, as an index into `groups`, of a client that names no database.
    pub default_group: usize,
    /// Who may connect.
    pub auth: Auth,
    /// How many of them.
    pub limits: ConnectionLimits,
    /// When a PostgreSQL that fails is left alone.
    pub breaker: CircuitBreaker,
    /// TLS with clients, if it is on.
    pub tls: Option<ClientTls>,
    /// What is logged, if it is written here.
    pub log_level: Option<String>,
    /// By which orders are given, and the process is taken over from.
    pub control: Option<PathBuf>,
    /// Whether a change of the file is taken over as it is noticed.
    pub watch: bool,
    /// All of it, key by key.
    pub facts: Facts,
    /// Where operators ask, and who may.
    pub admin: Admin,
    /// All of it as it may be shown.
    pub shown: Arc<serde_json::Value>,
}

impl Config {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path).map(Zeroizing::new) {
            Ok(text) => Self::parse(&text, &name),
            Err(error) => {
                let text = format!("cannot read this file: {error}");
                Err(ConfigErrors(vec![Problem {
                    file: name,
                    line: 0,
                    key: String::new(),
                    text,
                }]))
            }
        }
    }

    /// Reads a text, with the name that its problems shall carry.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, ConfigErrors> {
        Self::parse_with(text, file_name, &|name| std::env::var(name).ok())
    }

    fn parse_with(
        text: &str,
        file_name: &str,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigErrors> {
        let mut report = Report::new(file_name);
        let mut twice = Vec::new();
        let tree = source::read(text, &mut twice);
        for problem in twice {
            report.at_line(problem.line, "", problem.text);
        }
        let config = match tree {
            Ok(tree) => {
                let root = Checker {
                    report: &mut report,
                    env,
                }
                .value(&tree, &Place::root(), Fill::Defaults);
                let told = root.clone();
                let config = root.and_then(|root| resolve(root, &mut report));
                config.zip(told).map(|(config, told)| Config {
                    facts: Facts::new(&told, report.files()),
                    ..config
                })
            }
            Err(problem) => {
                report.at_line(problem.line, "", problem.text);
                None
            }
        };
        report.finish(config)
    }

    /// The group that a client's `database` names.
    pub fn group(&self, name: &str) -> Option<usize> {
        self.groups
            .binary_search_by(|group| group.name.as_str().cmp(name))
            .ok()
    }
}

/// The sections, each on its own: a mistake in one does not hide those in the others.
fn resolve(root: Value, report: &mut Report) -> Option<Config> {
    let shown = Arc::new(shown::shown(&root));
    let Value::Mapping(mut root) = root else {
        return None;
    };
    let mut take = |name: &str| root.remove(name).unwrap_or_default();
    let proxy =
        typed::<proxy::Section>(take("proxy"), "proxy", report).and_then(|s| s.resolve(report));
    let engine = typed::<EngineOpts>(take("engine"), "engine", report).map(|s| s.resolve(report));
    let own = engine.as_ref().and_then(|engine| engine.instance_id);
    let peers = match take("peers") {
        Value::Null => Some(Vec::new()),
        peers => typed(peers, "peers", report).and_then(|items| peers::resolve(items, own, report)),
    };
    let auth = typed::<auth::Section>(take("auth"), "auth", report).and_then(|s| s.resolve(report));
    let limits = typed::<ConnectionLimits>(take("connection_limits"), "connection_limits", report);
    let breaker = typed::<CircuitBreaker>(take("circuit_breaker"), "circuit_breaker", report);
    let tls = typed::<tls::Section>(take("tls"), "tls", report).and_then(|s| s.resolve(report));
    let log = typed::<live::LogSection>(take("log"), "log", report).and_then(|s| s.resolve(report));
    let control = typed::<live::ControlSection>(take("control"), "control", report)
        .and_then(|s| s.resolve(report));
    let config = typed::<live::ConfigSection>(take("config"), "config", report);
    let metrics = typed::<operator::Metrics>(take("metrics"), "metrics", report);
    let admin = typed::<operator::Section>(take("admin"), "admin", report);
    let admin = match (metrics, admin) {
        (Some(metrics), Some(admin)) => operator::resolve(metrics, admin, report),
        _ => None,
    };
    let shared = Shared::new(take("pool"), take("backend"), report);
    let groups = groups(take("databases"), &shared, report);
    if let Some(auth) = &auth {
        passthrough(auth, &groups, report);
    }
    let default = shared.backend.as_ref().map(|backend| &backend.database);
    let default_group = groups
        .iter()
        .position(|group| Some(&group.name) == default)
        .unwrap_or(0);
    Some(Config {
        proxy: proxy?,
        engine: engine?,
        peers: peers?,
        groups,
        default_group,
        auth: auth?,
        limits: limits?,
        breaker: breaker?,
        tls: tls?,
        log_level: log?.level,
        control: control?,
        watch: config?.watch,
        facts: Facts::default(),
        admin: admin?,
        shown,
    })
}

/// What does not fit together where clients' own roles log in to servers.
fn passthrough(auth: &Auth, groups: &[Group], report: &mut Report) {
    for group in groups.iter().filter(|group| group.passthrough) {
        let own = format!("databases.{}.backend.user", group.name);
        let key = if report.has_seen(&own) {
            own.as_str()
        } else {
            "backend.user"
        };
        if !auth.enabled || (auth.rules.is_none() && auth.method == AuthMethod::Trust) {
            let text = "passthrough logs in with what clients prove, and here they prove nothing: write auth.method: scram-sha-256 with their secrets, or in backend.user the role that all of them shall run as";
            report.once(key, text);
        }
        if group.password.is_some() {
            report.once(key, "expected no backend.password beside passthrough: the clients' own passwords are used");
        }
        if auth
            .query
            .as_ref()
            .is_some_and(|query| query.user.is_none())
        {
            report.once(
                "auth.query_user",
                "expected the role that asks: with backend.user: passthrough there is no other",
            );
        }
    }
}

/// What the databases inherit: the values as they were written, and what became of them (`None` when
/// something was wrong, which is reported once and not again for each database).
struct Shared {
    pool_values: Value,
    pool: Option<PoolSettings>,
    backend_values: Value,
    backend: Option<backend::Section>,
}

impl Shared {
    fn new(pool_values: Value, backend_values: Value, report: &mut Report) -> Self {
        let pool = pool_settings(pool_values.clone(), "pool", report);
        let backend = backend_section(backend_values.clone(), "backend", report);
        Self {
            pool_values,
            pool,
            backend_values,
            backend,
        }
    }
}

fn groups(databases: Value, shared: &Shared, report: &mut Report) -> Vec<Group> {
    let databases = match databases {
        Value::Mapping(map) if !map.is_empty() => map,
        _ => {
            report.once(
                "databases",
                "expected at least one database, for example app: {writer: {host: 127.0.0.1}}",
            );
            return Vec::new();
        }
    };
    let mut groups: Vec<Group> = databases
        .into_iter()
        .filter_map(|(name, value)| match (name, value) {
            (Value::String(name), Value::Mapping(map)) => group(name, map, shared, report),
            _ => None,
        })
        .collect();
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    groups
}

fn group(name: String, mut map: Mapping, shared: &Shared, report: &mut Report) -> Option<Group> {
    let key = format!("databases.{name}");
    let target = map.remove("writer").and_then(|writer| {
        let key = format!("{key}.writer");
        typed::<databases::Writer>(writer, &key, report)?.resolve(&key, report)
    });
    let pool = match (map.remove("pool"), &shared.pool) {
        (Some(own), Some(_)) => pool_settings(
            overridden(&shared.pool_values, own, &[]),
            &format!("{key}.pool"),
            report,
        ),
        (_, pool) => pool.clone(),
    };
    let own = map.remove("backend");
    let own_backend = own.is_some();
    let database = own
        .as_ref()
        .and_then(|own| own.get("database"))
        .and_then(Value::as_str)
        .map(str::to_owned);
    let backend = match (own, &shared.backend) {
        (Some(own), Some(_)) => {
            let rivals = [("password", "password_file"), ("password_file", "password")];
            backend_section(
                overridden(&shared.backend_values, own, &rivals),
                &format!("{key}.backend"),
                report,
            )
        }
        (_, backend) => backend.clone(),
    };
    let own = |map: &mut Mapping, name: &str| {
        let number = map.remove(name)?.as_u64()?;
        u32::try_from(number).ok()
    };
    let max_connections = own(&mut map, "max_connections");
    let max_server_connections = own(&mut map, "max_server_connections");
    let (target, pool, backend) = (target?, pool?, backend?);
    let tls_key = if own_backend {
        format!("{key}.backend")
    } else {
        "backend".to_owned()
    };
    let keepalive = backend.keepalive();
    let tls = tls::of_servers(&backend, &target, &tls_key, report)?;
    Some(Group {
        target,
        passthrough: backend.user == PASSTHROUGH,
        user: backend.user,
        password: backend.password,
        password_file: backend.password_file,
        database: database.unwrap_or_else(|| name.clone()),
        auth_methods: backend.auth_methods,
        keepalive,
        tls,
        pool,
        max_connections,
        max_server_connections,
        name,
    })
}

/// The shared section with one database's own keys over it; of `(key, rival)` the own key removes the
/// shared rival.
fn overridden(shared: &Value, own: Value, rivals: &[(&str, &str)]) -> Value {
    let mut merged = shared.as_mapping().cloned().unwrap_or_default();
    if let Value::Mapping(own) = own {
        for (key, rival) in rivals {
            if own.contains_key(*key) {
                merged.remove(*rival);
            }
        }
        merged.extend(own);
    }
    Value::Mapping(merged)
}

fn pool_settings(value: Value, key: &str, report: &mut Report) -> Option<PoolSettings> {
    let settings: PoolSettings = typed(value, key, report)?;
    let problems = settings.problems();
    for (name, text) in &problems {
        report.at(&format!("{key}.{name}"), text.as_str());
    }
    problems.is_empty().then_some(settings)
}

fn backend_section(value: Value, key: &str, report: &mut Report) -> Option<backend::Section> {
    let mut section: backend::Section = typed(value, key, report)?;
    let before = report.count();
    for (name, text) in [("user", &section.user), ("database", &section.database)] {
        if text.is_empty() {
            report.at(&format!("{key}.{name}"), "expected a name, got \"\"");
        }
    }
    let file = section.password_file.take();
    section.password_file = file.as_deref().map(|file| report.beside(file));
    section.password = secret::read_password(section.password.take(), file, key, report);
    section.keepalive().check(key, report);
    (report.count() == before).then_some(section)
}

/// Moves checked values into a section's struct. The values that were refused are missing here, which is
/// no further problem.
fn typed<T: DeserializeOwned>(value: Value, key: &str, report: &mut Report) -> Option<T> {
    match serde_yaml::from_value(value) {
        Ok(section) => Some(section),
        Err(error) => {
            if report.count() == 0 {
                report.at(key, error.to_string());
            }
            None
        }
    }
}

/// The `backend.user` that stands for each client's own role.
const PASSTHROUGH: &str = "passthrough";

/// Where the socket of a directory is: PostgreSQL's own naming.
fn socket_in(dir: &str, port: u16) -> PathBuf {
    PathBuf::from(format!("{}/.s.PGSQL.{port}", dir.trim_end_matches('/')))
}
