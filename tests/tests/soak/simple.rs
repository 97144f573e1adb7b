//! Work by the simple protocol.

use tests::wire::frontend;

use crate::work::{Author, Request};
use tests::dice::Dice;

/// The begin of a transaction.
pub fn begin(dice: &mut Dice) -> Request {
    Request::query(dice.pick(&[
        "begin",
        "start transaction",
        // None with an isolation level: behind a Describe alone, in a transaction that has asked nothing yet, PostgreSQL
        // still takes one; where the described statement had to be prepared again, it does not.
        "begin; set local work_mem = '3MB'",
        "begin read only",
    ]))
}

/// The end of one.
pub fn end(dice: &mut Dice) -> Request {
    Request::query(dice.pick(&[
        "commit",
        "commit",
        "end",
        "rollback",
        "rollback",
        "rollback to savepoint sp",
        "commit and chain",
        "rollback and chain",
    ]))
}

/// Savepoints, mostly of one name.
pub fn savepoint(dice: &mut Dice) -> Request {
    Request::query(dice.pick(&[
        "savepoint sp",
        "savepoint sp",
        "rollback to sp",
        "release sp",
        "savepoint other",
        "rollback to other",
    ]))
}

/// One statement as text.
fn text(author: &Author, dice: &mut Dice) -> String {
    let tag = &author.tag;
    let k = Author::key(dice);
    match dice.below(16) {
        0 => format!("select '{tag}' as own"),
        1 => format!("select k, v from soak where tag = '{tag}' order by k"),
        2 | 3 => format!("insert into soak values ('{tag}', {k}, 'v{tag}') returning k"),
        4 => format!(
            "insert into soak values ('{tag}', {k}, 'w{tag}') on conflict (tag, k) do update set v = excluded.v"
        ),
        5 => format!(
            "update soak set v = v || '{k}' where tag = '{tag}' and k > {k} and length(v) < 200"
        ),
        6 => format!("delete from soak where tag = '{tag}' and k = {k} returning v"),
        7 => format!("select '{tag}', 1 / ({k} - {k})"),
        8 => format!("select \"{tag}\" from soak"),
        9 => format!("select from where '{tag}'"),
        10 => format!("do $$ begin raise notice 'notice of {tag}'; end $$"),
        11 => format!("do $$ begin raise exception 'exception of {tag}'; end $$"),
        12 => format!("select '{tag}' || i from generate_series(1, {k}0) i"),
        13 => String::new(),
        14 => format!("select k from soak where tag = '{tag}' and k = {k} for update"),
        _ => "select name from place".into(),
    }
}

/// One statement in one Query.
pub fn statement(author: &Author, dice: &mut Dice) -> Request {
    Request::query(&text(author, dice))
}

/// Several statements in one Query, with or without a transaction of their own.
pub fn several(author: &Author, dice: &mut Dice) -> Request {
    let mut texts: Vec<_> = (0..2 + dice.below(3)).map(|_| text(author, dice)).collect();
    match dice.below(4) {
        0 => {
            texts.insert(0, "begin".into());
            texts.push(dice.pick(&["commit", "rollback", "select 1"]).into());
        }
        1 => texts.insert(1, dice.pick(&["commit", "rollback", "begin"]).into()),
        2 => texts.insert(
            0,
            "begin; create temp table gone(a int) on commit drop; drop table gone; commit".into(),
        ),
        _ => {}
    }
    Request::query(&texts.join("; "))
}

/// COPY in and out.
pub fn copy(author: &Author, dice: &mut Dice) -> Request {
    let tag = &author.tag;
    if dice.chance(35) {
        let text = match dice.below(3) {
            0 => format!("copy (select k, v from soak where tag = '{tag}' order by k) to stdout"),
            1 => format!("copy (select '{tag}', i from generate_series(1, 400) i) to stdout"),
            _ => format!(
                "copy (select '{tag}', 10 / (3 - i) from generate_series(1, 6) i) to stdout; select 'behind{tag}'"
            ),
        };
        return Request::query(&text);
    }
    let text = dice.pick(&["copy soak from stdin", "copy soak (tag, k, v) from stdin"]);
    let behind = if dice.chance(20) {
        format!("; select 'behind{tag}'")
    } else {
        String::new()
    };
    let mut bytes = frontend::query(&format!("{text}{behind}"));
    bytes.extend(copy_data(author, dice));
    Request::of(bytes, 1)
}

/// The data of a COPY: good, bad, given up, rows cut across messages.
pub fn copy_data(author: &Author, dice: &mut Dice) -> Vec<u8> {
    let tag = &author.tag;
    let mut rows = String::new();
    for _ in 0..1 + dice.below(4) {
        let k = 20 + dice.below(60);
        rows.push_str(&format!("{tag}\t{k}\tcopied{tag}\n"));
    }
    if dice.chance(20) {
        rows.push_str(&format!("{tag}\tnot a number{tag}\tbad\n"));
    }
    let (head, tail) = rows.split_at(dice.below(rows.len()));
    let mut bytes = frontend::copy_data(head.as_bytes());
    bytes.extend(frontend::copy_data(tail.as_bytes()));
    bytes.extend(if dice.chance(20) {
        frontend::copy_fail(&format!("given up by {tag}"))
    } else {
        frontend::copy_done()
    });
    bytes
}

/// A row, or a request, larger than any buffer.
pub fn large(author: &Author, dice: &mut Dice) -> Request {
    let tag = &author.tag;
    let count = 1 + dice.below(20_000);
    if dice.chance(50) {
        return Request::query(&format!("select repeat('{tag}', {count}), '{tag}'"));
    }
    Request::query(&format!("select '{tag}', length('{}')", "x".repeat(count)))
}

/// A notification on the client's own channel, whether or not it listens.
pub fn notify(author: &Author, dice: &mut Dice) -> Request {
    let (tag, number) = (&author.tag, author.number);
    Request::query(&match dice.below(2) {
        0 => format!("notify own_{number}, 'to {tag}'"),
        _ => format!("select pg_notify('own_{number}', 'by function to {tag}')"),
    })
}
