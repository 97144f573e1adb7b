//! Texts that are made to hurt the parser or whoever waits for it.
//!
//! The parser recurses over its tree and does not look at the stack: what is too deep for it ends the process. So these
//! tests fail by an abort.

use std::time::{Duration, Instant};

use router::classify::{Caps, Classifier, by_tree, by_words};
use router::functions::Builtin;
use router::scan::Options;
use router::shape::ShapeKey;
use router::survey::survey;
use router::verdict::{Class, Verdict};

/// What a thread has by default is 2 MiB. This is half of it, in a build without optimisation, whose frames are larger.
const STACK_BYTES: usize = 1 << 20;

fn on_a_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread
        .spawn(work)
        .expect("a thread")
        .join()
        .expect("its end")
}

fn judge(parses: bool, text: &str) -> Verdict {
    let text = text.to_owned();
    on_a_small_stack(move || {
        let mut classifier = Classifier::new(parses, 1 << 16, Caps::DEFAULT, [1, 2, 3, 4]);
        classifier
            .judge(text.as_bytes(), Options::default(), &Builtin)
            .verdict
    })
}

/// and others of their kind, with so many levels.
fn deep(levels: usize) -> Vec<(&'static str, String)> {
    let times = |piece: &str| piece.repeat(levels);
    let nested = |open: &str, inner: &str, close: &str| {
        format!("select {}{inner}{}", times(open), times(close))
    };
    vec![
        ("R-1 sums", format!("select 1{}", times("+1"))),
        ("R-2 sub-selects", nested("(select ", "1", ")")),
        ("R-3 not", format!("select {}true", times("not "))),
        ("R-4 parentheses", nested("(", "1", ")")),
        ("R-5 a list", format!("select 1 in (1{})", times(",1"))),
        (
            "R-6 comments",
            format!("select 1 {}{}", times("/*"), times("*/")),
        ),
        ("signs", format!("select {}1", times("- "))),
        ("casts", format!("select 1{}", times("::int"))),
        ("unions", format!("select 1{}", times(" union select 1"))),
        (
            "joins",
            format!("select 1 from t{}", times(" cross join t")),
        ),
        ("cases", nested("case when true then ", "1", " end")),
        ("calls", nested("lower(", "1", ")")),
        ("arrays", nested("array[", "1", "]")),
        ("rows", nested("row(", "1", ")")),
        ("ands", format!("select true{}", times(" and true"))),
        ("ors in nots", nested("not (true or ", "true", ")")),
        ("is null", format!("select 1{}", times(" is null"))),
        (
            "collations",
            format!("select 'a'{}", times(" collate \"C\"")),
        ),
        ("subscripts", format!("select a{}", times("[1]"))),
        ("points", format!("select a{}", times(".b"))),
        (
            "common table expressions",
            nested("(with x as (select 1) select ", "1", ")"),
        ),
        (
            "from",
            format!(
                "select 1 from {}t{}",
                times("(select 1 from "),
                times(") x")
            ),
        ),
        ("explain", format!("{}select 1", times("explain "))),
        ("open brackets", format!("select {}", times("["))),
        ("statements", times("select 1;")),
        ("strings", format!("select 'a'{}", times("\n'a'"))),
        ("prepare", format!("{}select 1", times("prepare p as "))),
    ]
}

#[test]
fn no_text_ends_the_process_and_deep_ones_are_writes() {
    for (name, text) in deep(6_000).into_iter().chain(deep(100_000)) {
        for parses in [false, true] {
            let class = judge(parses, &text).class();
            if parses && text.len() > Caps::DEFAULT.text_bytes {
                assert_eq!(class, Class::Write, "{name}");
            }
        }
    }
    // R-5 as it is written: 50 MB.
    let list = format!("select 1 in (1{})", ",1".repeat(25_000_000));
    assert_eq!(judge(true, &list), Verdict::UNKNOWN);
}

#[test]
fn at_the_caps_the_parser_needs_no_more_than_a_small_stack() {
    let caps = Caps::DEFAULT;
    for (name, _) in deep(1) {
        // The most levels that the caps let through.
        let text = |levels: usize| {
            deep(levels)
                .into_iter()
                .find(|(other, _)| *other == name)
                .map(|(_, text)| text)
        };
        let passes = |levels: &usize| {
            let text = text(*levels).unwrap_or_default();
            let survey = survey(
                text.as_bytes(),
                Options::default(),
                &ShapeKey::new([1, 2, 3, 4]),
            );
            survey.levels <= caps.levels && text.len() <= caps.text_bytes
        };
        let levels: Vec<usize> = (0..=6_000).collect();
        let most = levels.partition_point(passes) - 1;
        let text = text(most).unwrap_or_default();
        on_a_small_stack(move || drop(by_tree(text.as_bytes(), Options::default(), &Builtin)));
    }
}

#[test]
fn wide_reads_of_usual_tools_are_below_the_caps() {
    let columns: Vec<_> = (0..200)
        .map(|at| format!("\"users\".\"column_{at}\" as \"t0_r{at}\""))
        .collect();
    let ids = vec!["'0fdb7a32-3c5e-4b8e-9a37-6f0f5bd2b4c1'"; 1_000].join(", ");
    let joins: Vec<_> = (0..20)
        .map(|at| format!("left join t{at} on t{at}.id = users.t{at}_id"))
        .collect();
    let text = format!(
        "select {} from users {} where users.id in ({ids})",
        columns.join(", "),
        joins.join(" ")
    );
    assert_eq!(judge(true, &text), Verdict::of(Class::Read));
    assert_eq!(judge(false, &text), Verdict::of(Class::Read));
}

#[test]
fn a_cap_holds_to_the_byte_and_to_the_level() {
    let caps = Caps {
        text_bytes: 100,
        levels: 10,
    };
    let judge = |text: &str| {
        let mut classifier = Classifier::new(true, 1 << 16, caps, [1, 2, 3, 4]);
        classifier
            .judge(text.as_bytes(), Options::default(), &Builtin)
            .verdict
            .class()
    };
    let of_bytes = |bytes: usize| format!("select '{}'", "a".repeat(bytes - 9));
    assert_eq!(judge(&of_bytes(100)), Class::Read);
    assert_eq!(judge(&of_bytes(101)), Class::Write);
    assert_eq!(judge(&format!("select 1{}", "+1".repeat(9))), Class::Read);
    assert_eq!(judge(&format!("select 1{}", "+1".repeat(10))), Class::Write);
}

#[test]
fn bytes_of_any_kind_are_judged_in_time_that_grows_with_the_text_only() {
    let begun = Instant::now();
    let mut text = Vec::new();
    let mut state = 1_u64;
    while text.len() < 400_000 {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        text.push((state >> 56) as u8);
    }
    let mut classifier = Classifier::new(true, 1 << 16, Caps::DEFAULT, [1, 2, 3, 4]);
    for chunk in text.chunks(97) {
        classifier.judge(chunk, Options::default(), &Builtin);
        by_words(
            chunk,
            Options {
                standard_conforming_strings: false,
            },
            &Builtin,
        );
    }
    by_words(&text, Options::default(), &Builtin);
    for text in [
        b"(".as_slice(),
        b"'",
        b"$",
        b"/*",
        b"select (",
        b"a.",
        b"+-",
        b"select ;",
    ] {
        by_words(
            &text.repeat(400_000 / text.len()),
            Options::default(),
            &Builtin,
        );
    }
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn text_that_is_not_utf8_is_judged_by_its_words() {
    let judge = |text: &[u8]| by_tree(text, Options::default(), &Builtin).map(Verdict::class);
    assert_eq!(
        judge(b"select '\xe9t\xe9', \"\xe9\" from t\xe9"),
        Ok(Class::Read)
    );
    assert_eq!(judge(b"select \xe9lower('a')"), Ok(Class::Write));
    assert_eq!(judge(b"delete from \xff"), Ok(Class::Write));
    assert!(judge(b"select 1\0; delete from t").is_err());
}
