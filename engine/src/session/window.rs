//! A received chunk while it is read: bytes that have been looked at and may
//! go on as they are, and bytes still to be looked at.
//!
//! ```text
//!   | passed ........ | rest ............. |
//!   0                 at                   len
//! ```

use crate::link::Link;
use crate::ring::Chunk;

pub(super) struct Window {
    chunk: Chunk,
    at: usize,
}

impl Window {
    pub(super) fn new(chunk: Chunk) -> Self {
        Self { chunk, at: 0 }
    }

    /// What has not been looked at.
    pub(super) fn rest(&self) -> &[u8] {
        &self.chunk[self.at..]
    }

    /// The next `n` bytes go on as they are.
    pub(super) fn pass(&mut self, n: usize) {
        self.at += n;
        debug_assert!(self.at <= self.chunk.len());
    }

    /// The next `n` bytes do not go on. All that passed must have been
    /// [forwarded](Self::forward) before.
    pub(super) fn skip(&mut self, n: usize) {
        debug_assert_eq!(self.at, 0);
        self.chunk.advance(n);
    }

    /// Sends what passed.
    pub(super) fn forward(&mut self, to: &Link) {
        if self.at == 0 {
            return;
        }
        let passed = if self.at == self.chunk.len() {
            std::mem::replace(&mut self.chunk, Chunk::heap(Vec::new()))
        } else {
            self.chunk.split_to(self.at)
        };
        self.at = 0;
        to.send(passed);
    }

    /// Whether something passed that has not been sent.
    pub(super) fn has_passed(&self) -> bool {
        self.at > 0
    }

    /// What has not been looked at, to be put back.
    pub(super) fn into_rest(self) -> Chunk {
        debug_assert_eq!(self.at, 0);
        self.chunk
    }
}
