//! Numbers: `1`, `1.5`, `.5`, `1e10`, `0x1F`, `0o17`, `0b11`, `1_000`.

use super::Scanner;

impl Scanner<'_> {
    /// The end of the number that starts with the digit, or the point before a digit, at `start`. Letters right behind
    /// a number are a token of their own, as they were before PostgreSQL 15 made them an error.
    pub(super) fn number(&self, start: usize) -> usize {
        let is_digit: fn(u8) -> bool = match self.byte(start + 1) {
            b'x' | b'X' => |byte| byte.is_ascii_hexdigit(),
            b'o' | b'O' => |byte| matches!(byte, b'0'..=b'7'),
            b'b' | b'B' => |byte| matches!(byte, b'0' | b'1'),
            _ => return self.decimal(start),
        };
        if self.byte(start) == b'0' {
            let end = self.digits(start + 2, true, is_digit);
            if end > start + 2 {
                return end;
            }
        }
        self.decimal(start)
    }

    fn decimal(&self, start: usize) -> usize {
        let is_digit = |byte: u8| byte.is_ascii_digit();
        let mut end = self.digits(start, false, is_digit);
        // Two points are no fraction: PL/pgSQL's `1..10`.
        if self.byte(end) == b'.' && self.byte(end + 1) != b'.' {
            end = self.digits(end + 1, false, is_digit);
        }
        if matches!(self.byte(end), b'e' | b'E') {
            let sign = usize::from(matches!(self.byte(end + 1), b'+' | b'-'));
            let exponent = end + 1 + sign;
            let exponent_end = self.digits(exponent, false, is_digit);
            if exponent_end > exponent {
                end = exponent_end;
            }
        }
        end
    }

    /// The end of the digits at `at`, between which (and, if so, before which) single underscores may stand.
    fn digits(
        &self,
        mut at: usize,
        underscore_first: bool,
        is_digit: impl Fn(u8) -> bool,
    ) -> usize {
        let mut underscore_allowed = underscore_first;
        loop {
            let skip = usize::from(underscore_allowed && self.byte(at) == b'_');
            if !is_digit(self.byte(at + skip)) {
                return at;
            }
            at += skip + 1;
            underscore_allowed = true;
        }
    }
}
