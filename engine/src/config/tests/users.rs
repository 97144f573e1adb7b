//! Who is let in, by what, how many of them, and as whom they run.

use super::*;

#[test]
fn users_have_the_secret_that_their_method_needs() {
    let users = |method: &str, password: &str| {
        MINIMAL
            .replace("auth:\n", &format!("auth:\n  method: {method}\n"))
            .replace("password: s3cret", password)
    };
    let md5 = "password: md5a6343a68d964ca596d9752250d54bb8a";
    let scram = format!("password: {SCRAM}");
    let kind =
        |method: &str, password: &str| match &accepted(&users(method, password)).auth.users["app"]
            .secret
        {
            Some(UserSecret::Cleartext(_)) => "clear",
            Some(UserSecret::Md5(_)) => "md5",
            Some(UserSecret::Scram(_)) => "scram",
            None => "none",
        };
    assert_eq!(kind("scram-sha-256", "password: x"), "clear");
    assert_eq!(kind("scram-sha-256", &scram), "scram");
    assert_eq!(kind("scram-sha-256", "password: md5 is no hash"), "clear");
    assert_eq!(kind("md5", md5), "md5");
    assert_eq!(kind("trust", "password: x"), "clear");
    for (method, password, message) in [
        (
            "scram-sha-256",
            md5,
            "auth.users[0].password: an md5 hash cannot answer scram-sha-256",
        ),
        (
            "md5",
            scram.as_str(),
            "auth.users[0].password: a SCRAM verifier cannot answer md5",
        ),
        (
            "scram-sha-256",
            "password: SCRAM-SHA-256$0:a$b:c",
            "auth.users[0].password: expected SCRAM-SHA-256$",
        ),
        (
            "scram-sha-256",
            "password: ''",
            "auth.users[0].password: expected a password",
        ),
    ] {
        let problems = refused(&users(method, password));
        assert!(problems.contains(message), "{problems}");
    }
}

#[test]
fn nobody_is_let_in_without_being_asked_unless_the_file_says_so_twice() {
    let auth =
        |auth: &str| format!("databases: {{app: {{writer: /run/postgresql}}}}\nauth: {auth}\n");
    let listed = accepted(&auth("{method: trust, users: [{username: a}]}")).auth;
    assert!(listed.enabled && listed.users["a"].secret.is_none());
    let open = accepted(&auth("{enabled: false, method: trust}")).auth;
    assert!(!open.enabled && open.users.is_empty());
    for (section, message) in [
        (
            "{enabled: false}",
            "auth.enabled: false asks nobody for a password",
        ),
        ("{method: trust}", "auth.users: expected at least one user"),
        (
            "{enabled: false, method: trust, users: [{username: a, password: b}]}",
            "never be asked for",
        ),
        (
            "{users: [{username: a, password: b}, {username: a, password: c}]}",
            "auth.users[1].username: the user \"a\" is listed twice",
        ),
        (
            "{users: [{username: a}]}",
            "auth.users[0].password: expected a password",
        ),
    ] {
        let problems = refused(&auth(section));
        assert!(problems.contains(message), "{problems}");
    }
}

#[test]
fn files_of_rules_and_users_are_read_and_their_faults_are_told_with_their_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect(name);
    let parse = |auth: &str| {
        let text = format!("databases: {{app: {{writer: /tmp}}}}\nauth: {auth}\n");
        let file = dir.path().join("pgmux.yaml");
        Config::parse(&text, &file.display().to_string()).map_err(|errors| errors.to_string())
    };
    write("hba", "host all all all md5\n");
    write("users", "\"a\" \"b\"\n\"c\" \"\"\n");
    let auth = parse("{hba_file: hba, file: users, users: [{username: x}]}")
        .expect("fine")
        .auth;
    assert!(auth.rules.is_some() && auth.users["c"].secret.is_none());
    assert!(matches!(
        auth.users["a"].secret,
        Some(UserSecret::Cleartext(_))
    ));
    assert_eq!(auth.secret_files, [dir.path().join("users")]);
    write("wrong", "host all all all md5\nhost all\n");
    write("twice", "\"a\" \"b\"\n\"a\" \"b\"\n");
    for (section, place, words) in [
        (
            "{hba_file: wrong, file: users}",
            "wrong:2:",
            "expected a user",
        ),
        (
            "{hba_file: none, file: users}",
            "pgmux.yaml:2: auth.hba_file:",
            "cannot read this file",
        ),
        (
            "{ident_file: users, file: users}",
            "auth.ident_file",
            "expected auth.hba_file beside it",
        ),
        ("{file: twice}", "twice:2:", "listed twice"),
        ("{file: none}", "auth.file", "cannot read"),
        ("{file: hba}", "hba:1:", "both in double quotes"),
        (
            "{query: maybe}",
            "auth.query",
            "expected on, off, or a query with $1",
        ),
        (
            "{query_user: x, file: users}",
            "auth.query",
            "without one there is no use",
        ),
        (
            "{query: 'on', query_password: x}",
            "auth.query_password",
            "expected auth.query_user",
        ),
        (
            "{enabled: false, method: trust, hba_file: hba}",
            "auth.hba_file",
            "never be asked",
        ),
    ] {
        let problems = parse(section).err().expect(section);
        assert!(
            problems.contains(place) && problems.contains(words),
            "{section}: {problems}"
        );
    }
}

#[test]
fn limits_of_clients_are_the_own_ones_or_the_default_or_none() {
    let text = |enabled| {
        format!(
            "proxy: {{max_clients: 9}}\n\
             connection_limits: {{enabled: {enabled}, default_max_connections_per_user: 3, default_max_connections_per_database: 4}}\n\
             databases: {{a: {{writer: /tmp, max_connections: 7, max_server_connections: 5}}, b: {{writer: /tmp, max_connections: 0}}, c: {{writer: /tmp}}}}\n\
             auth: {{users: [{{username: x, password: y, max_connections: 2}}, {{username: z, password: y, max_connections: 0}}, {{username: w, password: y}}]}}\n"
        )
    };
    let config = accepted(&text(true));
    assert_eq!(config.proxy.max_clients, 9);
    let users = ["x", "z", "w", "listed nowhere"];
    let of_users = users.map(|user| config.most_of_user(user.as_bytes()));
    assert_eq!(of_users, [Some(2), None, Some(3), Some(3)]);
    let of_databases = [0, 1, 2].map(|place: usize| config.most_of_database(&config.groups[place]));
    assert_eq!(of_databases, [Some(7), None, Some(4)]);
    let servers = config
        .groups
        .iter()
        .map(|group| group.max_server_connections);
    assert_eq!(servers.collect::<Vec<_>>(), [Some(5), None, None]);
    let off = accepted(&text(false));
    assert_eq!(
        (off.most_of_user(b"x"), off.most_of_database(&off.groups[0])),
        (None, None)
    );
    let none = accepted(MINIMAL);
    assert_eq!(
        (none.most_of_user(b"app"), none.proxy.max_clients),
        (None, 0)
    );
    assert_eq!(
        refused(&with("connection_limits: {enabled: maybe}")),
        "pgmux.yaml:1: connection_limits.enabled: expected true or false, got \"maybe\""
    );
    assert_eq!(
        refused(&MINIMAL.replace(
            "writer: /run/postgresql",
            "writer: /tmp\n    max_server_connections: 0"
        )),
        "pgmux.yaml:4: databases.app.max_server_connections: expected a whole number from 1 to 1000000, got \"0\""
    );
}

#[test]
fn own_roles_need_clients_that_prove_something() {
    let text = |backend: &str, auth: &str| {
        format!("databases: {{app: {{writer: /tmp}}}}\nbackend: {backend}\nauth: {auth}\n")
    };
    let users = "users: [{username: a, password: b}]";
    let group = &accepted(&text("{user: passthrough}", &format!("{{{users}}}"))).groups[0];
    assert!(group.passthrough);
    let asking = "{query: 'on', query_user: reader}";
    accepted(&text("{user: passthrough}", asking));
    for (backend, auth, words) in [
        (
            "{user: passthrough}",
            "{enabled: false, method: trust}",
            "write auth.method: scram-sha-256",
        ),
        (
            "{user: passthrough}",
            "{method: trust, users: [{username: a}]}",
            "write auth.method: scram-sha-256",
        ),
        (
            "{user: passthrough, password: x}",
            "{users: [{username: a, password: b}]}",
            "no backend.password",
        ),
        (
            "{user: passthrough}",
            "{query: 'on'}",
            "auth.query_user: expected the role that asks",
        ),
    ] {
        let problems = refused(&text(backend, auth));
        assert!(problems.contains(words), "{backend}, {auth}: {problems}");
    }
}
