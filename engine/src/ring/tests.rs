//! The ring on real sockets.

mod accepting;
mod closing;
mod connecting;
mod overflow;
mod receiving;
mod relaying;
mod sending;
mod sleeping;
mod support;
mod teardown;
mod timing;
