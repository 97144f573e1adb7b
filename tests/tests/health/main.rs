//! Servers that are opened for nobody, looked at while idle, or gone; targets that let nobody in, and come back.

mod breaker;
mod dead;
mod idle;
mod names;
mod warm;

use tests::pgmux::Pgmux;
use tests::process::{PATIENCE, eventually};

/// Waits until a figure is at least this one, and gives it.
fn at_least(pgmux: &Pgmux, name: &str, least: u64) -> u64 {
    let enough = || Some(pgmux.figure(name)).filter(|figure| *figure >= least);
    let came = eventually(PATIENCE, enough);
    came.unwrap_or_else(|| panic!("{name} does not reach {least}: {:?}", pgmux.figures()))
}
