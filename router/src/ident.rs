//! Identifiers as they stand in the text, and as PostgreSQL understands them.

use std::borrow::Cow;

/// A name in a text. Nothing is copied until its meaning is asked for, and mostly not even then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ident<'a> {
    raw: &'a [u8],
}

impl<'a> Ident<'a> {
    /// The identifier that `raw` spells, with its quotes if it has any.
    pub fn new(raw: &'a [u8]) -> Self {
        Ident { raw }
    }

    /// As it stands in the text.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// As PostgreSQL understands it: without quotes, in lower case unless quoted, cut to 63 bytes. The escapes of
    /// `U&"..."` are left as they are; a statement with such an escape has the effect
    /// [`Unknown`](crate::effects::Effect::Unknown).
    pub fn folded(&self) -> Cow<'a, [u8]> {
        let unprefixed = match self.raw {
            [b'u' | b'U', b'&', rest @ ..] => rest,
            raw => raw,
        };
        let name = match unprefixed {
            [b'"', inner @ .., b'"'] => undoubled(inner),
            _ if self.raw.iter().any(u8::is_ascii_uppercase) => {
                Cow::Owned(self.raw.to_ascii_lowercase())
            }
            _ => Cow::Borrowed(self.raw),
        };
        truncated(name)
    }
}

fn undoubled(inner: &[u8]) -> Cow<'_, [u8]> {
    if !inner.contains(&b'"') {
        return Cow::Borrowed(inner);
    }
    let mut name = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        name.push(byte);
        if byte == b'"' {
            bytes.next();
        }
    }
    Cow::Owned(name)
}

/// At 63 bytes, but not inside a UTF-8 character (`truncate_identifier`, `pg_mbcliplen`).
fn truncated(name: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    let is_inside = |at: usize| name.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let end = (0..=NAME_BYTES_MAX)
        .rev()
        .find(|&at| !is_inside(at))
        .unwrap_or(NAME_BYTES_MAX);
    match name {
        Cow::Borrowed(name) => Cow::Borrowed(&name[..end]),
        Cow::Owned(mut name) => {
            name.truncate(end);
            Cow::Owned(name)
        }
    }
}

/// PostgreSQL's NAMEDATALEN less the terminator.
const NAME_BYTES_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_as_by_postgresql() {
        let long = "x".repeat(70);
        let accents = format!("\"{}\"", "é".repeat(32));
        let table: &[(&str, &str, bool)] = &[
            ("abc", "abc", true),
            ("aBc$1", "abc$1", false),
            ("\"aBc\"", "aBc", true),
            ("\"a\"\"b\"\"\"", "a\"b\"", false),
            ("\"\"", "", true),
            ("U&\"aB\"", "aB", true),
            ("É", "É", true),
            (&long, &long[..63], true),
            (&accents, &"é".repeat(31), true),
        ];
        for (raw, name, borrowed) in table {
            let folded = Ident::new(raw.as_bytes()).folded();
            assert_eq!(folded, name.as_bytes(), "{raw}");
            assert_eq!(matches!(folded, Cow::Borrowed(_)), *borrowed, "{raw}");
        }
    }
}
