//! Whole files: what is accepted, what is refused, and in which words.

mod users;

use std::time::Duration;

use ::pool::config::PoolMode;

use super::*;

/// The shortest file that is accepted.
const MINIMAL: &str = "\
databases:
  app:
    writer: /run/postgresql
auth:
  users:
    - {username: app, password: s3cret}
";

const SCRAM: &str = "SCRAM-SHA-256$4096:QSXCR+Q6sek8bf92Zx1bZw==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse_with(text, "pgmux.yaml", &|name| match name {
        "HOST" => Some("db.internal".to_owned()),
        "PORT" => Some("6000".to_owned()),
        "SECRET" => Some("from env: #1".to_owned()),
        _ => None,
    })
}

fn accepted(text: &str) -> Config {
    parse(text).unwrap_or_else(|errors| panic!("refused:\n{errors}"))
}

/// The problems of a file as an operator sees them.
fn refused(text: &str) -> String {
    match parse(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(errors) => errors.to_string(),
    }
}

/// MINIMAL with more in front.
fn with(front: &str) -> String {
    format!("{front}\n{MINIMAL}")
}

#[test]
fn a_minimal_file_gets_every_default() {
    let config = accepted(MINIMAL);
    assert_eq!(
        config.proxy.listen,
        parse_listen(&["0.0.0.0:5432"]).unwrap()
    );
    assert_eq!(config.proxy.shutdown_timeout, Duration::from_secs(30));
    assert_eq!(config.proxy.login_timeout, Duration::from_secs(30));
    assert_eq!(
        config.engine,
        EngineOpts {
            shards: None,
            pin: Pin::Auto,
            balance: Balance::On,
            mailbox: 4096,
            dns_interval: Some(Duration::from_secs(15)),
            hosts_file: None,
            memory_max: MemoryMax::Off,
            instance_id: None
        }
    );
    assert_eq!(config.auth.method, AuthMethod::ScramSha256);
    assert!(config.auth.enabled);
    let group = &config.groups[0];
    assert_eq!(
        (
            group.name.as_str(),
            group.user.as_str(),
            group.database.as_str()
        ),
        ("app", "postgres", "app")
    );
    assert_eq!(
        group.target,
        Target::Unix {
            dir: "/run/postgresql".into(),
            port: 5432
        }
    );
    assert_eq!(group.pool, PoolSettings::default());
    assert_eq!(
        group.auth_methods,
        [ServerAuth::Scram, ServerAuth::Md5, ServerAuth::Trust]
    );
    assert!(group.password.is_none());
}

#[test]
fn the_printed_defaults_are_a_valid_file_with_the_same_values() {
    let config = accepted(&defaults_file());
    let minimal = accepted(MINIMAL);
    assert_eq!(config.proxy.listen, minimal.proxy.listen);
    assert_eq!(
        config.proxy.shutdown_timeout,
        minimal.proxy.shutdown_timeout
    );
    assert_eq!(config.engine, minimal.engine);
    assert_eq!(config.groups[0].pool, PoolSettings::default());
    assert_eq!(
        config.groups[0].auth_methods,
        minimal.groups[0].auth_methods
    );
}

#[test]
fn the_printed_defaults_show_every_key_with_an_explanation() {
    let lines: Vec<String> = defaults_file()
        .lines()
        .map(|line| line.trim().to_owned())
        .collect();
    for key in keys::all() {
        let name = key.path.rsplit('.').next().unwrap();
        let explained = lines.windows(2).any(|pair| {
            pair[0] == format!("# {}", key.about)
                && pair[1]
                    .trim_start_matches(['#', '-', ' '])
                    .starts_with(&format!("{name}:"))
        });
        assert!(explained, "{}", key.path);
        assert!(
            key.about.len() > 10 && key.about.ends_with('.'),
            "{}",
            key.path
        );
    }
}

#[test]
fn the_list_of_keys_is_exactly_what_serde_accepts() {
    let sections: [(&str, Vec<&str>); 12] = [
        ("proxy", fields::<proxy::Section>()),
        ("engine", fields::<EngineOpts>()),
        ("peers[]", fields::<peers::Item>()),
        ("pool", fields::<PoolSettings>()),
        ("backend", fields::<backend::Section>()),
        ("databases.*.writer", fields::<databases::Writer>()),
        ("auth.users[]", fields::<auth::SectionUser>()),
        ("connection_limits", fields::<ConnectionLimits>()),
        ("circuit_breaker", fields::<CircuitBreaker>()),
        ("tls", fields::<tls::Section>()),
        ("metrics", fields::<operator::Metrics>()),
        ("admin.auth.api_keys[]", fields::<operator::Item>()),
    ];
    for (path, fields) in sections {
        let mut listed: Vec<_> = keys::all()
            .filter_map(|key| key.path.strip_prefix(path)?.strip_prefix('.'))
            .filter(|rest| !rest.contains('.'))
            .collect();
        let mut fields = fields;
        listed.sort_unstable();
        fields.sort_unstable();
        assert_eq!(listed, fields, "{path}");
    }
    let listed = keys::all().filter_map(|key| key.path.strip_prefix("auth."));
    let mut listed: Vec<_> = listed.map(|rest| rest.split('[').next().unwrap()).collect();
    let mut fields = fields::<auth::Section>();
    listed.sort_unstable();
    listed.dedup();
    fields.sort_unstable();
    assert_eq!(listed, fields);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    let table = [
        (
            "pol: {}",
            "pgmux.yaml:1: pol: this key is not known; did you mean `pool`?",
        ),
        (
            "pool:\n  max_conections: 5",
            "pgmux.yaml:2: pool.max_conections: this key is not known; did you mean `max_connections`?",
        ),
        (
            "proxy:\n  max_connections: 5",
            "pgmux.yaml:2: proxy.max_connections: this key is not known; did you mean `pool.max_connections`?",
        ),
        (
            "engine:\n  zzzzzz: 5",
            "pgmux.yaml:2: engine.zzzzzz: this key is not known; expected one of shards, pin, balance, mailbox, dns_interval, hosts_file, memory_max, instance_id",
        ),
    ];
    for (front, message) in table {
        assert_eq!(refused(&with(front)), message);
    }
}

#[test]
fn keys_that_nothing_would_heed_are_refused() {
    for key in [
        "pool: {prepared_statement_mode: proxy}",
        "proxy: {query_timeout: 5s}",
        "cache: {enabled: true}",
    ] {
        assert!(
            refused(&with(key)).contains("this key is not known"),
            "{key}"
        );
    }
    let readers = MINIMAL.replace(
        "writer: /run/postgresql",
        "writer: /run/postgresql\n    readers: []",
    );
    assert!(
        refused(&readers).contains("pgmux.yaml:4: databases.app.readers: this key is not known")
    );
}

#[test]
fn peers_are_read_without_the_own_instance() {
    let config = accepted(&with(
        "engine: {instance_id: 2}\npeers: [{id: 1, address: 'a.b:6432'}, {id: 2, address: /run/two}, {id: 3, address: '[::1]:6433'}]",
    ));
    let shown: Vec<_> = config
        .peers
        .iter()
        .map(|peer| format!("{} {}", peer.id, peer.address))
        .collect();
    assert_eq!(shown, ["1 a.b:6432", "3 [::1]:6433"]);
    assert!(accepted(&with("peers:")).peers.is_empty());
}

#[test]
fn peers_that_fit_nothing_are_refused_with_their_line() {
    let table = [
        (
            "peers: [{id: 1, address: 'a:1'}]",
            "pgmux.yaml:1: peers: expected engine.instance_id beside it, from 1 to 255: keys must say whose they are",
        ),
        (
            "engine: {instance_id: 256}",
            "pgmux.yaml:1: engine.instance_id: expected a whole number from 1 to 255, got \"256\"",
        ),
        (
            "engine: {instance_id: 1}\npeers: [{id: 2}]",
            "pgmux.yaml:2: peers[0].address: expected this key, for example address: 10.0.0.2:6432",
        ),
        (
            "engine: {instance_id: 1}\npeers:\n- {address: 'a:1'}",
            "pgmux.yaml:3: peers[0].id: expected this key, for example id: 2",
        ),
        (
            "engine: {instance_id: 1}\npeers: [{id: 2, address: 'a:1'}, {id: 2, address: 'b:1'}]",
            "pgmux.yaml:2: peers[1].id: 2 is listed twice",
        ),
        (
            "engine: {instance_id: 1}\npeers: [{id: 2, address: a}]",
            "peers[0].address: expected host:port, [::1]:port, a socket directory (/run/pgmux) or unix:/path, got \"a\"",
        ),
    ];
    for (front, message) in table {
        let refusal = refused(&with(front));
        assert!(refusal.contains(message), "{refusal}");
    }
}

#[test]
fn wrong_types_are_refused_with_what_was_expected_and_what_was_there() {
    let table = [
        (
            "pool: {max_connections: many}",
            "pool.max_connections: expected a whole number from 1 to 1000000, got \"many\"",
        ),
        (
            "pool: {max_connections: 0}",
            "pool.max_connections: expected a whole number from 1 to 1000000, got \"0\"",
        ),
        (
            "pool: {max_connections: -1}",
            "pool.max_connections: expected a whole number from 1 to 1000000, got \"-1\"",
        ),
        ("pool: {max_connections: 1.5}", "got \"1.5\""),
        (
            "pool: {max_connections: [1]}",
            "pool.max_connections: expected a whole number from 1 to 1000000, got a list",
        ),
        (
            "pool: {max_connections: }",
            "pool.max_connections: expected a whole number from 1 to 1000000, got nothing",
        ),
        (
            "pool: {mode: transactions}",
            "pool.mode: expected transaction or session or statement, got \"transactions\"; did you mean `transaction`?",
        ),
        (
            "pool: {idle_timeout: 30}",
            "pool.idle_timeout: expected a duration with its unit, got 30: write 30s for seconds or 30ms for milliseconds",
        ),
        (
            "pool: {idle_timeout: soon}",
            "pool.idle_timeout: expected a duration such as 500ms, 10s, 1m or 1h30m, got \"soon\" (or off)",
        ),
        (
            "proxy: {shutdown_timeout: off}",
            "proxy.shutdown_timeout: expected a duration",
        ),
        (
            "proxy: {tcp_keepalives_idle: 1500ms}",
            "proxy.tcp_keepalives_idle: expected whole seconds up to 32767s",
        ),
        (
            "backend: {tcp_user_timeout: 1us}",
            "backend.tcp_user_timeout: expected whole milliseconds",
        ),
        (
            "engine: {memory_max: 120%}",
            "engine.memory_max: expected a size such as 512MB, a part such as 80%, or 0, got \"120%\"",
        ),
        (
            "pool: {query_timeout: 5}",
            "pool.query_timeout: expected a duration with its unit",
        ),
        (
            "proxy: {listen: []}",
            "proxy.listen: expected at least one item, got an empty list",
        ),
        (
            "proxy: {listen: localhost}",
            "proxy.listen[0]: expected an IP address with a port",
        ),
        (
            "engine: {shards: 0}",
            "engine.shards: expected auto or a whole number from 1 to 256, got \"0\"",
        ),
        (
            "engine: {pin: maybe}",
            "engine.pin: expected auto or on or off, got \"maybe\"",
        ),
        (
            "pool: 5",
            "pool: expected a mapping with the keys of this section, got \"5\"",
        ),
        (
            "pool: [a]",
            "pool: expected a mapping with the keys of this section, got a list",
        ),
        (
            "backend: {user: 123}",
            "backend.user: expected text, got 123: put it in quotes (\"123\") if that is meant",
        ),
        (
            "backend: {user: \"\"}",
            "backend.user: expected a name, got \"\"",
        ),
        (
            "backend: {auth_methods: [scram]}",
            "backend.auth_methods: expected scram-sha-256 or md5 or password or trust, got \"scram\"",
        ),
        ("backend: {user: !!str x}", "expected no YAML tags"),
    ];
    for (front, message) in table {
        let problems = refused(&with(front));
        assert!(problems.contains(message), "{front}\n{problems}");
        assert!(problems.starts_with("pgmux.yaml:1:"), "{front}\n{problems}");
        assert_eq!(problems.lines().count(), 1, "{front}\n{problems}");
    }
}

#[test]
fn all_problems_of_a_file_are_reported_in_the_order_of_their_lines() {
    let text = "\
pool:
  mode: fast
  min_connections: 3
engine:
  shards: none
databases:
  a:
    writer: {host: \"\", port: 70000}
    pool: {max_connections: 2}
  b:
    pool: {idle_timeout: 5}
auth:
  users:
    - username: x
    - {password: y, colour: red}
pool: {}
";
    let problems = refused(text);
    let places: Vec<_> = problems
        .lines()
        .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        places,
        [
            "pgmux.yaml:2 pool.mode",
            "pgmux.yaml:5 engine.shards",
            "pgmux.yaml:8 databases.a.writer.port",
            "pgmux.yaml:10 databases.b.writer",
            "pgmux.yaml:11 databases.b.pool.idle_timeout",
            "pgmux.yaml:15 auth.users[1].colour",
            "pgmux.yaml:15 auth.users[1].username",
            "pgmux.yaml:16 `pool` is written twice, first in line 1",
        ],
        "{problems}"
    );
}

#[test]
fn yaml_mistakes_have_a_line_too() {
    for (text, line) in [
        ("pool:\n  mode: [a", 2),
        ("a: b: c", 1),
        ("pool:\n\tmode: x", 2),
        ("--- {}\n--- {}", 2),
        ("- a", 1),
    ] {
        let problems = refused(text);
        let near =
            (line..line + 2).any(|line| problems.starts_with(&format!("pgmux.yaml:{line}:")));
        assert!(near, "{text:?}: {problems}");
    }
}

#[test]
fn an_empty_file_lacks_a_database_and_a_user() {
    let problems = refused("");
    assert!(
        problems.contains("databases: expected at least one database"),
        "{problems}"
    );
    assert!(
        problems.contains("auth.users: expected at least one user"),
        "{problems}"
    );
}

#[test]
fn a_database_overrides_single_keys_of_pool_and_backend() {
    let config = accepted(
        "\
pool: {mode: session, max_connections: 7, idle_timeout: 1m, reset_query: DISCARD ALL}
backend: {user: shared, password: one, database: b}
databases:
  a:
    writer: {host: 10.0.0.1}
    pool: {max_connections: 30, idle_timeout: off, min_connections: 0, reset_query: '', mode: statement,
           max_lifetime: 2h, connection_timeout: 0, max_prepared_statements: 9,
           health_check_interval: off, health_check_timeout: 900ms}
    backend: {user: own, password: two, database: real, auth_methods: trust}
  b:
    writer: {host: '[::1]', port: 6000}
auth: {users: [{username: u, password: p}]}
",
    );
    let [a, b] = config.groups.as_slice() else {
        panic!("two groups")
    };
    assert_eq!(
        a.pool,
        PoolSettings {
            mode: PoolMode::Statement,
            min_connections: 0,
            max_connections: 30,
            reserve_connections: 0,
            reserve_timeout: Some(Duration::from_secs(5)),
            max_role_pools: 1000,
            max_total_connections: None,
            idle_timeout: None,
            max_lifetime: Some(Duration::from_secs(7200)),
            connection_timeout: Some(Duration::ZERO),
            health_check_interval: None,
            health_check_timeout: Duration::from_millis(900),
            reset_query: String::new(),
            max_prepared_statements: 9,
            ..PoolSettings::default()
        }
    );
    assert_eq!((a.user.as_str(), a.database.as_str()), ("own", "real"));
    assert_eq!(a.password.as_ref().map(Secret::expose), Some("two"));
    assert_eq!(a.auth_methods, [ServerAuth::Trust]);
    assert_eq!(
        b.pool,
        PoolSettings {
            mode: PoolMode::Session,
            max_connections: 7,
            idle_timeout: Some(Duration::from_secs(60)),
            ..PoolSettings::default()
        }
    );
    assert_eq!((b.user.as_str(), b.database.as_str()), ("shared", "b"));
    assert_eq!(b.password.as_ref().map(Secret::expose), Some("one"));
    assert_eq!(b.target.to_string(), "[::1]:6000");
    assert_eq!(
        config.default_group, 1,
        "backend.database is a key of databases"
    );
    assert_eq!(
        (config.group("a"), config.group("b"), config.group("c")),
        (Some(0), Some(1), None)
    );
}

#[test]
fn an_override_must_fit_the_shared_section() {
    let text = with("pool: {min_connections: 5}").replace(
        "postgresql\n",
        "postgresql\n    pool: {max_connections: 4}\n",
    );
    let want = "pgmux.yaml:5: databases.app.pool.min_connections: expected at most max_connections (4), got 5";
    assert_eq!(refused(&text), want);
}

#[test]
fn the_environment_is_put_into_values_of_every_type() {
    let config = accepted(
        "\
databases: {app: {writer: {host: '${HOST}', port: '${PORT}'}, backend: {password: '${SECRET}', user: '$${SECRET}'}}}
auth: {users: [{username: app, password: \"x${SECRET}y\"}]}
",
    );
    let group = &config.groups[0];
    assert_eq!(
        group.target,
        Target::Tcp {
            host: "db.internal".into(),
            port: 6000
        }
    );
    assert_eq!(
        group.password.as_ref().map(Secret::expose),
        Some("from env: #1")
    );
    assert_eq!(group.user, "${SECRET}");
    assert!(
        matches!(&config.auth.users["app"].secret, Some(UserSecret::Cleartext(s)) if s.expose() == "xfrom env: #1y")
    );
    let problem = refused(&with("backend:\n  password: ${NOPE}"));
    assert_eq!(
        problem,
        "pgmux.yaml:2: backend.password: the environment variable NOPE is not set"
    );
}

#[test]
fn passwords_come_from_files_beside_the_configuration() {
    let dir = std::env::temp_dir().join(format!("pgmux-config-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("one"), "first line\nsecond line\n").unwrap();
    std::fs::write(dir.join("empty"), "\n").unwrap();
    let file = dir.join("pgmux.yaml").display().to_string();
    let with_file = |name: &str, more: &str| {
        let text = with(&format!("backend: {{password_file: {name}{more}}}"));
        Config::parse_with(&text, &file, &|_| None)
    };
    let config = with_file("one", "").unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(
        config.groups[0].password.as_ref().map(Secret::expose),
        Some("first line")
    );
    for (name, more, message) in [
        ("missing", "", "backend.password_file: cannot read"),
        (
            "empty",
            "",
            "backend.password_file: expected a password in the first line",
        ),
        (
            "one",
            ", password: x",
            "backend.password_file: expected password or password_file, got both",
        ),
    ] {
        let Err(errors) = with_file(name, more) else {
            panic!("{name} was accepted")
        };
        assert!(errors.to_string().contains(message), "{errors}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_databases_own_password_replaces_the_shared_file() {
    let text = with("backend: {password_file: /nowhere}")
        .replace("postgresql\n", "postgresql\n    backend: {password: own}\n");
    let problems = refused(&text);
    assert!(
        problems.contains("backend.password_file: cannot read /nowhere"),
        "{problems}"
    );
    assert_eq!(
        problems.lines().count(),
        1,
        "reported once, not for each database: {problems}"
    );
    let config = accepted(&text.replace("/nowhere", "/proc/self/comm"));
    assert_eq!(
        config.groups[0].password.as_ref().map(Secret::expose),
        Some("own")
    );
}

#[test]
fn no_message_shows_a_password() {
    for section in [
        "backend: {password: 123456789}",
        "backend: {password: 'x123456789${'}",
        "backend: {password: \"x123456789\", pasword: x}",
    ] {
        let problems = refused(&with(section));
        assert!(!problems.contains("123456789"), "{problems}");
    }
}

#[test]
fn aliases_repeat_a_section_and_cannot_blow_up() {
    let config = accepted(
        "\
databases:
  a: &a {writer: {host: h1}, pool: {max_connections: 3}}
  b: *a
auth: {users: [{username: u, password: p}]}
",
    );
    assert_eq!(config.groups[1].pool.max_connections, 3);
    let mut bomb = "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        bomb.push_str(&format!(
            "b{n}: &a{n} [{}]\n",
            vec![format!("*a{}", n - 1); 10].join(", ")
        ));
    }
    assert!(refused(&bomb).contains("smaller file"));
    assert!(refused(&format!("a: {}1{}", "[".repeat(100), "]".repeat(100))).contains("16 levels"));
    assert!(refused("a: &x [*x]").contains("inside its own anchor"));
}

#[test]
fn files_from_other_editors_are_read_too() {
    for text in [
        format!("\u{feff}{MINIMAL}"),
        MINIMAL.replace('\n', "\r\n"),
        format!("---\n{MINIMAL}...\n"),
    ] {
        assert_eq!(accepted(&text).groups[0].name, "app");
    }
}

#[test]
fn no_text_makes_the_reader_panic() {
    let seed = defaults_file();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % limit as u64).unwrap()
    };
    let spice = b"{}[]:,&*!|>'\"%@`#?- \n\t\x00~$0";
    for _ in 0..3_000 {
        let mut bytes = seed.clone().into_bytes();
        for _ in 0..=below(8) {
            let at = below(bytes.len());
            match below(3) {
                0 => bytes[at] = spice[below(spice.len())],
                1 => drop(bytes.drain(at..(at + below(40)).min(bytes.len()))),
                _ => bytes.insert(at, spice[below(spice.len())]),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Err(errors) = parse(&text) {
            assert!(!errors.0.is_empty());
        }
    }
}

#[test]
fn the_configuration_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Config>();
}

#[test]
fn tls_that_cannot_work_is_refused_at_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("no.pem");
    std::fs::write(&file, "no certificate").unwrap();
    let file = file.display();
    let table = [
        (
            "tls: {enabled: true}".to_owned(),
            vec![
                "1: tls.cert_file: expected this key: TLS is enabled".to_owned(),
                "1: tls.key_file: expected this key: TLS is enabled".to_owned(),
            ],
        ),
        (
            "tls:\n  enabled: true\n  cert_file: /nowhere\n  key_file: x".to_owned(),
            vec![
                "3: tls.cert_file: cannot read /nowhere: No such file or directory (os error 2)"
                    .to_owned(),
            ],
        ),
        (
            format!("tls:\n  enabled: true\n  cert_file: {file}\n  key_file: x"),
            vec![format!(
                "3: tls.cert_file: expected a PEM certificate in {file}, found none"
            )],
        ),
        (
            "tls: {enabled: true, cert_file: x, key_file: x, client_sslmode: verify-full}"
                .to_owned(),
            vec![
                "1: tls.ca_file: expected this key: client_sslmode verify-full is judged by it"
                    .to_owned(),
            ],
        ),
        (
            "backend:\n  server_sslmode: verify-ca".to_owned(),
            vec![
                "1: backend.server_ca_file: expected this key: server_sslmode verify-ca is judged by it"
                    .to_owned(),
            ],
        ),
        (
            "backend:\n  server_sslmode: require\n  server_cert_file: x".to_owned(),
            vec![
                "1: backend.server_key_file: expected this key beside server_cert_file".to_owned(),
            ],
        ),
        (
            "backend:\n  server_channel_binding: require".to_owned(),
            vec![
                "2: backend.server_channel_binding: require needs TLS: expected server_sslmode require, verify-ca or verify-full"
                    .to_owned(),
            ],
        ),
        (
            "backend:\n  server_sslmode: require\n  server_ca_file: /nowhere".to_owned(),
            vec![
                "3: backend.server_ca_file: cannot read /nowhere: No such file or directory (os error 2)"
                    .to_owned(),
            ],
        ),
    ];
    for (front, messages) in table {
        let messages: Vec<_> = messages
            .iter()
            .map(|message| format!("pgmux.yaml:{message}"))
            .collect();
        // No file is read for a unix socket, which has no TLS.
        let text = with(&front).replace("/run/postgresql", "127.0.0.1");
        assert_eq!(refused(&text), messages.join("\n"));
    }
}

/// The names of a struct's fields, as serde's derived code gives them away.
fn fields<T: serde::de::DeserializeOwned>() -> Vec<&'static str> {
    use serde::de::{Deserializer, Error, Visitor, value::Error as ValueError};

    struct Names<'a>(&'a mut Vec<&'static str>);
    impl<'de> Deserializer<'de> for Names<'_> {
        type Error = ValueError;
        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ValueError> {
            Err(ValueError::custom("no struct"))
        }
        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, ValueError> {
            self.0.extend(fields);
            Err(ValueError::custom("only the names were wanted"))
        }
        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }
    let mut names = Vec::new();
    drop(T::deserialize(Names(&mut names)));
    names
}
