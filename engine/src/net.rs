//! Sockets as the rest of the engine wants them.

use crate::auth::Source;
use crate::config::{Keepalive, ListenAddr};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Binds and listens. TCP listeners share their port with those of the other
/// shards (`SO_REUSEPORT`); a unix socket has one listener, whose descriptor
/// the shards share.
pub fn listen(address: &ListenAddr) -> io::Result<OwnedFd> {
    match address {
        ListenAddr::Tcp(address) => listen_tcp(*address),
        ListenAddr::Unix(path) => listen_unix(path),
    }
}

fn listen_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn listen_unix(path: &Path) -> io::Result<OwnedFd> {
    let address = SockAddr::unix(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    match socket.bind(&address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(&address) => {
            std::fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        bound => bound?,
    }
    // Like PostgreSQL's `unix_socket_permissions`: who may connect is decided
    // by authentication.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A socket file whose process is gone refuses connections.
fn is_abandoned(address: &SockAddr) -> bool {
    let refused = |socket: Socket| {
        socket
            .connect(address)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    Socket::new(Domain::UNIX, Type::STREAM, None).is_ok_and(refused)
}

/// A socket to connect to a server with.
pub fn outgoing(address: &SockAddr, keepalive: &Keepalive) -> io::Result<OwnedFd> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    if address.domain() != Domain::UNIX {
        socket.set_tcp_nodelay(true)?;
        keepalive.apply(&SockRef::from(&socket))?;
    }
    Ok(socket.into())
}

/// Options of a connection just accepted.
pub fn tune_incoming(fd: &OwnedFd, keepalive: &Keepalive) -> io::Result<()> {
    let socket = SockRef::from(fd);
    if socket.local_addr()?.domain() != Domain::UNIX {
        socket.set_tcp_nodelay(true)?;
        keepalive.apply(&socket)?;
    }
    Ok(())
}

/// Where a client comes from. An IPv4 address stays one on a socket for both.
pub fn source(fd: &impl AsFd) -> io::Result<Source> {
    let address = socket2::SockRef::from(fd).peer_addr()?;
    Ok(match address.as_socket() {
        Some(address) => Source::Host(address.ip().to_canonical()),
        None => Source::Local,
    })
}

/// Where a client comes from, for the log.
pub fn peer_name(fd: &impl AsFd) -> String {
    let socket = socket2::SockRef::from(fd);
    match socket
        .peer_addr()
        .ok()
        .and_then(|address| address.as_socket())
    {
        Some(address) => address.to_string(),
        None => "local".to_owned(),
    }
}

/// As PostgreSQL asks for with its default of 100 connections and more; the
/// kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
