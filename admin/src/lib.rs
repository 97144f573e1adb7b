//! What operators see: counters of all shards, merged.
