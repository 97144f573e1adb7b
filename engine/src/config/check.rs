//! From the file's tree to typed values: each value by the kind of its key, each problem with its line.

use serde_yaml::{Mapping, Value};
use zeroize::Zeroizing;

use super::expand::expand;
use super::keys::{self, Key, Kind, Shape, Unset};
use super::memory::MemoryMax;
use super::report::Report;
use super::source::{Entry, Node, Yaml};
use super::units::{parse_duration, parse_size};

/// Whether keys that are not written get their defaults, or stay away (they override something).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    Defaults,
    Nothing,
}

/// Where a value stands: in the file, and in the list of keys.
#[derive(Clone)]
pub(super) struct Place {
    /// `databases.app.pool.mode`, for messages.
    path: String,
    /// `pool.mode`, for [`keys::shape`].
    pattern: String,
}

impl Place {
    pub(super) fn root() -> Self {
        Self {
            path: String::new(),
            pattern: String::new(),
        }
    }

    fn key(&self, name: &str, pattern: &str) -> Self {
        let join = |a: &str, b: &str| {
            if a.is_empty() {
                b.to_owned()
            } else {
                format!("{a}.{b}")
            }
        };
        Self {
            path: join(&self.path, name),
            pattern: join(&self.pattern, pattern),
        }
    }

    fn item(&self, index: usize) -> Self {
        Self {
            path: format!("{}[{index}]", self.path),
            pattern: format!("{}[]", self.pattern),
        }
    }
}

/// Reads values, and reports what is wrong with them.
pub(super) struct Checker<'a> {
    pub(super) report: &'a mut Report,
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
}

impl Checker<'_> {
    /// The value at a place; what is wrong is reported and left out of it.
    pub(super) fn value(&mut self, node: &Node, place: &Place, fill: Fill) -> Option<Value> {
        self.report.seen(&place.path, node.line);
        match keys::shape(&place.pattern) {
            Shape::Leaf(key) => self.leaf(node, key, place),
            Shape::Keys(names) => self.section(node, &names, place, fill),
            Shape::Names => self.names(node, place, fill),
            Shape::Items => self.items(node, place, fill),
        }
    }

    fn section(
        &mut self,
        node: &Node,
        names: &[&'static str],
        place: &Place,
        fill: Fill,
    ) -> Option<Value> {
        let spread;
        let entries = match (&node.value, keys::find(&place.pattern).map(|key| key.kind)) {
            (Yaml::Map(entries), _) => entries,
            (_, Some(Kind::Short(_) | Kind::Like(_)) | None) if node.is_empty() => &Vec::new(),
            (Yaml::Scalar { .. }, Some(Kind::Short(name))) => {
                spread = vec![Entry {
                    key: name.to_owned(),
                    line: node.line,
                    node: node.clone(),
                }];
                &spread
            }
            _ => {
                self.wrong(node, place, "a mapping with the keys of this section");
                return None;
            }
        };
        let mut map = Mapping::new();
        for Entry { key, line, node } in entries {
            let Some(name) = names.iter().find(|name| *name == key) else {
                self.unknown(key, *line, names, place);
                continue;
            };
            let place = place.key(key, name);
            self.report.seen(&place.path, *line);
            if let Some(value) = self.value(node, &place, fill) {
                map.insert(Value::from(*name), value);
            }
        }
        for name in names {
            if !entries.iter().any(|entry| entry.key == *name) {
                self.absent(name, &mut map, place, fill);
            }
        }
        Some(Value::Mapping(map))
    }

    /// A key that is not written: its default, its absence, or the problem that it must be there.
    fn absent(&mut self, name: &'static str, map: &mut Mapping, place: &Place, fill: Fill) {
        let place = place.key(name, name);
        let value = match (keys::find(&place.pattern).map(|key| (key, key.unset)), fill) {
            (Some((_, Unset::Required(example))), _) => {
                self.report.at(
                    &place.path,
                    format!("expected this key, for example {name}: {example}"),
                );
                None
            }
            (Some((key, Unset::Is(text))), Fill::Defaults) => self.default(key, text),
            (None, Fill::Defaults) if matches!(keys::shape(&place.pattern), Shape::Keys(_)) => {
                let empty = Node {
                    line: 1,
                    value: Yaml::Map(Vec::new()),
                };
                self.value(&empty, &place, fill)
            }
            _ => None,
        };
        if let Some(value) = value {
            map.insert(Value::from(name), value);
        }
    }

    /// A default goes the same way as a written value.
    fn default(&mut self, key: &'static Key, text: &str) -> Option<Value> {
        let node = super::source::read(text, &mut Vec::new()).ok()?;
        typed(key.kind, &node, self.env).ok()
    }

    fn names(&mut self, node: &Node, place: &Place, fill: Fill) -> Option<Value> {
        let Yaml::Map(entries) = &node.value else {
            self.wrong(node, place, "a mapping from names");
            return None;
        };
        let mut map = Mapping::new();
        for Entry { key, line, node } in entries {
            let place = place.key(key, "*");
            if key.is_empty() {
                self.report
                    .at_line(*line, &place.path, "expected a name, got \"\"");
                continue;
            }
            self.report.seen(&place.path, *line);
            if let Some(value) = self.value(node, &place, fill) {
                map.insert(Value::from(key.as_str()), value);
            }
        }
        Some(Value::Mapping(map))
    }

    fn items(&mut self, node: &Node, place: &Place, fill: Fill) -> Option<Value> {
        let items = match &node.value {
            Yaml::List(items) => items,
            _ if node.is_empty() => return None,
            _ => {
                self.wrong(node, place, "a list");
                return None;
            }
        };
        let values = items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| self.value(item, &place.item(index), fill));
        Some(Value::Sequence(values.collect()))
    }

    fn leaf(&mut self, node: &Node, key: &'static Key, place: &Place) -> Option<Value> {
        if let Kind::Like(section) = key.kind {
            let place = Place {
                path: place.path.clone(),
                pattern: section.to_owned(),
            };
            return self.value(node, &place, Fill::Nothing);
        }
        if let Yaml::List(items) = &node.value {
            for (index, item) in items.iter().enumerate() {
                self.report.seen(&place.item(index).path, item.line);
            }
        }
        match typed(key.kind, node, self.env) {
            Ok(value) => Some(value),
            Err(text) => {
                self.report.at(&place.path, text);
                None
            }
        }
    }

    fn unknown(&mut self, name: &str, line: usize, known: &[&'static str], place: &Place) {
        let path = place.key(name, name).path;
        let mut text = "this key is not known".to_owned();
        match keys::nearest(name, known) {
            Some(near) => text.push_str(&format!("; did you mean `{near}`?")),
            None => text.push_str(&format!("; expected one of {}", known.join(", "))),
        }
        self.report.at_line(line, &path, text);
    }

    fn wrong(&mut self, node: &Node, place: &Place, expected: &str) {
        self.report.at(
            &place.path,
            format!("expected {expected}, got {}", node.describe()),
        );
    }
}

/// The value of a node by its key's kind, or the sentence that says what is wrong with it.
fn typed(kind: Kind, node: &Node, env: &dyn Fn(&str) -> Option<String>) -> Result<Value, String> {
    if let (Kind::Texts | Kind::Choices(_), Yaml::List(items)) = (kind, &node.value) {
        let single = match kind {
            Kind::Choices(words) => Kind::Choice(words),
            _ => Kind::Text,
        };
        if items.is_empty() {
            return Err("expected at least one item, got an empty list".to_owned());
        }
        return items
            .iter()
            .map(|item| typed(single, item, env))
            .collect::<Result<_, _>>()
            .map(Value::Sequence);
    }
    let expected = || format!("expected {}, got {}", describe(kind), node.describe());
    let Yaml::Scalar {
        text: written,
        quoted,
    } = &node.value
    else {
        return Err(expected());
    };
    if node.is_empty() {
        return Err(expected());
    }
    let written = written.as_str();
    let text = Zeroizing::new(expand(written, env)?);
    let text = text.as_str();
    match kind {
        Kind::Text if !quoted && is_other_type(written) => Err(format!(
            "expected text, got {written}: put it in quotes (\"{written}\") if that is meant"
        )),
        Kind::Secret if !quoted && is_other_type(written) => {
            Err("expected text, got a number or a truth value: put it in quotes".to_owned())
        }
        Kind::Text | Kind::Secret => Ok(Value::from(text)),
        Kind::Texts | Kind::Choices(_) => {
            let single = if let Kind::Choices(words) = kind {
                Kind::Choice(words)
            } else {
                Kind::Text
            };
            typed(single, node, env).map(|value| Value::Sequence(vec![value]))
        }
        Kind::DurationOrOff if text == "off" => Ok(Value::Null),
        Kind::Duration | Kind::DurationOrOff => {
            parse_duration(text)
                .map(duration_value)
                .map_err(|error| match kind {
                    Kind::DurationOrOff if !error.contains("unit") => format!("{error} (or off)"),
                    _ => error,
                })
        }
        Kind::Size => parse_size(text).map(Value::from),
        Kind::Memory => MemoryMax::parse(text).map(|_| Value::from(text)),
        Kind::WholeOrAuto(..) if text == "auto" => Ok(Value::Null),
        Kind::Whole(min, max) | Kind::WholeOrAuto(min, max) => match text.parse::<u32>() {
            Ok(number) if (min..=max).contains(&number) && !text.starts_with('+') => {
                Ok(Value::from(number))
            }
            _ => Err(format!("expected {}, got {text:?}", describe(kind))),
        },
        Kind::Share => match text.parse::<f64>() {
            Ok(share) if share > 0.0 && share <= 1.0 => Ok(Value::from(share)),
            _ => Err(format!("expected {}, got {text:?}", describe(kind))),
        },
        Kind::Switch => match text {
            "true" => Ok(Value::from(true)),
            "false" => Ok(Value::from(false)),
            _ => Err(format!("expected true or false, got {text:?}")),
        },
        Kind::Choice(words) if words.contains(&text) => Ok(Value::from(text)),
        Kind::Choice(words) => Err(match keys::nearest_word(text, words) {
            Some(near) => format!(
                "expected {}, got {text:?}; did you mean `{near}`?",
                describe(kind)
            ),
            None => format!("expected {}, got {text:?}", describe(kind)),
        }),
        Kind::Like(_) | Kind::Short(_) => Err(expected()),
    }
}

/// What a kind wants, for "expected …".
pub(super) fn describe(kind: Kind) -> String {
    match kind {
        Kind::Text | Kind::Secret => "text".to_owned(),
        Kind::Texts => "text or a list of texts".to_owned(),
        Kind::Duration => "a duration such as 500ms, 10s, 1m or 1h30m".to_owned(),
        Kind::DurationOrOff => "a duration such as 500ms, 10s or 1h30m, or off".to_owned(),
        Kind::Memory => "a size such as 512MB, a part such as 80%, or 0".to_owned(),
        Kind::Size => "a size such as 64KB or 1MB".to_owned(),
        Kind::Whole(min, max) => format!("a whole number from {min} to {max}"),
        Kind::WholeOrAuto(min, max) => format!("auto or a whole number from {min} to {max}"),
        Kind::Share => "a number above 0 and at most 1, such as 0.5".to_owned(),
        Kind::Switch => "true or false".to_owned(),
        Kind::Choice(words) => words.join(" or "),
        Kind::Choices(words) => format!("a list of {}", words.join(", ")),
        Kind::Like(section) => format!("a mapping with keys of {section}"),
        Kind::Short(key) => format!("a mapping, or its {key} alone"),
    }
}

/// serde's own form of a [`std::time::Duration`].
fn duration_value(duration: std::time::Duration) -> Value {
    let mut map = Mapping::new();
    map.insert(Value::from("secs"), Value::from(duration.as_secs()));
    map.insert(Value::from("nanos"), Value::from(duration.subsec_nanos()));
    Value::Mapping(map)
}

/// YAML reads this plain scalar as a number or a truth value: as text it was probably not meant, or it
/// would not come back as it was written (`0123`, `1e3`).
fn is_other_type(text: &str) -> bool {
    matches!(
        serde_yaml::from_str::<Value>(text),
        Ok(Value::Number(_) | Value::Bool(_))
    )
}
