//! The table of texts and verdicts.

/// A line of the table.
#[derive(Clone, Debug)]
pub struct Case {
    pub line: usize,
    pub class: String,
    pub flags: Vec<String>,
    pub text: String,
}

impl Case {
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|found| found == flag)
    }
}

/// All lines of the table.
pub fn cases() -> Vec<Case> {
    let lines = include_str!("statements.txt").lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(at, line)| case(at + 1, line)).collect()
}

fn case(line: usize, text: &str) -> Case {
    let (head, text) = text
        .split_once(':')
        .unwrap_or_else(|| panic!("line {line} has no colon"));
    let mut words = head.split(' ').map(String::from);
    let space = [
        ('␊', "\n"),
        ('␍', "\r"),
        ('␉', "\t"),
        ('␌', "\u{c}"),
        ('␋', "\u{b}"),
    ];
    let text = text.strip_prefix(' ').unwrap_or(text);
    Case {
        line,
        class: words.next().unwrap_or_default(),
        flags: words.collect(),
        text: space
            .iter()
            .fold(text.into(), |text: String, (shown, real)| {
                text.replace(*shown, real)
            }),
    }
}
