//! What a file says that is allowed and unwise: settings that look safer than
//! they are, and secrets that others can read.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::auth::Method;
use crate::config::{ChannelBinding, Config, Group, ListenAddr, ServerAuth, SslMode, Target};

/// A line for each, with the key that it is about.
pub(super) fn warnings(config: &Config, file: &Path) -> Vec<String> {
    let mut found = Vec::new();
    of_clients(config, &mut found);
    of_logins(config, file, &mut found);
    of_limits(config, &mut found);
    for group in &config.groups {
        if config.proxy.allow_replication {
            of_replication(config, group, &mut found);
        }
        of_servers(group, &mut found);
    }
    found
}

/// A walsender sees all that its role may, which for most roles that replicate
/// is every database of the cluster.
fn of_replication(config: &Config, group: &Group, found: &mut Vec<String>) {
    if group.passthrough {
        return;
    }
    let who = match &config.auth.rules {
        Some(_) => "whom a rule lets in for that",
        None => "everybody who may log in",
    };
    let Group { name, user, .. } = group;
    found.push(format!(
        "proxy.allow_replication: {who} replicates {name} as {user}, whatever its own role may do; backend.user: passthrough asks PostgreSQL about that role"
    ));
}

fn of_clients(config: &Config, found: &mut Vec<String>) {
    let public = config.proxy.listen.iter().find(|address| match address {
        ListenAddr::Tcp(address) => !address.ip().is_loopback(),
        ListenAddr::Unix(_) => false,
    });
    match (&config.tls, public) {
        (None, Some(address)) => found.push(format!(
            "tls.enabled: clients come to {address} in clear, where others can read and change what they say"
        )),
        (Some(tls), Some(address)) if tls.mode < SslMode::Require => found.push(format!(
            "tls.client_sslmode: {} lets clients come to {address} in clear; require does not",
            tls.mode.name()
        )),
        _ => {}
    }
    if let Some(tls) = &config.tls {
        unguarded("tls.key_file", &tls.key_file, found);
    }
}

/// Limits that are written and hold for nobody.
fn of_limits(config: &Config, found: &mut Vec<String>) {
    if config.limits.enabled {
        return;
    }
    let user = config.auth.users.values();
    let user = user
        .filter(|user| user.max_connections.is_some())
        .min_by_key(|user| &user.name);
    if let Some(user) = user {
        let name = &user.name;
        found.push(format!(
            "auth.users: max_connections of {name:?} limits nobody; connection_limits.enabled: true does"
        ));
    }
    let mut groups = config.groups.iter();
    if let Some(group) = groups.find(|group| group.max_connections.is_some()) {
        let name = &group.name;
        found.push(format!(
            "databases.{name}.max_connections: limits nobody; connection_limits.enabled: true does"
        ));
    }
}

/// Who is let in, and who can read how. `file`: the configuration's own.
fn of_logins(config: &Config, file: &Path, found: &mut Vec<String>) {
    let auth = &config.auth;
    let public = config
        .proxy
        .listen
        .iter()
        .find_map(|address| match address {
            ListenAddr::Tcp(address) if !address.ip().is_loopback() => Some(address),
            _ => None,
        });
    if let Some(address) = public {
        match &auth.rules {
            None if auth.trusts() => found.push(format!(
                "auth.method: trust asks nobody who comes to {address} for a password"
            )),
            None => {}
            Some(rules) => {
                for rule in rules.all().iter().filter(|rule| rule.is_public()) {
                    let (text, place) = (rule.method, format!("{}:{}", rule.file, rule.line));
                    match text {
                        Method::Trust => found.push(format!(
                            "{place}: trust asks nobody who comes to {address} for a password"
                        )),
                        Method::Password if !rule.is_private() => found.push(format!(
                            "{place}: password is taken over TLS only; hostssl says so"
                        )),
                        _ => {}
                    }
                }
            }
        }
    }
    for secrets in &auth.secret_files {
        unguarded("auth", secrets, found);
    }
    if has_passwords(file) {
        unguarded("passwords in this file", file, found);
    }
}

/// Whether passwords stand in the file itself: a value that is not taken from
/// the environment.
fn has_passwords(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).map(Zeroizing::new);
    text.is_ok_and(|text| {
        text.split("password:").skip(1).any(|value| {
            let value = value.trim_start_matches([' ', '"', '\'']);
            !value.starts_with("${") && !value.starts_with(['\n', '\r'])
        })
    })
}

fn of_servers(group: &Group, found: &mut Vec<String>) {
    let key = |name: &str| format!("databases.{}: backend.{name}", group.name);
    if let Some(file) = &group.password_file {
        unguarded(&key("password_file"), file, found);
    }
    if let Some((_, file)) = &group.tls.cert {
        unguarded(&key("server_key_file"), file, found);
    }
    let Target::Tcp { host, .. } = &group.target else {
        return;
    };
    let here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if here {
        return;
    }
    let (tls, sslmode) = (&group.tls, key("server_sslmode"));
    if tls.mode < SslMode::Require && group.auth_methods.contains(&ServerAuth::Cleartext) {
        found.push(format!(
            "{}: password says it to {host} in clear; server_sslmode: require or better hides it",
            key("auth_methods")
        ));
    }
    match tls.mode {
        SslMode::Disable => found.push(format!(
            "{sslmode}: what is said to {host} is not encrypted"
        )),
        SslMode::Allow | SslMode::Prefer => found.push(format!(
            "{sslmode}: {} is in clear whenever somebody on the way says so; require is not",
            tls.mode.name()
        )),
        SslMode::Require
            if tls.ca_file.is_none() && tls.channel_binding != ChannelBinding::Require =>
        {
            found.push(format!(
                "{sslmode}: require encrypts, but whoever answers for {host} is believed; verify-full is not fooled"
            ));
        }
        SslMode::Require | SslMode::VerifyCa => {}
        SslMode::VerifyFull => {}
    }
}

/// As PostgreSQL refuses it: a key that more than its owner and a group of
/// root's can read.
fn unguarded(key: &str, file: &Path, found: &mut Vec<String>) {
    let Ok(about) = file.metadata() else { return };
    let allowed = if about.uid() == 0 { 0o037 } else { 0o077 };
    if about.mode() & allowed != 0 {
        found.push(format!(
            "{key}: others can read {}; chmod 600 lets only its owner",
            file.display()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(front: &str, backend: &str) -> Vec<String> {
        let text = format!(
            "{front}\ndatabases: {{a: {{writer: {{host: db.example}}, backend: {backend}}}}}\nauth: {{users: [{{username: x, password: y}}]}}\n"
        );
        let config = Config::parse(&text, "x.yaml").unwrap_or_else(|errors| panic!("{errors}"));
        let found = warnings(&config, Path::new(""));
        let key = |line: &String| {
            line.split(": ")
                .nth(usize::from(line.starts_with("databases")))
                .map(str::to_owned)
        };
        found.iter().filter_map(key).collect()
    }

    #[test]
    fn public_addresses_and_distant_servers_without_tls_are_warned_of() {
        let here = "proxy: {listen: [127.0.0.1:1, '[::1]:1', /tmp]}";
        let public = "proxy: {listen: [127.0.0.1:1, 0.0.0.0:1]}";
        assert_eq!(warned(here, "{}"), ["backend.server_sslmode"]);
        assert_eq!(
            warned(public, "{}"),
            ["tls.enabled", "backend.server_sslmode"]
        );
        for mode in ["disable", "allow", "prefer", "require"] {
            let found = warned(here, &format!("{{server_sslmode: {mode}}}"));
            assert_eq!(found, ["backend.server_sslmode"], "{mode}");
        }
        let bound = "{server_sslmode: require, server_channel_binding: require}";
        assert_eq!(warned(here, bound), [""; 0]);
    }

    #[test]
    fn limits_that_are_switched_off_are_warned_of() {
        let found = |front: &str| {
            let text = format!(
                "proxy: {{listen: /tmp}}\n{front}\ndatabases: {{a: {{writer: /tmp, max_connections: 3}}}}\nauth: {{users: [{{username: x, password: y, max_connections: 0}}]}}\n"
            );
            let config = Config::parse(&text, "x.yaml").unwrap_or_else(|errors| panic!("{errors}"));
            warnings(&config, Path::new(""))
        };
        let off = found("");
        assert_eq!(off.len(), 2, "{off:#?}");
        assert!(off[0].starts_with("auth.users: "), "{off:#?}");
        assert!(
            off[1].starts_with("databases.a.max_connections: "),
            "{off:#?}"
        );
        assert_eq!(found("connection_limits: {enabled: true}"), [""; 0]);
    }

    #[test]
    fn passwords_in_clear_to_distant_servers_are_warned_of() {
        let here = "proxy: {listen: /tmp}";
        let methods = "auth_methods: [scram-sha-256, password]";
        assert_eq!(
            warned(here, &format!("{{{methods}, server_sslmode: prefer}}")),
            ["backend.auth_methods", "backend.server_sslmode"]
        );
        let bound = "server_sslmode: require, server_channel_binding: require";
        assert_eq!(warned(here, &format!("{{{methods}, {bound}}}")), [""; 0]);
    }

    #[test]
    fn replication_as_somebody_else_is_warned_of() {
        let found = |allowed: bool, user: &str| {
            let text = format!(
                "proxy: {{listen: /tmp, allow_replication: {allowed}}}\n\
                 backend: {{user: {user}}}\ndatabases: {{a: {{writer: /tmp}}}}\n\
                 auth: {{users: [{{username: x, password: y}}]}}\n"
            );
            let config = Config::parse(&text, "x.yaml").unwrap_or_else(|errors| panic!("{errors}"));
            warnings(&config, Path::new(""))
        };
        let warned = found(true, "postgres");
        assert_eq!(warned.len(), 1, "{warned:#?}");
        assert!(
            warned[0].starts_with(
                "proxy.allow_replication: everybody who may log in replicates a as postgres"
            ),
            "{warned:#?}"
        );
        assert_eq!(found(true, "passthrough"), [""; 0]);
        assert_eq!(found(false, "postgres"), [""; 0]);
    }

    #[test]
    fn servers_on_this_machine_need_no_tls() {
        let text = "proxy: {listen: /tmp}\ndatabases: {a: {writer: /tmp}, b: {writer: 127.0.0.1}, c: {writer: localhost}}\nauth: {users: [{username: x, password: y}]}\n";
        let config = Config::parse(text, "x.yaml").unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(warnings(&config, Path::new("")), [""; 0]);
    }

    #[test]
    fn rules_that_trust_strangers_and_secrets_that_all_can_read_are_warned_of() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str, mode: u32| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("a file");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("its mode");
            path
        };
        write("users", "\"a\" \"b\"\n", 0o644);
        write("backend", "secret\n", 0o644);
        write("asking", "secret\n", 0o644);
        write(
            "hba",
            "host all all 127.0.0.1/32 trust\nhost all all all password\nhost all all samenet trust\n",
            0o644,
        );
        let text = |password: &str| {
            format!(
                "proxy: {{listen: 0.0.0.0:1}}\n\
                 backend: {{password: {password}}}\n\
                 databases: {{a: {{writer: /tmp}}, b: {{writer: /tmp, backend: {{password_file: backend}}}}}}\n\
                 auth: {{hba_file: hba, file: users, query: on, query_user: q, query_password_file: asking}}\n"
            )
        };
        let found = |password: &str, mode| {
            let file = write("pgmux.yaml", &text(password), mode);
            let text = std::fs::read_to_string(&file).expect("the file");
            let config = Config::parse(&text, &file.display().to_string());
            let config = config.unwrap_or_else(|errors| panic!("{errors}"));
            let mut found = Vec::new();
            of_logins(&config, &file, &mut found);
            for group in &config.groups {
                of_servers(group, &mut found);
            }
            found
        };
        let warned = found("x", 0o644);
        let about = |word: &str| warned.iter().filter(|line| line.contains(word)).count();
        assert_eq!(warned.len(), 6, "{warned:#?}");
        assert_eq!(about("hba:3: trust"), 1, "{warned:#?}");
        assert_eq!(about("hba:2: password"), 1, "{warned:#?}");
        assert_eq!(about("can read"), 4, "{warned:#?}");
        assert_eq!(
            about("databases.b: backend.password_file"),
            1,
            "{warned:#?}"
        );
        assert_eq!(about("asking"), 1, "{warned:#?}");
        assert_eq!(found("x", 0o600).len(), 5);
    }
}
