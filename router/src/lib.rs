//! What SQL text says, as far as a pooler must know it: no I/O, no clock.
//!
//! [`scan`] cuts a text into tokens exactly as PostgreSQL's lexer does. [`statement`] groups them into statements and
//! says what kind each is and whom it names. [`effects`] is the sum: what the text does to the session. [`hint`] is what
//! it asks for itself: a time, a server. [`classify`] tells a read from a write, and remembers it by [`shape`].
//!
//! ```
//! use router::effects::{Effect, scan_effects};
//! use router::scan::Options;
//!
//! let effects = scan_effects(b"SELECT 1; SET search_path = evil", Options::default());
//! assert!(effects.contains(Effect::SetSession) && !effects.is_clean());
//! assert!(scan_effects(b"SELECT 'SET x = 1' -- LISTEN x", Options::default()).is_clean());
//! ```
//!
//! Nothing in here is trusted with more than it can know. Words are found by the lexer's rules, never by searching for
//! substrings; what begins with an unknown word is unknown; the state of a transaction is the server's to tell.

pub mod cache;
pub mod classify;
pub mod effects;
pub mod functions;
pub mod hint;
mod ident;
mod plain;
pub mod scan;
pub mod shape;
pub mod statement;
pub mod survey;
pub mod verdict;
mod word;

pub use ident::Ident;
