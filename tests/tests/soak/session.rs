//! Work on the session: what follows its client from server to server, and what keeps a server.

use tests::wire::frontend;

use crate::work::{Author, Request};
use tests::dice::Dice;

/// Settings and values that change nothing about how the soak itself runs.
const SETTINGS: [(&str, [&str; 2]); 13] = [
    ("work_mem", ["'1MB'", "'77kB'"]),
    ("statement_timeout", ["'2000s'", "'3000s'"]),
    ("lock_timeout", ["'2000s'", "0"]),
    ("datestyle", ["'German'", "'ISO, DMY'"]),
    ("timezone", ["'Europe/Berlin'", "'Asia/Tokyo'"]),
    ("search_path", ["one, public", "two, public"]),
    ("extra_float_digits", ["0", "-5"]),
    ("default_transaction_read_only", ["on", "off"]),
    (
        "default_transaction_isolation",
        ["'read committed'", "'repeatable read'"],
    ),
    ("client_min_messages", ["warning", "notice"]),
    ("bytea_output", ["escape", "hex"]),
    ("intervalstyle", ["iso_8601", "postgres"]),
    ("client_encoding", ["LATIN1", "UTF8"]),
];

/// A change of a setting by one of the many ways.
///
/// A RESET to what the startup packet said takes pgmux a round trip of its own, before which the next statement of a
/// pipeline, or of the same transaction, sees the server's default: such a RESET stands alone here.
pub fn setting(author: &Author, dice: &mut Dice, alone: bool) -> Request {
    let (name, values) = dice.pick(&SETTINGS);
    let value = dice.pick(&values);
    let quoted = format!("'{}'", value.trim_matches('\''));
    let tag = &author.tag;
    let resets = alone || !author.has_startup_settings;
    let text = match dice.below(20) {
        0..4 => format!("set {name} = {value}"),
        4 | 5 => format!("set local {name} to {value}"),
        6 | 7 if resets => format!("reset {name}"),
        8 if resets => "reset all".into(),
        9 => format!("select set_config('{name}', {quoted}, false)"),
        10 => format!("select set_config('{name}', {quoted}, true)"),
        11 => format!("do $$ begin perform set_config('{name}', {quoted}, false); end $$"),
        12 => dice
            .pick(&["set role other", "set local role other"])
            .into(),
        13 => dice
            .pick(&["reset role", "set role none", "reset session authorization"])
            .into(),
        14 => format!("set application_name = 'app{tag}'"),
        15 => format!("set soak.own = 'own{tag}'"),
        16 => format!(
            "begin; set {name} = {value}; savepoint a; set {name} to default; rollback to a; commit"
        ),
        17 => format!("set {name} = {value}; select 1/0"),
        18 => return bound(dice, name, quoted.trim_matches('\'')),
        _ => dice
            .pick(&[
                "set time zone 'UTC'",
                "set names 'UTF8'",
                "set session characteristics as transaction read write",
            ])
            .into(),
    };
    Request::query(&text)
}

/// `set_config` with bound parameters.
fn bound(dice: &mut Dice, name: &str, value: &str) -> Request {
    let local = dice.pick(&["false", "true"]);
    let text = "select set_config($1, $2, $3::bool)";
    let mut batch = frontend::parse("", text, &[]);
    batch.extend(frontend::bind_text("", "", &[name, value, local]));
    batch.extend(frontend::execute("", 0));
    batch.extend(frontend::sync());
    Request::of(batch, 1)
}

/// What the session is now: every setting that a client of the soak may change, who it is, and what it holds.
pub fn look(author: &Author, dice: &mut Dice) -> Request {
    let tag = &author.tag;
    let settings: Vec<_> = SETTINGS
        .iter()
        .map(|(name, _)| format!("current_setting('{name}')"))
        .collect();
    Request::query(&match dice.below(6) {
        0..3 => format!(
            "select '{tag}', {}, current_setting('application_name'), current_user, session_user, \
             coalesce(nullif(current_setting('soak.own', true), ''), '-')",
            settings.join(", ")
        ),
        3 => HELD.into(),
        4 => format!("show {}", dice.pick(&SETTINGS).0),
        _ => "select now() - now(), '2001-02-03 04:05:06+00'::timestamptz, '\\x0102'::bytea, name from place".into(),
    })
}

/// What a session holds that cannot move, each with its number. No rows: nothing.
pub const HELD: &str = "select 'channel ' || c from pg_listening_channels() c \
    union all select 'cursor ' || name from pg_cursors where is_holdable \
    union all select 'temp ' || relname from pg_class where relnamespace = pg_my_temp_schema() and relkind = 'r' \
    union all select 'statement ' || name from pg_prepared_statements where from_sql \
    union all select 'lock ' || objid from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() \
    order by 1";

/// What keeps a server for its client, what uses it, and what undoes it.
pub fn keep(author: &Author, dice: &mut Dice) -> Request {
    let (tag, number) = (&author.tag, author.number);
    let text = match dice.below(22) {
        0 | 1 => format!("listen own_{number}"),
        2 => format!("unlisten own_{number}"),
        3 | 4 => format!("notify own_{number}, 'heard by {tag}'"),
        5 => "create temp table mine(tag text, a serial)".into(),
        6 => format!("insert into mine(tag) values ('{tag}') returning *"),
        7 => "select * from mine order by a".into(),
        8 => dice.pick(&["drop table mine", "discard temp"]).into(),
        9 => format!(
            "declare held cursor with hold for select '{tag}' || i from generate_series(1, 50) i"
        ),
        10 | 11 => "fetch 3 from held".into(),
        12 => "close held".into(),
        13 => format!("select pg_advisory_lock({number})"),
        14 => format!("select pg_advisory_unlock({number})"),
        15 => format!("prepare sqlmade(text) as select '{tag}', $1"),
        16 => format!("execute sqlmade('by sql {tag}')"),
        17 => return by_protocol(author),
        18 => "deallocate sqlmade".into(),
        19 => format!("select pg_try_advisory_lock({number}), pg_advisory_xact_lock({number})"),
        20 => "select pg_advisory_unlock_all()".into(),
        _ => HELD.into(),
    };
    Request::query(&text)
}

/// A statement made by SQL, used by the protocol.
fn by_protocol(author: &Author) -> Request {
    let mut batch = frontend::bind_text("", "sqlmade", &[&author.tag]);
    batch.extend(frontend::describe(b'P', ""));
    batch.extend(frontend::execute("", 0));
    batch.extend(frontend::sync());
    Request::of(batch, 1)
}

/// The texts that undo what [`keep`] does, in a random order.
pub fn undo(dice: &mut Dice) -> Vec<Request> {
    let mut texts = vec![
        "unlisten *",
        "close all",
        "deallocate all",
        "discard temp",
        "select pg_advisory_unlock_all()",
    ];
    let mut requests = vec![Request::query("reset role")];
    while !texts.is_empty() {
        let text = texts.swap_remove(dice.below(texts.len()));
        requests.push(Request::query(text));
    }
    requests
}
