//! Work by the extended protocol.

use tests::wire::frontend;

use crate::simple;
use crate::work::{Author, Request};
use tests::dice::Dice;

/// Names are the same for all clients, and more than a server may have statements.
const NAMES: usize = 12;
/// `int4pl`.
const ADD: u32 = 177;

/// A text with one text parameter. Some are the same for all clients, so that they share copies on servers.
fn text(author: &Author, dice: &mut Dice) -> String {
    let tag = &author.tag;
    let k = Author::key(dice);
    match dice.below(14) {
        0 => "select $1::text as shared".into(),
        1..4 => format!("select $1::text as variant{}", dice.below(40)),
        4 => "select k, v from soak where tag = $1 order by k".into(),
        5 => format!("insert into soak values ($1, {k}, 'extended') returning k, tag"),
        6 => "select $1::text, current_setting('work_mem'), current_user, name from place".into(),
        7 => "select 1 / (length($1) - length($1))".into(),
        8 => format!("select '{tag}', $1::text"),
        9 => "select $1::text || i from generate_series(1, 30) i".into(),
        10 => "select set_config('soak.own', $1, false)".into(),
        11 => "with u as (update soak set v = 'updated' where tag = $1 returning k) select k from u order by k".into(),
        12 => format!("select no_such_column from soak where tag = $1 and v = '{tag}'"),
        _ => "select count(*) from soak where tag = $1".into(),
    }
}

/// The unnamed statement: in one batch, or used again by a later one.
pub fn unnamed(author: &Author, dice: &mut Dice) -> Request {
    let bind = frontend::bind_text("", "", &[&author.tag]);
    let mut batch = Vec::new();
    if dice.chance(75) {
        batch.extend(frontend::parse("", &text(author, dice), &[]));
    }
    if dice.chance(10) {
        batch.extend(frontend::sync());
        batch.extend(bind);
        batch.extend(frontend::execute("", 0));
        batch.extend(frontend::sync());
        return Request::of(batch, 2);
    }
    // The answer to a Describe is what a Flush waits for, so there must be one only.
    let describes = dice.chance(20);
    if describes {
        batch.extend(frontend::describe(b'S', ""));
    }
    batch.extend(bind);
    flush_or_not(batch, !describes, dice)
}

/// Describe and Execute behind a batch, with a Flush between them or none.
fn flush_or_not(mut batch: Vec<u8>, may_flush: bool, dice: &mut Dice) -> Request {
    let rows = dice.pick(&[0, 0, 0, 5]);
    let mut rest = frontend::execute("", rows);
    rest.extend(frontend::sync());
    if may_flush && dice.chance(15) {
        batch.extend(frontend::describe(b'P', ""));
        batch.extend(frontend::flush());
        return Request {
            flushed: batch,
            bytes: rest,
            ends: 1,
        };
    }
    if dice.chance(60) {
        batch.extend(frontend::describe(b'P', ""));
    }
    batch.extend(rest);
    Request::of(batch, 1)
}

/// Named statements: defined, used, closed, defined again, deallocated by SQL.
pub fn named(author: &Author, dice: &mut Dice) -> Request {
    let mut batch = Vec::new();
    let steps = 1 + dice.below(3);
    for _ in 0..steps {
        let name = format!("s{}", dice.below(NAMES));
        match dice.below(100) {
            0..30 => {
                batch.extend(frontend::close(b'S', &name));
                batch.extend(frontend::parse(&name, &text(author, dice), &[]));
                batch.extend(used(author, dice, &name));
            }
            30..42 => batch.extend(frontend::parse(&name, &text(author, dice), &[])),
            42..82 => batch.extend(used(author, dice, &name)),
            82..90 => batch.extend(frontend::close(b'S', &name)),
            90..95 => batch.extend(frontend::describe(b'S', &name)),
            _ if steps == 1 => return Request::query(&format!("deallocate {name}")),
            _ => batch.extend(frontend::flush()),
        }
    }
    batch.extend(frontend::sync());
    Request::of(batch, 1)
}

fn used(author: &Author, dice: &mut Dice, name: &str) -> Vec<u8> {
    let mut bytes = frontend::bind_text("", name, &[&author.tag]);
    if dice.chance(40) {
        bytes.extend(frontend::describe(b'P', ""));
    }
    bytes.extend(frontend::execute("", 0));
    bytes
}

/// A portal with a name: opened, read in pieces over several batches, closed. Only of use in a transaction.
pub fn portal(author: &Author, dice: &mut Dice) -> Request {
    let name = dice.pick(&["p", "q"]);
    let mut batch = Vec::new();
    match dice.below(4) {
        0 | 1 => {
            let text = "select $1::text || i from generate_series(1, 30) i";
            batch.extend(frontend::close(b'P', name));
            batch.extend(frontend::parse("", text, &[]));
            batch.extend(frontend::bind_text(name, "", &[&author.tag]));
            batch.extend(frontend::execute(name, 4));
        }
        2 => batch.extend(frontend::execute(name, 7)),
        _ => batch.extend(frontend::close(b'P', name)),
    }
    batch.extend(frontend::sync());
    Request::of(batch, 1)
}

/// COPY by the extended protocol.
pub fn copy(author: &Author, dice: &mut Dice) -> Request {
    let mut batch = frontend::parse("", "copy soak from stdin", &[]);
    batch.extend(frontend::bind_text("", "", &[]));
    batch.extend(frontend::execute("", 0));
    batch.extend(simple::copy_data(author, dice));
    batch.extend(frontend::sync());
    Request::of(batch, 1)
}

/// FunctionCall, with a value that it takes or not.
pub fn function(dice: &mut Dice) -> Request {
    let value = dice.pick(&["1", "2", "x", "2147483647"]);
    let values = [Some(b"1".to_vec()), Some(value.as_bytes().to_vec())];
    Request::of(frontend::function_call(ADD, &values), 1)
}
