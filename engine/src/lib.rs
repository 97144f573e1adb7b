//! The engine: ring, shards, sessions.

pub mod ring;
pub mod config;
