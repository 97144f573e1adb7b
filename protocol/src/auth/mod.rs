//! Authentication exchanges as typestates: each state is a type, and only its own next message
//! moves it on.

pub mod cleartext;
pub mod md5;
mod saslprep;
pub mod scram;
mod secret;

pub use saslprep::saslprep;
pub use secret::Secret;
