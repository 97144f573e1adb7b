//! Which cache lines go from thread to thread.
//!
//! The bookkeeping is that of a coherent cache without limits: a line that one thread has written must come
//! over when another reads it, and a line that others have read or written must be taken from them before it
//! is written. Each of that is a *transfer*. Lines that all only read never move.

use std::collections::HashMap;

/// valgrind's number of a thread.
pub type Thread = u32;

/// What an instruction did to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// It read.
    Read,
    /// It wrote, or read and wrote.
    Write,
}

/// An instruction of a thread that touched a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// Who.
    pub thread: Thread,
    /// The instruction's address.
    pub code: u64,
    /// How.
    pub access: Access,
}

/// One line.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// How often it went from one thread to another.
    pub transfers: u64,
    /// Who touched it, and how often.
    pub sites: HashMap<Site, u64>,
    written_by: Option<Thread>,
    /// Threads that have it, a bit each.
    holders: u64,
}

/// All lines that were touched while somebody looked.
#[derive(Clone, Debug, Default)]
pub struct Lines(HashMap<u64, Line>);

impl Lines {
    /// An access of `size` bytes.
    pub fn touch(&mut self, site: Site, address: u64, size: u64) {
        let last = address.saturating_add(size.max(1) - 1) / LINE_BYTES;
        for number in address / LINE_BYTES..=last {
            self.0.entry(number).or_default().touch(site);
        }
    }

    /// The lines that moved, most often first, each with its address.
    pub fn moved(&self) -> Vec<(u64, &Line)> {
        let mut moved: Vec<(u64, &Line)> = self
            .0
            .iter()
            .filter(|(_, line)| line.transfers > 0)
            .map(|(number, line)| (number * LINE_BYTES, line))
            .collect();
        moved.sort_unstable_by_key(|(address, line)| (std::cmp::Reverse(line.transfers), *address));
        moved
    }

    /// How many lines were touched.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was touched: then nobody looked, or nothing was traced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Line {
    fn touch(&mut self, site: Site) {
        // More threads than bits share the last one: a transfer may then be missed, never invented.
        let bit = 1u64 << site.thread.min(63);
        match site.access {
            Access::Read => {
                let foreign = self.written_by.is_some_and(|writer| writer != site.thread);
                self.transfers += u64::from(foreign && self.holders & bit == 0);
                self.holders |= bit;
            }
            Access::Write => {
                self.transfers += u64::from(self.holders & !bit != 0);
                self.holders = bit;
                self.written_by = Some(site.thread);
            }
        }
        *self.sites.entry(site).or_default() += 1;
    }
}

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn site(thread: Thread, access: Access) -> Site {
        Site {
            thread,
            code: 0x1000,
            access,
        }
    }

    fn transfers(accesses: &[(Thread, Access)]) -> u64 {
        let mut lines = Lines::default();
        for (thread, access) in accesses {
            lines.touch(site(*thread, *access), 64, 8);
        }
        lines.moved().first().map_or(0, |(_, line)| line.transfers)
    }

    #[test]
    fn what_is_only_read_or_has_one_owner_never_moves() {
        use Access::{Read, Write};
        assert_eq!(transfers(&[(1, Read), (2, Read), (1, Read), (2, Read)]), 0);
        assert_eq!(transfers(&[(1, Write), (1, Read), (1, Write)]), 0);
    }

    #[test]
    fn a_written_line_comes_over_once_to_each_reader_and_back_to_the_writer() {
        use Access::{Read, Write};
        assert_eq!(transfers(&[(1, Write), (2, Read), (2, Read)]), 1);
        assert_eq!(transfers(&[(1, Write), (2, Read), (3, Read)]), 2);
        assert_eq!(transfers(&[(1, Write), (2, Read), (1, Write)]), 2);
        assert_eq!(transfers(&[(1, Write), (2, Write), (1, Write)]), 2);
        assert_eq!(
            transfers(&[(1, Read), (2, Write)]),
            1,
            "it is taken from its reader"
        );
    }

    #[test]
    fn an_access_across_an_edge_touches_both_lines() {
        let mut lines = Lines::default();
        lines.touch(site(1, Access::Write), 60, 8);
        assert_eq!(lines.len(), 2);
        lines.touch(site(2, Access::Read), 56, 4);
        lines.touch(site(2, Access::Read), 64, 1);
        let moved: Vec<u64> = lines
            .moved()
            .into_iter()
            .map(|(address, _)| address)
            .collect();
        assert_eq!(moved, [0, 64], "what lies beside in a line moves with it");
    }
}
