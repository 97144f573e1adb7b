//! Verdicts by shape, for one shard: no lock, a bounded number of bytes, one cache line a look.

use crate::shape::Shape;
use crate::verdict::Verdict;

/// The verdicts that a shard has come to, and no others.
#[derive(Debug)]
pub struct VerdictCache {
    sets: Vec<Set>,
    len: usize,
    sets_max: usize,
}

/// The shapes that share a place, the one asked for last in front. 64 bytes: three shapes with their verdicts and a bit of
/// room, so that to look is to load one line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Set {
    shapes: [u128; WAYS],
    verdicts: [u8; WAYS],
    used: u8,
}

const WAYS: usize = 3;
const SETS_MIN: usize = 16;

impl VerdictCache {
    /// One that never takes more than so many bytes, and takes none before it is used. Below one kibibyte, it keeps
    /// nothing.
    pub fn new(bytes_max: usize) -> Self {
        let sets = bytes_max / size_of::<Set>();
        VerdictCache {
            sets: Vec::new(),
            len: 0,
            sets_max: if sets < SETS_MIN {
                0
            } else {
                1 << sets.ilog2()
            },
        }
    }

    /// What was said of this shape.
    #[inline]
    pub fn get(&mut self, shape: Shape) -> Option<Verdict> {
        let at = self.place(shape)?;
        let set = &mut self.sets[at];
        let way =
            (0..WAYS).find(|&way| set.shapes[way] == shape.0 && way < usize::from(set.used))?;
        let verdict = set.verdicts[way];
        if way > 0 {
            set.shapes.swap(way, way - 1);
            set.verdicts.swap(way, way - 1);
        }
        Some(Verdict::from_bits(verdict))
    }

    /// Remembers it; the one in its place that was asked for longest ago is forgotten if there is no room.
    pub fn insert(&mut self, shape: Shape, verdict: Verdict) {
        if self.len >= self.sets.len() * WAYS / 2 && self.sets.len() < self.sets_max {
            self.grow();
        }
        if let Some(at) = self.place(shape) {
            self.len += usize::from(self.sets[at].insert(shape.0, verdict.to_bits()));
        }
    }

    /// Forgets all, as when what functions do has changed. The memory is given back.
    pub fn clear(&mut self) {
        self.sets = Vec::new();
        self.len = 0;
    }

    /// How many verdicts it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.sets.len() * size_of::<Set>()
    }

    #[inline]
    fn place(&self, shape: Shape) -> Option<usize> {
        let mask = self.sets.len().checked_sub(1)?;
        Some(shape.0 as usize & mask)
    }

    /// To twice the size. A set falls into two, so that none of them can be too full.
    fn grow(&mut self) {
        let sets = (self.sets.len() * 2).max(SETS_MIN);
        let old = std::mem::replace(&mut self.sets, vec![Set::default(); sets]);
        for set in &old {
            for way in (0..usize::from(set.used)).rev() {
                let at = set.shapes[way] as usize & (sets - 1);
                self.sets[at].insert(set.shapes[way], set.verdicts[way]);
            }
        }
    }
}

impl Set {
    /// Puts it in front. Whether there is one more now.
    fn insert(&mut self, shape: u128, verdict: u8) -> bool {
        let known = (0..usize::from(self.used)).find(|&way| self.shapes[way] == shape);
        let last = known.unwrap_or(usize::from(self.used).min(WAYS - 1));
        self.shapes[..=last].rotate_right(1);
        self.verdicts[..=last].rotate_right(1);
        self.shapes[0] = shape;
        self.verdicts[0] = verdict;
        let is_more = known.is_none() && usize::from(self.used) < WAYS;
        self.used += u8::from(is_more);
        is_more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Class;

    fn shape(number: u64) -> Shape {
        let low = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        Shape(u128::from(low.wrapping_mul(0xd6e8_feb8_6659_fd93)) | u128::from(number) << 64)
    }

    #[test]
    fn what_was_said_is_known_until_there_is_no_room() {
        let mut cache = VerdictCache::new(64 * 1024);
        assert_eq!((cache.bytes(), cache.get(shape(1))), (0, None));
        for number in 0..100 {
            let class = Class::ALL[number as usize % Class::ALL.len()];
            cache.insert(shape(number), Verdict::of(class));
        }
        let known = (0..100).filter(|&number| {
            let class = Class::ALL[number as usize % Class::ALL.len()];
            cache.get(shape(number)) == Some(Verdict::of(class))
        });
        assert!(known.count() >= 90);
        assert_eq!(cache.get(shape(1_000)), None);
        cache.clear();
        assert_eq!(
            (cache.len(), cache.bytes(), cache.get(shape(1))),
            (0, 0, None)
        );
    }

    #[test]
    fn it_never_takes_more_bytes_than_it_may_and_the_last_is_there() {
        for bytes_max in [0, 100, 1_024, 5_000, 1 << 20] {
            let mut cache = VerdictCache::new(bytes_max);
            for number in 0..100_000 {
                cache.insert(shape(number), Verdict::UNKNOWN);
                assert_eq!(cache.get(shape(number)).is_some(), bytes_max >= 1_024);
            }
            assert!(cache.bytes() <= bytes_max);
            assert!(cache.len() * size_of::<Set>() <= cache.bytes() * WAYS);
        }
    }

    #[test]
    fn a_verdict_that_changes_is_not_kept_twice() {
        let mut cache = VerdictCache::new(4_096);
        cache.insert(shape(1), Verdict::of(Class::Read));
        cache.insert(shape(1), Verdict::UNKNOWN);
        assert_eq!(
            (cache.len(), cache.get(shape(1))),
            (1, Some(Verdict::UNKNOWN))
        );
    }

    #[test]
    fn what_is_asked_for_often_stays_longest() {
        let mut cache = VerdictCache::new(1_024);
        cache.insert(shape(0), Verdict::of(Class::Read));
        for number in 1..10_000 {
            assert!(cache.get(shape(0)).is_some(), "{number}");
            cache.get(shape(0));
            cache.insert(shape(number), Verdict::UNKNOWN);
            cache.get(shape(0));
        }
    }
}
