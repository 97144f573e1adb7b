//! What systemd is told (`sd_notify(3)`): nothing, where nobody asks for it.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where the process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It serves.
    Ready,
    /// It reads its configuration again; to be followed by [`Phase::Ready`].
    Reloading,
    /// It has been told to stop.
    Stopping,
}

/// Tells the service manager, with a line for people.
pub fn tell(phase: Phase, status: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&address, &text(phase, status, monotonic_micros())) {
        tracing::warn!(%error, "the service manager cannot be told ($NOTIFY_SOCKET)");
    }
}

fn send(address: &OsStr, text: &str) -> io::Result<()> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(address)?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(text.as_bytes(), &address)
        .map(drop)
}

fn text(phase: Phase, status: &str, micros: u64) -> String {
    let status = status.replace('\n', " ");
    match phase {
        Phase::Ready => format!("READY=1\nMAINPID={}\nSTATUS={status}\n", std::process::id()),
        // The time tells this reload from one before (`Type=notify-reload`).
        Phase::Reloading => format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS={status}\n"),
        Phase::Stopping => format!("STOPPING=1\nSTATUS={status}\n"),
    }
}

fn monotonic_micros() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_says_when_it_has_begun() {
        let said = text(Phase::Reloading, "reading\nagain", 17);
        assert_eq!(
            said,
            "RELOADING=1\nMONOTONIC_USEC=17\nSTATUS=reading again\n"
        );
        assert!(monotonic_micros() > 0);
    }

    #[test]
    fn sockets_with_and_without_a_file_are_reached() {
        let name = format!("pgmux-notify-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&address).expect("a socket");
        send(OsStr::new(&format!("@{name}")), "READY=1\n").expect("sent");
        let mut buffer = [0; 64];
        let read = socket.recv(&mut buffer).expect("received");
        assert_eq!(&buffer[..read], b"READY=1\n");
    }
}
