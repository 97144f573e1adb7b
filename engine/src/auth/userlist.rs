//! PgBouncer's `userlist.txt`: names and secrets in double quotes.

use super::Fault;
use zeroize::Zeroizing;

/// A line: the user, and what is known of the password unless that is empty.
pub struct Listed {
    /// The line it stands in.
    pub line: usize,
    /// The user's name.
    pub user: String,
    /// Clear text, an MD5 hash, or a SCRAM verifier.
    pub secret: Option<Zeroizing<String>>,
}

/// Reads the text of a file that is called `file`.
pub fn read(text: &str, file: &str) -> Result<Vec<Listed>, Vec<Fault>> {
    let (mut listed, mut faults) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        match pair(line) {
            // What follows on the line PgBouncer ignores too.
            Some((user, secret)) if !user.is_empty() => listed.push(Listed {
                line: index + 1,
                user: user.to_string(),
                secret: Some(secret).filter(|secret| !secret.is_empty()),
            }),
            // Without the line: it may hold a secret.
            _ => faults.push(Fault {
                file: file.to_owned(),
                line: index + 1,
                text: "expected \"user\" \"secret\", both in double quotes".to_owned(),
            }),
        }
    }
    if faults.is_empty() {
        Ok(listed)
    } else {
        Err(faults)
    }
}

fn pair(line: &str) -> Option<(Zeroizing<String>, Zeroizing<String>)> {
    let (user, rest) = quoted(line)?;
    let (secret, _) = quoted(rest.trim_start())?;
    Some((user, secret))
}

/// A text in quotes, in which a doubled quote is one, and what is behind it.
fn quoted(text: &str) -> Option<(Zeroizing<String>, &str)> {
    let mut rest = text.strip_prefix('"')?;
    // No growing: that would leave copies.
    let mut found = Zeroizing::new(String::with_capacity(rest.len()));
    loop {
        let (piece, behind) = rest.split_once('"')?;
        found.push_str(piece);
        match behind.strip_prefix('"') {
            Some(more) => {
                found.push('"');
                rest = more;
            }
            None => return Some((found, behind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_secrets_stand_in_quotes() {
        let text = "; comment\n\"a\" \"b\"\n\n\"c d\"\t\"e\"\"f\" ignored\n  \"g\" \"\"\n";
        let listed = read(text, "u").unwrap_or_else(|faults| panic!("{faults:?}"));
        let plain: Vec<_> = listed
            .iter()
            .map(|one| {
                (
                    one.line,
                    one.user.as_str(),
                    one.secret.as_ref().map(|s| s.as_str()),
                )
            })
            .collect();
        assert_eq!(
            plain,
            [
                (2, "a", Some("b")),
                (4, "c d", Some("e\"f")),
                (5, "g", None)
            ]
        );
    }

    #[test]
    fn faults_name_the_line_and_never_the_secret() {
        for text in [
            "a \"hunter2\"",
            "\"a\" hunter2",
            "\"a\" \"hunter2",
            "\"a\"",
            "\"\" \"hunter2\"",
        ] {
            let faults = read(&format!("\n{text}"), "u").err().expect(text);
            assert_eq!(faults.len(), 1);
            let shown = faults[0].to_string();
            assert!(shown.starts_with("u:2: expected"), "{shown}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
