//! The ring on real sockets.

mod accepting;
mod closing;
mod connecting;
mod moving;
mod overflow;
mod receiving;
mod relaying;
mod sending;
mod sleeping;
pub(crate) mod support;
mod teardown;
mod timing;
