//! Rules and maps, by tables.

use super::address::{Interfaces, Network};
use super::*;
use std::io;
use std::path::Path;

fn files(main: &str, ident: &str) -> Result<Rules, Vec<Fault>> {
    let read = |path: &Path| match path.to_str() {
        Some("hba") => Ok(main.to_owned()),
        Some("ident") => Ok(ident.to_owned()),
        Some("names") => Ok("ann\nbob, \"all\"\n".to_owned()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let here = Network::new("192.168.5.1".parse().unwrap(), 24).unwrap();
    Rules::read(
        Path::new("hba"),
        Some(Path::new("ident")),
        Interfaces(vec![here]),
        &read,
    )
}

fn rules(text: &str) -> Rules {
    files(text, "").unwrap_or_else(|faults| panic!("{faults:?}"))
}

/// `user@database` from an address, or `local`; `+` in front of it for TLS.
fn decided(rules: &Rules, who: &str, from: &str) -> String {
    let (user, database) = who.split_once('@').expect("user@database");
    let (tls, from) = match from.strip_prefix('+') {
        Some(from) => (true, from),
        None => (false, from),
    };
    let source = match from {
        "local" => Source::Local,
        _ => Source::Host(from.parse().expect("an address")),
    };
    let request = Request {
        source,
        tls,
        user,
        database,
        replication: false,
    };
    match rules.decide(&request) {
        Decision::By(rule) => format!("{}:{:?}", rule.line, rule.method),
        Decision::Refused(text) => text,
    }
}

#[test]
fn the_first_rule_that_fits_decides() {
    let rules = rules(
        "local   all        all                        trust\n\
         host    shop,crm   ann       10.0.0.0/8       md5\n\
         hostssl all        \"all\"   0.0.0.0/0        cert\n\
         host    sameuser   all       10.0.0.0 255.0.0.0 scram-sha-256\n\
         host    all        @names    samehost         trust\n\
         host    all        all       samenet          md5\n\
         host    \"/^t[0-9]{1,2}$\" /^u all            scram-sha-256\n\
         hostnossl all      all       fd00::/8         reject\n\
         hostssl all        all       fd00::/8         password\n\
         host    replication all      all              trust\n",
    );
    for (who, from, expected) in [
        ("x@y", "local", "1:Trust"),
        ("ann@shop", "10.1.1.1", "2:Md5"),
        ("ann@crm", "10.1.1.1", "2:Md5"),
        ("ann@ann", "10.1.1.1", "4:Scram"),
        ("all@x", "+1.1.1.1", "3:Cert"),
        ("bob@x", "192.168.5.1", "5:Trust"),
        ("bob@x", "192.168.5.2", "6:Md5"),
        ("u9@t12", "1.1.1.1", "7:Scram"),
        ("x@x", "+fd00::1", "9:Password"),
        (
            "x@x",
            "fd00::1",
            "pg_hba.conf rejects connection for host \"fd00::1\", user \"x\", database \"x\", no encryption",
        ),
        (
            "u9@t123",
            "1.1.1.1",
            "no pg_hba.conf entry for host \"1.1.1.1\", user \"u9\", database \"t123\", no encryption",
        ),
        (
            "x@replication",
            "+1.1.1.1",
            "no pg_hba.conf entry for host \"1.1.1.1\", user \"x\", database \"replication\", SSL encryption",
        ),
    ] {
        assert_eq!(decided(&rules, who, from), expected, "{who} {from}");
    }
}

#[test]
fn replication_is_for_its_own_rules_only() {
    let rules = rules("host all all all md5\nhost replication r all trust\n");
    let request = |user| Request {
        source: Source::Host("1.1.1.1".parse().unwrap()),
        tls: false,
        user,
        database: "x",
        replication: true,
    };
    assert!(matches!(rules.decide(&request("r")), Decision::By(rule) if rule.line == 2));
    assert!(matches!(
        rules.decide(&request("s")),
        Decision::Refused(text) if text == "no pg_hba.conf entry for replication connection from host \"1.1.1.1\", user \"s\", no encryption"
    ));
}

#[test]
fn a_client_on_a_unix_socket_without_a_rule_is_called_local() {
    assert_eq!(
        decided(&rules("host all all all md5"), "x@y", "local"),
        "no pg_hba.conf entry for host \"[local]\", user \"x\", database \"y\", no encryption"
    );
}

#[test]
fn faults_say_the_line_and_what_was_expected() {
    for (line, expected) in [
        ("", "expected at least one rule"),
        ("hostgssenc all all all trust", "pgmux speaks no GSSAPI"),
        (
            "hosts all all all trust",
            "expected local, host, hostssl or hostnossl, got \"hosts\"",
        ),
        ("host", "expected a database"),
        ("host all", "expected a user"),
        ("host all all", "expected an address"),
        ("host all all all", "expected a method"),
        ("host all all 10.0.0.0 md5", "expected a mask"),
        ("host all all 10.0.0.0 255.0.255.0 md5", "expected a mask"),
        (
            "host all all 10.0.0.0/33 md5",
            "expected a number of bits up to 32",
        ),
        (
            "host all all db.example md5",
            "names of hosts are not looked up",
        ),
        (
            "host samerole all all md5",
            "does not know the members of roles",
        ),
        (
            "host all +admins all md5",
            "does not know the members of roles",
        ),
        ("host all /( all md5", "expected a regular expression"),
        ("host all all all ldap", "got \"ldap\""),
        ("host all all all peer", "got \"peer\""),
        ("host all all all cert", "cert only in a hostssl line"),
        (
            "hostnossl all all all password",
            "sends no password in clear",
        ),
        ("host all all all,samenet md5", "expected one address"),
        (
            "host all all all md5 map=x",
            "map= only with the method cert",
        ),
        (
            "host all all all md5 clientcert=verify-ca",
            "only in a hostssl line",
        ),
        (
            "hostssl all all all md5 clientcert=1",
            "verify-ca or verify-full",
        ),
        (
            "hostssl all all all cert clientcert=verify-ca",
            "verify-full or nothing",
        ),
        (
            "hostssl all all all cert clientname=OU",
            "clientname=CN or DN",
        ),
        ("hostssl all all all cert map=none", "which is not there"),
        ("host all all all md5 x", "an option as name=value"),
        (
            "host all all all md5 radius=1",
            "map, clientcert or clientname",
        ),
    ] {
        let Err(faults) = files(&format!("# c\n{line}"), "") else {
            panic!("{line:?} is taken");
        };
        assert!(faults[0].text.contains(expected), "{line:?}: {}", faults[0]);
        assert!(
            line.is_empty() || faults[0].line == 2,
            "{line:?}: {}",
            faults[0]
        );
    }
}

#[test]
fn maps_say_which_names_stand_for_which_users() {
    let ident = "m  ann.smith  ann\n\
                 m  /^(.*)@example\\.com$  \\1\n\
                 m  /^ops-  \"/^(read|write)$\"\n\
                 n  root  all\n";
    let rules = files("hostssl all all all cert map=m", ident).unwrap_or_else(|f| panic!("{f:?}"));
    for (map, system, user, expected) in [
        ("m", "ann.smith", "ann", true),
        ("m", "ann.smith", "bob", false),
        ("m", "bob@example.com", "bob", true),
        ("m", "bob@example.com", "ann", false),
        ("m", "bob@example.org", "bob", false),
        ("m", "ops-1", "read", true),
        ("m", "ops-1", "admin", false),
        ("n", "root", "whoever", true),
        ("n", "ann.smith", "ann", false),
        ("x", "ann", "ann", false),
    ] {
        assert_eq!(
            rules.maps.allow(map, system, user),
            expected,
            "{map} {system} {user}"
        );
    }
    for (line, expected) in [
        ("m a", "expected map-name, system-name and user"),
        ("m a b c", "got 4 fields"),
        ("m /a \\1", "expected parentheses"),
        ("m /( b", "a regular expression"),
        ("m a +b", "members of roles"),
        ("m a,b c", "expected one system-name"),
    ] {
        let Err(faults) = files("local all all trust", line) else {
            panic!("{line:?} is taken");
        };
        assert!(faults[0].text.contains(expected), "{line:?}: {}", faults[0]);
        assert_eq!((faults[0].file.as_str(), faults[0].line), ("ident", 1));
    }
}
