//! One connection of a scripted server: what it can read and say.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{Lie, ScramServer};
use crate::cluster::PASSWORD;
use crate::process::PATIENCE;
use crate::wire::Message;
use crate::wire::frontend::{cstr, tagged};

/// The server's side of a connection.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    /// The parameters of the startup packet, once it was read.
    pub startup: BTreeMap<String, String>,
    /// The minor of the protocol version in it.
    pub minor: u16,
}

impl Peer {
    /// Takes an accepted connection.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE * 3))?;
        Ok(Self {
            stream,
            startup: BTreeMap::new(),
            minor: 0,
        })
    }

    /// Sends bytes, whatever they mean.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a message.
    pub fn say(&mut self, tag: u8, body: &[u8]) -> io::Result<()> {
        self.send(&tagged(tag, body))
    }

    /// Sends an ErrorResponse.
    pub fn error(&mut self, severity: &str, sqlstate: &str, text: &str) -> io::Result<()> {
        self.send(&error(severity, sqlstate, text))
    }

    /// Reads the startup packet; SSLRequest and GSSENCRequest in front of it are refused. A connection that only
    /// brings a CancelRequest ends here.
    pub fn read_startup(&mut self) -> io::Result<()> {
        loop {
            let body = self.read_packet()?;
            match body.get(..4) {
                Some([0x04, 0xd2, 0x16, 0x2f | 0x30]) => self.send(b"N")?,
                Some(&[0, 3, high, low]) => {
                    self.minor = u16::from_be_bytes([high, low]);
                    let mut parts = body[4..].split(|byte| *byte == 0);
                    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
                        if !key.is_empty() {
                            self.startup.insert(text(key), text(value));
                        }
                    }
                    return Ok(());
                }
                _ => return Err(io::Error::other("no startup packet")),
            }
        }
    }

    /// Reads the startup packet and logs the client in by an honest SCRAM exchange, up to ReadyForQuery.
    pub fn log_in(&mut self) -> io::Result<()> {
        self.read_startup()?;
        self.scram(Lie::None)?;
        self.greet()
    }

    /// Plays the server's half of SCRAM with the password of the test clusters, with one lie.
    pub fn scram(&mut self, lie: Lie) -> io::Result<()> {
        let mut server = ScramServer::new(PASSWORD, lie);
        self.say(
            b'R',
            &[&10_u32.to_be_bytes()[..], &cstr("SCRAM-SHA-256"), &[0]].concat(),
        )?;
        let first = self.read()?;
        self.say(
            b'R',
            &[&11_u32.to_be_bytes()[..], &server.first(&first.body)].concat(),
        )?;
        let last = self.read()?;
        if let Some(signature) = server.last(&last.body) {
            self.say(b'R', &[&12_u32.to_be_bytes()[..], &signature].concat())?;
        }
        self.say(b'R', &0_u32.to_be_bytes())
    }

    /// ParameterStatus, BackendKeyData and ReadyForQuery of a usual server.
    pub fn greet(&mut self) -> io::Result<()> {
        self.send(&parameters())?;
        self.say(b'K', &[0, 0, 0x10, 0, 1, 2, 3, 4])?;
        self.say(b'Z', b"I")
    }

    /// Reads one message.
    pub fn read(&mut self) -> io::Result<Message> {
        let mut tag = [0];
        self.stream.read_exact(&mut tag)?;
        let body = self.read_untagged()?;
        Ok(Message { tag: tag[0], body })
    }

    /// Reads messages up to and with a Query, FunctionCall or Sync: until the client waits for ReadyForQuery.
    pub fn read_request(&mut self) -> io::Result<Vec<Message>> {
        let mut request = Vec::new();
        loop {
            let message = self.read()?;
            let last = b"QFS".contains(&message.tag);
            let end = message.tag == b'X';
            request.push(message);
            if end {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if last {
                return Ok(request);
            }
        }
    }

    /// Answers requests for ever as a server whose only table has one row with the value `value`; a reset query gets
    /// its tag.
    pub fn serve(&mut self, value: &str) -> io::Result<()> {
        loop {
            let request = self.read_request()?;
            let reply = honest_reply(&request, value);
            self.send(&reply)?;
        }
    }

    /// Waits until the client hangs up, and reads what it still says.
    pub fn drain(&mut self) -> io::Result<()> {
        let mut chunk = [0; 4096];
        while self.stream.read(&mut chunk)? > 0 {}
        Ok(())
    }

    /// Does nothing for a while; for delays that are the point of a script.
    pub fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Reads one packet of those that have no tag, without its length.
    pub fn read_packet(&mut self) -> io::Result<Vec<u8>> {
        self.read_untagged()
    }

    fn read_untagged(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(0);
        if !(4..1 << 30).contains(&length) {
            return Err(io::Error::other("a length that makes no sense"));
        }
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }
}

/// An ErrorResponse with the usual fields.
pub fn error(severity: &str, sqlstate: &str, text: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (field, value) in [
        (b'S', severity),
        (b'V', severity),
        (b'C', sqlstate),
        (b'M', text),
    ] {
        body.push(field);
        body.extend(cstr(value));
    }
    body.push(0);
    tagged(b'E', &body)
}

/// What a usual server answers to one request.
pub fn honest_reply(request: &[Message], value: &str) -> Vec<u8> {
    let mut reply = Vec::new();
    for message in request {
        match message.tag {
            b'Q' => reply.extend(simple_reply(&message.body, value)),
            b'P' => reply.extend(tagged(b'1', &[])),
            b'B' => reply.extend(tagged(b'2', &[])),
            b'C' => reply.extend(tagged(b'3', &[])),
            b'D' => {
                if message.body.first() == Some(&b'S') {
                    reply.extend(tagged(b't', &[0, 0]));
                }
                reply.extend(row_description());
            }
            b'E' => {
                reply.extend(data_row(value));
                reply.extend(tagged(b'C', &cstr("SELECT 1")));
            }
            b'S' => reply.extend(ready()),
            _ => {}
        }
    }
    reply
}

/// RowDescription of one text column.
pub fn row_description() -> Vec<u8> {
    let mut body = vec![0, 1];
    body.extend(cstr("value"));
    body.extend([
        0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0,
    ]);
    tagged(b'T', &body)
}

/// A row of one text value.
pub fn data_row(value: &str) -> Vec<u8> {
    let length = u32::try_from(value.len()).unwrap_or(0).to_be_bytes();
    tagged(b'D', &[&[0, 1], &length[..], value.as_bytes()].concat())
}

/// ReadyForQuery outside of a transaction.
pub fn ready() -> Vec<u8> {
    tagged(b'Z', b"I")
}

fn simple_reply(sql: &[u8], value: &str) -> Vec<u8> {
    let sql = text(sql).trim_end_matches('\0').to_ascii_lowercase();
    if sql.starts_with("select") {
        return [
            row_description(),
            data_row(value),
            tagged(b'C', &cstr("SELECT 1")),
            ready(),
        ]
        .concat();
    }
    let words = sql
        .split(';')
        .filter(|statement| !statement.trim().is_empty());
    let mut reply: Vec<u8> = words
        .flat_map(|statement| tagged(b'C', &cstr(&command_tag(statement))))
        .collect();
    reply.extend(ready());
    reply
}

fn command_tag(statement: &str) -> String {
    let upper = statement.trim().to_ascii_uppercase();
    match upper.as_str() {
        "DISCARD ALL" | "DEALLOCATE ALL" => upper,
        _ => upper.split_whitespace().next().unwrap_or_default().into(),
    }
}

fn parameters() -> Vec<u8> {
    let pairs = [
        ("application_name", ""),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("default_transaction_read_only", "off"),
        ("in_hot_standby", "off"),
        ("integer_datetimes", "on"),
        ("IntervalStyle", "postgres"),
        ("is_superuser", "off"),
        ("server_encoding", "UTF8"),
        ("server_version", "15.18"),
        ("session_authorization", "app"),
        ("standard_conforming_strings", "on"),
        ("TimeZone", "UTC"),
    ];
    pairs
        .iter()
        .flat_map(|(key, value)| tagged(b'S', &[cstr(key), cstr(value)].concat()))
        .collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
