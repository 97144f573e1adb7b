//! Golden replies: PostgreSQL's, which may differ between its versions, and pgmux's where they differ on purpose.

use crate::version::Version;

/// The replies that a script has under one wait.
#[derive(Clone, Debug, Default)]
pub struct Golden {
    server: Vec<Reply>,
    pgmux: Vec<Reply>,
}

/// Who gives a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Server,
    Pgmux,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reply {
    /// The version that gives it, if not all do.
    only: Option<Version>,
    text: String,
}

impl Golden {
    /// Adds the reply of a line whose second word is a mark of [`read_mark`].
    pub fn add(&mut self, (whose, only): (Whose, Option<Version>), text: &str) {
        let replies = match whose {
            Whose::Server => &mut self.server,
            Whose::Pgmux => &mut self.pgmux,
        };
        let text = text.into();
        replies.push(Reply { only, text });
    }

    /// What `whose` answers on `version`. Without lines of its own for that version pgmux answers as the server does.
    pub fn expected(&self, whose: Whose, version: Version) -> Vec<String> {
        let of = |replies: &[Reply]| -> Vec<String> {
            let given = replies
                .iter()
                .filter(|reply| reply.only.is_none_or(|only| only == version));
            given.map(|reply| reply.text.clone()).collect()
        };
        match (whose, of(&self.pgmux)) {
            (Whose::Pgmux, ours) if !ours.is_empty() => ours,
            _ => of(&self.server),
        }
    }

    /// The server's lines, with `replies` in place of those of `version`; those of the other version stay. Each line
    /// begins with its mark.
    pub fn blessed(&self, version: Version, replies: &[String]) -> Vec<String> {
        let [first, second] = Version::ALL.map(|each| match each == version {
            true => replies.to_vec(),
            false => self.expected(Whose::Server, each),
        });
        let mut lines = Vec::new();
        let (mut left, mut right) = (0, 0);
        let mut say = |mark: &str, texts: &[String]| {
            lines.extend(texts.iter().map(|text| format!("<{mark} {text}")));
        };
        for (from_left, from_right) in common(&first, &second) {
            say(Version::ALL[0].mark(), &first[left..from_left]);
            say(Version::ALL[1].mark(), &second[right..from_right]);
            say("", &first[from_left..=from_left]);
            (left, right) = (from_left + 1, from_right + 1);
        }
        say(Version::ALL[0].mark(), &first[left..]);
        say(Version::ALL[1].mark(), &second[right..]);
        lines
    }
}

/// The mark that a word is: `<` for PostgreSQL's reply, `<<` for pgmux's, and `<18` or `<<18` on one version only.
pub fn read_mark(word: &str) -> Option<(Whose, Option<Version>)> {
    let rest = word.strip_prefix('<')?;
    let (whose, rest) = match rest.strip_prefix('<') {
        Some(rest) => (Whose::Pgmux, rest),
        None => (Whose::Server, rest),
    };
    let only = Version::ALL
        .into_iter()
        .find(|version| version.mark() == rest);
    (rest.is_empty() || only.is_some()).then_some((whose, only))
}

/// The pairs of places of a longest common subsequence.
fn common(left: &[String], right: &[String]) -> Vec<(usize, usize)> {
    // lengths[l][r]: how long it is from these places on.
    let mut lengths = vec![vec![0; right.len() + 1]; left.len() + 1];
    for l in (0..left.len()).rev() {
        for r in (0..right.len()).rev() {
            lengths[l][r] = match left[l] == right[r] {
                true => lengths[l + 1][r + 1] + 1,
                false => lengths[l + 1][r].max(lengths[l][r + 1]),
            };
        }
    }
    let (mut l, mut r) = (0, 0);
    let mut pairs = Vec::new();
    while l < left.len() && r < right.len() {
        if left[l] == right[r] {
            pairs.push((l, r));
            (l, r) = (l + 1, r + 1);
        } else if lengths[l + 1][r] >= lengths[l][r + 1] {
            l += 1;
        } else {
            r += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(lines: &[&str]) -> Golden {
        let mut golden = Golden::default();
        for line in lines {
            let (mark, text) = line.split_once(' ').expect("a mark");
            golden.add(read_mark(mark).expect("a mark"), text);
        }
        golden
    }

    #[test]
    fn versions_share_lines_that_have_no_mark() {
        let golden = golden(&["< a", "<15 b", "<18 c", "<18 d", "< e", "<<18 ours"]);
        let expected = |whose, version| golden.expected(whose, version).join("");
        assert_eq!(expected(Whose::Server, Version::Distribution), "abe");
        assert_eq!(expected(Whose::Server, Version::Pg18), "acde");
        assert_eq!(expected(Whose::Pgmux, Version::Distribution), "abe");
        assert_eq!(expected(Whose::Pgmux, Version::Pg18), "ours");
    }

    #[test]
    fn blessing_one_version_keeps_the_other_and_marks_what_differs() {
        let replies = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        let first = golden(&["< old", "<18 c"]);
        let blessed = first.blessed(Version::Distribution, &replies("a b e"));
        assert_eq!(blessed, ["<15 a", "<15 b", "<15 e", "<18 old", "<18 c"]);
        let lines: Vec<_> = blessed.iter().map(String::as_str).collect();
        let blessed = golden(&lines).blessed(Version::Pg18, &replies("a c d e"));
        assert_eq!(blessed, ["< a", "<15 b", "<18 c", "<18 d", "< e"]);
    }

    #[test]
    fn a_mark_of_no_version_is_none() {
        assert_eq!(read_mark("<"), Some((Whose::Server, None)));
        assert_eq!(read_mark("<<18"), Some((Whose::Pgmux, Some(Version::Pg18))));
        assert_eq!(read_mark("<19"), None);
        assert_eq!(read_mark("<<<"), None);
    }
}
