//! Calls of functions that are known to do something to the session.

use super::head::words;
use super::reader::significant;
use crate::effects::{Effect, Effects};
use crate::scan::{Scanner, Token, TokenKind};
use crate::word::folded;

/// Whether the name of a function of the table may begin with this byte and be so long. Most words cannot.
#[inline]
pub(super) fn may_be_named(first: u8, len: usize) -> bool {
    len >= NAME_BYTES_MIN && matches!(first | 0x20, b'p' | b's' | b'd')
}

/// What the call at `name` does, if it is the name of a function that matters and an argument list follows.
pub(super) fn call(scanner: &Scanner<'_>, name: Token) -> Effects {
    let Some(effect) = effect_of(name, scanner.text()) else {
        return Effects::NONE;
    };
    let mut ahead = significant(*scanner);
    let opens = ahead
        .next()
        .is_some_and(|token| token.text(scanner.text()) == b"(");
    match effect {
        _ if !opens => Effects::NONE,
        Effect::SetConfig => set_config(scanner.text(), ahead),
        effect => Effects::of(&[effect]),
    }
}

/// The view by which `UPDATE` sets settings. What it is called for is found out by [`Reader::finish`], once.
///
/// [`Reader::finish`]: super::reader::Reader::finish
pub(super) fn is_settings_view(name: Token, text: &[u8]) -> bool {
    is_name(name, text, SETTINGS_VIEW)
}

/// The view of prepared statements, and the function behind it.
pub(super) fn is_prepared_view(name: Token, text: &[u8]) -> bool {
    PREPARED_VIEWS.iter().any(|view| is_name(name, text, view))
}

/// Whether a block of code may name prepared statements: `PREPARE` and `DEALLOCATE` may stand in it as they are, `EXECUTE`
/// there is a string's (`EXECUTE 'EXECUTE s'`).
pub(super) fn hides_names(code: &[u8]) -> bool {
    let executes = code
        .windows(EXECUTE.len())
        .filter(|window| window.eq_ignore_ascii_case(EXECUTE));
    [&b"prepare"[..], b"deallocate", PREPARED_VIEWS[1]]
        .iter()
        .any(|word| contains_word(code, word))
        || executes.count() > 1
}

const EXECUTE: &[u8] = b"execute";

fn is_name(token: Token, text: &[u8], name: &[u8]) -> bool {
    match (token.kind, token.text(text)) {
        (TokenKind::Word, word) => word.eq_ignore_ascii_case(name),
        (_, [b'"', inner @ .., b'"'] | [_, b'&', b'"', inner @ .., b'"']) => inner == name,
        _ => false,
    }
}

fn effect_of(name: Token, text: &[u8]) -> Option<Effect> {
    FUNCTIONS
        .iter()
        .find(|(function, _)| is_name(name, text, function))
        .map(|&(_, effect)| effect)
}

const SETTINGS_VIEW: &[u8] = b"pg_settings";
const PREPARED_VIEWS: [&[u8]; 2] = [b"pg_prepared_statements", b"pg_prepared_statement"];

const FUNCTIONS: &[(&[u8], Effect)] = &[
    (b"set_config", Effect::SetConfig),
    (b"pg_advisory_lock", Effect::AdvisoryLock),
    (b"pg_advisory_lock_shared", Effect::AdvisoryLock),
    (b"pg_try_advisory_lock", Effect::AdvisoryLock),
    (b"pg_try_advisory_lock_shared", Effect::AdvisoryLock),
    (b"pg_advisory_unlock", Effect::AdvisoryUnlock),
    (b"pg_advisory_unlock_shared", Effect::AdvisoryUnlock),
    (b"pg_advisory_unlock_all", Effect::AdvisoryUnlockAll),
    // The seed of random().
    (b"setseed", Effect::SessionFunction),
    // Named connections of the server to others.
    (b"dblink_connect", Effect::SessionFunction),
    (b"dblink_connect_u", Effect::SessionFunction),
    (
        b"pg_replication_origin_session_setup",
        Effect::SessionFunction,
    ),
    // Slots may be temporary, which means: until the session ends.
    (
        b"pg_create_physical_replication_slot",
        Effect::SessionFunction,
    ),
    (
        b"pg_create_logical_replication_slot",
        Effect::SessionFunction,
    ),
    // A backup ends with the session that began it.
    (b"pg_backup_start", Effect::SessionFunction),
    (b"pg_start_backup", Effect::SessionFunction),
];

/// The length of `setseed`.
const NAME_BYTES_MIN: usize = 7;

/// `set_config(name, value, is_local)`; `arguments` is what stands behind the parenthesis. Local is only what is
/// literally so and can be seen within a few tokens: a look ahead without a limit would make nested calls quadratic.
fn set_config(text: &[u8], arguments: impl Iterator<Item = Token>) -> Effects {
    let mut arguments = arguments.take(SET_CONFIG_TOKENS_MAX);
    let (mut depth, mut commas) = (0_usize, 0);
    let mut name = None;
    let mut seen_end = 0;
    for token in arguments.by_ref() {
        name = name.or(Some(token));
        seen_end = token.end;
        match (token.kind, token.text(text)) {
            (TokenKind::Symbol, b"(" | b"[") => depth += 1,
            (TokenKind::Symbol, b")" | b"]") if depth == 0 => break,
            (TokenKind::Symbol, b")" | b"]") => depth -= 1,
            (TokenKind::Symbol, b",") if depth == 0 => commas += 1,
            _ => {}
        }
        if commas == 2 {
            break;
        }
    }
    let is_true = arguments.next().is_some_and(|token| is_true(text, token));
    let ends = arguments
        .next()
        .is_some_and(|token| token.text(text) == b")");
    let mut effects = if is_true && ends {
        Effects::of(&[Effect::SetLocal])
    } else if name.is_some_and(|name| is_harmless_name(text, name)) {
        Effects::of(&[Effect::SetConfig])
    } else {
        Effects::of(&[Effect::SetConfig, Effect::Role])
    };
    let seen = name
        .and_then(|name| text.get(name.start..seen_end))
        .unwrap_or_default();
    if names_temp_schema(seen) {
        effects.insert(Effect::CreateTemp);
    }
    effects
}

const SET_CONFIG_TOKENS_MAX: usize = 64;

fn is_true(text: &[u8], token: Token) -> bool {
    match token.kind {
        TokenKind::Word => folded(token.text(text)) == words::TRUE,
        TokenKind::String => matches!(
            token.text(text),
            b"'t'" | b"'true'" | b"'on'" | b"'yes'" | b"'1'"
        ),
        _ => false,
    }
}

/// Whether the setting is plainly another one than the role.
fn is_harmless_name(text: &[u8], name: Token) -> bool {
    match (name.kind, name.text(text)) {
        (TokenKind::String, [b'\'', inner @ .., b'\'']) => {
            inner
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(byte))
                && !is_role_setting(inner)
        }
        _ => false,
    }
}

/// The two settings that are the session's identity.
pub(super) fn is_role_setting(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"role") || name.eq_ignore_ascii_case(b"session_authorization")
}

/// With `pg_temp` at the head of `search_path`, a plain `CREATE TABLE` makes a temporary one.
pub(crate) fn names_temp_schema(text: &[u8]) -> bool {
    contains_word(text, TEMP_SCHEMA)
}

/// Whether `text` has `word` in it, in either case and anywhere: also in strings and in longer words.
pub(super) fn contains_word(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len())
        .any(|window| window.eq_ignore_ascii_case(word))
}

/// The session's own temporary schema; its real name has a number behind.
pub(super) const TEMP_SCHEMA: &[u8] = b"pg_temp";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain;

    #[test]
    fn every_function_passes_the_first_filter() {
        for (name, _) in FUNCTIONS {
            assert!(
                may_be_named(name[0], name.len())
                    && may_be_named(name[0].to_ascii_uppercase(), name.len())
            );
        }
    }

    #[test]
    fn every_name_of_the_tables_makes_a_text_one_that_is_not_plain() {
        let functions = FUNCTIONS.iter().map(|(name, _)| *name);
        let views = [SETTINGS_VIEW, TEMP_SCHEMA]
            .into_iter()
            .chain(PREPARED_VIEWS);
        for name in functions.chain(views) {
            let name = String::from_utf8_lossy(name);
            let written = [
                name.to_string(),
                name.to_uppercase(),
                format!("a.{name}"),
                format!("1{name}"),
                format!("\"{name}\""),
                format!("\"\"\"{name}\""),
            ];
            for name in written {
                let text = format!("update t set a = {name} (b)");
                assert_eq!(plain::effects(text.as_bytes()), None, "{text}");
            }
        }
    }
}
