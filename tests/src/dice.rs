//! Choices that a seed repeats.

/// A generator of its own for each life of each client, so that no choice depends on what others do meanwhile.
/// SplitMix64: a counter and a mixer, which is random enough to choose work by.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The generator of one path, such as seed, round, client and life.
    pub fn new(path: &[u64]) -> Self {
        let mut dice = Self(0);
        for part in path {
            dice.0 = dice.roll() ^ part;
        }
        dice
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("64-bit");
        usize::try_from(self.roll() % bound).expect("64-bit")
    }

    /// True in so many of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// A number that the environment gives, such as a seed.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}: a number")),
    )
}
