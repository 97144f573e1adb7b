use super::*;
use crate::ledger::Reply::*;

type L = Ledger<u32>;

fn sent(kinds: &[Kind]) -> L {
    let mut ledger = L::default();
    for &kind in kinds {
        ledger.push(kind, Whose::Client, None);
    }
    ledger
}

/// Feeds replies and says what each was: `p`art, `d`one, `r`eady, `f`ailed,
/// `u`nsolicited, `a`sync, `!` violation.
fn replies(ledger: &mut L, tags: &[u8]) -> String {
    tags.iter()
        .map(|&tag| match ledger.reply(tag) {
            Ok(Part(_)) => 'p',
            Ok(Done(_)) => 'd',
            Ok(Ready(_)) => 'r',
            Ok(Failed(_)) => 'f',
            Ok(Unsolicited) => 'u',
            Ok(Async(_)) => 'a',
            Err(_) => '!',
        })
        .collect()
}

use Kind::*;

#[test]
fn each_message_owes_what_the_protocol_says() {
    let table: &[(&[Kind], &[u8], &str)] = &[
        (&[Query], b"TDDCZ", "ppppr"),
        (&[Query], b"CTDCIZ", "pppppr"),
        (&[Query], b"EZ", "fr"),
        (&[Query], b"HddcCZ", "pppppr"),
        (&[FunctionCall], b"VZ", "pr"),
        (&[FunctionCall], b"EZ", "fr"),
        (
            &[Parse, Bind, DescribePortal, Execute, Sync],
            b"12TDDCZ",
            "dddppdr",
        ),
        (&[Parse, DescribeStatement, Sync], b"1tnZ", "dpdr"),
        (&[Bind, Execute, Sync], b"2DsZ", "dpdr"),
        (&[Bind, Execute, Sync], b"2IZ", "ddr"),
        (&[Close, Sync], b"3Z", "dr"),
        (&[Sync, Sync, Sync], b"ZZZ", "rrr"),
        (&[Query, Query], b"EZTDCZ", "frpppr"),
        (&[Sync], b"EZ", "fr"),
    ];
    for (kinds, tags, expected) in table {
        let mut ledger = sent(kinds);
        assert_eq!(&replies(&mut ledger, tags), expected, "{kinds:?}");
        assert!(ledger.is_idle(), "{kinds:?}");
    }
}

#[test]
fn a_reply_that_answers_nothing_asked_is_a_violation() {
    let table: &[(&[Kind], u8)] = &[
        (&[], b'Z'),
        (&[], b'D'),
        (&[Parse], b'2'),
        (&[Bind], b'1'),
        (&[Execute], b'Z'),
        (&[DescribeStatement], b'T'),
        (&[DescribePortal], b't'),
        (&[Sync], b'C'),
        (&[FunctionCall], b'D'),
        (&[Query], b'1'),
        (&[Query], b'K'),
        (&[Query], b'W'),
        (&[Execute], b'W'),
        (&[Query], b'R'),
    ];
    for (kinds, tag) in table {
        assert_eq!(
            replies(&mut sent(kinds), &[*tag]),
            "!",
            "{kinds:?} {}",
            *tag as char
        );
    }
}

#[test]
fn asynchronous_messages_are_never_counted() {
    let mut ledger = sent(&[Parse, Bind, Execute, Sync]);
    assert_eq!(replies(&mut ledger, b"N1A2SDNCSZ"), "adadapadar");
    assert!(ledger.is_idle());
    assert_eq!(replies(&mut ledger, b"NAS"), "aaa");
    assert!(ledger.is_idle());
}

#[test]
fn an_error_skips_to_sync_whatever_stands_between() {
    let mut ledger = sent(&[Parse, Bind, Execute, Query, FunctionCall, Sync, Query]);
    assert_eq!(replies(&mut ledger, b"1EZ"), "dfr");
    assert_eq!(ledger.take_undone().count(), 4);
    assert_eq!(replies(&mut ledger, b"CZ"), "pr");
    assert!(ledger.is_idle());
}

#[test]
fn without_sync_an_error_leaves_the_ledger_skipping_until_one_is_sent() {
    let mut ledger = sent(&[Parse, Bind]);
    assert_eq!(replies(&mut ledger, b"E"), "f");
    assert!(ledger.is_skipping());
    assert!(!ledger.is_idle());
    ledger.push(Sync, Whose::Client, None);
    assert!(!ledger.is_skipping());
    assert_eq!(replies(&mut ledger, b"Z"), "r");
    assert!(ledger.is_idle());
}

#[test]
fn an_open_batch_keeps_the_server() {
    let mut ledger = sent(&[Parse, Bind]);
    assert_eq!(replies(&mut ledger, b"12"), "dd");
    assert!(ledger.is_empty());
    assert!(!ledger.is_idle());
    ledger.push(Sync, Whose::Client, None);
    assert_eq!(replies(&mut ledger, b"Z"), "r");
    assert!(ledger.is_idle());
}

#[test]
fn copy_in_by_the_extended_protocol_eats_the_early_sync() {
    // Parse Bind Execute Sync | G | data, CopyDone, Sync
    let mut ledger = sent(&[Parse, Bind, Execute, Sync]);
    assert_eq!(replies(&mut ledger, b"12G"), "ddp");
    assert!(ledger.is_copy_in());
    ledger.push(CopyEnd, Whose::Client, None);
    ledger.push(Sync, Whose::Client, None);
    assert_eq!(replies(&mut ledger, b"CZ"), "dr");
    assert!(ledger.is_idle());
}

#[test]
fn copy_data_sent_ahead_of_the_servers_answer_ends_copy_mode_too() {
    for kinds in [&[Query, CopyEnd][..], &[Query, Sync, CopyEnd][..]] {
        let mut ledger = sent(kinds);
        assert_eq!(replies(&mut ledger, b"GCZ"), "ppr");
        assert!(ledger.is_idle());
    }
    let mut ledger = sent(&[Parse, Bind, Execute, Sync, CopyEnd, Sync]);
    assert_eq!(replies(&mut ledger, b"12GCZ"), "ddpdr");
    assert!(ledger.is_idle());
}

#[test]
fn two_copies_in_one_query_take_one_end_each() {
    let mut ledger = sent(&[Query, CopyEnd, CopyEnd]);
    assert_eq!(replies(&mut ledger, b"GCGCZ"), "ppppr");
    assert!(ledger.is_idle());
}

#[test]
fn a_failed_copy_drops_the_data_still_in_flight() {
    let mut ledger = sent(&[Query]);
    assert_eq!(replies(&mut ledger, b"G"), "p");
    ledger.push(CopyEnd, Whose::Client, None);
    assert_eq!(replies(&mut ledger, b"EZ"), "fr");
    assert!(ledger.is_idle());
    // The client did not know yet and ends a copy that is over.
    ledger.push(CopyEnd, Whose::Client, None);
    assert!(ledger.is_idle());
}

#[test]
fn a_copy_end_for_a_query_that_never_copied_owes_nothing() {
    let mut ledger = sent(&[Query, CopyEnd, Query]);
    assert_eq!(replies(&mut ledger, b"EZCZ"), "frpr");
    assert!(ledger.is_idle());
}

#[test]
fn a_sync_that_copy_mode_may_have_eaten_makes_the_server_unfit_for_others() {
    let mut ledger = sent(&[Parse, Bind, Execute]);
    assert_eq!(replies(&mut ledger, b"12G"), "ddp");
    ledger.sync_in_copy();
    assert_eq!(replies(&mut ledger, b"E"), "f");
    assert!(ledger.is_uncertain());
    // The server answers it after all.
    assert_eq!(replies(&mut ledger, b"Z"), "r");
    assert!(!ledger.is_idle());
    // It did not: the next Sync is answered as usual.
    let mut ledger = sent(&[Parse, Bind, Execute]);
    replies(&mut ledger, b"12G");
    ledger.sync_in_copy();
    replies(&mut ledger, b"E");
    ledger.push(Sync, Whose::Client, None);
    assert_eq!(replies(&mut ledger, b"Z"), "r");
    assert!(!ledger.is_idle());
}

#[test]
fn a_sync_eaten_by_a_copy_that_succeeds_is_forgotten() {
    let mut ledger = sent(&[Parse, Bind, Execute]);
    replies(&mut ledger, b"12G");
    ledger.sync_in_copy();
    ledger.push(CopyEnd, Whose::Client, None);
    ledger.push(Sync, Whose::Client, None);
    assert_eq!(replies(&mut ledger, b"CZ"), "dr");
    assert!(ledger.is_idle());
}

#[test]
fn local_replies_wait_for_their_turn_and_vanish_in_an_error() {
    let mut ledger = L::default();
    ledger.push(Bind, Whose::Client, None);
    ledger.push(Close, Whose::Local, Some(7));
    ledger.push(Sync, Whose::Client, None);
    assert_eq!(ledger.take_local(), None);
    assert_eq!(replies(&mut ledger, b"2"), "d");
    assert_eq!(ledger.take_local().and_then(|entry| entry.note), Some(7));
    assert_eq!(replies(&mut ledger, b"Z"), "r");

    ledger.push(Bind, Whose::Client, None);
    ledger.push(Close, Whose::Local, Some(8));
    ledger.push(Sync, Whose::Client, None);
    assert_eq!(replies(&mut ledger, b"E"), "f");
    assert_eq!(ledger.take_local(), None);
    let undone: Vec<_> = ledger.take_undone().map(|entry| entry.note).collect();
    assert_eq!(undone, [Some(8), None]);
    assert_eq!(replies(&mut ledger, b"Z"), "r");
    assert!(ledger.is_idle());
}

#[test]
fn the_last_words_of_a_server_that_owes_nothing_are_unsolicited() {
    let mut ledger = L::default();
    assert_eq!(replies(&mut ledger, b"E"), "u");
}

#[test]
fn whose_reply_it_is_decides_who_hears_it() {
    let mut ledger = L::default();
    ledger.push(Parse, Whose::Behalf, None);
    ledger.push(Bind, Whose::Client, None);
    ledger.push(Sync, Whose::Client, None);
    assert!(ledger.owes_client());
    assert_eq!(ledger.reply(b'E'), Ok(Failed(Whose::Behalf)));
    ledger.clear();
    ledger.push(Query, Whose::Ours, None);
    assert!(!ledger.owes_client());
    assert_eq!(ledger.reply(b'C'), Ok(Part(Whose::Ours)));
}

#[test]
fn only_what_ends_something_makes_the_server_send() {
    assert!(!sent(&[Parse, Bind, Execute]).will_be_sent());
    assert!(sent(&[Parse, Bind, Execute, Sync]).will_be_sent());
    assert!(sent(&[Parse, Query]).will_be_sent());
    assert!(!L::default().will_be_sent());
}

#[test]
fn a_flush_makes_the_server_send_what_is_owed_before_it() {
    let mut ledger = sent(&[Parse]);
    ledger.flush();
    ledger.push(Bind, Whose::Client, None);
    assert!(ledger.will_be_sent());
    assert_eq!(ledger.reply(b'1').map(|_| ()), Ok(()));
    assert!(!ledger.will_be_sent());
    L::default().flush();
}
