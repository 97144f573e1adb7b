//! The engine: ring, shards, sessions.
