//! Notices that the configuration has changed.
