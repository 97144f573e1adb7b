//! Authentication exchanges.
