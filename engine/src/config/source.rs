//! The file as a tree of values that know their line.
//!
//! serde_yaml tells the place of a syntax error but not of a value, and it has forgotten how a scalar was
//! written (`08`, `off`, `"5432"`); so the tree is made from the parser's events.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};
use zeroize::Zeroizing;

/// Deeper than any section; bounds the recursion.
const DEPTH_MAX: usize = 16;
/// More than any real file; bounds what aliases of aliases can multiply to.
const NODES_MAX: usize = 100_000;

/// A value and the line it stands on.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Yaml,
}

#[derive(Clone)]
pub(super) enum Yaml {
    /// Text as it was written; `quoted` when it stood in quotes or in a block.
    Scalar {
        text: Zeroizing<String>,
        quoted: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key of a mapping with its value.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) node: Node,
}

impl Node {
    /// What the node is, for "got …".
    pub(super) fn describe(&self) -> String {
        match &self.value {
            Yaml::List(_) => "a list".to_owned(),
            Yaml::Map(_) => "a mapping".to_owned(),
            Yaml::Scalar { .. } if self.is_empty() => "nothing".to_owned(),
            Yaml::Scalar { text, .. } => format!("{:?}", text.as_str()),
        }
    }

    /// Nothing was written after the colon.
    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.value, Yaml::Scalar { text, quoted: false } if matches!(text.as_str(), "" | "~" | "null"))
    }
}

/// A mistake in the YAML itself.
pub(super) struct Syntax {
    pub(super) line: usize,
    pub(super) text: String,
}

/// Reads one document. Keys that stand twice do not stop the reading: they are put into `twice`.
pub(super) fn read(text: &str, twice: &mut Vec<Syntax>) -> Result<Node, Syntax> {
    let mut reader = Reader {
        events: Parser::new_from_str(text),
        anchors: HashMap::new(),
        nodes: 0,
        line: 1,
        twice,
    };
    let mut root = None;
    loop {
        match reader.next()? {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            _ if root.is_some() => {
                return Err(reader.error("expected one YAML document, got a second one"));
            }
            event => root = Some(reader.node(event, 0)?),
        }
    }
    Ok(root.unwrap_or(Node {
        line: 1,
        value: Yaml::Map(Vec::new()),
    }))
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    /// Where the latest event began.
    line: usize,
    twice: &'a mut Vec<Syntax>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>, Syntax> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                self.line = span.start.line();
                Ok(event)
            }
            Some(Err(error)) => Err(Syntax {
                line: error.marker().line(),
                text: format!(
                    "this is not YAML: {} (column {})",
                    error.info(),
                    error.marker().col() + 1
                ),
            }),
            None => Ok(Event::StreamEnd),
        }
    }

    fn node(&mut self, event: Event<'a>, depth: usize) -> Result<Node, Syntax> {
        let line = self.line;
        self.count(1)?;
        if depth > DEPTH_MAX {
            return Err(self.error("expected at most 16 levels of nesting"));
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                if tag.is_some() {
                    return Err(self.error("expected no YAML tags (!…)"));
                }
                let quoted = style != ScalarStyle::Plain;
                (
                    Yaml::Scalar {
                        text: Zeroizing::new(text.into_owned()),
                        quoted,
                    },
                    anchor,
                )
            }
            Event::SequenceStart(anchor, _) => (Yaml::List(self.list(depth)?), anchor),
            Event::MappingStart(anchor, _) => (Yaml::Map(self.map(depth)?), anchor),
            Event::Alias(id) => return self.alias(id, depth),
            _ => return Err(self.error("expected a value")),
        };
        let node = Node { line, value };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Syntax> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(items),
                event => items.push(self.node(event, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<Entry>, Syntax> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let event = self.next()?;
            let line = self.line;
            let key = match event {
                Event::MappingEnd => return Ok(entries),
                Event::Scalar(key, ..) => key.into_owned(),
                _ => return Err(self.error("expected a key: a word before a colon")),
            };
            let event = self.next()?;
            let node = self.node(event, depth + 1)?;
            if let Some(first) = entries.iter().find(|entry| entry.key == key) {
                let text = format!("`{key}` is written twice, first in line {}", first.line);
                self.twice.push(Syntax { line, text });
            } else {
                entries.push(Entry { key, line, node });
            }
        }
    }

    fn alias(&mut self, id: usize, depth: usize) -> Result<Node, Syntax> {
        let Some(node) = self.anchors.get(&id).cloned() else {
            return Err(self.error("this alias (*…) stands inside its own anchor"));
        };
        let (nodes, height) = measure(&node);
        self.count(nodes)?;
        if depth + height > DEPTH_MAX {
            return Err(self.error("expected at most 16 levels of nesting"));
        }
        Ok(node)
    }

    fn count(&mut self, nodes: usize) -> Result<(), Syntax> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            return Err(self.error("expected a smaller file: more than 100000 values"));
        }
        Ok(())
    }

    fn error(&self, text: &str) -> Syntax {
        Syntax {
            line: self.line,
            text: text.to_owned(),
        }
    }
}

/// The values in a tree, and its height.
fn measure(node: &Node) -> (usize, usize) {
    let (mut count, mut height) = (0, 0);
    let mut rest = vec![(node, 0)];
    while let Some((node, depth)) = rest.pop() {
        count += 1;
        height = height.max(depth);
        match &node.value {
            Yaml::Scalar { .. } => {}
            Yaml::List(items) => rest.extend(items.iter().map(|item| (item, depth + 1))),
            Yaml::Map(entries) => rest.extend(entries.iter().map(|entry| (&entry.node, depth + 1))),
        }
    }
    (count, height)
}
