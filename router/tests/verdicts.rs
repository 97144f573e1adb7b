//! The verdicts on the texts of the table.

mod corpus;

use corpus::{Case, cases};
use router::classify::{Caps, Classifier, by_tree, by_words};
use router::functions::{Builtin, Functions, Listed, Volatility};
use router::scan::Options;
use router::verdict::{Class, Verdict};

fn options(case: &Case) -> Options {
    Options {
        standard_conforming_strings: !case.has("scs=off"),
    }
}

fn tree(case: &Case) -> Verdict {
    by_tree(case.text.as_bytes(), options(case), &Builtin).unwrap_or(Verdict::UNKNOWN)
}

fn words(case: &Case) -> Verdict {
    by_words(case.text.as_bytes(), options(case), &Builtin)
}

/// The faults of all lines, to be seen at once.
fn each(mut fault: impl FnMut(&Case) -> Option<String>) {
    let cases = cases();
    let faults = cases.iter().filter_map(|case| {
        let fault = fault(case)?;
        Some(format!("line {}: {:?}: {fault}", case.line, case.text))
    });
    let faults: Vec<_> = faults.collect();
    assert!(faults.is_empty(), "{:#?}", faults);
}

#[test]
fn by_tree_every_text_is_what_the_table_says() {
    assert!(cases().len() > 400);
    each(|case| {
        let class = tree(case).class().label();
        (class != case.class).then(|| format!("{class}, expected {}", case.class))
    });
}

#[test]
fn by_words_nothing_is_a_read_that_is_none_and_the_usual_reads_are() {
    each(|case| {
        let class = words(case).class();
        let expected = case.class == "read" && !case.has("words=write");
        // What no server runs does nothing.
        let is_right = (class == Class::Read) == expected || case.has("fails");
        (!is_right).then(|| format!("{}, is it a read: {expected}", class.label()))
    });
}

#[test]
fn by_words_what_is_no_read_has_the_class_of_the_tree_or_is_a_write() {
    each(|case| {
        let class = words(case).class();
        let is_right = class.label() == case.class || class == Class::Write || case.has("fails");
        (!is_right).then(|| format!("{}, expected {}", class.label(), case.class))
    });
}

#[test]
fn case_comments_and_white_space_change_no_verdict() {
    each(|case| {
        let has_quotes = case.text.contains(['\'', '"', '$', '\u{b}']) || case.text.contains("--");
        if has_quotes {
            return None;
        }
        let expected = (tree(case), words(case));
        let forms = [
            case.text.to_uppercase(),
            case.text.replace(' ', "/* ' */\u{c}\r\n\t"),
            format!("/* a */ {} -- b", case.text),
            format!("{}\n;\n;", case.text),
        ];
        let other = |text: &String| {
            let case = Case {
                text: text.clone(),
                ..case.clone()
            };
            (tree(&case), words(&case)) != expected
        };
        forms.into_iter().find(other)
    });
}

#[test]
fn behind_a_read_a_statement_is_what_it_is_alone() {
    each(|case| {
        let both = Case {
            text: format!("select 1; {}", case.text),
            ..case.clone()
        };
        let both_tree = tree(&both).class().max(Class::Read);
        let is_same =
            both_tree == tree(case).class() && words(&both).class() == words(case).class();
        (!is_same).then(|| format!("{both_tree:?} {:?}", words(&both)))
    });
}

#[test]
fn texts_of_one_shape_have_one_verdict() {
    let mut seen = std::collections::HashMap::new();
    let mut classifier = classifier(false);
    each(|case| {
        let shape = classifier
            .judge(case.text.as_bytes(), options(case), &Builtin)
            .shape;
        let is_fine = case.has("fails");
        let found = (tree(case), words(case));
        let (first, verdicts) = seen
            .entry(shape)
            .or_insert_with(|| (case.text.clone(), found));
        (*verdicts != found && !is_fine).then(|| format!("as {first:?}"))
    });
}

fn classifier(parses: bool) -> Classifier {
    Classifier::new(
        parses,
        1 << 20,
        Caps::DEFAULT,
        [
            0x1234_5678_9abc_def1,
            0x0fed_cba9_8765_4321,
            0x5555_aaaa_1111_9999,
            0x1357_9bdf_0246_8ace,
        ],
    )
}

#[test]
fn from_the_cache_a_verdict_is_the_same() {
    for parses in [false, true] {
        let mut classifier = classifier(parses);
        let mut judge = |case: &Case| {
            classifier
                .judge(case.text.as_bytes(), options(case), &Builtin)
                .verdict
        };
        let cases = cases();
        let first: Vec<_> = cases.iter().map(&mut judge).collect();
        let second: Vec<_> = cases.iter().map(&mut judge).collect();
        assert_eq!(first, second);
        let expected = cases.iter().map(if parses { tree } else { words });
        for ((case, verdict), expected) in cases.iter().zip(&first).zip(expected) {
            assert!(
                *verdict == expected || *verdict == Verdict::UNKNOWN,
                "{case:?}"
            );
        }
    }
}

#[test]
fn a_text_with_a_bad_literal_spoils_no_other_of_its_shape() {
    let mut classifier = classifier(true);
    let mut judge = |text: &str| {
        classifier
            .judge(text.as_bytes(), Options::default(), &Builtin)
            .verdict
    };
    assert_eq!(judge(r"select E'\uzzzz'"), Verdict::UNKNOWN);
    assert_eq!(judge("select E'a'"), Verdict::of(Class::Read));
}

#[test]
fn only_a_transaction_that_says_so_begins_read_only() {
    let table = [
        ("begin read only", true),
        ("BEGIN TRANSACTION READ ONLY", true),
        (
            "start transaction isolation level repeatable read, read only",
            true,
        ),
        ("begin isolation level read committed read only", true),
        ("begin read only; select 1", true),
        ("begin", false),
        ("begin read write", false),
        ("begin isolation level read committed", false),
        ("begin read only, read write", false),
        ("begin read write, read only", false),
        ("select 1; begin read only", false),
        ("begin; begin read only", false),
        ("set transaction read only", false),
    ];
    for (text, expected) in table {
        let tree =
            by_tree(text.as_bytes(), Options::default(), &Builtin).unwrap_or(Verdict::UNKNOWN);
        let words = by_words(text.as_bytes(), Options::default(), &Builtin);
        assert_eq!(tree.begins_read_only(), expected, "{text}");
        assert_eq!(words.begins_read_only(), expected, "{text}");
        assert_eq!(
            tree.class(),
            if text.starts_with("select") || expected || !text.is_empty() {
                Class::Transaction
            } else {
                Class::Read
            }
        );
    }
}

/// A server with a function that takes a row, one of the name of PostgreSQL's, and an operator.
struct Server;

impl Functions for Server {
    fn function(&self, schema: Option<&[u8]>, name: &[u8]) -> Option<Volatility> {
        match name {
            b"f" => Some(Volatility::Safe),
            b"lower" | b"json_value" => Some(Volatility::Volatile),
            _ => Builtin.function(schema, name),
        }
    }

    fn operator(&self, schema: Option<&[u8]>, name: &[u8]) -> Option<Volatility> {
        match name {
            b"<!=!>" => Some(Volatility::Safe),
            b"+" => Some(Volatility::Volatile),
            _ => Builtin.operator(schema, name),
        }
    }

    fn may_be_attribute(&self, name: &[u8]) -> bool {
        name == b"touch"
    }
}

#[test]
fn the_server_says_what_functions_do() {
    let table = [
        ("select f(1)", Class::Read),
        ("select public.f(1)", Class::Read),
        ("select g(1)", Class::Write),
        ("select lower('a')", Class::Write),
        ("select a <!=!> b from t", Class::Read),
        ("select a + b from t", Class::Write),
        ("select t.touch from t", Class::Write),
        ("select t.\"touch\" from t", Class::Write),
        ("select (t).touch from t", Class::Write),
        ("select (select t from t).touch", Class::Write),
        ("select touch from t", Class::Read),
        ("select t.touched from t", Class::Read),
        ("select json_value('1', '$')", Class::Write),
    ];
    for (text, class) in table {
        let tree = by_tree(text.as_bytes(), Options::default(), &Server).map(Verdict::class);
        assert_eq!(tree, Ok(class), "{text}");
        let words = by_words(text.as_bytes(), Options::default(), &Server).class();
        assert_eq!(words, class, "{text}");
    }
}

#[test]
fn an_operator_of_pgmux_has_the_last_word_on_functions() {
    let list = Listed::new(["app.f".into(), "nextval".into()], ["now".into()], Builtin);
    let judge =
        |text: &str| by_tree(text.as_bytes(), Options::default(), &list).map(Verdict::class);
    assert_eq!(judge("select app.f(1), nextval('s')"), Ok(Class::Read));
    assert_eq!(judge("select f(1)"), Ok(Class::Write));
    assert_eq!(judge("select now()"), Ok(Class::Write));
}
