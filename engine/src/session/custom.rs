//! Custom settings: names with a dot, which belong to nobody but the
//! applications that use them.
//!
//! PostgreSQL makes such a setting when it is first set, and does not list it
//! (`GUC_NO_SHOW_ALL` of a placeholder). So the names are gathered from what
//! the client sends, and the server is asked for their values one by one. A
//! name that a text only computes (`'app.' || x`) is missed.

use super::Session;
use protocol::frontend::Bind;
use router::effects::{Effect, Effects, names_temp_schema};
use router::scan::Options;
use router::statement::statements;
use std::collections::BTreeSet;

/// The names seen so far.
pub(super) type CustomNames = BTreeSet<Box<[u8]>>;

impl Session {
    /// Notes the custom settings that a text names, if it may set any.
    pub(super) fn note_custom(&mut self, text: &[u8], effects: Effects) {
        if !effects.intersects(SETTING) {
            return;
        }
        for statement in statements(text, Options::default()) {
            if let Some(setting) = statement.setting {
                self.note_name(&setting.name());
            }
        }
        if effects.intersects(BY_FUNCTION) {
            // Anywhere in the text: bodies of DO blocks hide them from a
            // tokenizer.
            for quoted in text.split(|&byte| byte == b'\'') {
                self.note_name(quoted);
            }
        }
    }

    /// The same for the parameters of a statement that calls `set_config`.
    pub(super) fn note_custom_parameters(&mut self, body: &[u8], effects: Effects) {
        if !effects.intersects(BY_FUNCTION) {
            return;
        }
        if let Ok(bind) = Bind::decode(body) {
            for value in bind.params.iter().flatten() {
                self.note_name(value);
            }
        }
    }

    /// A parameter may put the temporary schema at the head of `search_path`,
    /// be it for this transaction only: then any `CREATE` makes something that
    /// stays.
    pub(super) fn note_temp_schema(&mut self, body: &[u8], effects: Effects) {
        if effects.intersects(BY_PARAMETER) && names_temp_schema(body) {
            self.suspect(Effects::of(&[Effect::CreateTemp]));
        }
    }

    fn note_name(&mut self, name: &[u8]) {
        if !is_custom(name) {
            return;
        }
        let names = self.custom.get_or_insert_default();
        if names.len() < NAMES_MAX {
            names.insert(name.to_ascii_lowercase().into());
        }
    }
}

/// `valid_custom_variable_name` of PostgreSQL, in ASCII: words joined by dots.
fn is_custom(name: &[u8]) -> bool {
    let word = |word: &[u8]| {
        word.first()
            .is_some_and(|&byte| byte.is_ascii_alphabetic() || byte == b'_')
            && word
                .iter()
                .all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$')
    };
    name.len() <= NAME_BYTES_MAX
        && name.contains(&b'.')
        && name.split(|&byte| byte == b'.').all(word)
}

/// What may set a setting by a name that the text shows.
const SETTING: Effects = Effects::of(&[
    Effect::SetSession,
    Effect::Reset,
    Effect::SetConfig,
    Effect::DoOrCall,
    Effect::SessionFunction,
    Effect::Unknown,
]);
/// What may do so by a string.
const BY_FUNCTION: Effects = Effects::of(&[
    Effect::SetConfig,
    Effect::DoOrCall,
    Effect::SessionFunction,
    Effect::Unknown,
]);
/// What may set a setting to the value of a parameter.
const BY_PARAMETER: Effects = Effects::of(&[Effect::SetConfig, Effect::SetLocal]);
/// Names of one client that are followed; an application has a handful.
const NAMES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::is_custom;

    #[test]
    fn words_joined_by_dots_are_custom_settings() {
        for name in ["x.y", "app.current_user", "a.b.c", "_a.b1$"] {
            assert!(is_custom(name.as_bytes()), "{name}");
        }
        for name in ["work_mem", "x.", ".y", "a b.c", "1.2", "x.y'", ""] {
            assert!(!is_custom(name.as_bytes()), "{name}");
        }
    }
}
