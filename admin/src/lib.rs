//! What operators see: the figures of all shards, merged.

pub mod histogram;
pub mod stats;
