//! Addresses that clients connect to, as they are written in `proxy.listen` and after `--listen`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The port of a unix socket directory when no TCP address says another.
const PORT: u16 = 5432;

/// `sockaddr_un.sun_path` holds 108 bytes with the closing NUL.
pub(super) const UNIX_PATH_MAX: usize = 107;

/// One address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddr {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A unix socket: the path of the socket itself.
    Unix(PathBuf),
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => write!(f, "{addr}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Reads a list of addresses; each problem comes with the number of its item.
///
/// `/dir` is the socket `/dir/.s.PGSQL.<port>`, as libpq looks for it, with the port of the first TCP
/// address in the list, or 5432 without one. `unix:/path` is the socket `/path` itself. Port 0 lets the
/// kernel choose; the line with `ready` in the log says what it chose.
pub fn parse_all<T: AsRef<str>>(texts: &[T]) -> Result<Vec<ListenAddr>, Vec<(usize, String)>> {
    let port = texts
        .iter()
        .filter_map(|text| text.as_ref().parse().ok())
        .map(|addr: SocketAddr| addr.port())
        .find(|port| *port != 0)
        .unwrap_or(PORT);
    let mut addrs: Vec<ListenAddr> = Vec::new();
    let mut problems = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match parse(text.as_ref(), port) {
            Ok(addr) if addrs.contains(&addr) => {
                problems.push((index, format!("{addr} is listed twice")))
            }
            Ok(addr) => addrs.push(addr),
            Err(problem) => problems.push((index, problem)),
        }
    }
    if texts.is_empty() {
        problems.push((0, "expected at least one address".to_owned()));
    }
    if problems.is_empty() {
        Ok(addrs)
    } else {
        Err(problems)
    }
}

fn parse(text: &str, port: u16) -> Result<ListenAddr, String> {
    let path = match text.strip_prefix("unix:") {
        Some(path) if path.starts_with('/') && !path.ends_with('/') => PathBuf::from(path),
        Some(_) => {
            return Err(format!(
                "expected unix: and the absolute path of a socket, got {text:?}"
            ));
        }
        None if text.starts_with('/') => super::socket_in(text, port),
        None => return parse_tcp(text).map(ListenAddr::Tcp),
    };
    if path.as_os_str().len() > UNIX_PATH_MAX {
        return Err(format!(
            "expected a socket path of at most {UNIX_PATH_MAX} bytes, got {}",
            path.display()
        ));
    }
    Ok(ListenAddr::Unix(path))
}

fn parse_tcp(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("expected an IP address with a port (127.0.0.1:6432, [::1]:6432, 0.0.0.0:6432 for all), a socket directory (/run/pgmux) or unix:/path, got {text:?}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(texts: &[&str]) -> Vec<String> {
        parse_all(texts)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn tcp_and_unix_addresses_are_read() {
        assert_eq!(written(&["127.0.0.1:6432"]), ["127.0.0.1:6432"]);
        assert_eq!(written(&["[::1]:6432"]), ["[::1]:6432"]);
        assert_eq!(written(&["unix:/run/x.sock"]), ["unix:/run/x.sock"]);
        assert_eq!(
            written(&["127.0.0.1:0", "127.0.0.1:6432", "/x"])[2],
            "unix:/x/.s.PGSQL.6432"
        );
    }

    #[test]
    fn a_directory_means_the_socket_that_libpq_looks_for() {
        assert_eq!(written(&["/run/pgmux"]), ["unix:/run/pgmux/.s.PGSQL.5432"]);
        assert_eq!(
            written(&["/run/pgmux/", "127.0.0.1:6432"])[0],
            "unix:/run/pgmux/.s.PGSQL.6432"
        );
    }

    #[test]
    fn what_is_no_address_is_refused_with_its_place() {
        let long = format!("unix:/{}", "x".repeat(107));
        for text in [
            "",
            "localhost:6432",
            "6432",
            "*:6432",
            "127.0.0.1",
            "unix:run",
            "unix:/x/",
            &long,
        ] {
            let problems = parse_all(&["10.0.0.1:1", text]).unwrap_err();
            assert_eq!(problems.len(), 1, "{text}");
            assert_eq!(problems[0].0, 1, "{text}");
        }
        assert!(
            parse_all(&["127.0.0.1:1", "127.0.0.1:1"]).unwrap_err()[0]
                .1
                .contains("twice")
        );
        assert!(parse_all::<&str>(&[]).is_err());
    }

    #[test]
    fn the_longest_socket_path_is_accepted() {
        assert!(parse_all(&[format!("unix:/{}", "x".repeat(106))]).is_ok());
    }
}
