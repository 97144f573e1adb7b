//! The file that `pgmux config --defaults` prints: every key, its default, one line of explanation.

use super::keys::{self, Key, Kind, Unset};

const HEADER: &str = "\
# Every key of pgmux with its default. Keys that have none are shown with an example: those that must be
# written as they would stand, the others behind a #.
";

/// The name of the database in the printed example.
const EXAMPLE_NAME: &str = "app";

/// A complete file of defaults, which itself is a valid configuration.
pub fn defaults_file() -> String {
    let mut printer = Printer {
        out: HEADER.to_owned(),
        open: Vec::new(),
    };
    for key in keys::all() {
        printer.key(key);
    }
    printer.out
}

struct Printer {
    out: String,
    /// The containers that the next line stands in; `- ` is due while an item has printed nothing.
    open: Vec<Container>,
}

struct Container {
    name: &'static str,
    item_is_new: bool,
}

impl Printer {
    fn key(&mut self, key: &'static Key) {
        let mut segments: Vec<&'static str> = key.path.split('.').collect();
        let name = segments.pop().unwrap_or(key.path);
        self.enter(&segments);
        self.line(&format!("# {}", key.about));
        match (key.kind, key.unset) {
            (Kind::Short(_), _) => {
                self.entry(&format!("{name}:"));
                self.open.push(Container {
                    name,
                    item_is_new: false,
                });
            }
            (_, Unset::Is(text) | Unset::Required(text) | Unset::Usual(text)) => {
                self.entry(&format!("{name}: {text}"));
            }
            (_, Unset::Nothing(text)) => self.line(&format!("# {name}: {text}")),
        }
    }

    /// Closes and opens containers until the line stands in these.
    fn enter(&mut self, segments: &[&'static str]) {
        let same = self
            .open
            .iter()
            .zip(segments)
            .take_while(|(open, name)| open.name == **name)
            .count();
        self.open.truncate(same);
        for name in &segments[same..] {
            if self.open.is_empty() {
                self.out.push('\n');
            }
            let shown = if *name == "*" {
                EXAMPLE_NAME
            } else {
                name.trim_end_matches("[]")
            };
            self.entry(&format!("{shown}:"));
            self.open.push(Container {
                name,
                item_is_new: name.ends_with("[]"),
            });
        }
    }

    /// A line that is part of the YAML: the first of a list's item carries its dash.
    fn entry(&mut self, text: &str) {
        match self.open.last_mut() {
            Some(list) if list.item_is_new => {
                list.item_is_new = false;
                let depth = self.depth();
                self.indented(depth - 1, &format!("- {text}"));
            }
            _ => self.line(text),
        }
    }

    fn line(&mut self, text: &str) {
        let fresh = self.open.last().is_some_and(|list| list.item_is_new);
        let depth = self.depth() - usize::from(fresh);
        self.indented(depth, text);
    }

    /// An item of a list stands one level deeper than the list.
    fn depth(&self) -> usize {
        self.open
            .iter()
            .map(|container| 1 + usize::from(container.name.ends_with("[]")))
            .sum()
    }

    fn indented(&mut self, depth: usize, text: &str) {
        self.out.push_str(&"  ".repeat(depth));
        self.out.push_str(text);
        self.out.push('\n');
    }
}
