//! Prepared statements: a client's definition, and a server's copy of it.

use router::effects::Effects;
use std::collections::HashMap;
use std::rc::Rc;

/// What a client's `Parse` said, without the name. Shared by all clients of
/// a pool that say the same under the same settings.
#[derive(Debug)]
pub struct Definition {
    /// Never used twice in a shard.
    pub id: u64,
    /// The body of the `Parse` behind the name: text and parameter types.
    pub rest: Box<[u8]>,
    /// What the text may do to the session.
    pub effects: Effects,
}

/// A client's named statement.
#[derive(Debug)]
pub struct Statement {
    /// The client's name for it.
    pub name: Box<[u8]>,
    /// What it is.
    pub definition: Rc<Definition>,
}

/// The copies that a server has, least recently used out first.
#[derive(Debug, Default)]
pub struct Prepared {
    copies: HashMap<u64, Copy, foldhash::fast::FixedState>,
    /// Counts copies made: the source of names that are never used twice.
    made: u64,
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
        self.made += 1;
        self.uses += 1;
        let copy = Copy {
            definition: Rc::clone(definition),
            number: self.made,
            used: self.uses,
        };
        self.copies.insert(definition.id, copy);
        self.made
    }

    /// A number for a name that no copy will have.
    pub fn fresh(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Forgets the copy of a definition, if it is the one with this number.
    pub fn forget(&mut self, definition: u64, number: Option<u64>) -> Option<u64> {
        let copy = self.copies.get(&definition)?;
        if number.is_some_and(|number| number != copy.number) {
            return None;
        }
        self.copies.remove(&definition).map(|copy| copy.number)
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
const PREFIX: &str = "pgmux:";

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(id: u64) -> Rc<Definition> {
        Rc::new(Definition {
            id,
            rest: Box::default(),
            effects: Effects::default(),
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
        assert_ne!(prepared.fresh(), prepared.fresh());
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
