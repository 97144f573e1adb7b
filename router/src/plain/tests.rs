use proptest::prelude::*;

use super::*;
use crate::scan::Options;
use crate::statement::statements;

/// What the long way says, for both ways to read a backslash.
fn long_way(text: &[u8]) -> [Effects; 2] {
    [true, false].map(|standard_conforming_strings| {
        let options = Options {
            standard_conforming_strings,
        };
        statements(text, options).effects()
    })
}

/// Whether the text is plain; if so, both ways must agree.
fn agrees(text: &[u8]) -> bool {
    let Some(effects) = effects(text) else {
        return false;
    };
    let shown = String::from_utf8_lossy(text);
    assert_eq!(long_way(text), [effects; 2], "{shown:?}");
    true
}

/// What clients send all day.
const PLAIN: &[&str] = &[
    "SELECT abalance FROM pgbench_accounts WHERE aid = 123456;",
    "UPDATE pgbench_accounts SET abalance = abalance + -4711 WHERE aid = 1234567;",
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 2, 3, 4, CURRENT_TIMESTAMP);",
    "SELECT \"users\".\"id\", \"users\".\"name\" FROM \"users\" WHERE \"users\".\"email\" = $1 ORDER BY \"users\".\"id\" ASC LIMIT $2",
    "INSERT INTO \"posts\" (\"title\", \"description\", \"settings\", \"deleted_at\") VALUES ($1, $2, $3, $4) RETURNING \"id\"",
    "select s.id, s.state, d.data from stores s, depots d where s.name = 'it''s' and d.\"a\"\"b\" <> 'x'\n'y;--'",
    "select data->>'key', data @> '{\"a\": 1}', 'é', é, 1.5, -0.5, a[1:2]::int8, (- 1), a / 2 from t /* by: me */",
    "delete from t where id in ($1,$2) and deleted < now()",
    "\n\tWith x AS (select 1)\r\n select * from x where a = \"\" or \"Ünï, x\" ;\n",
    "values (1, $1), (2,'')",
    "Begin",
    "BEGIN isolation level serializable, read only;",
    "COMMIT;",
    " end ",
    "ROLLBACK",
];

#[test]
fn what_clients_send_all_day_is_plain() {
    for text in PLAIN {
        assert!(agrees(text.as_bytes()), "{text}");
        assert!(agrees(text.to_lowercase().as_bytes()), "{text}");
    }
    assert_eq!(
        effects(b"begin read only"),
        Some(Effects::of(&[Effect::Begin]))
    );
    assert_eq!(effects(b"END;"), Some(Effects::of(&[Effect::Commit])));
    assert_eq!(effects(b"RollBack"), Some(Effects::of(&[Effect::Rollback])));
}

#[test]
fn what_may_matter_takes_the_long_way() {
    for text in [
        "",
        ";",
        "set x = 1",
        "listen x",
        "beginning",
        "commit prepared 'x'",
        "rollback to x",
        "begin; listen x",
        "begin;;",
        "select",
        "selectx 1 from t",
        "select 1; listen x",
        "select set_config('role', 'x', true)",
        "select SetSeed (1)",
        "select \"dblink_connect\"('x')",
        "select 1 into temp t",
        "with x as (insert into t values (1) returning 1) select 1",
        "insert\0into temp t values (1)",
        "update pg_settings set setting = 1",
        "select 'a",
        "select \"a",
        "select 'it''s",
        "select /* a",
        "select /* /* */ */ 1",
        "select 1 -- a",
        "select 'a\\' , '",
        "select e'a'",
        "select u&'a'",
        "select u&\"a\"",
        "select $$a$$",
        "select $a$ ' $a$",
        "select 1$a$ ' $a$",
        "select $1$a$ ' $a$",
        "select 0x1$a$ ' $a$",
        "select 1e5into temp t",
        "select 12e5into temp t",
        "select $12into temp t",
        "select 1 -* setseed(0) */ 1",
        "select 1 &* setseed(0) */ 1",
        "select 1.e5into temp t",
        "select 1_0into temp t",
        "select 1into temp t",
        "select {",
        "select \0 1",
    ] {
        assert_eq!(effects(text.as_bytes()), None, "{text:?}");
    }
}

/// Of few pieces that open, close, hide and matter, every text.
#[test]
fn no_short_text_is_plain_to_one_way_and_not_to_the_other() {
    const PIECES: [&str; 16] = [
        "'",
        "\"",
        "$",
        "a",
        "E",
        "U&",
        "-",
        "/",
        "*",
        " ",
        "\n",
        "\\",
        "1",
        ";",
        "set_config(",
        "_",
    ];
    let asked = std::env::var("PLAIN_PIECES").ok();
    let pieces_max: u32 = asked.map_or(4, |count| count.parse().unwrap());
    let mut plain = 0;
    let mut text = Vec::new();
    for number in 0..PIECES.len().pow(pieces_max) {
        text.clear();
        text.extend_from_slice(b"select ");
        for at in 0..pieces_max {
            let piece = PIECES[number >> (4 * at) & 15];
            text.extend_from_slice(piece.as_bytes());
        }
        plain += u32::from(agrees(&text));
    }
    assert!(plain > 1000, "the test would show nothing");
}

/// Beginnings of texts, most of them plain.
const HEADS: &[&str] = &[
    "select ",
    "SELECT\n",
    "update ",
    "INSERT INTO ",
    "insert into\t",
    "delete from ",
    "with x as ",
    "values (",
    "begin ",
    "select",
    "merge into ",
    "set ",
    "insert ",
    "end ",
    "",
];

/// What matters to the lexer, names that matter, and parts of both.
const ODD: &[&str] = &[
    "'",
    "''",
    "\"",
    "\"\"",
    "$",
    "$$",
    "$a$",
    "$1",
    "\\",
    "--",
    "-",
    "/",
    "*",
    "/*",
    "*/",
    "&",
    "E'",
    "1e5",
    "0x1",
    "1_0",
    "1.",
    "U&'",
    "U&\"",
    "b'",
    "n'",
    "e",
    "u",
    "1",
    "0x",
    ";",
    "(",
    ")",
    "\n",
    "\r",
    "\x0b",
    "\x0c",
    "\0",
    "{",
    "é",
    "set",
    "_config",
    "set_config(",
    "set_config ('role','x',false)",
    "setseed(1)",
    "pg_",
    "pg",
    "pg_advisory_lock(1)",
    "\"pg_advisory_lock\"(1)",
    "pg_settings",
    "update",
    "into",
    " into temp x",
    "in",
    "to ",
    " temp ",
    "uescape",
    "dblink_connect()",
    "d",
    "s",
    "p",
    "listen x",
    "; set a = 1",
];

/// What changes nothing.
const EVEN: &[&str] = &[
    " ",
    " ",
    " ",
    ", ",
    " id ",
    " where a = b ",
    " 'text' ",
    " 'it''s' ",
    "\"users\".\"id\"",
    " \"settings\" ",
    " $1 ",
    " /* c */ ",
    " + -1 ",
    " ->>'k' ",
    "count(*)",
    " set a = ",
    "::int ",
    "price",
];

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => prop::sample::select(ODD),
        4 => prop::sample::select(EVEN),
    ];
    (
        prop::sample::select(HEADS),
        prop::collection::vec(piece, 0..12),
    )
        .prop_map(|(head, pieces)| [head, &pieces.concat()].concat().into_bytes())
}

/// A plain text in which a few pieces are put, or take the place of what was there.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let damage = (
        any::<prop::sample::Index>(),
        0..4_usize,
        prop::sample::select(ODD),
    );
    (
        prop::sample::select(PLAIN),
        prop::collection::vec(damage, 0..4),
    )
        .prop_map(|(text, damages)| {
            let mut text = text.as_bytes().to_vec();
            for (at, lost, piece) in damages {
                let at = at.index(text.len() + 1);
                let end = (at + lost).min(text.len());
                text.splice(at..end, piece.bytes());
            }
            text
        })
}

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        // More, if the environment says so.
        cases: default.cases.max(3_000),
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn both_ways_agree_on_what_is_put_together(text in pieces()) {
        agrees(&text);
    }

    #[test]
    fn both_ways_agree_on_plain_texts_that_were_damaged(text in damaged()) {
        agrees(&text);
    }
}
