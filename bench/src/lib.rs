//! Measures poolers side by side.
