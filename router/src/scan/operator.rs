//! Operators, which end before a comment and, mostly, before a sign.

use super::{OPERATOR, Scanner};

impl Scanner<'_> {
    /// The end of the operator at `start`. It ends before `--` and `/*`. A longer one ends in `+` or `-` only if it has
    /// a character that no standard operator has, so that `a=-1` has an equals sign and a minus (`scan.l`, rule
    /// `operator`).
    pub(super) fn operator(&mut self, start: usize) -> usize {
        if start < self.signs_end {
            return start + 1;
        }
        let end = self.before_comment(start, self.skip_class(start + 1, OPERATOR));
        let run = &self.text[start..end];
        let is_sign = |byte: &u8| matches!(byte, b'+' | b'-');
        if run.len() == 1 || !run.last().is_some_and(is_sign) {
            return end;
        }
        if run[..run.len() - 1]
            .iter()
            .any(|byte| b"~!@#^&|`?%".contains(byte))
        {
            return end;
        }
        let body = run.len() - run.iter().rev().take_while(|byte| is_sign(byte)).count();
        // The signs behind the body are one operator each; to find that out again for each would be quadratic.
        self.signs_end = end;
        start + body.max(1)
    }

    fn before_comment(&self, start: usize, end: usize) -> usize {
        let run = &self.text[start..end];
        let comment = run
            .windows(2)
            .position(|pair| pair == b"--" || pair == b"/*");
        comment.map_or(end, |at| start + at)
    }
}
