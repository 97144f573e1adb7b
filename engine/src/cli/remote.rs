//! The commands that ask a running pgmux by its admin API: which one, by which
//! key, and what its answers look like to people.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use admin::access::Role;
use admin::client::{Call, Reply, call};
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::table::Table;
use crate::config::{Config, Secret};

/// Whom to ask.
#[derive(Debug, Args)]
pub struct RemoteArgs {
    /// The configuration file of the pgmux that is asked: its admin.listen, and a key of admin.auth.api_keys.
    #[arg(short, long, value_name = "FILE", required_unless_present = "admin")]
    pub config: Option<PathBuf>,
    /// The address of its admin API, instead of the file's.
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
    /// A file whose first line is the key, instead of the file's and of PGMUX_ADMIN_KEY.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Print the answer as JSON, for programs.
    #[arg(long)]
    pub json: bool,
}

/// `pgmux sessions`
#[derive(Debug, Args)]
pub struct SessionsArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Only clients in this state.
    #[arg(long, value_enum)]
    state: Option<StateArg>,
    /// Only clients of this user.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only clients of this database.
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
}

/// What a client does.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StateArg {
    Idle,
    Waiting,
    Active,
    #[value(name = "in_transaction")]
    InTransaction,
}

/// `pgmux cancel`
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The session, as `pgmux sessions` tells it.
    id: u32,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// `pgmux maintenance`
#[derive(Debug, Args)]
pub struct MaintenanceArgs {
    /// Begin it, end it, or tell whether there is.
    #[arg(value_enum, default_value_t = Verb::Status)]
    verb: Verb,
    /// Of this database only.
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// `pgmux pause`, `resume`, `reconnect`, `kill`
#[derive(Debug, Args)]
pub struct OrderArgs {
    /// Of this database only.
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Verb {
    On,
    Off,
    Status,
}

/// What is printed, and the exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    /// For standard output.
    pub text: String,
    /// 0, or what the command says by it.
    pub code: u8,
}

/// `pgmux status`: exits with 3 when it is not ready.
pub fn status(args: &RemoteArgs) -> Result<Said, String> {
    let remote = Remote::of(args, Role::Viewer)?;
    let ready = remote.ask("GET", "/readyz", &[200, 503])?;
    let stats = remote.ask("GET", "/admin/stats", &[200])?;
    let maintenance = remote.ask("GET", "/admin/maintenance", &[200])?;
    let is_ready = ready.value["status"] == "ready";
    let code = if is_ready { 0 } else { NOT_READY };
    if args.json {
        let all = serde_json::json!({
            "ready": ready.value,
            "stats": stats.value,
            "maintenance": maintenance.value,
        });
        return Ok(Said::new(format!("{all}\n"), code));
    }
    let mut text = String::new();
    let state = match is_ready {
        true => "ready".to_owned(),
        false => format!("not ready: {}", shown(&ready.value["reason"])),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}: {state}", remote.address);
    let silent = stats.value["shards"].as_array().into_iter().flatten();
    let silent: Vec<_> = silent
        .filter(|shard| shard["answered"] == false)
        .map(|shard| shown(&shard["shard"]))
        .collect();
    if !silent.is_empty() {
        let _ = writeln!(
            text,
            "silent shards, told of as they were: {}",
            silent.join(", ")
        );
    }
    let figures = &stats.value["figures"];
    let mut clients = Table::new(&[
        "clients",
        "idle",
        "waiting",
        "active",
        "in_transaction",
        "logging_in",
    ]);
    clients.row(
        [
            "clients",
            "clients_idle",
            "clients_waiting",
            "clients_active",
            "clients_in_transaction",
            "logging_in",
        ]
        .map(|name| shown(&figures[name])),
    );
    let _ = write!(text, "\n{clients}\n{}", pools(&stats.value));
    Ok(Said::new(text, code))
}

fn pools(stats: &Value) -> Table {
    let mut table = Table::new(&["database", "primary", "servers", "idle", "max", "waiting"]);
    for (name, pool) in stats["pool"].as_object().into_iter().flatten() {
        let writer = &pool["writer"];
        let [open, idle, max, waiting] =
            ["open", "idle", "max", "waiting"].map(|figure| shown(&writer[figure]));
        table.row([
            name.clone(),
            shown(&writer["addr"]),
            open,
            idle,
            max,
            waiting,
        ]);
    }
    table
}

/// `pgmux stats`: every figure by its name.
pub fn stats(args: &RemoteArgs) -> Result<Said, String> {
    let answer = Remote::of(args, Role::Viewer)?.ask("GET", "/admin/stats", &[200])?;
    answer.say(args.json, |value| {
        let mut table = Table::new(&["figure", "value"]);
        for (name, figure) in value["figures"].as_object().into_iter().flatten() {
            table.row([name.clone(), shown(figure)]);
        }
        format!("{}\n{table}", pools(value))
    })
}

/// `pgmux health`: exits with 3 when a primary cannot be reached.
pub fn health(args: &RemoteArgs) -> Result<Said, String> {
    let answer = Remote::of(args, Role::Viewer)?.ask("GET", "/admin/health", &[200])?;
    let mut table = Table::new(&["database", "primary", "state"]);
    let mut code = 0;
    for (name, database) in answer.value["databases"].as_object().into_iter().flatten() {
        let writer = &database["writer"];
        let healthy = writer["healthy"] == true;
        if !healthy {
            code = NOT_READY;
        }
        let state = if healthy { "reachable" } else { "unreachable" };
        table.row([name.clone(), shown(&writer["addr"]), state.to_owned()]);
    }
    let said = answer.say(args.json, |_| table.to_string())?;
    Ok(Said { code, ..said })
}

/// `pgmux connections`
pub fn connections(args: &RemoteArgs) -> Result<Said, String> {
    let answer = Remote::of(args, Role::Viewer)?.ask("GET", "/admin/connections", &[200])?;
    answer.say(args.json, |value| {
        let shares = |kind: &str, key: &str| {
            let mut table = Table::new(&[kind, "clients", "limit"]);
            for (name, share) in value[key].as_object().into_iter().flatten() {
                let limit = match share["limit"].as_u64() {
                    Some(0) | None => "none".to_owned(),
                    Some(limit) => limit.to_string(),
                };
                table.row([name.clone(), shown(&share["active"]), limit]);
            }
            table
        };
        format!(
            "{}\n{}",
            shares("database", "by_database"),
            shares("user", "by_user")
        )
    })
}

/// `pgmux sessions`: page after page, up to the limit.
pub fn sessions(args: &SessionsArgs) -> Result<Said, String> {
    let remote = Remote::of(&args.remote, Role::Viewer)?;
    let mut filter = String::new();
    let state = args.state.and_then(|state| state.to_possible_value());
    let state = state.map(|state| state.get_name().to_owned());
    for (name, value) in [
        ("state", &state),
        ("user", &args.user),
        ("database", &args.database),
    ] {
        if let Some(value) = value {
            let _ = write!(filter, "&{name}={}", encoded(value));
        }
    }
    let (mut all, mut silent, mut next) = (Vec::new(), Vec::new(), None::<String>);
    loop {
        let limit = (args.limit as usize - all.len()).min(PAGE);
        let after = next.map(|next| format!("&after={}", encoded(&next)));
        let after = after.unwrap_or_default();
        let path = format!("/admin/sessions?limit={limit}{filter}{after}");
        let mut page = remote.ask("GET", &path, &[200])?.value;
        for (all, key) in [(&mut all, "sessions"), (&mut silent, "silent_shards")] {
            if let Value::Array(some) = page[key].take() {
                all.extend(some);
            }
        }
        next = page["next"].as_str().map(str::to_owned);
        if next.is_none() || all.len() >= args.limit as usize {
            break;
        }
    }
    if args.remote.json {
        let all = serde_json::json!({ "sessions": all, "silent_shards": silent, "next": next });
        return Ok(Said::new(format!("{all}\n"), 0));
    }
    let mut table = Table::new(&[
        "id", "user", "database", "from", "state", "for", "since", "server", "pinned",
    ]);
    for session in &all {
        let millis = session["state_ms"].as_u64().unwrap_or(0);
        table.row([
            shown(&session["id"]),
            shown(&session["user"]),
            shown(&session["database"]),
            shown(&session["client_addr"]),
            shown(&session["state"]),
            format!("{}.{:03}s", millis / 1000, millis % 1000),
            shown(&session["connected_at"]),
            shown(&session["backend_addr"]),
            shown(&session["pinned"]),
        ]);
    }
    let mut text = table.to_string();
    if !silent.is_empty() {
        let silent: Vec<_> = silent.iter().map(shown).collect();
        let _ = writeln!(
            text,
            "not told of: the clients of the silent shards {}",
            silent.join(", ")
        );
    }
    if next.is_some() {
        let _ = writeln!(text, "there are more; --limit tells more of them");
    }
    Ok(Said::new(text, 0))
}

/// `pgmux cancel`: exits with 3 when there was nothing to cancel.
pub fn cancel(args: &CancelArgs) -> Result<Said, String> {
    let remote = Remote::of(&args.remote, Role::Admin)?;
    let path = format!("/admin/sessions/{}/cancel", args.id);
    let answer = remote.ask("POST", &path, &[200])?;
    let sent = answer.value["status"] == "cancelled";
    let said = answer.say(args.remote.json, |value| {
        format!("{}\n", shown(&value["status"]))
    })?;
    Ok(Said {
        code: if sent { 0 } else { NOT_READY },
        ..said
    })
}

/// `pgmux reload`
pub fn reload(args: &RemoteArgs) -> Result<Said, String> {
    let answer = Remote::of(args, Role::Admin)?.ask("POST", "/admin/reload", &[200])?;
    answer.say(args.json, |value| {
        let mut table = Table::new(&["key", "from", "to"]);
        for change in value["report"]["changed"].as_array().into_iter().flatten() {
            table.row(["key", "from", "to"].map(|part| shown(&change[part])));
        }
        let mut text = table.to_string();
        for pending in value["report"]["restart"].as_array().into_iter().flatten() {
            let (key, reason) = (shown(&pending["key"]), shown(&pending["reason"]));
            let _ = writeln!(text, "takes a restart: {key}: {reason}");
        }
        let _ = writeln!(text, "{}", shown(&value["status"]));
        text
    })
}

/// `pgmux maintenance`
pub fn maintenance(args: &MaintenanceArgs) -> Result<Said, String> {
    let (method, role) = match args.verb {
        Verb::On => ("POST", Role::Admin),
        Verb::Off => ("DELETE", Role::Admin),
        Verb::Status => ("GET", Role::Viewer),
    };
    let database = args.database.as_deref();
    let query = database.map(|name| format!("?database={}", encoded(name)));
    let path = format!("/admin/maintenance{}", query.unwrap_or_default());
    let answer = Remote::of(&args.remote, role)?.ask(method, &path, &[200])?;
    answer.say(args.remote.json, |value| match value["status"].as_str() {
        Some(status) => format!("{status}\n"),
        None => {
            let mut table = Table::new(&["maintenance", "since"]);
            let of = database.unwrap_or("all").to_owned();
            let since = if value["enabled"] == true {
                shown(&value["entered_at"])
            } else {
                "off".to_owned()
            };
            table.row([of, since]);
            for (name, since) in value["databases"].as_object().into_iter().flatten() {
                table.row([name.clone(), shown(since)]);
            }
            table.to_string()
        }
    })
}

/// `pgmux pause`, `resume`, `reconnect`, `kill`: the path's last part.
pub fn order(order: &str, args: &OrderArgs) -> Result<Said, String> {
    let database = args.database.as_deref();
    let query = database.map(|name| format!("?database={}", encoded(name)));
    let path = format!("/admin/{order}{}", query.unwrap_or_default());
    let answer = Remote::of(&args.remote, Role::Admin)?.ask("POST", &path, &[200, 202])?;
    answer.say(args.remote.json, |value| {
        let status = shown(&value["status"]);
        match value["message"].as_str() {
            Some(message) => format!("{status}: {message}\n"),
            None => format!("{status}\n"),
        }
    })
}

/// Whom to ask, by which key.
struct Remote {
    address: SocketAddr,
    key: Option<Secret>,
}

struct Answer {
    body: String,
    value: Value,
}

impl Remote {
    fn of(args: &RemoteArgs, role: Role) -> Result<Self, String> {
        let config = args.config.as_deref().map(Config::load).transpose();
        let config = config.map_err(|errors| errors.to_string())?;
        let own = config.as_ref().and_then(|config| config.admin.api);
        let address = match args.admin.or(own) {
            Some(address) => reachable(address),
            None => {
                return Err(format!(
                    "{} has admin.enabled: false, so nobody listens; or name the address by --admin",
                    args.config.as_deref().unwrap_or(Path::new("")).display()
                ));
            }
        };
        let key = match &args.key_file {
            Some(file) => Some(first_line(file)?),
            None => match std::env::var(KEY_VARIABLE) {
                Ok(key) => Some(Secret::new(key)),
                Err(_) => config.as_ref().and_then(|config| key_for(config, role)),
            },
        };
        Ok(Self { address, key })
    }

    fn ask(&self, method: &str, path: &str, expected: &[u16]) -> Result<Answer, String> {
        let Reply { status, body } = call(&Call {
            address: self.address,
            method,
            path,
            key: self.key.as_ref().map(Secret::expose),
        })?;
        let value: Value = serde_json::from_str(&body).unwrap_or_default();
        if !expected.contains(&status) {
            let problems = value["problems"].as_array().into_iter().flatten();
            let mut problems: Vec<_> = problems.map(shown).collect();
            if problems.is_empty() {
                problems.push(shown(&value["error"]));
            }
            return Err(format!(
                "{} answers {status}: {}",
                self.address,
                problems.join("\n")
            ));
        }
        if !value.is_object() {
            return Err(format!("{} is no admin API of pgmux", self.address));
        }
        Ok(Answer { body, value })
    }
}

impl Answer {
    fn say(&self, json: bool, table: impl FnOnce(&Value) -> String) -> Result<Said, String> {
        let text = if json {
            self.body.clone()
        } else {
            table(&self.value)
        };
        Ok(Said::new(text, 0))
    }
}

impl Said {
    fn new(text: String, code: u8) -> Self {
        Self { text, code }
    }
}

/// The least that may do it.
fn key_for(config: &Config, role: Role) -> Option<Secret> {
    let access = &config.admin.access;
    let mut keys: Vec<_> = access.keys.iter().filter(|key| key.role >= role).collect();
    keys.sort_by_key(|key| key.role);
    keys.first().map(|key| Secret::new(key.key.clone()))
}

fn first_line(file: &Path) -> Result<Secret, String> {
    let text = std::fs::read_to_string(file).map(Secret::new);
    let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let line = text.expose().lines().next().unwrap_or_default();
    Ok(Secret::new(line.to_owned()))
}

/// Who listens everywhere listens on loopback too.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// A value as a cell of a table: text without its quotes, nothing for nothing.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// As a part of a query.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// The exit code of a question that was answered with no.
const NOT_READY: u8 = 3;
/// Where a key may be.
const KEY_VARIABLE: &str = "PGMUX_ADMIN_KEY";
/// Clients that are asked for at a time.
const PAGE: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_key_that_may_do_it_is_taken() {
        let text = "databases: {a: {writer: /tmp}}\nauth: {enabled: false, method: trust}\n\
                    admin: {enabled: true, auth: {enabled: true, api_keys: [{key: admin-admin-admin, role: admin}, {key: viewer-viewer-viewer, role: viewer}]}}";
        let config = Config::parse(text, "x.yaml").unwrap_or_else(|errors| panic!("{errors}"));
        let key = |role| key_for(&config, role).map(|key| key.expose().to_owned());
        assert_eq!(key(Role::Viewer).as_deref(), Some("viewer-viewer-viewer"));
        assert_eq!(key(Role::Admin).as_deref(), Some("admin-admin-admin"));
    }

    #[test]
    fn an_address_for_all_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:9091", "127.0.0.1:9091"),
            ("[::]:9091", "[::1]:9091"),
            ("10.0.0.1:9091", "10.0.0.1:9091"),
        ] {
            let listen = listen.parse().expect("an address");
            assert_eq!(reachable(listen).to_string(), asked);
        }
    }

    #[test]
    fn names_are_encoded_whatever_is_in_them() {
        assert_eq!(encoded("a b&c=\u{e9}%"), "a%20b%26c%3D%C3%A9%25");
    }
}
