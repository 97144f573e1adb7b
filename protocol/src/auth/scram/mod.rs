//! SCRAM-SHA-256 (RFC 5802, RFC 7677), both ends, with channel binding (RFC 5929).
//!
//! Spec: sasl-authentication; RFC 5802, RFC 7677, RFC 5929.
//!
//! ```text
//! client                                     server
//!   n,,n=,r=<client nonce>           ------>   ScramServer
//!                                    <------   r=<both nonces>,s=<salt>,i=<iterations>
//!   c=<gs2 and binding>,r=...,p=<proof> --->   AwaitFinal
//!                                    <------   v=<server signature>
//! ```
//!
//! Nothing here draws random numbers or runs the key derivation by itself: nonces, salts and the
//! salted password come from the caller, who knows where such work may be done.

mod binding;
mod client;
mod error;
mod keys;
mod message;
mod server;
mod verifier;

pub use binding::ChannelBinding;
pub use client::{AwaitKey, AwaitServerFinal, ScramClient};
pub use error::SaslError;
pub use keys::salted_password;
pub use server::{AwaitFinal, Proof, ScramServer};
pub use verifier::Verifier;

/// The mechanism without channel binding.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// The mechanism with channel binding.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// PostgreSQL's PG_MAX_SASL_MESSAGE_LENGTH.
pub const MESSAGE_LEN_MAX: usize = 1024;

/// A nonce is 18 random bytes in PostgreSQL, 24 characters; this leaves room for others.
pub const NONCE_LEN_MAX: usize = 256;

/// PostgreSQL's default number of iterations.
pub const ITERATIONS_DEFAULT: u32 = 4096;

/// PostgreSQL salts with 16 bytes; this leaves room for others.
pub const SALT_LEN_MAX: usize = 256;

/// Length of every key, hash and signature.
pub const KEY_LEN: usize = 32;
