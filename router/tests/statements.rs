//! Statements: their borders, kinds, names and settings.

use router::scan::Options;
use router::statement::{Kind, Statement, statements};

fn all(text: &str) -> Vec<Statement<'_>> {
    statements(text.as_bytes(), Options::default()).collect()
}

#[test]
fn the_ranges_of_the_statements_are_the_text() {
    let table: &[(&str, &[&str])] = &[
        ("", &[]),
        (";", &[";"]),
        ("; ;x", &[";", " ;", "x"]),
        ("select 1; select 2 ", &["select 1;", " select 2 "]),
        ("select 1; -- end", &["select 1;", " -- end"]),
        (
            "select ';'; select $$;$$; select \";\" /* ; /* ; */ ; */;",
            &[
                "select ';';",
                " select $$;$$;",
                " select \";\" /* ; /* ; */ ; */;",
            ],
        ),
        (
            "create rule r as on delete to t do (select 1; select 2); x",
            &[
                "create rule r as on delete to t do (select 1; select 2);",
                " x",
            ],
        ),
        (
            "create or replace function f() begin atomic select 1; select 2 end; end; x",
            &[
                "create or replace function f() begin atomic select 1; select 2 end; end;",
                " x",
            ],
        ),
        ("select 1; select 'x; y", &["select 1;", " select 'x; y"]),
    ];
    for (text, parts) in table {
        let found: Vec<_> = all(text)
            .iter()
            .map(|statement| &text[statement.range.clone()])
            .collect();
        assert_eq!(found, *parts, "{text:?}");
    }
}

#[test]
fn a_statement_is_known_by_its_first_words() {
    use Kind::*;
    let table: &[(&str, &[Kind])] = &[
        (" ; -- x", &[Empty, Empty]),
        (
            "select 1; (select 1); ((values (1))); values (1); table t; with x as (select 1) table x",
            &[Select, Select, Values, Values, Table, With],
        ),
        (
            "insert into t; update t; delete from t; merge into t; truncate t",
            &[Insert, Update, Delete, Merge, Truncate],
        ),
        (
            "set a = 1; set local a = 1; set transaction read only; set constraints all immediate; reset a; reset all",
            &[Set, SetLocal, SetLocal, SetLocal, Reset, ResetAll],
        ),
        (
            "begin; start transaction; commit; end; rollback; abort; savepoint a; release a; rollback to a",
            &[
                Begin, Begin, Commit, Commit, Rollback, Rollback, Savepoint, Release, RollbackTo,
            ],
        ),
        (
            "prepare transaction 'x'; commit prepared 'x'; rollback prepared 'x'",
            &[PrepareTransaction, CommitPrepared, RollbackPrepared],
        ),
        (
            "prepare a as select 1; execute a; deallocate a; deallocate all; discard plans",
            &[Prepare, Execute, Deallocate, DeallocateAll, Discard],
        ),
        (
            "declare c cursor for select 1; fetch c; move c; close c; close all",
            &[Declare, Fetch, Fetch, Close, CloseAll],
        ),
        (
            "listen a; unlisten a; unlisten *; notify a",
            &[Listen, Unlisten, UnlistenAll, Notify],
        ),
        (
            "copy t to stdout; create table t (); alter table t; drop table t; lock t",
            &[Copy, Create, Alter, Drop, Lock],
        ),
        (
            "load 'x'; do 'x'; call x(); explain select 1; show x",
            &[Load, Do, Call, Explain, Show],
        ),
        (
            "grant a to b; revoke a from b; comment on table t is ''; security label on table t is ''",
            &[Definition; 4],
        ),
        (
            "refresh materialized view v; import foreign schema s; reassign owned by a to b",
            &[Definition; 3],
        ),
        (
            "vacuum; analyze; analyse; reindex table t; cluster; checkpoint",
            &[Maintenance; 6],
        ),
        (
            "select1; (insert into t); discard x; \"select\"; 1",
            &[Unknown; 5],
        ),
    ];
    for (text, kinds) in table {
        assert_eq!(
            all(text)
                .iter()
                .map(|statement| statement.kind)
                .collect::<Vec<_>>(),
            *kinds,
            "{text}"
        );
    }
}

#[test]
fn names_are_those_that_postgresql_would_use() {
    for (text, name) in [
        ("prepare Abc as select 1", Some("abc")),
        ("prepare \"Ab\"\"c\" (int) as select 1", Some("Ab\"c")),
        (
            "/* x */ prepare/**/transaction/**/as select 1",
            Some("transaction"),
        ),
        ("execute P1(1)", Some("p1")),
        ("deallocate P1", Some("p1")),
        ("deallocate prepare P1", Some("p1")),
        ("deallocate prepare", Some("prepare")),
        ("deallocate \"all\"", Some("all")),
        ("deallocate all", None),
        ("listen \"Ch an\"", Some("Ch an")),
        ("listen", None),
        ("unlisten X", Some("x")),
        ("unlisten *", None),
        ("notify X, 'y'", Some("x")),
        ("declare C no scroll cursor for select 1", Some("c")),
        ("close C", Some("c")),
        ("savepoint S", Some("s")),
        ("release savepoint S", Some("s")),
        ("release savepoint", Some("savepoint")),
        ("rollback to S", Some("s")),
        ("rollback work to savepoint S", Some("s")),
        ("rollback to savepoint", Some("savepoint")),
        ("select 1", None),
    ] {
        let found = all(text)[0].name.map(|name| name.folded());
        assert_eq!(found.as_deref(), name.map(str::as_bytes), "{text}");
    }
}

#[test]
fn settings_have_a_name_and_the_value_as_it_is_written() {
    for (text, setting) in [
        (
            "SET Search_Path TO a, \"B\" , 'c' ;",
            Some(("search_path", "a, \"B\" , 'c'")),
        ),
        ("set x = -1.5 -- end", Some(("x", "-1.5"))),
        ("set x = default", Some(("x", "default"))),
        ("set X . \"Y\" /* */ . z = 1", Some(("x.Y.z", "1"))),
        ("set local x = 1", Some(("x", "1"))),
        ("set local.x = 1", Some(("local.x", "1"))),
        (
            "set session session_preload = 1",
            Some(("session_preload", "1")),
        ),
        (
            "set time zone interval '1' hour to minute",
            Some(("timezone", "interval '1' hour to minute")),
        ),
        ("set names", Some(("client_encoding", ""))),
        ("set names 'utf8'", Some(("client_encoding", "'utf8'"))),
        ("set schema 'x'", Some(("search_path", "'x'"))),
        ("set role r", Some(("role", "r"))),
        (
            "set session authorization 'r'",
            Some(("session_authorization", "'r'")),
        ),
        (
            "set session session authorization default",
            Some(("session_authorization", "default")),
        ),
        (
            "set session characteristics as transaction read only",
            Some(("session characteristics", "as transaction read only")),
        ),
        (
            "set transaction read only",
            Some(("transaction", "read only")),
        ),
        (
            "set constraints a, b deferred",
            Some(("constraints", "a, b deferred")),
        ),
        ("set xml option content", Some(("xmloption", "content"))),
        ("set x", None),
        ("reset X.y", Some(("x.y", ""))),
        ("reset time zone", Some(("timezone", ""))),
        ("reset role", Some(("role", ""))),
        (
            "reset session authorization",
            Some(("session_authorization", "")),
        ),
        ("reset all", None),
        ("select 1", None),
    ] {
        let found = all(text)[0].setting;
        let found = found.map(|setting| (setting.name(), setting.value));
        let found = found.as_ref().map(|(name, value)| {
            (
                str::from_utf8(name).unwrap(),
                str::from_utf8(value).unwrap(),
            )
        });
        assert_eq!(found, setting, "{text}");
    }
}

#[test]
fn identifiers_are_all_that_could_be_a_name() {
    let text = b"explain execute \"My s\" ('x', 1) -- y\n; deallocate Foo";
    let names: Vec<_> = router::statement::identifiers(text, Options::default())
        .map(|name| String::from_utf8_lossy(&name.folded()).into_owned())
        .collect();
    assert_eq!(names, ["explain", "execute", "My s", "deallocate", "foo"]);
}
