//! How TCP notices a peer that is gone without a word: PostgreSQL's own settings, for clients in `proxy`, for servers in
//! `backend`.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::report::Report;

/// Settings of a TCP connection; zero is the system's default, as in PostgreSQL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keepalive {
    /// After so long without traffic the peer is asked whether it is there.
    pub idle: Duration,
    /// How long it is waited for the answer before the peer is asked again.
    pub interval: Duration,
    /// How often it is asked in vain before the connection is lost.
    pub count: u32,
    /// How long what was sent may be unacknowledged before the connection is lost.
    pub user_timeout: Duration,
}

impl Keepalive {
    /// Sets them on a TCP connection. It is always kept alive.
    pub fn apply(&self, socket: &SockRef<'_>) -> io::Result<()> {
        let set = |time: Duration| (!time.is_zero()).then_some(time);
        let mut keepalive = TcpKeepalive::new();
        if let Some(time) = set(self.idle) {
            keepalive = keepalive.with_time(time);
        }
        if let Some(interval) = set(self.interval) {
            keepalive = keepalive.with_interval(interval);
        }
        if self.count > 0 {
            keepalive = keepalive.with_retries(self.count);
        }
        socket.set_tcp_keepalive(&keepalive)?;
        match set(self.user_timeout) {
            Some(timeout) => socket.set_tcp_user_timeout(Some(timeout)),
            None => Ok(()),
        }
    }

    /// The kernel counts these in seconds, the last one in milliseconds.
    pub(super) fn check(&self, key: &str, report: &mut Report) -> bool {
        let before = report.count();
        let seconds = [
            ("tcp_keepalives_idle", self.idle),
            ("tcp_keepalives_interval", self.interval),
        ];
        for (name, time) in seconds {
            if time.subsec_nanos() != 0 || time.as_secs() > SECONDS_MAX {
                let text = "expected whole seconds up to 32767s (0: the system's default)";
                report.at(&format!("{key}.{name}"), text);
            }
        }
        let millis = self.user_timeout.as_millis();
        let whole = self.user_timeout.subsec_nanos().is_multiple_of(1_000_000);
        if !whole || millis > MILLIS_MAX {
            let text = "expected whole milliseconds up to 24 days (0: the system's default)";
            report.at(&format!("{key}.tcp_user_timeout"), text);
        }
        report.count() == before
    }
}

/// `MAX_TCP_KEEPIDLE` and `MAX_TCP_KEEPINTVL` of Linux.
const SECONDS_MAX: u64 = 32_767;
/// An `int` of milliseconds.
const MILLIS_MAX: u128 = i32::MAX as u128;
