//! The `options` startup parameter: switches for the server process.
//!
//! PROTOCOL: "Message Formats", StartupMessage; split as PostgreSQL's
//! `pg_split_opts` does: at white space, a backslash takes the next byte as
//! it is.

/// A setting made by a switch: its name, folded as PostgreSQL folds it, and
/// its value.
pub(super) type Setting = (Box<[u8]>, Box<[u8]>);

/// Reads `-c name=value` and `--name=value`. The error is a sentence for the
/// client.
pub(super) fn parse(options: &[u8]) -> Result<Vec<Setting>, String> {
    let mut settings = Vec::new();
    let mut words = split(options).into_iter();
    while let Some(word) = words.next() {
        let assignment = match word.as_slice() {
            b"-c" => words.next().ok_or("option requires an argument -- 'c'")?,
            [b'-', b'-', rest @ ..] if !rest.is_empty() => rest.to_vec(),
            [b'-', b'c', rest @ ..] => rest.to_vec(),
            other => {
                let word = String::from_utf8_lossy(other);
                return Err(format!(
                    "invalid command-line argument for server process: {word}; pgmux takes -c name=value and --name=value"
                ));
            }
        };
        settings.push(assign(&assignment)?);
    }
    Ok(settings)
}

fn assign(assignment: &[u8]) -> Result<Setting, String> {
    let at = assignment
        .iter()
        .position(|&byte| byte == b'=')
        .filter(|&at| at > 0);
    let Some(at) = at else {
        return Err(format!(
            "-c {} requires a value",
            String::from_utf8_lossy(assignment)
        ));
    };
    Ok((fold(&assignment[..at], true), assignment[at + 1..].into()))
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

    #[test]
    fn other_switches_and_missing_values_are_refused() {
        for options in ["-d 5", "-c", "-c work_mem", "-c =3", "x", "--"] {
            assert!(parse(options.as_bytes()).is_err(), "{options}");
        }
    }

    #[test]
    fn nothing_is_no_setting() {
        assert_eq!(parsed("  \t "), []);
    }
}
