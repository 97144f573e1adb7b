//! Whether the addresses can be listened on.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::Access;
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::Finding;
use crate::config::{Admin, ListenAddr};

pub(super) fn check(addrs: &[ListenAddr]) -> Vec<Finding> {
    let problems = addrs.iter().filter_map(|addr| match addr {
        ListenAddr::Tcp(addr) => tcp(*addr, "proxy.listen"),
        ListenAddr::Unix(path) => unix(path),
    });
    problems.map(Finding::refuse).collect()
}

/// The same of where operators ask.
pub(super) fn check_admin(admin: &Admin) -> Vec<Finding> {
    let (metrics, api) = (admin.metrics, admin.api);
    let api = api.and_then(|addr| tcp(addr, "admin.listen"));
    let metrics = metrics.filter(|addr| admin.api != Some(*addr));
    let metrics = metrics.and_then(|addr| tcp(addr, "metrics.listen"));
    api.into_iter()
        .chain(metrics)
        .map(Finding::refuse)
        .collect()
}

/// Binds without `SO_REUSEPORT`: with it, a second pgmux would silently share the clients of the first.
fn tcp(addr: SocketAddr, key: &str) -> Option<String> {
    let bind = || {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if addr.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&SockAddr::from(addr))?;
        socket.listen(1)
    };
    let error: std::io::Error = bind().err()?;
    let port = addr.port();
    Some(match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ADDRINUSE) => format!(
            "{addr} is in use by another process (`ss -ltnp 'sport = :{port}'` shows which): stop that, or choose another {key}"
        ),
        Some(Errno::ACCESS) => format!(
            "port {port} is for privileged processes: choose a port from 1024 on for {key}, or give the program CAP_NET_BIND_SERVICE"
        ),
        Some(Errno::ADDRNOTAVAIL) => format!(
            "{addr} is no address of this machine (`ip addr` shows them): choose another {key}, or 0.0.0.0:{port} for all"
        ),
        Some(Errno::AFNOSUPPORT) => {
            format!(
                "this machine has no IPv6, which {addr} needs: choose an IPv4 address for {key}"
            )
        }
        _ => format!("cannot listen on {addr} ({error}): choose another {key}"),
    })
}

/// A socket that nobody answers on is a leftover, which the listener replaces.
fn unix(path: &Path) -> Option<String> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    if !dir.is_dir() {
        return Some(format!(
            "the directory of {0} does not exist: run `mkdir -p {1}`",
            path.display(),
            dir.display()
        ));
    }
    if rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Some(format!(
            "this user may not write to {0}: run `chown USER {0}`, or choose another proxy.listen",
            dir.display()
        ));
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if !is_socket(&found) => Some(format!(
            "{} exists and is no socket: remove it, or choose another proxy.listen",
            path.display()
        )),
        Ok(_) if UnixStream::connect(path).is_ok() => Some(format!(
            "{} is in use by another process: stop that, or choose another proxy.listen",
            path.display()
        )),
        _ => None,
    }
}

fn is_socket(found: &std::fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_socket(&found.file_type())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_port_in_use_is_found_even_when_it_could_be_shared() {
        let holder = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        holder.set_reuse_port(true).unwrap();
        holder.set_reuse_address(true).unwrap();
        holder
            .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
            .unwrap();
        holder.listen(1).unwrap();
        let addr = holder.local_addr().unwrap().as_socket().unwrap();
        let text = tcp(addr, "proxy.listen").unwrap();
        assert!(
            text.contains("in use") && text.contains(&format!("sport = :{}", addr.port())),
            "{text}"
        );
        drop(holder);
        assert_eq!(tcp(addr, "proxy.listen"), None);
    }

    #[test]
    fn a_foreign_address_is_found() {
        let text = tcp("192.0.2.1:6432".parse().unwrap(), "proxy.listen").unwrap();
        assert!(text.contains("no address of this machine"), "{text}");
    }

    #[test]
    fn a_free_port_stays_free() {
        let addr = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        assert_eq!(tcp(addr, "proxy.listen"), None);
        assert_eq!(tcp(addr, "proxy.listen"), None);
    }

    #[test]
    fn unix_sockets_need_a_directory_and_no_living_owner() {
        let dir = std::env::temp_dir().join(format!("pgmux-ports-{}", std::process::id()));
        let path = dir.join("s");
        assert!(unix(&path).unwrap().contains("mkdir -p"));
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(unix(&path), None);
        let owner = UnixListener::bind(&path).unwrap();
        assert!(unix(&path).unwrap().contains("in use"));
        drop(owner);
        assert_eq!(unix(&path), None, "a leftover is no hindrance");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "precious").unwrap();
        assert!(unix(&path).unwrap().contains("no socket"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
