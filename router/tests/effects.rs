//! Texts and what they do to a session.

use router::effects::{Effect, Effect::*, Effects, scan_effects};
use router::scan::Options;

fn effects(text: &str) -> Effects {
    scan_effects(text.as_bytes(), Options::default())
}

fn check(table: &[(&str, &[Effect])]) {
    for (text, expected) in table {
        assert_eq!(effects(text), Effects::of(expected), "{text:?}");
        // Neither case, nor comments, nor white space of any kind make a difference.
        let upper = text.replace("false", "FALSE");
        if !text.contains(['\'', '"', '$']) {
            assert_eq!(
                effects(&upper.to_uppercase()),
                Effects::of(expected),
                "{text:?} in upper case"
            );
        }
        let noisy = format!(" -- SET x = 1\n/* LISTEN /* x */; */\r{text} -- ; SET x = 1");
        assert_eq!(effects(&noisy), Effects::of(expected), "{noisy:?}");
        if !text.contains("--") {
            let spaced = text.replace(' ', "/**/\u{c}\r\n\t/* ' */");
            if !text.contains(['\'', '"', '$']) {
                assert_eq!(effects(&spaced), Effects::of(expected), "{spaced:?}");
            }
        }
        // Any place in a text of several statements is as good as the first.
        let behind = format!("select 1;; {text}");
        assert_eq!(effects(&behind), Effects::of(expected), "{behind:?}");
        let before = format!("{text}\n; select 1");
        assert_eq!(effects(&before), Effects::of(expected), "{before:?}");
    }
}

#[test]
fn ordinary_statements_do_nothing_to_the_session() {
    for text in [
        "",
        ";",
        "; ;",
        "-- comment",
        "/* comment */",
        "SELECT abalance FROM pgbench_accounts WHERE aid = 123;",
        "(select 1) union ((select 2))",
        "select ';insert'; select 2",
        "values (1); table t",
        "with x as (select 1) select * from x",
        "with x as (insert into temp values (1) returning *) select * from x",
        "insert into t values (1)",
        "insert into temp values (1)",
        "update t set a = 1, local = 2 where x = 'reset'",
        "update\r\nt\u{b}set a = 1",
        "delete from t",
        "merge into t using s on t.a = s.a when matched then update set a = 1",
        "truncate t; alter table t add c int; grant select on t to r; comment on table t is 'x'",
        "vacuum; analyze t; reindex table t; cluster; checkpoint; lock table t",
        "refresh materialized view v; show search_path; show all",
        "fetch all from c; move 1 in c",
        "explain analyze select 1",
        "explain (analyze, buffers) insert into temp values (1)",
        "create table t (local int, temp int)",
        "create table temp (a int)",
        "create unlogged table t as select 1",
        "create function f() returns int language sql as $$ set x = 1; select 1 $$",
        "create function f() returns int begin atomic select case when true then 1 end; select 1 as end; end",
        "create procedure p() begin atomic end",
        "create rule r as on insert to t do also (delete from a; delete from b)",
        "create trigger g before insert on t for each row execute function f()",
        "copy t to stdout; copy stdin to stdout; copy (select 1 from stdin) to stdout; copy t from '/x'",
        "select * into t2 from t",
        // Nothing in strings, identifiers, dollar quotes and comments counts.
        "select 'set x = 1; listen y'",
        "select \"set_config\" from \"pg_advisory_lock\"",
        "select $$ pg_advisory_lock(1) $$, $a$ listen x $a$",
        "select 1 /* pg_advisory_lock(1) */ -- set_config('a','b',false)",
        r"select e'\'; set x = 1; --'",
        // Names that only look alike (pgmux G5).
        "select * from advisory_locks",
        "select pg_advisory_lock from t",
        "select pg_advisory_xact_lock(1), pg_try_advisory_xact_lock(1)",
        "select pg_advisory_xact_lock_shared(1), pg_try_advisory_xact_lock_shared(1, 2)",
        "select my_pg_advisory_lock(1), reset_config('x')",
        "select current_setting('set_config(')",
    ] {
        assert_eq!(effects(text), Effects::NONE, "{text:?}");
        assert!(effects(text).is_clean() && !effects(text).leaves());
    }
}

#[test]
fn settings() {
    check(&[
        ("set x = 1", &[SetSession]),
        ("set x to 1", &[SetSession]),
        ("set\nx=1", &[SetSession]),
        ("set/**/x/**/=/**/1", &[SetSession]),
        ("set x.y = 'z'", &[SetSession]),
        ("set \"x\".\"y\" to default", &[SetSession]),
        ("set session x = 1", &[SetSession]),
        ("set search_path = a, b", &[SetSession]),
        ("set time zone 'UTC'", &[SetSession]),
        ("set time zone local", &[SetSession]),
        ("set names 'utf8'", &[SetSession]),
        ("set schema 'x'", &[SetSession]),
        ("set xml option document", &[SetSession]),
        (
            "set session characteristics as transaction read only",
            &[SetSession],
        ),
        ("set local x = 1", &[SetLocal]),
        ("set local time zone 'UTC'", &[SetLocal]),
        ("set transaction isolation level serializable", &[SetLocal]),
        ("set transaction snapshot '1'", &[SetLocal]),
        ("set constraints all deferred", &[SetLocal]),
        // Words that are settings here.
        ("set local = 1", &[SetSession]),
        ("set local.x = 1", &[SetSession]),
        ("set session.x to 1", &[SetSession]),
        ("set transaction.x to 1", &[SetSession]),
        ("set names = 1", &[SetSession]),
        // Roles, in every spelling.
        ("set role r", &[SetSession, Role]),
        ("set role none", &[SetSession, Role]),
        ("set session role r", &[SetSession, Role]),
        ("set role = r", &[SetSession, Role]),
        ("set \"role\" to r", &[SetSession, Role]),
        ("set \"ROLE\" to r", &[SetSession, Role]),
        ("set session authorization r", &[SetSession, Role]),
        (
            "set session session authorization default",
            &[SetSession, Role],
        ),
        ("set session_authorization = r", &[SetSession, Role]),
        ("set role.x = 1", &[SetSession]),
        ("set local role r", &[SetLocal]),
        ("set local session authorization r", &[SetLocal]),
        ("reset x", &[Reset]),
        ("reset x.y", &[Reset]),
        ("reset time zone", &[Reset]),
        ("reset transaction isolation level", &[Reset]),
        ("reset role", &[Reset, Role]),
        ("reset session authorization", &[Reset, Role]),
        ("reset session_authorization", &[Reset, Role]),
        ("reset all", &[ResetAll]),
        // What is not understood.
        ("set", &[SetSession, Unknown]),
        ("set x", &[SetSession, Unknown]),
        ("set x from current", &[SetSession, Unknown]),
        ("reset", &[Reset, Unknown]),
        // A search path that makes plain tables temporary, even if it is local.
        (
            "set local search_path = pg_temp, public",
            &[SetLocal, CreateTemp],
        ),
        ("set search_path = 'pg_temp'", &[SetSession, CreateTemp]),
    ]);
}

#[test]
fn set_config_is_local_only_if_it_literally_is() {
    check(&[
        ("select set_config('search_path', 'x', false)", &[SetConfig]),
        ("select set_config('a.b', 'x', true)", &[SetLocal]),
        ("select set_config('a.b', 'x', 't')", &[SetLocal]),
        (
            "select pg_catalog.set_config('a.b', f(1, 2), true), 1",
            &[SetLocal],
        ),
        ("select \"set_config\"('a', 'x', false)", &[SetConfig]),
        ("select u&\"set_config\"('a', 'x', false)", &[SetConfig]),
        (
            "select set_config ( 'a' , 'x' , /* local */ true )",
            &[SetLocal],
        ),
        ("select set_config('a', 'x', true and false)", &[SetConfig]),
        ("select set_config('a', 'x', not true)", &[SetConfig]),
        ("select set_config('a', 'x', $1)", &[SetConfig]),
        ("select set_config($1, $2, $3)", &[SetConfig, Role]),
        ("select set_config('role', 'r', false)", &[SetConfig, Role]),
        ("select set_config('ROLE', 'r', false)", &[SetConfig, Role]),
        ("select set_config(e'a', 'r', false)", &[SetConfig, Role]),
        ("select set_config('role', 'r', true)", &[SetLocal]),
        (
            "select set_config('a', 'b', true), set_config('a', 'b', false)",
            &[SetLocal, SetConfig],
        ),
        (
            "select set_config('a', set_config('a', 'b', false), true)",
            &[SetLocal, SetConfig],
        ),
        (
            "select set_config('search_path', 'pg_temp', true)",
            &[SetLocal, CreateTemp],
        ),
        ("select set_config(", &[SetConfig, Role]),
        (
            "insert into t select set_config('a', 'b', false)",
            &[SetConfig],
        ),
        (
            "explain analyze select set_config('a', 'b', false)",
            &[SetConfig],
        ),
        (
            "create table t as select set_config('a', 'b', false)",
            &[SetConfig],
        ),
        (
            "copy (select set_config('a', 'b', false)) to stdout",
            &[SetConfig],
        ),
    ]);
    // A view with a rule that calls it.
    check(&[
        ("update pg_settings set setting = 'x'", &[SetConfig, Role]),
        (
            "update pg_catalog.\"pg_settings\" set setting = 'x'",
            &[SetConfig, Role],
        ),
        (
            "with x as (update only pg_settings set setting = 1) select 1",
            &[SetConfig, Role],
        ),
        (
            "explain analyze update pg_settings set setting = 1",
            &[SetConfig, Role],
        ),
        ("select * from pg_settings", &[]),
    ]);
    let long = format!("select set_config('a', {} 'x', true)", "1 + ".repeat(100));
    assert_eq!(
        effects(&long),
        Effects::of(&[SetConfig]),
        "too far to be seen"
    );
}

#[test]
fn advisory_locks() {
    for name in [
        "pg_advisory_lock",
        "pg_advisory_lock_shared",
        "pg_try_advisory_lock",
        "pg_try_advisory_lock_shared",
        "PG_Advisory_Lock",
        "pg_catalog.pg_advisory_lock",
        "\"pg_advisory_lock\"",
        "pg_catalog . \"pg_advisory_lock\" /* x */\n",
        "U&\"pg_advisory_lock\"",
    ] {
        for text in [
            format!("select {name}(42)"),
            format!("select * from {name} (42) x"),
            format!("update t set a = 1 where {name}(1, 2) is null"),
            format!("with x as (select {name}(1)) select 1"),
            format!("select 1 where exists (select ({name}(1)))"),
        ] {
            assert_eq!(effects(&text), Effects::of(&[AdvisoryLock]), "{text}");
        }
    }
    check(&[
        ("select pg_advisory_unlock(1)", &[AdvisoryUnlock]),
        ("select pg_advisory_unlock_shared(1)", &[AdvisoryUnlock]),
        ("select pg_advisory_unlock_all()", &[AdvisoryUnlockAll]),
        ("select setseed(0.5)", &[SessionFunction]),
        ("select dblink_connect('c', 'x')", &[SessionFunction]),
        (
            "select pg_create_logical_replication_slot('s', 'p', true)",
            &[SessionFunction],
        ),
    ]);
    // The case of a quoted name counts.
    assert_eq!(effects("select \"PG_ADVISORY_LOCK\"(1)"), Effects::NONE);
    // Escapes can spell anything.
    assert_eq!(
        effects(r#"select U&"pg\005fadvisory_lock"(1)"#),
        Effects::of(&[Unknown])
    );
    assert_eq!(
        effects("select U&\"pg!005fadvisory_lock\" UESCAPE '!' (1)"),
        Effects::of(&[Unknown])
    );
}

#[test]
fn prepared_statements_and_cursors_of_sql() {
    check(&[
        ("prepare p as select 1", &[Prepare]),
        ("prepare p (int, text) as select $1", &[Prepare]),
        ("prepare transaction as select 1", &[Prepare]),
        ("prepare \"transaction\" as select 1", &[Prepare]),
        ("prepare transaction 'x'", &[PrepareTransaction]),
        ("prepare  transaction /* x */ e'x'", &[PrepareTransaction]),
        ("execute p(1)", &[Execute]),
        ("create table t as execute p", &[Execute]),
        ("explain execute p", &[Execute]),
        ("explain (analyze) execute p", &[Execute]),
        ("deallocate p", &[Deallocate]),
        ("deallocate prepare p", &[Deallocate]),
        ("deallocate prepare", &[Deallocate]),
        ("deallocate all", &[DeallocateAll]),
        ("deallocate prepare all", &[DeallocateAll]),
        ("deallocate \"all\"", &[Deallocate]),
        ("discard all", &[DiscardAll]),
        ("discard temp", &[DiscardTemp]),
        ("discard temporary", &[DiscardTemp]),
        ("discard plans", &[DiscardPlans]),
        ("discard sequences", &[DiscardSequences]),
        ("discard nonsense", &[Unknown]),
        ("declare c cursor for select 1", &[Declare]),
        ("declare c cursor without hold for select 1", &[Declare]),
        ("declare c no scroll cursor for select 1", &[Declare]),
        (
            "declare c cursor for with hold as (select 1) select 1",
            &[Declare],
        ),
        ("declare c cursor with hold for select 1", &[DeclareHold]),
        (
            "declare c binary insensitive no scroll cursor with hold for select 1",
            &[DeclareHold],
        ),
        (
            "declare c scroll scroll scroll scroll scroll scroll scroll scroll scroll scroll cursor for select 1",
            &[DeclareHold],
        ),
        ("close c", &[Close]),
        ("close all", &[CloseAll]),
    ]);
}

#[test]
fn temporary_objects() {
    for prefix in ["", "local ", "global "] {
        for temp in ["temp", "temporary", "TEMP"] {
            for text in [
                format!("create {prefix}{temp} table t (a int)"),
                format!("create {prefix}{temp} table if not exists t as select 1"),
                format!("create or replace {prefix}{temp} view v as select 1"),
                format!("create {prefix}{temp} recursive view v (a) as select 1"),
                format!("create {prefix}{temp} sequence s"),
                format!("explain analyze create {prefix}{temp} table t as select 1"),
                format!("select * into {prefix}{temp} t from x"),
                format!("select * into {prefix}{temp} table t from x"),
                format!(
                    "with x as (insert into t values (1) returning a) select * into {prefix}{temp} t from x"
                ),
                format!("explain analyze select 1 into {prefix}{temp} t"),
            ] {
                assert_eq!(effects(&text), Effects::of(&[CreateTemp]), "{text}");
            }
        }
    }
    check(&[
        ("create table pg_temp.t (a int)", &[CreateTemp]),
        ("create table \"pg_temp\".t (a int)", &[CreateTemp]),
        ("create table pg_temp_3.t (a int)", &[CreateTemp]),
        (
            "create function pg_temp.f() returns int language sql as 'select 1'",
            &[CreateTemp],
        ),
        ("create view v as select * from pg_temp.t", &[CreateTemp]),
        ("select 1 into pg_temp.t", &[CreateTemp]),
        ("select 1 into table pg_temp.t", &[CreateTemp]),
        ("select * from pg_temp.t", &[]),
        ("create table pg_template (a int)", &[]),
        ("drop table t", &[Drop]),
        ("drop table pg_temp.t", &[Drop]),
    ]);
}

#[test]
fn notifications_and_the_rest() {
    check(&[
        ("listen x", &[Listen]),
        ("listen\nx", &[Listen]),
        ("listen \"X\"", &[Listen]),
        ("unlisten x", &[Unlisten]),
        ("unlisten *", &[UnlistenAll]),
        ("notify x", &[Notify]),
        ("notify x, 'payload'", &[Notify]),
        ("load 'auto_explain'", &[Load]),
        ("do $$ begin perform 1; end $$", &[DoOrCall]),
        ("do language plpgsql 'begin end'", &[DoOrCall]),
        ("call p(1)", &[DoOrCall]),
        // Code that may name prepared statements.
        (
            "do $$ begin execute 'execute s'; end $$",
            &[DoOrCall, PreparedNames],
        ),
        (
            "do $$ begin deallocate s; end $$",
            &[DoOrCall, PreparedNames],
        ),
        (
            "do $$ begin perform from pg_prepared_statements; end $$",
            &[DoOrCall, PreparedNames],
        ),
        (
            "do $$ begin execute 'create table t (a int)'; end $$",
            &[DoOrCall],
        ),
        ("select name from pg_prepared_statements", &[PreparedNames]),
        (
            "select 1 from pg_catalog.pg_prepared_statement()",
            &[PreparedNames],
        ),
        ("select 'pg_prepared_statements'", &[]),
        ("copy t from stdin", &[CopyStdin]),
        ("copy t (a, b) from stdin with (format csv)", &[CopyStdin]),
        ("copy t from stdout", &[CopyStdin]),
        ("frobnicate x", &[Unknown]),
        ("\"select\" 1", &[Unknown]),
        ("1", &[Unknown]),
        ("()", &[Unknown]),
        ("(insert into t values (1))", &[Unknown]),
        ("start x", &[Unknown]),
    ]);
    for text in [
        "select 'x",
        "select \"x",
        "select 1 /* x",
        "select $$ x",
        "select e'x\\",
    ] {
        assert_eq!(effects(text), Effects::of(&[Unterminated]), "{text:?}");
        assert!(!effects(text).is_clean());
    }
}

#[test]
fn transaction_control() {
    check(&[
        ("begin", &[Begin]),
        ("begin/* x */", &[Begin]),
        (
            "begin work isolation level serializable, read only",
            &[Begin],
        ),
        ("begin transaction", &[Begin]),
        ("start  transaction", &[Begin]),
        ("commit", &[Commit]),
        ("commit--x", &[Commit]),
        ("commit work", &[Commit]),
        ("end", &[Commit]),
        ("end transaction", &[Commit]),
        ("commit and no chain", &[Commit]),
        ("commit and chain", &[Commit, Chain]),
        ("end work and chain", &[Commit, Chain]),
        ("commit prepared 'x'", &[CommitPrepared]),
        ("rollback", &[Rollback]),
        ("abort", &[Rollback]),
        ("abort transaction", &[Rollback]),
        ("rollback and chain", &[Rollback, Chain]),
        ("abort work and chain", &[Rollback, Chain]),
        ("rollback prepared 'x'", &[RollbackPrepared]),
        ("rollback to s", &[RollbackTo]),
        ("rollback to savepoint s", &[RollbackTo]),
        ("rollback work to savepoint s", &[RollbackTo]),
        ("rollback transaction to s", &[RollbackTo]),
        ("savepoint s", &[Savepoint]),
        ("release s", &[Release]),
        ("release savepoint s", &[Release]),
    ]);
    for text in [
        "begin",
        "commit and chain",
        "rollback to s",
        "prepare transaction 'x'",
        "notify x",
        "drop table t",
    ] {
        assert!(
            effects(text).is_clean(),
            "{text}: transactions are the server's to tell"
        );
    }
}

#[test]
fn every_statement_of_a_text_counts() {
    check(&[
        ("begin; set x = 1; commit", &[Begin, SetSession, Commit]),
        ("select 1; set x.y='z'", &[SetSession]),
        ("set x.y=1; select 2", &[SetSession]),
        (
            "select pg_advisory_unlock_all(); close all; unlisten *; reset all;",
            &[AdvisoryUnlockAll, CloseAll, UnlistenAll, ResetAll],
        ),
        // A backslash that ends a string, and one that does not (pgmux D4).
        (r"select '\'; listen x; --'", &[Listen]),
        // Bodies end where PostgreSQL ends them.
        (
            "create function f() begin atomic select 1; end; set x = 1",
            &[SetSession],
        ),
        (
            "create function f() begin atomic select case 1 when 1 then 2 end; end; set x = 1",
            &[SetSession],
        ),
        (
            "create function f(begin atomic) returns int return 1; set x = 1",
            &[SetSession],
        ),
        ("create table t (begin atomic); set x = 1", &[SetSession]),
        (
            "create rule r as on insert to t do (select 1; select 2); listen x",
            &[Listen],
        ),
        ("select 1); set x = 1", &[SetSession]),
    ]);
    let off = Options {
        standard_conforming_strings: false,
    };
    let text = br"select '\'; listen x; --'";
    assert!(
        scan_effects(text, off).is_empty(),
        "the session says that the backslash escapes"
    );
}

#[test]
fn what_only_takes_away_leaves_nothing_behind() {
    for text in [
        "reset all",
        "unlisten *",
        "close all",
        "deallocate all",
        "discard all",
        "select pg_advisory_unlock_all()",
    ] {
        assert!(
            !effects(text).is_clean() && !effects(text).leaves(),
            "{text}"
        );
    }
    for text in [
        "set x = 1",
        "listen x",
        "prepare p as select 1",
        "do 'x'",
        "set role r",
        "nonsense",
        "load 'x'",
    ] {
        assert!(
            !effects(text).is_clean() && effects(text).leaves(),
            "{text}"
        );
    }
}

#[test]
fn effects_are_a_set_with_names() {
    let set: Effects = [Listen, Notify].into_iter().collect();
    assert_eq!(
        set.iter().map(Effect::label).collect::<Vec<_>>(),
        ["listen", "notify"]
    );
    assert_eq!(format!("{set:?}"), "{Listen, Notify}");
    let mut labels: Vec<_> = Effect::ALL.iter().map(|effect| effect.label()).collect();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(
        labels.len(),
        Effect::ALL.len(),
        "no two effects share a label"
    );
}
