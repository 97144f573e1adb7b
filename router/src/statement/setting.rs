//! `SET` and `RESET` in all their spellings.

use std::borrow::Cow;

use super::functions::{is_role_setting, names_temp_schema};
use super::head::{Head, is_name, words};
use super::{Kind, Parse};
use crate::Ident;
use crate::effects::Effect;
use crate::scan::{Options, Scanner, Token};

/// What a `SET` or `RESET` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting<'a> {
    name: Name<'a>,
    /// The tokens behind `=` or `TO`, as they stand in the text, comments between them included. Empty for `RESET`.
    pub value: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name<'a> {
    /// Of a spelling of its own, like `SET TIME ZONE`.
    Special(&'static str),
    /// One or more identifiers with points between.
    Written(&'a [u8]),
}

impl<'a> Setting<'a> {
    /// The setting's name: identifiers as PostgreSQL understands them. Comparing names of settings, PostgreSQL does not
    /// tell upper from lower case even in quoted ones. `SET TIME ZONE` is `timezone`, `SET NAMES` `client_encoding`,
    /// `SET SCHEMA` `search_path`, `SET XML OPTION` `xmloption`; `SET SESSION CHARACTERISTICS` and `SET CONSTRAINTS` are
    /// no single setting and have the names `session characteristics` and `constraints`; `SET TRANSACTION` likewise is
    /// `transaction`.
    pub fn name(&self) -> Cow<'a, [u8]> {
        match self.name {
            Name::Special(name) => Cow::Borrowed(name.as_bytes()),
            Name::Written(raw) => written_name(raw),
        }
    }

    /// Quotes do not matter here, see [`Setting::name`].
    fn is_role(&self) -> bool {
        let name = match self.name {
            Name::Special(name) => name.as_bytes(),
            Name::Written(raw) => raw
                .strip_prefix(b"U&")
                .or(raw.strip_prefix(b"u&"))
                .unwrap_or(raw),
        };
        let unquoted = name
            .strip_prefix(b"\"")
            .and_then(|name| name.strip_suffix(b"\""));
        is_role_setting(unquoted.unwrap_or(name))
    }
}

fn written_name(raw: &[u8]) -> Cow<'_, [u8]> {
    let mut parts = Scanner::new(raw, Options::default()).filter(|token| is_name(token.kind));
    let folded = |token: Token| Ident::new(token.text(raw)).folded();
    let first = parts.next().map(folded).unwrap_or_default();
    parts.fold(first, |mut name, part| {
        name.to_mut().push(b'.');
        name.to_mut().extend_from_slice(&folded(part));
        name
    })
}

/// How long a `SET` lasts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Session,
    Local,
}

/// `SET [SESSION | LOCAL] ...`
pub(super) fn set<'a>(parse: &mut Parse<'a>, head: &Head<'a>) -> Kind {
    let (mut scope, mut at) = (Scope::Session, 1);
    // In `SET local.x = 1` and `SET session = 1` the word is the name of a setting.
    if matches!(head.key(1), words::LOCAL | words::SESSION) && !is_named(head, 1) {
        at = 2;
        if head.key(1) == words::LOCAL {
            scope = Scope::Local;
        }
    }
    let special = special_name(head, at);
    if let Some(("transaction" | "constraints", _)) = special {
        scope = Scope::Local;
    }
    let (name, value_at) = match special {
        Some((name, value_at)) => (Some(Name::Special(name)), value_at),
        None => match written(parse, head, at) {
            Some((name, behind)) if is_assignment(head, behind) => (Some(name), behind + 1),
            _ => (None, at),
        },
    };
    parse.rest(Kind::Set);
    let value = head.token(value_at).and_then(|token| {
        parse
            .reader
            .text()
            .get(token.start..parse.reader.last_end())
    });
    let value = value.unwrap_or_default();
    parse.setting = name.map(|name| Setting { name, value });
    if parse.setting.is_none() {
        parse.reader.effects.insert(Effect::Unknown);
    }
    if names_temp_schema(value) {
        parse.reader.effects.insert(Effect::CreateTemp);
    }
    match scope {
        Scope::Local => parse.does(Kind::SetLocal, Effect::SetLocal),
        Scope::Session => {
            note_role(parse);
            parse.does(Kind::Set, Effect::SetSession)
        }
    }
}

/// `RESET ...`
pub(super) fn reset<'a>(parse: &mut Parse<'a>, head: &Head<'a>) -> Kind {
    if head.key(1) == words::ALL {
        return parse.does(Kind::ResetAll, Effect::ResetAll);
    }
    let name = match special_name(head, 1) {
        Some((name, _)) => Some(Name::Special(name)),
        None => written(parse, head, 1).map(|(name, _)| name),
    };
    parse.setting = name.map(|name| Setting { name, value: b"" });
    if parse.setting.is_none() {
        parse.reader.effects.insert(Effect::Unknown);
    }
    note_role(parse);
    parse.does(Kind::Reset, Effect::Reset)
}

fn note_role(parse: &mut Parse<'_>) {
    if parse.setting.is_some_and(|setting| setting.is_role()) {
        parse.reader.effects.insert(Effect::Role);
    }
}

/// The setting that has words of its own at `at`, and where its value begins.
fn special_name(head: &Head<'_>, at: usize) -> Option<(&'static str, usize)> {
    use words::*;
    let is_behind_session = at > 1 && head.key(at - 1) == SESSION;
    match (head.key(at), head.key(at + 1)) {
        (SESSION, AUTHORIZATION) => Some(("session_authorization", at + 2)),
        (AUTHORIZATION, _) if is_behind_session => Some(("session_authorization", at + 1)),
        (CHARACTERISTICS, _) if is_behind_session => Some(("session characteristics", at + 1)),
        (TIME, ZONE) => Some(("timezone", at + 2)),
        (XML, OPTION) => Some(("xmloption", at + 2)),
        (SCHEMA, STRING) => Some(("search_path", at + 1)),
        _ if is_named(head, at) => None,
        (TRANSACTION, _) => Some(("transaction", at + 1)),
        (CONSTRAINTS, _) => Some(("constraints", at + 1)),
        (NAMES, _) => Some(("client_encoding", at + 1)),
        (ROLE, _) => Some(("role", at + 1)),
        _ => None,
    }
}

/// Whether the word at `at` is the name of a setting, or its first part, whatever the word.
fn is_named(head: &Head<'_>, at: usize) -> bool {
    head.key(at + 1) == words::DOT || is_assignment(head, at + 1)
}

fn is_assignment(head: &Head<'_>, at: usize) -> bool {
    matches!(head.key(at), words::EQUALS | words::TO)
}

/// The name that is written at `at`, and the place behind it.
fn written<'a>(parse: &Parse<'a>, head: &Head<'a>, at: usize) -> Option<(Name<'a>, usize)> {
    let is_ident = |at| head.token(at).is_some_and(|token| is_name(token.kind));
    let start = head.token(at).filter(|_| is_ident(at))?.start;
    let mut last = at;
    while head.key(last + 1) == words::DOT && is_ident(last + 2) {
        last += 2;
    }
    let raw = parse.reader.text().get(start..head.token(last)?.end)?;
    Some((Name::Written(raw), last + 1))
}
