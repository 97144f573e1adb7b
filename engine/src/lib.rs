//! The engine: ring, shards, sessions.

pub mod auth;
pub mod cli;
pub mod client;
pub mod config;
pub mod demo;
pub mod desk;
pub mod lifecycle;
pub mod limits;
pub mod link;
pub mod logging;
pub mod memory;
pub mod net;
pub mod preflight;
pub mod random;
pub mod reload;
pub mod replication;
pub mod resolver;
pub mod ring;
pub mod server;
pub mod session;
pub mod settings;
pub mod shard;
pub mod signal;
pub mod snapshot;
pub mod tls;
