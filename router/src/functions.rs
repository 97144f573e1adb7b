//! Which functions and operators may write.

use std::collections::HashSet;
use std::sync::OnceLock;

/// What calling something can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Volatility {
    /// It may change something.
    Volatile,
    /// It is `STABLE` or `IMMUTABLE` in each of its forms, or known to change nothing.
    Safe,
}

/// Who knows functions and operators by name. Names are as PostgreSQL understands them: without quotes, and in lower case
/// unless they were quoted.
///
/// There may be several functions of one name, in several schemas: the answer must hold for each that the name can mean.
/// What nobody knows (`None`) counts as volatile.
pub trait Functions {
    /// A function, procedure or aggregate, with the schema if one was written.
    fn function(&self, schema: Option<&[u8]>, name: &[u8]) -> Option<Volatility>;

    /// An operator.
    fn operator(&self, schema: Option<&[u8]>, name: &[u8]) -> Option<Volatility> {
        builtin_operator(schema, name)
    }

    /// Whether a volatile function with this name takes a row, so that `t.name` may be a call of it.
    fn may_be_attribute(&self, _name: &[u8]) -> bool {
        false
    }
}

/// PostgreSQL's own functions, as far as they are the same in the versions 15 to 18, and nothing else. It does not know
/// what users add to a name of PostgreSQL's: for that, the server's catalog must be asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Builtin;

impl Functions for Builtin {
    fn function(&self, schema: Option<&[u8]>, name: &[u8]) -> Option<Volatility> {
        let is_own = schema.is_none_or(|schema| schema == b"pg_catalog");
        (is_own && names().contains(name)).then_some(Volatility::Safe)
    }
}

/// Names that an operator of pgmux judges, on top of what others know.
#[derive(Clone, Debug)]
pub struct Listed<F> {
    safe: HashSet<Vec<u8>>,
    volatile: HashSet<Vec<u8>>,
    others: F,
}

impl<F> Listed<F> {
    /// Names as in `pg_proc`: `name`, which stands for that name in any schema, or `schema.name`. What is in both lists is
    /// volatile.
    pub fn new(
        safe: impl IntoIterator<Item = String>,
        volatile: impl IntoIterator<Item = String>,
        others: F,
    ) -> Self {
        Listed {
            safe: safe.into_iter().map(String::into_bytes).collect(),
            volatile: volatile.into_iter().map(String::into_bytes).collect(),
            others,
        }
    }
}

impl<F: Functions> Functions for Listed<F> {
    fn function(&self, schema: Option<&[u8]>, name: &[u8]) -> Option<Volatility> {
        let full = schema.map(|schema| [schema, b".", name].concat());
        let is_in = |list: &HashSet<Vec<u8>>| {
            list.contains(name) || full.as_ref().is_some_and(|full| list.contains(full))
        };
        if is_in(&self.volatile) || (schema.is_none() && self.is_volatile_somewhere(name)) {
            return Some(Volatility::Volatile);
        }
        if is_in(&self.safe) {
            return Some(Volatility::Safe);
        }
        self.others.function(schema, name)
    }

    fn operator(&self, schema: Option<&[u8]>, name: &[u8]) -> Option<Volatility> {
        self.others.operator(schema, name)
    }

    fn may_be_attribute(&self, name: &[u8]) -> bool {
        self.volatile.contains(name) || self.others.may_be_attribute(name)
    }
}

impl<F> Listed<F> {
    /// A name without a schema may be that of any schema in the search path.
    fn is_volatile_somewhere(&self, name: &[u8]) -> bool {
        let ends = |listed: &Vec<u8>| {
            let schema = listed.strip_suffix(name);
            schema.is_some_and(|schema| schema.ends_with(b"."))
        };
        self.volatile.iter().any(ends)
    }
}

/// Whether it is one of PostgreSQL's operators, all of which are stable or immutable.
pub fn builtin_operator(schema: Option<&[u8]>, name: &[u8]) -> Option<Volatility> {
    let is_own = schema.is_none_or(|schema| schema == b"pg_catalog");
    // `!=` is read as `<>`, and `=>` of named arguments is an operator to the scanner.
    let known = OPERATORS.iter().any(|known| known.as_bytes() == name);
    (is_own && known).then_some(Volatility::Safe)
}

fn names() -> &'static HashSet<&'static [u8]> {
    static NAMES: OnceLock<HashSet<&'static [u8]>> = OnceLock::new();
    NAMES.get_or_init(|| {
        include_str!("functions/names.txt")
            .lines()
            .map(str::as_bytes)
            .collect()
    })
}

/// Those of `pg_operator` in the versions 15 and 18.
const OPERATORS: &[&str] = &[
    "!!", "!=", "!~", "!~*", "!~~", "!~~*", "#", "##", "#-", "#>", "#>>", "%", "&", "&&", "&<",
    "&<|", "&>", "*", "*<", "*<=", "*<>", "*=", "*>", "*>=", "+", "-", "->", "->>", "-|-", "/",
    "<", "<->", "<<", "<<=", "<<|", "<=", "<>", "<@", "<^", "=", "=>", ">", ">=", ">>", ">>=",
    ">^", "?", "?#", "?&", "?-", "?-|", "?|", "?||", "@", "@-@", "@>", "@?", "@@", "@@@", "^",
    "^@", "|", "|&>", "|/", "|>>", "||", "||/", "~", "~*", "~<=~", "~<~", "~=", "~>=~", "~>~",
    "~~", "~~*",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_none_of_them_writes() {
        let lines: Vec<_> = include_str!("functions/names.txt").lines().collect();
        assert!(lines.is_sorted() && lines.len() > 1_500);
        for name in [
            "nextval",
            "setval",
            "currval",
            "lastval",
            "set_config",
            "pg_notify",
            "lo_create",
            "txid_current",
            "pg_current_xact_id",
            "pg_advisory_lock",
            "pg_advisory_xact_lock_shared",
            "pg_logical_emit_message",
            "pg_switch_wal",
            "pg_export_snapshot",
            "setseed",
            "query_to_xml",
            "pg_reload_conf",
            "dblink_exec",
            "f",
        ] {
            assert_eq!(Builtin.function(None, name.as_bytes()), None, "{name}");
        }
        assert_eq!(
            Builtin.function(Some(b"pg_catalog"), b"lower"),
            Some(Volatility::Safe)
        );
        assert_eq!(Builtin.function(Some(b"public"), b"lower"), None);
    }

    #[test]
    fn lists_come_first_and_volatile_wins() {
        let listed = |safe: &[&str], volatile: &[&str]| {
            let owned = |names: &[&str]| {
                names
                    .iter()
                    .map(|name| name.to_string())
                    .collect::<Vec<_>>()
            };
            Listed::new(owned(safe), owned(volatile), Builtin)
        };
        let list = listed(&["f", "app.g"], &["lower", "app.h"]);
        assert_eq!(list.function(None, b"f"), Some(Volatility::Safe));
        assert_eq!(list.function(Some(b"x"), b"f"), Some(Volatility::Safe));
        assert_eq!(list.function(Some(b"app"), b"g"), Some(Volatility::Safe));
        assert_eq!(list.function(None, b"g"), None);
        assert_eq!(list.function(None, b"lower"), Some(Volatility::Volatile));
        assert_eq!(list.function(None, b"h"), Some(Volatility::Volatile));
        assert_eq!(list.function(Some(b"other"), b"h"), None);
        assert_eq!(
            listed(&["f"], &["f"]).function(None, b"f"),
            Some(Volatility::Volatile)
        );
    }
}
