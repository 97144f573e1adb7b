//! The PostgreSQL wire protocol, as bytes and types: no I/O, no clock, no async.
//!
//! | module | what it holds |
//! |---|---|
//! | [`frame`] | the deframer: hops message headers without needing a body in memory |
//! | [`tag`] | the letters that open a message, one set for each direction |
//! | [`frontend`], [`backend`] | one type a message: borrowed decode, checked encode |
//! | [`startup`] | the untagged packets before authentication |
//! | [`auth`] | SCRAM-SHA-256, MD5 and cleartext exchanges as typestates |
//! | [`error`] | SQLSTATEs, severities and error fields |
//! | [`cursor`], [`list`], [`encode`] | bounded reading and length-checked writing |
//!
//! Every number that a peer sends is compared before it is used for arithmetic, and no peer
//! number ever sizes an allocation. Nothing here panics on any input.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used
)]
#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

pub mod auth;
pub mod backend;
pub mod cursor;
pub mod encode;
pub mod error;
pub mod frame;
pub mod frontend;
#[doc(hidden)]
pub mod fuzzing;
pub mod ledger;
pub mod list;
pub mod startup;
pub mod tag;
#[cfg(test)]
mod testing;
