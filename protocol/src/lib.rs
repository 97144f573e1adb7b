//! The PostgreSQL wire protocol, as bytes and types: no I/O, no clock, no async.
