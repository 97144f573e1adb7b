//! The `options` startup parameter: switches for the server process.
//!
//! PROTOCOL: "Message Formats", StartupMessage; split as PostgreSQL's
//! `pg_split_opts` does: at white space, a backslash takes the next byte as
//! it is.

/// A setting made by a switch: its name, folded as PostgreSQL folds it, and
/// its value.
pub(super) type Setting = (Box<[u8]>, Box<[u8]>);

/// What is wrong with the switches, as PostgreSQL says it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) hint: Option<&'static str>,
}

/// What a switch stands for.
enum Switch {
    /// For the postmaster, for a server without one, or of former times.
    Ignored,
    /// The same, with a value.
    IgnoredValue,
    /// This setting gets this value.
    Sets(&'static str, &'static str),
    /// This setting gets the switch's value.
    Takes(&'static str),
    /// `-c name=value`
    Named,
    /// `-d level`
    Debug,
    /// `-f`: a kind of plan that is not to be used.
    Plan,
    /// `-t`: statistics to be logged.
    Statistics,
}

/// The switches of `process_postgres_switches` in PostgreSQL's
/// tcop/postgres.c. What a client may not set is refused by the server.
fn switch(letter: u8) -> Option<Switch> {
    use Switch::*;
    Some(match letter {
        b'b' | b'E' | b'j' | b'n' | b'T' => Ignored,
        b'C' | b'D' | b'r' | b'v' => IgnoredValue,
        b'e' => Sets("datestyle", "euro"),
        b'F' => Sets("fsync", "false"),
        b'i' => Sets("listen_addresses", "*"),
        b'l' => Sets("ssl", "true"),
        b'O' => Sets("allow_system_table_mods", "true"),
        b'P' => Sets("ignore_system_indexes", "true"),
        b's' => Sets("log_statement_stats", "true"),
        b'B' => Takes("shared_buffers"),
        b'h' => Takes("listen_addresses"),
        b'k' => Takes("unix_socket_directories"),
        b'N' => Takes("max_connections"),
        b'p' => Takes("port"),
        b'S' => Takes("work_mem"),
        b'W' => Takes("post_auth_delay"),
        b'c' | b'-' => Named,
        b'd' => Debug,
        b'f' => Plan,
        b't' => Statistics,
        _ => return None,
    })
}

/// Reads the switches as `getopt` of the C library does: several letters may
/// share a word, a value is the rest of the word or the next one, and words
/// that are no switches are complained of last.
pub(super) fn parse(options: &[u8]) -> Result<Vec<Setting>, Fault> {
    let words = split(options);
    let mut settings = Vec::new();
    let mut stray = None;
    let mut before: &[u8] = b"postgres";
    let mut rest = words.iter().map(Vec::as_slice);
    while let Some(word) = rest.next() {
        let mut letters = match word {
            b"--" => {
                stray = stray.or(rest.next());
                break;
            }
            [b'-', letters @ ..] if !letters.is_empty() => letters,
            _ => {
                stray = stray.or(Some(word));
                continue;
            }
        };
        let mut last = word;
        while let [letter, behind @ ..] = letters {
            // In the middle of a word PostgreSQL complains of the word before.
            let blamed = if behind.is_empty() { word } else { before };
            let known = switch(*letter).ok_or_else(|| invalid(blamed))?;
            letters = behind;
            let value = match known {
                Switch::Ignored | Switch::Sets(..) => &[][..],
                _ if !behind.is_empty() => std::mem::take(&mut letters),
                _ => {
                    last = rest.next().ok_or_else(|| invalid(word))?;
                    last
                }
            };
            settings.extend(setting(*letter, known, value, last)?);
        }
        before = last;
    }
    match stray {
        Some(word) => Err(invalid(word)),
        None => Ok(settings),
    }
}

fn setting(
    letter: u8,
    switch: Switch,
    value: &[u8],
    word: &[u8],
) -> Result<Option<Setting>, Fault> {
    let (name, value) = match switch {
        Switch::Ignored | Switch::IgnoredValue => return Ok(None),
        Switch::Sets(name, value) => (name, value.as_bytes()),
        Switch::Takes(name) => (name, value),
        Switch::Named => return assign(letter, value).map(Some),
        Switch::Debug => ("log_min_messages", debug_level(value)),
        Switch::Plan => (
            disabled_plan(value).ok_or_else(|| invalid(word))?,
            &b"false"[..],
        ),
        Switch::Statistics => (
            statistics(value).ok_or_else(|| invalid(word))?,
            &b"true"[..],
        ),
    };
    Ok(Some((name.as_bytes().into(), value.into())))
}

/// `set_debug_options`: as `atoi` reads it, nothing at all is level 0.
fn debug_level(value: &[u8]) -> &'static [u8] {
    match value {
        [b'1'] => b"debug1",
        [b'2'] => b"debug2",
        [b'3'] => b"debug3",
        [b'4'] => b"debug4",
        [b'1'..=b'9', ..] => b"debug5",
        _ => b"notice",
    }
}

/// `set_plan_disabling_options`
fn disabled_plan(value: &[u8]) -> Option<&'static str> {
    Some(match value.first()? {
        b's' => "enable_seqscan",
        b'i' => "enable_indexscan",
        b'o' => "enable_indexonlyscan",
        b'b' => "enable_bitmapscan",
        b't' => "enable_tidscan",
        b'n' => "enable_nestloop",
        b'm' => "enable_mergejoin",
        b'h' => "enable_hashjoin",
        _ => return None,
    })
}

/// `get_stats_option_name`
fn statistics(value: &[u8]) -> Option<&'static str> {
    match value {
        [b'p', b'a', ..] => Some("log_parser_stats"),
        [b'p', b'l', ..] => Some("log_planner_stats"),
        [b'e', ..] => Some("log_executor_stats"),
        _ => None,
    }
}

/// `ParseLongOption`
fn assign(letter: u8, assignment: &[u8]) -> Result<Setting, Fault> {
    let Some(at) = assignment.iter().position(|&byte| byte == b'=') else {
        let switch = if letter == b'-' { "--" } else { "-c " };
        let name = String::from_utf8_lossy(assignment);
        return Err(Fault {
            message: format!("{switch}{name} requires a value"),
            hint: None,
        });
    };
    Ok((fold(&assignment[..at], true), assignment[at + 1..].into()))
}

fn invalid(word: &[u8]) -> Fault {
    let word = String::from_utf8_lossy(word);
    Fault {
        message: format!("invalid command-line argument for server process: {word}"),
        hint: Some("Try \"postgres --help\" for more information."),
    }
}

/// Setting names are case-insensitive in ASCII; switches may be spelled with
/// `-` for `_` (`ParseLongOption`).
pub(super) fn fold(name: &[u8], dashes: bool) -> Box<[u8]> {
    name.iter()
        .map(|&byte| {
            if dashes && byte == b'-' {
                b'_'
            } else {
                byte.to_ascii_lowercase()
            }
        })
        .collect()
}

fn split(options: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = options.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => words.extend(word.take()),
            b'\\' => word.get_or_insert_default().extend(bytes.next()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(options: &str) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let settings = parse(options.as_bytes()).expect("valid options");
        settings
            .iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    #[test]
    fn both_spellings_are_read_and_names_folded() {
        let expected = [
            ("search_path", "zz"),
            ("statement_timeout", "1234"),
            ("work_mem", "8MB"),
        ];
        let settings = parsed("-c search_path=zz -cstatement_timeout=1234 --Work-Mem=8MB");
        assert_eq!(
            settings,
            expected.map(|(name, value)| (name.into(), value.into()))
        );
    }

    #[test]
    fn a_backslash_keeps_a_space() {
        assert_eq!(
            parsed(r"-c application_name=a\ b\\c"),
            [("application_name".into(), r"a b\c".into())]
        );
    }

    fn blamed(options: &str) -> String {
        let fault = parse(options.as_bytes()).expect_err(options);
        let text = fault.message;
        match text.strip_prefix("invalid command-line argument for server process: ") {
            Some(word) => word.into(),
            None => text,
        }
    }

    #[test]
    fn letters_share_a_word_and_values_stand_in_it_or_behind_it() {
        let expected = [
            ("fsync", "false"),
            ("datestyle", "euro"),
            ("work_mem", "1024"),
            ("enable_seqscan", "false"),
            ("enable_hashjoin", "false"),
            ("log_planner_stats", "true"),
            ("log_min_messages", "debug2"),
            ("a.b", ""),
        ];
        let settings = parsed("-FeS 1024 -fs -f h -tpl -d2 -c a.b= -n -C x -vy --");
        assert_eq!(
            settings,
            expected.map(|(name, value)| (name.into(), value.into()))
        );
    }

    #[test]
    fn what_is_wrong_is_named_as_postgresql_names_it() {
        for (options, word) in [
            ("-c", "-c"),
            ("-c work_mem", "-c work_mem requires a value"),
            ("--work_mem", "--work_mem requires a value"),
            ("x", "x"),
            ("-", "-"),
            ("x -c a.b=1 y", "x"),
            ("-- -c", "-c"),
            ("-z", "-z"),
            ("-F -zF", "-F"),
            ("-zF", "postgres"),
            ("-f x", "x"),
            ("-tx", "-tx"),
        ] {
            assert_eq!(blamed(options), word, "{options}");
        }
    }

    #[test]
    fn nothing_is_no_setting() {
        assert_eq!(parsed("  \t "), []);
    }
}
