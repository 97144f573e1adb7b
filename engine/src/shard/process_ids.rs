//! The process ids that clients are told: they say where a client is, so that
//! a request to cancel finds it without a search.
//!
//! ```text
//! alone:       0 · shard + 1 (11 bits) · slot (20 bits)
//! with peers:  0 · instance (8 bits) · shard (as many as it takes) · slot
//! ```
//!
//! Never 0, and positive as a signed number, which some drivers take it for.
//! The secret beside it keeps all its random bits. Instances need not have as
//! many shards as each other: only its own instance reads what is behind the
//! number.

/// How this instance numbers its clients.
#[derive(Clone, Copy, Debug)]
pub struct ProcessIds {
    instance: Option<u32>,
    slot_bits: u32,
}

/// Whose a process id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A client of this instance.
    Here {
        /// Its shard.
        shard: usize,
        /// Its place among the shard's clients.
        slot: u32,
    },
    /// A client of the instance with this number.
    Instance(u32),
    /// Nobody can have it.
    Nobody,
}

impl ProcessIds {
    /// For an instance with this number, if it has one, and so many shards.
    pub fn new(instance: Option<u32>, shards: usize) -> Self {
        let shards = u32::try_from(shards).unwrap_or(u32::MAX).max(1);
        let slot_bits = match instance {
            None => ALONE_SLOT_BITS,
            Some(_) => INSTANCE_SHIFT.saturating_sub(u32::BITS - (shards - 1).leading_zeros()),
        };
        Self {
            instance,
            slot_bits,
        }
    }

    /// Of a client. Past the last slot that has a number of its own they
    /// repeat; the secret tells such clients apart, and the later one cannot
    /// be cancelled.
    pub fn of(&self, shard: usize, slot: u32) -> u32 {
        let shard = u32::try_from(shard).unwrap_or(0);
        let slot = slot & self.slot_mask();
        let pid = match self.instance {
            None => (shard + 1) << self.slot_bits | slot,
            Some(instance) => instance << INSTANCE_SHIFT | shard << self.slot_bits | slot,
        };
        pid & POSITIVE
    }

    /// Whose it is.
    pub fn owner(&self, pid: u32) -> Owner {
        let slot = pid & self.slot_mask();
        let rest = pid >> self.slot_bits;
        let Some(instance) = self.instance else {
            return match rest.checked_sub(1) {
                Some(shard) => Owner::Here {
                    shard: shard as usize,
                    slot,
                },
                None => Owner::Nobody,
            };
        };
        match pid >> INSTANCE_SHIFT {
            own if own == instance => Owner::Here {
                shard: (rest & ((1 << (INSTANCE_SHIFT - self.slot_bits)) - 1)) as usize,
                slot,
            },
            other @ 1..=INSTANCE_MAX => Owner::Instance(other),
            _ => Owner::Nobody,
        }
    }

    fn slot_mask(&self) -> u32 {
        (1 << self.slot_bits) - 1
    }
}

/// The largest number of an instance.
pub const INSTANCE_MAX: u32 = 255;
const INSTANCE_SHIFT: u32 = 23;
/// A million clients a shard, and 2,047 shards.
const ALONE_SLOT_BITS: u32 = 20;
const POSITIVE: u32 = 0x7FFF_FFFF;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_back_to_its_client_and_is_positive() {
        for instance in [None, Some(1), Some(77), Some(INSTANCE_MAX)] {
            for shards in [1, 2, 3, 4, 64, 65, 256] {
                let ids = ProcessIds::new(instance, shards);
                let last = (1_u32 << 20) / 32 - 1;
                for (shard, slot) in [(0, 0), (0, 1), (shards - 1, 0), (shards - 1, last)] {
                    let pid = ids.of(shard, slot);
                    assert!(i32::try_from(pid).is_ok_and(|pid| pid > 0), "{pid:x}");
                    assert_eq!(ids.owner(pid), Owner::Here { shard, slot });
                }
            }
        }
    }

    #[test]
    fn eight_million_clients_have_ids_of_their_own_beside_an_instances_number() {
        for (shards, slots) in [(1, 1 << 23), (4, 1 << 21), (64, 1 << 17), (256, 1 << 15)] {
            let ids = ProcessIds::new(Some(9), shards);
            let (shard, slot) = (shards - 1, slots - 1);
            assert_eq!(ids.owner(ids.of(shard, slot)), Owner::Here { shard, slot });
            assert_eq!(ids.of(shard, slot + 1), ids.of(shard, 0));
        }
    }

    #[test]
    fn only_an_instance_with_a_number_sees_others() {
        let (one, two) = (ProcessIds::new(Some(1), 64), ProcessIds::new(Some(2), 1));
        assert_eq!(one.owner(two.of(0, 5)), Owner::Instance(2));
        assert_eq!(two.owner(one.of(63, 5)), Owner::Instance(1));
        assert_eq!(one.owner(5), Owner::Nobody);
        assert_eq!(one.owner(u32::MAX), Owner::Nobody);
        let alone = ProcessIds::new(None, 4);
        assert!(matches!(alone.owner(two.of(0, 5)), Owner::Here { .. }));
        assert_eq!(alone.owner(5), Owner::Nobody);
    }
}
