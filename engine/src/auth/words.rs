//! The words of a line, as `pg_hba.conf` and `pg_ident.conf` have them.
//!
//! PostgreSQL: "The pg_hba.conf File"; `next_token` and `next_field_expand` of
//! hba.c.

use super::Fault;
use std::io;
use std::path::{Path, PathBuf};

/// One word, without its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// It began with a quote, which takes a keyword its meaning.
    pub(super) quoted: bool,
}

impl Word {
    pub(super) fn is_keyword(&self, keyword: &str) -> bool {
        !self.quoted && self.text == keyword
    }
}

/// A line that says something.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    /// Each field is a list, most of one word.
    pub(super) fields: Vec<Vec<Word>>,
}

/// Where files come from.
pub type Read<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

/// The lines of a file, with the lists of other files that it names by `@`.
pub(super) fn lines(path: &Path, read: Read<'_>) -> Result<Vec<Line>, Fault> {
    lines_at(path, read, 0)
}

fn lines_at(path: &Path, read: Read<'_>, depth: usize) -> Result<Vec<Line>, Fault> {
    let file = path.display().to_string();
    let fault = |line, text| Fault {
        file: file.clone(),
        line,
        text,
    };
    let text = read(path).map_err(|error| fault(0, format!("cannot read this file: {error}")))?;
    let mut found = Vec::new();
    for (number, line) in joined(&text) {
        let mut fields: Vec<Vec<Word>> = Vec::new();
        let mut goes_on = false;
        let mut rest = line.as_str();
        while let Some((word, comma, behind)) =
            word(rest).map_err(|text| fault(number, text.to_owned()))?
        {
            rest = behind;
            let words = match word.text.strip_prefix('@') {
                Some(name) if !word.quoted && !name.is_empty() => {
                    if depth == DEPTH_MAX {
                        return Err(fault(
                            number,
                            format!("expected at most {DEPTH_MAX} files inside each other"),
                        ));
                    }
                    included(path, name, read, depth + 1)?
                }
                _ => vec![word],
            };
            match fields.last_mut() {
                Some(field) if goes_on => field.extend(words),
                _ => fields.push(words),
            }
            goes_on = comma;
        }
        if !fields.is_empty() {
            found.push(Line { number, fields });
        }
    }
    Ok(found)
}

/// All words of a file, whatever lines they stand in. A relative name starts
/// at the directory of the file that names it.
fn included(from: &Path, name: &str, read: Read<'_>, depth: usize) -> Result<Vec<Word>, Fault> {
    let path: PathBuf = from.parent().unwrap_or(Path::new("")).join(name);
    let lines = lines_at(&path, read, depth)?;
    Ok(lines
        .into_iter()
        .flat_map(|line| line.fields)
        .flatten()
        .collect())
}

/// Lines with their numbers; one that ends with a backslash goes on.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut whole: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let (piece, more) = match line.strip_suffix('\\') {
            Some(piece) => (piece, true),
            None => (line, false),
        };
        match whole.last_mut() {
            Some((_, start)) if goes_on => start.push_str(piece),
            _ => whole.push((index + 1, piece.to_owned())),
        }
        goes_on = more;
    }
    whole
}

/// The next word, whether a comma follows it, and what is behind that.
fn word(line: &str) -> Result<Option<(Word, bool, &str)>, &'static str> {
    let blank = |c: char| matches!(c, ' ' | '\t' | '\r');
    let line = line.trim_start_matches(|c| blank(c) || c == ',');
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let mut text = String::new();
    let (mut inside, mut just_closed) = (false, false);
    let mut end = line.len();
    let mut comma = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => {
                // A doubled quote is one that is meant.
                if just_closed && !inside {
                    text.push('"');
                }
                inside = !inside;
                just_closed = !inside;
                continue;
            }
            _ if inside => text.push(c),
            ',' => {
                (end, comma) = (at + 1, true);
                break;
            }
            '#' => {
                end = at;
                break;
            }
            c if blank(c) => {
                end = at;
                break;
            }
            _ => text.push(c),
        }
        just_closed = false;
    }
    if inside {
        return Err("expected a closing quote in this line");
    }
    let quoted = line.starts_with('"');
    Ok(Some((Word { text, quoted }, comma, &line[end..])))
}

/// As deep as PostgreSQL goes.
const DEPTH_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<Vec<String>> {
        let read = |path: &Path| match path.to_str() {
            Some("d/main") => Ok(text.to_owned()),
            Some("d/list") => Ok("x, y # z\n\"w w\"\n".to_owned()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        let shown = |word: &Word| match word.quoted {
            true => format!("'{}'", word.text),
            false => word.text.clone(),
        };
        lines(Path::new("d/main"), &read)
            .unwrap_or_else(|fault| panic!("{fault}"))
            .iter()
            .flat_map(|line| &line.fields)
            .map(|field| field.iter().map(shown).collect())
            .collect()
    }

    #[test]
    fn words_are_parted_by_blanks_and_lists_by_commas() {
        for (text, expected) in [
            ("a b", vec![vec!["a"], vec!["b"]]),
            ("a,b  c", vec![vec!["a", "b"], vec!["c"]]),
            ("a, b\tc", vec![vec!["a", "b"], vec!["c"]]),
            ("a ,b", vec![vec!["a"], vec!["b"]]),
            ("a # b", vec![vec!["a"]]),
            ("a#b", vec![vec!["a"]]),
            ("\"a b\" c", vec![vec!["'a b'"], vec!["c"]]),
            ("\"a\"\"b\"", vec![vec!["'a\"b'"]]),
            ("\"a,b\",c", vec![vec!["'a,b'", "c"]]),
            ("\"#a\"", vec![vec!["'#a'"]]),
            ("x=\"a b\"", vec![vec!["x=a b"]]),
            ("a \\\nb", vec![vec!["a"], vec!["b"]]),
            ("@list a", vec![vec!["x", "y", "'w w'"], vec!["a"]]),
            ("b,@list", vec![vec!["b", "x", "y", "'w w'"]]),
            ("\"@list\"", vec![vec!["'@list'"]]),
            ("# only\n\n  \n", vec![]),
            ("\"\" a", vec![vec!["''"], vec!["a"]]),
        ] {
            assert_eq!(fields(text), expected, "{text:?}");
        }
    }

    #[test]
    fn faults_have_their_place() {
        let read = |text: &'static str| {
            move |path: &Path| match path.to_str() {
                Some("main") => Ok(text.to_owned()),
                Some("loop") => Ok("@loop".to_owned()),
                _ => Err(io::Error::from(io::ErrorKind::NotFound)),
            }
        };
        for (text, place, words) in [
            ("a\nb \"c", "main:2:", "a closing quote"),
            ("@none", "none:0:", "cannot read this file"),
            ("\n@loop", "loop:1:", "at most 10 files"),
        ] {
            let fault = lines(Path::new("main"), &read(text)).expect_err(text);
            let shown = fault.to_string();
            assert!(shown.starts_with(place) && shown.contains(words), "{shown}");
        }
    }
}
