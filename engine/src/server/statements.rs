//! Prepared statements: a client's definition, and a server's copy of it.

use crate::limits::NAME_BYTES;
use router::effects::Effects;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a client's `Parse` said, without the name. Shared by all clients of
/// a pool that say the same under the same settings.
#[derive(Debug)]
pub struct Definition {
    /// Never used twice in a shard.
    pub id: u64,
    /// What it is.
    pub meaning: Meaning,
    /// What the text may do to the session.
    pub effects: Effects,
    /// The time that it asks for, see [`timeout_hint`].
    pub hint: u32,
}

/// What tells a definition from all others, on any shard: the settings that
/// change what a text means, and the body of the `Parse` behind the name.
#[derive(Clone, Debug)]
pub struct Meaning {
    /// All of it.
    pub key: Arc<[u8]>,
    /// Where the body begins.
    pub rest_at: usize,
}

/// The time that a text asks for, in milliseconds; 0 when it asks for none.
#[inline]
pub fn timeout_hint(text: &[u8]) -> u32 {
    router::hint::timeout(text).map_or(0, |time| {
        u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
    })
}

impl Meaning {
    /// The text itself.
    pub fn text(&self) -> &[u8] {
        let rest = &self.key[self.rest_at..];
        let end = rest.iter().position(|byte| *byte == 0);
        &rest[..end.unwrap_or(rest.len())]
    }
}

impl Definition {
    /// The body of the `Parse` behind the name: text and parameter types.
    pub fn rest(&self) -> &[u8] {
        &self.meaning.key[self.meaning.rest_at..]
    }
}

/// A client's named statement.
#[derive(Debug)]
pub struct Statement {
    /// The client's name for it.
    pub name: Box<[u8]>,
    /// What it is.
    pub definition: Rc<Definition>,
    /// Larger than that of every statement that the client made before.
    pub made: u64,
}

/// The copies that a server has, least recently used out first.
#[derive(Debug, Default)]
pub struct Prepared {
    copies: HashMap<u64, Copy, foldhash::fast::FixedState>,
    uses: u64,
}

#[derive(Debug)]
struct Copy {
    definition: Rc<Definition>,
    number: u64,
    used: u64,
}

impl Prepared {
    /// The number of the server's copy, which counts as used now.
    pub fn copy_of(&mut self, definition: &Definition) -> Option<u64> {
        let copy = self.copies.get_mut(&definition.id)?;
        self.uses += 1;
        copy.used = self.uses;
        Some(copy.number)
    }

    /// Notes a copy that a `Parse` about to be sent makes; its number.
    pub fn make(&mut self, definition: &Rc<Definition>) -> u64 {
        let number = fresh_number();
        self.add(Rc::clone(definition), number);
        number
    }

    /// Forgets the copy of a definition, if it is the one with this number.
    pub fn forget(&mut self, definition: u64, number: Option<u64>) -> Option<u64> {
        let copy = self.copies.get(&definition)?;
        if number.is_some_and(|number| number != copy.number) {
            return None;
        }
        self.copies.remove(&definition).map(|copy| copy.number)
    }

    /// All copies with their numbers, least recently used first.
    pub fn in_order(&self) -> Vec<(&Rc<Definition>, u64)> {
        let mut copies: Vec<_> = self.copies.values().collect();
        copies.sort_unstable_by_key(|copy| copy.used);
        let copies = copies.into_iter();
        copies.map(|copy| (&copy.definition, copy.number)).collect()
    }

    /// Adds a copy that the server has, as the one used last.
    pub fn add(&mut self, definition: Rc<Definition>, number: u64) {
        self.uses += 1;
        let used = self.uses;
        let id = definition.id;
        let copy = Copy {
            definition,
            number,
            used,
        };
        self.copies.insert(id, copy);
    }

    /// Brings back a copy whose `Close` the server has skipped.
    pub fn restore(&mut self, definition: Rc<Definition>, number: u64) {
        let used = self.uses;
        self.copies.entry(definition.id).or_insert(Copy {
            definition,
            number,
            used,
        });
    }

    /// Takes out the copy that was not used for the longest time, when there
    /// are `limit` or more.
    pub fn evict(&mut self, limit: usize) -> Option<(Rc<Definition>, u64)> {
        if self.copies.len() < limit.max(1) {
            return None;
        }
        let oldest = self
            .copies
            .values()
            .min_by_key(|copy| copy.used)?
            .definition
            .id;
        self.copies
            .remove(&oldest)
            .map(|copy| (copy.definition, copy.number))
    }

    /// Takes all of them out.
    pub fn take_all(&mut self) -> Vec<(Rc<Definition>, u64)> {
        let copies = self.copies.drain();
        copies
            .map(|(_, copy)| (copy.definition, copy.number))
            .collect()
    }

    /// Keeps only those whose numbers are right.
    pub fn retain(&mut self, mut is_there: impl FnMut(u64) -> bool) {
        self.copies.retain(|_, copy| is_there(copy.number));
    }

    /// The numbers of all of them.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.copies.values().map(|copy| copy.number)
    }

    /// What the copy with this number says.
    pub fn definition_of(&self, number: u64) -> Option<&Rc<Definition>> {
        let mut copies = self.copies.values();
        let copy = copies.find(|copy| copy.number == number)?;
        Some(&copy.definition)
    }

    /// The server has none any more.
    pub fn clear(&mut self) {
        self.copies.clear();
    }

    /// How many copies there are.
    pub fn len(&self) -> usize {
        self.copies.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }
}

/// A number for a name that nothing of ours has had in this process. Shards
/// take them in blocks, so that they do not meet at the counter.
pub fn fresh_number() -> u64 {
    static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static LEFT: Cell<Range<u64>> = const { Cell::new(0..0) };
    }
    LEFT.with(|left| {
        let mut numbers = left.take();
        let number = numbers.next().unwrap_or_else(|| {
            // Zero is the name that no server ever has.
            let start = 1 + NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed);
            numbers = start + 1..start + BLOCK;
            start
        });
        left.set(numbers);
        number
    })
}

const BLOCK: u64 = 1024;

/// As much of a statement's name as PostgreSQL tells names apart by.
pub fn statement_key(name: &[u8]) -> &[u8] {
    &name[..name.len().min(NAME_BYTES)]
}

/// The name of a server's copy.
pub fn internal_name(number: u64) -> String {
    format!("{PREFIX}{number:x}")
}

/// Whether a client's name could be taken for one of ours.
pub fn is_internal(name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes())
}

/// Stands in front of every name that we give. A client's name that begins
/// with it is never sent on.
pub const PREFIX: &str = "pgmux:";

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(id: u64) -> Rc<Definition> {
        Rc::new(Definition {
            id,
            meaning: Meaning {
                key: Arc::default(),
                rest_at: 0,
            },
            effects: Effects::default(),
            hint: 0,
        })
    }

    #[test]
    fn the_copy_unused_for_the_longest_time_is_evicted_first() {
        let mut prepared = Prepared::default();
        let definitions: Vec<_> = (0..3).map(definition).collect();
        for definition in &definitions {
            prepared.make(definition);
        }
        prepared.copy_of(&definitions[0]);
        assert_eq!(prepared.evict(4).map(|(definition, _)| definition.id), None);
        assert_eq!(
            prepared.evict(3).map(|(definition, _)| definition.id),
            Some(1)
        );
        assert_eq!(
            prepared.evict(2).map(|(definition, _)| definition.id),
            Some(2)
        );
    }

    #[test]
    fn a_number_is_never_given_twice() {
        let mut prepared = Prepared::default();
        let first = prepared.make(&definition(1));
        prepared.forget(1, Some(first));
        assert_ne!(prepared.make(&definition(1)), first);
        assert_ne!(fresh_number(), fresh_number());
    }

    #[test]
    fn no_two_shards_give_the_same_number() {
        let take = || (0..3 * BLOCK).map(|_| fresh_number()).collect::<Vec<_>>();
        let shards = [std::thread::spawn(take), std::thread::spawn(take)];
        let mut numbers: Vec<_> = shards
            .into_iter()
            .flat_map(|shard| shard.join().expect("a shard"))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len() as u64, 6 * BLOCK);
        assert!(!numbers.contains(&0));
    }

    #[test]
    fn forgetting_an_older_copy_leaves_the_newer_one() {
        let mut prepared = Prepared::default();
        let first = prepared.make(&definition(1));
        let second = prepared.make(&definition(1));
        assert_eq!(prepared.forget(1, Some(first)), None);
        assert_eq!(prepared.copy_of(&definition(1)), Some(second));
    }
}
