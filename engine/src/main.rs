//! The `pgmux` program.

fn main() {}
