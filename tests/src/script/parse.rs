//! From a script's text to its steps.

use super::golden::{Golden, Whose, read_mark};
use super::message::{self, Token, tokens};
use super::{Action, Script, Step, Until};

type Fault = (usize, String);

/// Parses a whole script; a fault comes with its line's index.
pub fn script(name: &str, text: &str) -> Result<Script, Fault> {
    let mut script = Script {
        name: name.into(),
        needs: 1,
        divisible: true,
        class_only: false,
        lines: text.lines().map(String::from).collect(),
        steps: Vec::new(),
    };
    let mut run_open = false;
    for (index, line) in text.lines().enumerate() {
        let at = |error: String| (index, error);
        let line = line.trim();
        let words = tokens(line).map_err(at)?;
        let mut words = words.iter();
        match words.next() {
            None => continue,
            Some(Token::Word(word)) if word == "needs" => {
                script.needs = number(words.next()).map_err(at)?
            }
            Some(Token::Word(word)) if word == "only" => script.divisible = false,
            Some(Token::Word(word)) if word == "compare" => script.class_only = true,
            Some(Token::Word(word)) if word == "direct" => {
                let sql = words
                    .next()
                    .ok_or_else(|| at("SQL expected".into()))?
                    .text();
                script.push(index, Action::Direct(sql));
                run_open = false;
            }
            Some(Token::Word(word)) if is_client(word) => {
                let client = word.chars().next().unwrap_or('A');
                let rest: Vec<&Token> = words.collect();
                run_open =
                    client_line(&mut script, index, client, &rest, line, run_open).map_err(at)?;
            }
            Some(other) => return Err(at(format!("unknown line: {other:?}"))),
        }
    }
    Ok(script)
}

/// Whether a line is a golden reply of PostgreSQL.
pub fn is_golden(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let client = words.next().is_some_and(is_client);
    let mark = words.next().and_then(read_mark);
    client && mark.is_some_and(|(whose, _)| whose == Whose::Server)
}

/// Handles a line of one client; says whether a run of messages may go on.
fn client_line(
    script: &mut Script,
    index: usize,
    client: char,
    rest: &[&Token],
    line: &str,
    run_open: bool,
) -> Result<bool, String> {
    let (verb, rest) = rest.split_first().ok_or("a verb expected")?;
    match verb.text().as_str() {
        ">" => {
            let bytes = message::build(rest)?;
            match script.steps.last_mut().map(|step| &mut step.action) {
                Some(Action::Send {
                    client: last,
                    bytes: run,
                }) if run_open && *last == client => run.extend(bytes),
                _ => script.push(index, Action::Send { client, bytes }),
            }
            return Ok(true);
        }
        mark if mark.starts_with('<') => {
            let whose = read_mark(mark).ok_or_else(|| format!("unknown mark {mark}"))?;
            golden(script)?.add(whose, reply(line, mark));
        }
        "cut" => {}
        "wait" => {
            let until = until(rest)?;
            let golden = Golden::default();
            script.push(
                index,
                Action::Wait {
                    client,
                    until,
                    golden,
                },
            );
        }
        "open" => script.push(index, Action::Open { client }),
        "login" => {
            let params = rest
                .iter()
                .map(|token| token.pair())
                .collect::<Result<_, _>>()?;
            let golden = Golden::default();
            script.push(
                index,
                Action::Login {
                    client,
                    params,
                    golden,
                },
            );
        }
        "close" => script.push(index, Action::Close { client }),
        "reset" => script.push(index, Action::Reset { client }),
        "cancel" => script.push(index, Action::Cancel { client }),
        verb => return Err(format!("unknown verb {verb}")),
    }
    Ok(false)
}

fn golden(script: &mut Script) -> Result<&mut Golden, String> {
    match script.steps.last_mut().map(|step| &mut step.action) {
        Some(Action::Wait { golden, .. } | Action::Login { golden, .. }) => Ok(golden),
        _ => Err("a reply without a wait above it".into()),
    }
}

fn reply<'l>(line: &'l str, mark: &str) -> &'l str {
    line.split_once(mark).map_or("", |(_, reply)| reply).trim()
}

fn until(rest: &[&Token]) -> Result<Until, String> {
    let words: Vec<String> = rest.iter().map(|token| token.text()).collect();
    let [first, ..] = words.as_slice() else {
        return Err("what to wait for?".into());
    };
    match first.as_str() {
        "Z" if words.len() == 1 => Ok(Until::Ready(1)),
        "eof" => Ok(Until::Eof),
        "byte" => Ok(Until::Byte),
        "quiet" => Ok(Until::Quiet),
        counted if counted.starts_with("Z*") => {
            let count = counted[2..]
                .parse()
                .map_err(|_| "a count expected after Z*")?;
            Ok(Until::Ready(count))
        }
        _ => Ok(Until::Tags(
            words.iter().flat_map(|word| word.bytes()).collect(),
        )),
    }
}

fn number(token: Option<&Token>) -> Result<usize, String> {
    let text = token.map(Token::text).unwrap_or_default();
    text.parse().map_err(|_| "a number expected".into())
}

fn is_client(word: &str) -> bool {
    word.len() == 1 && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

impl Script {
    fn push(&mut self, line: usize, action: Action) {
        self.steps.push(Step { line, action });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Version;

    #[test]
    fn a_run_of_messages_is_one_write_and_cut_ends_it() {
        let script = script(
            "x",
            "A > Sync\nA > Sync\nA cut\nA > Sync\nB > Sync\nA wait Z*3\nA < ReadyForQuery I\n",
        )
        .expect("a script");
        let writes: Vec<_> = script
            .steps
            .iter()
            .filter_map(|step| match &step.action {
                Action::Send { client, bytes } => Some((*client, bytes.len())),
                _ => None,
            })
            .collect();
        assert_eq!(writes, [('A', 10), ('A', 5), ('B', 5)]);
    }

    #[test]
    fn blessing_replaces_golden_replies_and_keeps_all_else() {
        let text = "# why\nA > Sync\nA wait Z\nA < old\nA <18 older\nA << ours\n# end\n";
        let script = script("x", text).expect("a script");
        let blessed = script.blessed(Version::Pg18, &[vec!["old".into(), "new".into()]]);
        assert_eq!(
            blessed,
            "# why\nA > Sync\nA wait Z\nA < old\nA <18 new\nA << ours\n# end\n"
        );
    }

    #[test]
    fn a_fault_names_its_line() {
        assert_eq!(
            script("x", "# one\nA > Nonsense\n")
                .map(|_| ())
                .unwrap_err()
                .0,
            1
        );
    }
}
