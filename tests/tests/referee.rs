//! The referee itself: what a session leaves behind is found, each kind by itself, on every version of PostgreSQL.

use std::collections::BTreeSet;

use tests::clean::Inspector;
use tests::cluster::{Cluster, PASSWORD};
use tests::version::Version;
use tests::wire::{Endpoint, Login, Session, frontend};

/// What is done in a session, and what the complaint must name.
const LEFT_BEHIND: [(&str, &str); 13] = [
    ("set work_mem = '1MB'", "work_mem"),
    ("set work_mem = '4MB'", "work_mem"),
    ("set search_path = public", "search_path"),
    ("set role other", "role other of app"),
    ("set x.y = 'secret'", "secret"),
    ("listen chat", "channel chat"),
    ("prepare p as select 1", "statement p"),
    ("create temp table t(a int)", "temporary t"),
    (
        "create function pg_temp.f() returns int language sql as 'select 1'",
        "temporary object",
    ),
    (
        "begin; declare c cursor with hold for select 1; commit",
        "cursor c",
    ),
    ("select pg_advisory_lock(7)", "advisory lock 7"),
    ("named", "statement s"),
    ("unnamed", "unnamed statement"),
];

fn each_thing_that_a_session_leaves_is_found(version: Version) {
    let cluster = Cluster::of(version);
    let login = Login::new("app", PASSWORD, &cluster.fresh_database());
    // A front that hides nothing: PostgreSQL itself.
    let front = Endpoint::local(cluster.port());
    let inspector = Inspector::new(cluster, &front, &login, 1);
    let settings = BTreeSet::from(["x.y".to_string()]);
    let complaint = |what: &str| {
        let mut session = Session::open(&front, &login);
        leave(&mut session, what);
        inspector.look(&mut session, &settings).err()
    };
    assert_eq!(complaint("set x.y = ''"), None);
    for (what, named) in LEFT_BEHIND {
        let found = complaint(what).unwrap_or_default();
        assert!(found.contains(named), "{what}: {found:?}");
    }
}

tests::on_versions!(each_thing_that_a_session_leaves_is_found);

fn leave(session: &mut Session, what: &str) {
    let parse = |name| [frontend::parse(name, "select 1", &[]), frontend::sync()].concat();
    let replies = match what {
        "named" => {
            session.send(&parse("s"));
            session.replies()
        }
        "unnamed" => {
            session.send(&parse(""));
            session.replies()
        }
        sql => session.query(sql),
    };
    assert!(
        replies.iter().all(|reply| reply.tag != b'E'),
        "{what}: {replies:?}"
    );
}
