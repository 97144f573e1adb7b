//! A socket that is read message by message, with a deadline on everything.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::Message;
use crate::process::PATIENCE;
use crate::tls::{Tls, TlsStream};

/// Where a server or pgmux listens.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A unix socket's path.
    Unix(PathBuf),
    /// A TCP address where TLS is asked for first.
    Tls(SocketAddr),
}

impl Endpoint {
    /// A port on 127.0.0.1.
    pub fn local(port: u16) -> Self {
        Self::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))
    }
}

/// Into which pieces a write is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slicing {
    /// One write.
    Whole,
    /// A write for each byte.
    Bytes,
    /// Two writes, cut after so many bytes (wrapped to the length, so that every write is cut).
    Split(usize),
}

/// Why nothing more could be read.
#[derive(Debug)]
pub enum WireError {
    /// The peer has closed, in order or by a reset.
    Closed,
    /// Nothing complete came in time; so much had come.
    Timeout(usize),
    /// The peer closed in the middle of a message; so much of it had come.
    Partial(usize),
    /// Anything else.
    Io(io::Error),
}

impl fmt::Display for WireError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => write!(out, "closed"),
            Self::Timeout(got) => write!(out, "timeout with {got} bytes of a message"),
            Self::Partial(got) => write!(out, "closed after {got} bytes of a message"),
            Self::Io(error) => write!(out, "{error}"),
        }
    }
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

/// A connection of a raw client.
#[derive(Debug)]
pub struct Conn {
    stream: Stream,
    received: Vec<u8>,
    /// How long a read waits.
    pub patience: Duration,
}

impl Conn {
    /// Connects.
    pub fn open(endpoint: &Endpoint) -> io::Result<Self> {
        let stream = match endpoint {
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, PATIENCE)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Endpoint::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Endpoint::Tls(address) => {
                return Self::open(&Endpoint::Tcp(*address))?.secure(&Tls::default());
            }
        };
        Ok(Self {
            stream,
            received: Vec::new(),
            patience: PATIENCE,
        })
    }

    /// A connection that is there already.
    pub fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: Stream::Tcp(stream),
            received: Vec::new(),
            patience: PATIENCE,
        })
    }

    /// Connects by TCP with a receive buffer of `bytes`, for a client that is slow to read.
    pub fn open_narrow(address: SocketAddr, bytes: usize) -> io::Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.set_recv_buffer_size(bytes)?;
        socket.connect(&address.into())?;
        let stream: TcpStream = socket.into();
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: Stream::Tcp(stream),
            received: Vec::new(),
            patience: PATIENCE,
        })
    }

    /// Connects by TCP from this address of the loopback network.
    pub fn open_from(source: Ipv4Addr, address: SocketAddr) -> io::Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((source, 0)).into())?;
        socket.connect(&address.into())?;
        let stream: TcpStream = socket.into();
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: Stream::Tcp(stream),
            received: Vec::new(),
            patience: PATIENCE,
        })
    }

    /// Asks for TLS and, when that is granted, shakes hands.
    pub fn secure(mut self, tls: &Tls) -> io::Result<Self> {
        self.send(&super::frontend::ssl_request())?;
        match self.recv_byte() {
            Ok(b'S') => self.shake_hands(tls),
            other => Err(io::Error::other(format!("TLS is refused: {other:?}"))),
        }
    }

    /// Shakes hands without asking.
    pub fn shake_hands(self, tls: &Tls) -> io::Result<Self> {
        let Stream::Tcp(stream) = self.stream else {
            return Err(io::Error::other("TLS needs a TCP stream"));
        };
        let stream = tls.connect(stream, self.patience)?;
        Ok(Self {
            stream: Stream::Tls(Box::new(stream)),
            ..self
        })
    }

    /// Shakes hands without asking, and in the last flight says all that it ever will.
    pub fn say_at_once(self, tls: &Tls, bytes: &[u8]) -> io::Result<Self> {
        let Stream::Tcp(mut stream) = self.stream else {
            return Err(io::Error::other("TLS needs a TCP stream"));
        };
        stream.set_read_timeout(Some(self.patience))?;
        let stream = tls.say_at_once(&mut stream, bytes)?;
        Ok(Self {
            stream: Stream::Tls(Box::new(stream)),
            ..self
        })
    }

    /// What TLS there is.
    pub fn tls(&mut self) -> &mut TlsStream {
        match &mut self.stream {
            Stream::Tls(stream) => stream,
            _ => panic!("no TLS"),
        }
    }

    /// The address of our end, to find this client in a log.
    pub fn local_port(&self) -> u16 {
        match &self.stream {
            Stream::Tcp(stream) => stream.local_addr().map_or(0, |address| address.port()),
            Stream::Tls(stream) => {
                let local = stream.below_ref().local_addr();
                local.map_or(0, |address| address.port())
            }
            Stream::Unix(_) => 0,
        }
    }

    /// Sends all the bytes in one write.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends all the bytes if the peer takes them in time; what was sent in part stays sent.
    pub fn send_within(&mut self, bytes: &[u8], time: Duration) -> bool {
        let limit = |stream: &Stream, time| match stream {
            Stream::Tcp(stream) => stream.set_write_timeout(time),
            Stream::Unix(stream) => stream.set_write_timeout(time),
            Stream::Tls(stream) => stream.below_ref().set_write_timeout(time),
        };
        let sent = limit(&self.stream, Some(time)).is_ok() && self.send(bytes).is_ok();
        let _ = limit(&self.stream, None);
        sent
    }

    /// Sends all the bytes in pieces. The pause lets the peer read each piece by itself.
    pub fn send_sliced(&mut self, bytes: &[u8], slicing: Slicing) -> io::Result<()> {
        match slicing {
            Slicing::Whole => self.send(bytes),
            Slicing::Bytes => bytes.chunks(1).try_for_each(|byte| {
                self.send(byte)?;
                pause();
                Ok(())
            }),
            Slicing::Split(_) if bytes.len() < 2 => self.send(bytes),
            Slicing::Split(at) => {
                let (head, tail) = bytes.split_at(1 + at % (bytes.len() - 1));
                self.send(head)?;
                pause();
                self.send(tail)
            }
        }
    }

    /// Reads one message.
    pub fn recv(&mut self) -> Result<Message, WireError> {
        let deadline = Instant::now() + self.patience;
        self.fill(5, deadline)?;
        let length = u32::from_be_bytes([
            self.received[1],
            self.received[2],
            self.received[3],
            self.received[4],
        ]);
        let total = 1 + usize::try_from(length).expect("64-bit");
        self.fill(total.max(5), deadline)?;
        let rest = self.received.split_off(total.max(5));
        let whole = std::mem::replace(&mut self.received, rest);
        Ok(Message {
            tag: whole[0],
            body: whole[5..].to_vec(),
        })
    }

    /// Reads messages up to and with the first that has `tag`.
    pub fn recv_until(&mut self, tag: u8) -> Result<Vec<Message>, WireError> {
        let mut messages = Vec::new();
        loop {
            let message = self.recv()?;
            let last = message.tag == tag;
            messages.push(message);
            if last {
                return Ok(messages);
            }
        }
    }

    /// Reads one byte that is no message: the answer to SSLRequest and GSSENCRequest.
    pub fn recv_byte(&mut self) -> Result<u8, WireError> {
        self.fill(1, Instant::now() + self.patience)?;
        Ok(self.received.remove(0))
    }

    /// Reads whatever comes until the peer closes; `Err` when it does not.
    pub fn recv_to_end(&mut self) -> Result<Vec<u8>, WireError> {
        let deadline = Instant::now() + self.patience;
        loop {
            let want = self.received.len() + 1;
            match self.fill(want, deadline) {
                Ok(()) => {}
                Err(WireError::Closed | WireError::Partial(_)) => {
                    return Ok(std::mem::take(&mut self.received));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether nothing comes within `time` and the connection stays open.
    pub fn is_quiet(&mut self, time: Duration) -> bool {
        if !self.received.is_empty() {
            return false;
        }
        matches!(
            self.fill(1, Instant::now() + time),
            Err(WireError::Timeout(0))
        )
    }

    /// Closes our direction only.
    pub fn close_write(&self) {
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tls(stream) => stream.below_ref().shutdown(Shutdown::Write),
        };
    }

    /// Closes with a reset instead of an orderly end, as the kernel does for a killed process with unread input.
    pub fn reset(self) {
        let stream = match &self.stream {
            Stream::Tcp(stream) => stream,
            Stream::Tls(stream) => stream.below_ref(),
            Stream::Unix(_) => return,
        };
        let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
    }

    fn fill(&mut self, want: usize, deadline: Instant) -> Result<(), WireError> {
        let mut chunk = [0_u8; 64 * 1024];
        while self.received.len() < want {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WireError::Timeout(self.received.len()));
            }
            match self.stream.read(&mut chunk, left) {
                Ok(0) if self.received.is_empty() => return Err(WireError::Closed),
                Ok(0) => return Err(WireError::Partial(self.received.len())),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
                    io::ErrorKind::Interrupted => {}
                    // A reset: the peer closed while bytes of ours were unread.
                    io::ErrorKind::ConnectionReset
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::UnexpectedEof => {
                        return Err(WireError::Closed);
                    }
                    _ => return Err(WireError::Io(error)),
                },
            }
        }
        Ok(())
    }
}

impl Stream {
    fn read(&mut self, chunk: &mut [u8], timeout: Duration) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.read(chunk)
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.read(chunk)
            }
            Self::Tls(stream) => {
                stream.below_ref().set_read_timeout(Some(timeout))?;
                stream.read(chunk)
            }
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes),
        }
    }
}

fn pause() {
    std::thread::sleep(Duration::from_micros(100));
}
