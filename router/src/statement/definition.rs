//! `CREATE`, `EXPLAIN`, `COPY`, and `INTO`: what matters may stand anywhere in them.

use super::Kind;
use super::functions::TEMP_SCHEMA;
use super::head::words;
use super::reader::Reader;
use crate::effects::Effect;
use crate::scan::{Token, TokenKind};
use crate::word::NO_WORD;

/// Temporary tables, views and sequences; `AS EXECUTE`; routines whose body is SQL with semicolons of its own.
pub(super) fn create(reader: &mut Reader<'_>) -> Kind {
    let mut before = words::CREATE;
    let mut is_routine = false;
    let mut in_body = false;
    let mut opens_statement = false;
    while let Some(token) = reader.next() {
        let key = reader.key(token);
        match (before, key) {
            (
                words::CREATE | words::REPLACE | words::LOCAL | words::GLOBAL,
                words::TEMP | words::TEMPORARY,
            ) => {
                reader.effects.insert(Effect::CreateTemp);
            }
            (words::CREATE | words::REPLACE, words::FUNCTION | words::PROCEDURE) => {
                is_routine = true
            }
            (words::AS, words::EXECUTE) => reader.effects.insert(Effect::Execute),
            (words::BEGIN, words::ATOMIC) if is_routine && reader.depth() == 0 => in_body = true,
            // A body's END follows a semicolon or ATOMIC; any other is that of a CASE, or a name.
            (_, words::END) if in_body && opens_statement => in_body = false,
            _ if is_temp_schema(reader, token) => reader.effects.insert(Effect::CreateTemp),
            _ => {}
        }
        opens_statement = key == words::ATOMIC || reader.is_symbol(token, b';');
        reader.set_in_body(in_body);
        before = key;
    }
    Kind::Create
}

/// `EXPLAIN ANALYZE` runs what it explains.
pub(super) fn explain(reader: &mut Reader<'_>) -> Kind {
    let mut before = NO_WORD;
    while let Some(token) = reader.next() {
        let key = reader.key(token);
        match (before, key) {
            (words::CREATE | words::LOCAL | words::GLOBAL, words::TEMP | words::TEMPORARY) => {
                reader.effects.insert(Effect::CreateTemp);
            }
            (_, words::EXECUTE) => reader.effects.insert(Effect::Execute),
            (words::INSERT | words::MERGE, words::INTO) => {}
            (_, words::INTO) => into_target(reader),
            (words::TABLE, _) if is_temp_schema(reader, token) => {
                reader.effects.insert(Effect::CreateTemp)
            }
            _ => {}
        }
        before = key;
    }
    Kind::Explain
}

/// `COPY ... FROM STDIN`, for which PostgreSQL also takes `FROM STDOUT`.
pub(super) fn copy(reader: &mut Reader<'_>) -> Kind {
    let mut before = NO_WORD;
    while let Some(token) = reader.next() {
        let key = reader.key(token);
        if before == words::FROM
            && matches!(key, words::STDIN | words::STDOUT)
            && reader.depth() == 0
        {
            reader.effects.insert(Effect::CopyStdin);
        }
        before = key;
    }
    Kind::Copy
}

/// The reader stands behind the `INTO` of a query, whose target may be temporary: `INTO LOCAL TEMP TABLE x`,
/// `INTO TABLE pg_temp.x`.
pub(super) fn into_target(reader: &mut Reader<'_>) {
    let is_temporary = |token: Token| {
        let prefixes = [words::TEMP, words::TEMPORARY, words::LOCAL, words::GLOBAL];
        reader.is_any(token, &prefixes) || is_temp_schema(reader, token)
    };
    if reader.ahead().take(2).any(is_temporary) {
        reader.effects.insert(Effect::CreateTemp);
    }
}

/// `pg_temp`, or `pg_temp_` and a number.
fn is_temp_schema(reader: &Reader<'_>, token: Token) -> bool {
    let is_number =
        |rest: &[u8]| matches!(rest, [b'_', number @ ..] if number.iter().all(u8::is_ascii_digit));
    let is_rest = |rest: &[u8]| rest.is_empty() || is_number(rest);
    match (token.kind, token.text(reader.text())) {
        (TokenKind::Word, word) => {
            word.split_at_checked(TEMP_SCHEMA.len())
                .is_some_and(|(schema, rest)| {
                    schema.eq_ignore_ascii_case(TEMP_SCHEMA) && is_rest(rest)
                })
        }
        (TokenKind::QuotedIdent, [b'"', name @ .., b'"'])
        | (TokenKind::UnicodeIdent, [_, _, b'"', name @ .., b'"']) => {
            name.strip_prefix(TEMP_SCHEMA).is_some_and(is_rest)
        }
        _ => false,
    }
}
