//! A run of bytes on its way: in a receive buffer, or on the heap.

use super::sys::Slice;
use std::ops::Deref;

/// Bytes queued at a socket.
pub enum Chunk {
    /// Still in the buffer into which the kernel received them.
    Ring(Slice),
    /// Copied or made by us; `start` bytes of it are used up.
    Heap {
        /// The bytes, of which the first `start` do not count any more.
        bytes: Vec<u8>,
        /// How many bytes at the front are used up.
        start: usize,
    },
}

impl Chunk {
    /// Bytes on the heap.
    pub fn heap(bytes: Vec<u8>) -> Self {
        Chunk::Heap { bytes, start: 0 }
    }

    /// Drops the first `n` bytes.
    pub fn advance(&mut self, n: usize) {
        match self {
            Chunk::Ring(slice) => slice.advance(n),
            Chunk::Heap { bytes, start } => {
                assert!(n <= bytes.len() - *start, "advance inside the chunk");
                *start += n;
            }
        }
    }

    /// Cuts off and returns the first `at` bytes: without a copy from a
    /// receive buffer, with one from the heap unless all is taken.
    pub fn split_to(&mut self, at: usize) -> Chunk {
        match self {
            Chunk::Ring(slice) => Chunk::Ring(slice.split_to(at)),
            Chunk::Heap { bytes, start } => {
                if *start == 0 && at == bytes.len() {
                    return Chunk::heap(std::mem::take(bytes));
                }
                let head = bytes[*start..*start + at].to_vec();
                *start += at;
                Chunk::heap(head)
            }
        }
    }

    /// Moves the bytes out of the receive buffer, so that the kernel gets it back.
    pub fn detach(&mut self) {
        if let Chunk::Ring(slice) = self {
            *self = Chunk::heap(slice.to_vec());
        }
    }

    /// Whether a receive buffer is held.
    pub fn holds_buffer(&self) -> bool {
        matches!(self, Chunk::Ring(_))
    }
}

impl Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Chunk::Ring(slice) => slice,
            Chunk::Heap { bytes, start } => &bytes[*start..],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_chunk_splits_and_advances_like_a_slice() {
        let mut chunk = Chunk::heap(b"abcdef".to_vec());
        chunk.advance(1);
        let head = chunk.split_to(2);
        assert_eq!(&*head, b"bc");
        assert_eq!(&*chunk, b"def");
        let rest = chunk.split_to(3);
        assert_eq!(&*rest, b"def");
        assert!(chunk.is_empty());
    }
}
