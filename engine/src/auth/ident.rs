//! `pg_ident.conf`: which names in certificates stand for which users.

use super::words::{Read, Word, lines};
use super::{Fault, Pattern};
use std::path::Path;

/// The maps of a file.
#[derive(Default)]
pub struct Maps(Vec<Entry>);

struct Entry {
    map: String,
    system: Pattern,
    user: User,
}

enum User {
    All,
    Is(Pattern),
    /// The first `\1` is what the parentheses of the pattern have caught.
    Made(String),
}

impl Maps {
    /// Reads a file.
    pub fn read(path: &Path, read: Read<'_>) -> Result<Self, Vec<Fault>> {
        let found = lines(path, read).map_err(|fault| vec![fault])?;
        let (mut entries, mut faults) = (Vec::new(), Vec::new());
        for line in found {
            match entry(&line.fields) {
                Ok(entry) => entries.push(entry),
                Err(text) => faults.push(Fault {
                    file: path.display().to_string(),
                    line: line.number,
                    text,
                }),
            }
        }
        if faults.is_empty() {
            Ok(Self(entries))
        } else {
            Err(faults)
        }
    }

    /// Whether there is a map of this name.
    pub fn has(&self, map: &str) -> bool {
        self.0.iter().any(|entry| entry.map == map)
    }

    /// Whether a name stands for this user.
    pub fn allow(&self, map: &str, system: &str, user: &str) -> bool {
        self.0
            .iter()
            .filter(|entry| entry.map == map)
            .any(|entry| entry.allows(system, user))
    }
}

impl Entry {
    fn allows(&self, system: &str, user: &str) -> bool {
        match (&self.system, &self.user) {
            (system_name, User::All) => system_name.matches(system),
            (system_name, User::Is(name)) => system_name.matches(system) && name.matches(user),
            (Pattern::Regex(regex), User::Made(template)) => {
                let Some(caught) = regex.captures(system).and_then(|found| found.get(1)) else {
                    return false;
                };
                template.replacen("\\1", caught.as_str(), 1) == user
            }
            (Pattern::Literal(_), User::Made(_)) => false,
        }
    }
}

fn entry(fields: &[Vec<Word>]) -> Result<Entry, String> {
    let [map, system, user] = fields else {
        return Err(format!(
            "expected map-name, system-name and user, got {} fields",
            fields.len()
        ));
    };
    let single = |field: &[Word], what: &str| match field {
        [word] => Ok(word.clone()),
        _ => Err(format!("expected one {what}, got a list")),
    };
    let map = single(map, "map-name")?.text;
    let system = Pattern::read(&single(system, "system-name")?.text)?;
    let user = single(user, "user")?;
    if !user.quoted && user.text.starts_with('+') {
        return Err(format!(
            "expected a user, got {:?}: pgmux does not know the members of roles, list them",
            user.text
        ));
    }
    let user = match &system {
        _ if user.is_keyword("all") => User::All,
        Pattern::Regex(regex) if user.text.contains("\\1") => {
            if regex.captures_len() < 2 {
                return Err("expected parentheses in the system-name, for \\1 in the user".into());
            }
            User::Made(user.text)
        }
        _ => User::Is(Pattern::read(&user.text)?),
    };
    Ok(Entry { map, system, user })
}
