//! Every key that the configuration knows: its path, type, default and one line of explanation.
//!
//! The list is what a file is read by (`check`), what "did you mean" searches, and what
//! `pgmux config --defaults` prints; a test compares it with the fields that serde accepts. A new section is
//! one file with its keys and its struct, and one line in [`SECTIONS`].

use super::{
    auth, backend, breaker, databases, engine, limits, live, operator, peers, pool, proxy, tls,
};

/// The sections in the order in which they are printed.
pub static SECTIONS: &[&[Key]] = &[
    proxy::KEYS,
    engine::KEYS,
    peers::KEYS,
    pool::KEYS,
    backend::KEYS,
    databases::KEYS,
    auth::KEYS,
    limits::KEYS,
    breaker::KEYS,
    tls::KEYS,
    live::KEYS,
    operator::KEYS,
];

/// One key.
pub struct Key {
    /// Dotted path; `*` stands for any name, `[]` for the items of a list.
    pub path: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// What holds when it is not written.
    pub unset: Unset,
    /// One line of explanation.
    pub about: &'static str,
}

/// The type of a key's value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// Any text, which no message may show.
    Secret,
    /// A duration with its unit.
    Duration,
    /// A duration, or `off` for no limit.
    DurationOrOff,
    /// A size in bytes with its unit.
    Size,
    /// A size in bytes with its unit, or a part in percent.
    Memory,
    /// A whole number in a range.
    Whole(u32, u32),
    /// A whole number in a range, or `auto`.
    WholeOrAuto(u32, u32),
    /// A number above 0 and at most 1.
    Share,
    /// `true` or `false`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One or more of these words.
    Choices(&'static [&'static str]),
    /// One text, or a list of them.
    Texts,
    /// The keys of another section, each of which overrides the value there.
    Like(&'static str),
    /// A mapping; a text alone stands for this key of it.
    Short(&'static str),
}

/// What holds for a key that is not written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unset {
    /// This value, as it would be written.
    Is(&'static str),
    /// It must be written; the text is an example.
    Required(&'static str),
    /// Nothing; the text is an example.
    Nothing(&'static str),
    /// Nothing, but the section is of no use without this key or its rival; the text is an example.
    Usual(&'static str),
}

/// What a path leads to.
pub(super) enum Shape {
    /// A single value.
    Leaf(&'static Key),
    /// A section with these keys.
    Keys(Vec<&'static str>),
    /// A mapping from names that the operator chose.
    Names,
    /// A list of sections.
    Items,
}

/// All keys, section after section.
pub fn all() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().copied().flatten()
}

/// The key at exactly this path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    all().find(|key| key.path == path)
}

/// What stands at this path; the empty path is the file.
pub(super) fn shape(path: &str) -> Shape {
    if let Some(key) = find(path)
        && !matches!(key.kind, Kind::Short(_))
    {
        return Shape::Leaf(key);
    }
    let mut names = Vec::new();
    for key in all() {
        let Some(rest) = key.path.strip_prefix(path) else {
            continue;
        };
        if rest.starts_with("[]") {
            return Shape::Items;
        }
        let rest = match rest.strip_prefix('.') {
            Some(rest) => rest,
            None if path.is_empty() => rest,
            None => continue,
        };
        let name = rest.split(['.', '[']).next().unwrap_or(rest);
        if name == "*" {
            return Shape::Names;
        }
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Shape::Keys(names)
}

/// The known key that was probably meant: a similar sibling, or the same name in another section.
pub(super) fn nearest(name: &str, siblings: &[&'static str]) -> Option<String> {
    if let Some(near) = nearest_word(name, siblings) {
        return Some(near.to_owned());
    }
    let elsewhere = all()
        .find(|key| key.path.rsplit('.').next() == Some(name) && !key.path.contains(['*', '[']));
    elsewhere.map(|key| key.path.to_owned())
}

/// The word that differs from `name` by the fewest typing slips, if that is at most a third of it.
pub(super) fn nearest_word(name: &str, words: &[&'static str]) -> Option<&'static str> {
    let slips = |word: &&str| strsim::damerau_levenshtein(&name.to_lowercase(), word);
    let near = words.iter().copied().min_by_key(slips)?;
    (slips(&near) <= near.len().max(3) / 3).then_some(near)
}
