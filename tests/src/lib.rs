//! End-to-end tests: real PostgreSQL, real drivers, scripted peers.
