//! `pgmux check`: every mistake of a file, or what it says.

use std::fmt::Write;

use super::CheckArgs;
use super::warnings::warnings;
use crate::config::{Auth, AuthMethod, Config, ConfigErrors, Group, SslMode};
use crate::preflight;

/// The summary of a file without mistakes.
pub fn check(args: &CheckArgs) -> Result<String, ConfigErrors> {
    let config = Config::load(&args.config)?;
    let mut out = format!("{}: fine\n{}", args.config.display(), summary(&config));
    for warning in warnings(&config, &args.config) {
        let _ = writeln!(out, "  warning   {warning}");
    }
    Ok(out)
}

fn summary(config: &Config) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "  {name:<9} {text}");
    };
    for addr in &config.proxy.listen {
        line("listen", addr.to_string());
    }
    line("shards", shards(config));
    line("clients", clients(&config.auth));
    if let Some(tls) = &config.tls {
        line("tls", format!("with clients: {}", tls.mode.name()));
    }
    for (index, group) in config.groups.iter().enumerate() {
        line("database", database(group, index == config.default_group));
    }
    out
}

fn shards(config: &Config) -> String {
    match config.engine.shards {
        Some(shards) => shards.to_string(),
        None => format!("auto, which is {} here", preflight::usable_cpus()),
    }
}

fn clients(auth: &Auth) -> String {
    let method = match auth.method {
        AuthMethod::ScramSha256 => "scram-sha-256",
        AuthMethod::Md5 => "md5",
        AuthMethod::Trust => "trust",
    };
    match auth.users.len() {
        0 => format!("{method}, everybody under any name"),
        1 => format!("{method}, 1 user"),
        users => format!("{method}, {users} users"),
    }
}

fn database(group: &Group, is_default: bool) -> String {
    let pool = &group.pool;
    let tls = match group.tls.mode {
        SslMode::Disable => String::new(),
        mode => format!(", TLS {}", mode.name()),
    };
    format!(
        "{}{}: {} to {} servers in {} mode, {} at {} as {}{tls}",
        group.name,
        if is_default { " (default)" } else { "" },
        pool.min_connections,
        pool.max_connections,
        pool.mode.name(),
        group.database,
        group.target,
        group.user,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_what_the_file_says() {
        let text = "\
proxy: {listen: [127.0.0.1:6432, /tmp]}
engine: {shards: 3}
databases: {a: {writer: /run/pg, pool: {mode: session}}, b: {writer: {host: db}, backend: {user: u, database: d}}}
auth: {users: [{username: x, password: secret}]}
";
        let config = Config::parse(text, "x.yaml").unwrap_or_else(|errors| panic!("{errors}"));
        let want = "  listen    127.0.0.1:6432
  listen    unix:/tmp/.s.PGSQL.6432
  shards    3
  clients   scram-sha-256, 1 user
  database  a (default): 2 to 10 servers in session mode, a at unix:/run/pg/.s.PGSQL.5432 as postgres
  database  b: 2 to 10 servers in transaction mode, d at db:5432 as u
";
        assert_eq!(summary(&config), want);
    }
}
