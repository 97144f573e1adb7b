//! What is left of a text without its literals: the key under which a verdict is remembered.
//!
//! Two texts have the same shape if their tokens are the same but for white space, comments, the case of words and the
//! values of literals. None of these can change a verdict, by the rules of [`crate::classify`]: where a literal could
//! (`U&"..." UESCAPE '!'`), its text is part of the shape.

/// The secret of a shard's shapes. Who does not know it cannot make two texts of one shape, to have a write judged as the
/// read that was seen before.
#[derive(Clone, Copy)]
pub struct ShapeKey([u64; 4]);

impl std::fmt::Debug for ShapeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ShapeKey(..)")
    }
}

impl ShapeKey {
    /// The key that these random numbers make.
    pub fn new(random: [u64; 4]) -> Self {
        ShapeKey(random)
    }
}

/// 128 bits that stand for a text without its literals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape(pub(crate) u128);

/// A shape in the making. Two lanes of folded 64 by 64 bit products, each with secrets of its own.
#[derive(Clone, Copy)]
pub(crate) struct Mixer {
    first: u64,
    second: u64,
    key: [u64; 4],
}

impl Mixer {
    #[inline]
    pub(crate) fn new(key: &ShapeKey) -> Self {
        Mixer {
            first: key.0[0],
            second: key.0[1],
            key: key.0,
        }
    }

    /// One token of at most 16 bytes: `kind` tells tokens of different kinds and lengths apart.
    #[inline]
    pub(crate) fn short(&mut self, kind: u64, text: u128) {
        let (low, high) = (text as u64, (text >> 64) as u64);
        let kind = kind.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.first = fold(self.first ^ low ^ kind, self.key[2] ^ high);
        self.second = fold(self.second ^ high ^ kind, self.key[3] ^ low).wrapping_add(self.first);
    }

    /// A token of any length.
    pub(crate) fn long(&mut self, kind: u64, text: &[u8]) {
        self.short(kind, text.len() as u128);
        for chunk in text.chunks(16) {
            let mut bytes = [0; 16];
            bytes[..chunk.len()].copy_from_slice(chunk);
            self.short(CHUNK, u128::from_le_bytes(bytes));
        }
    }

    #[inline]
    pub(crate) fn finish(mut self) -> Shape {
        self.short(END, 0);
        Shape(u128::from(self.first) << 64 | u128::from(self.second))
    }
}

/// Kinds that no token has.
const CHUNK: u64 = u64::MAX;
const END: u64 = u64::MAX - 1;

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

impl Shape {
    /// A shape of its own for the texts that begin so and have this length.
    pub(crate) fn with_len(self, len: usize) -> Self {
        Shape(self.0 ^ (len as u128) << 64)
    }
}
