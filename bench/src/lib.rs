//! Measures poolers side by side, on one machine, in one run.
//!
//! `pgmux-bench` starts PostgreSQL, pgmux and its peers, drives each with
//! `pgbench -S` in interleaved rounds and reports what the *pooler* spent per
//! transaction. `pgmux-idle` opens many idle clients and reports what each
//! costs. Where to look:
//!
//! - [`process`], [`interrupt`]: what is started is ended, whatever happens;
//! - [`cluster`], [`peers`], [`lineup`]: PostgreSQL and the poolers, ready to be measured;
//! - [`procfs`], [`usage`], [`parts`]: what the kernel knows about a process, and about its shards;
//! - [`counters`]: what pgmux says about itself;
//! - [`pgbench`], [`matrix`]: one run, and the order of all runs;
//! - [`results`], [`stats`], [`verdict`]: figures, ratios, targets;
//! - [`first`]: the first queries after a start;
//! - [`idle`], [`login`]: many clients that do nothing;
//! - [`moves`]: all clients on one shard;
//! - [`sharing`]: cache lines that go from shard to shard;
//! - [`attack`]: what strangers do to those who are let in;
//! - [`scale`]: more shards than one, and a fleet of processes beside them;
//! - [`secure`], [`certificate`]: logins, and clients that come by TLS;
//! - [`instructions`], [`valgrind`]: user instructions per transaction;
//! - [`report`]: Markdown, SVG and CSV.

pub mod args;
pub mod attack;
pub mod certificate;
pub mod cluster;
pub mod counters;
pub mod dsn;
pub mod first;
pub mod idle;
pub mod instructions;
pub mod interrupt;
pub mod lineup;
pub mod login;
pub mod machine;
pub mod matrix;
pub mod moves;
pub mod parts;
pub mod peers;
pub mod pgbench;
pub mod process;
pub mod procfs;
pub mod report;
pub mod results;
pub mod scale;
pub mod secure;
pub mod sharing;
pub mod stats;
pub mod target;
pub mod usage;
pub mod valgrind;
pub mod verdict;
