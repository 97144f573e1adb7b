//! The listening sockets of all shards: made, or had from who had them before: the service manager (`LISTEN_FDS`), or
//! the process that this one takes over from.

use crate::config::ListenAddr;
use crate::net;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// The listening sockets, by shard.
pub type ByShard = Vec<Vec<OwnedFd>>;

/// A socket that listens already, and where.
pub type Inherited = (ListenAddr, OwnedFd);

/// Has every shard listen at every address: all before anything else is started, so that a mistake ends the process at
/// once. Says where they listen.
pub fn open(
    addresses: &[ListenAddr],
    shards: usize,
    mut inherited: Vec<Inherited>,
) -> Result<(Vec<ListenAddr>, ByShard), (ListenAddr, io::Error)> {
    let mut all: ByShard = (0..shards).map(|_| Vec::new()).collect();
    let mut bound = Vec::new();
    for address in addresses {
        let failed = |error| (address.clone(), error);
        let (own, rest): (Vec<_>, Vec<_>) =
            inherited.into_iter().partition(|(at, _)| at == address);
        inherited = rest;
        let mut own = own.into_iter().map(|(_, fd)| fd);
        let first = match own.next() {
            Some(fd) => fd,
            None => net::listen(address).map_err(failed)?,
        };
        let actual = actual_address(address, &first);
        for (shard, listeners) in all.iter_mut().enumerate().skip(1) {
            let another = match own.next() {
                Some(fd) => fd,
                None => beside(&first, &actual).map_err(failed)?,
            };
            debug_assert!(shard < shards);
            listeners.push(another);
        }
        all[0].push(first);
        // Who had them has had more shards: connections may wait in each.
        for (fd, listeners) in own.zip((0..shards).cycle()) {
            all[listeners].push(fd);
        }
        bound.push(actual);
    }
    Ok((bound, all))
}

/// One more shard listens there. TCP sockets share the port; where the first was not made for that, all share it.
fn beside(first: &OwnedFd, address: &ListenAddr) -> io::Result<OwnedFd> {
    let own = match address {
        ListenAddr::Tcp(_) => net::listen(address).ok(),
        ListenAddr::Unix(_) => None,
    };
    own.map_or_else(|| first.try_clone(), Ok)
}

/// With the port that the kernel chose where port 0 was asked for.
fn actual_address(address: &ListenAddr, fd: &OwnedFd) -> ListenAddr {
    match (address, address_of(fd)) {
        (ListenAddr::Tcp(wanted), Some(ListenAddr::Tcp(local))) => {
            ListenAddr::Tcp(SocketAddr::new(wanted.ip(), local.port()))
        }
        _ => address.clone(),
    }
}

/// Where a socket listens.
pub fn address_of(fd: &impl AsFd) -> Option<ListenAddr> {
    let local = socket2::SockRef::from(fd).local_addr().ok()?;
    let tcp = local.as_socket().map(ListenAddr::Tcp);
    tcp.or_else(|| Some(ListenAddr::Unix(local.as_pathname()?.to_owned())))
}

/// The sockets that the service manager has opened for this process.
pub fn activated() -> Vec<Inherited> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or_default();
    let sockets: Vec<Inherited> = (LISTEN_FDS_START..)
        .take(count.min(ACTIVATED_MAX) as usize)
        .filter_map(|fd| {
            let socket = adopt(fd)
                .inspect_err(|error| tracing::warn!(fd, %error, "a socket of the service manager cannot be used"))
                .ok()?;
            let listens = socket2::SockRef::from(&socket).is_listener().ok()?;
            listens.then_some((address_of(&socket)?, socket))
        })
        .collect();
    for (address, _) in &sockets {
        tracing::info!(%address, "a socket of the service manager");
    }
    sockets
}

/// A descriptor of our own for one that we were started with.
fn adopt(fd: i32) -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(this, fd, PidfdGetfdFlags::empty())?)
}

/// The first descriptor that the service manager passes on (`sd_listen_fds(3)`).
const LISTEN_FDS_START: i32 = 3;
/// More addresses than anybody listens at.
const ACTIVATED_MAX: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(port: u16) -> ListenAddr {
        ListenAddr::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    fn had(count: usize) -> (ListenAddr, Vec<Inherited>) {
        let first = net::listen(&tcp(0)).expect("a socket");
        let address = address_of(&first).expect("its address");
        let more = (1..count).map(|_| net::listen(&address).expect("another"));
        let all = std::iter::once(first).chain(more.collect::<Vec<_>>());
        let all = all.map(|fd| (address.clone(), fd)).collect();
        (address, all)
    }

    #[test]
    fn fewer_shards_take_all_sockets_and_more_make_their_own() {
        for (before, now, each) in [
            (4, 2, vec![2, 2]),
            (1, 3, vec![1, 1, 1]),
            (3, 2, vec![2, 1]),
        ] {
            let (address, inherited) = had(before);
            let (bound, all) = open(std::slice::from_ref(&address), now, inherited).expect("open");
            assert_eq!(bound, [address]);
            assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), each);
        }
    }

    #[test]
    fn a_socket_that_was_not_made_to_be_shared_is_shared_all_the_same() {
        let alone = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        let fd = OwnedFd::from(alone);
        let address = address_of(&fd).expect("its address");
        let inherited = vec![(address.clone(), fd)];
        let (_, all) = open(std::slice::from_ref(&address), 2, inherited).expect("open");
        let addresses: Vec<_> = all.iter().map(|fds| address_of(&fds[0])).collect();
        assert_eq!(addresses, [Some(address.clone()), Some(address)]);
    }

    #[test]
    fn what_nobody_asks_for_is_closed() {
        let (other, inherited) = had(1);
        let (bound, all) = open(&[tcp(0)], 1, inherited).expect("open");
        assert_ne!(bound[0], other);
        assert_eq!(all[0].len(), 1);
    }
}
