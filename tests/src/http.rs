//! A client of pgmux's admin API: one that others have written, and a raw one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::process::PATIENCE;

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers; the names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: String,
}

impl Answer {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body, which must be JSON.
    pub fn json(&self) -> Value {
        let parsed = serde_json::from_str(&self.body);
        parsed.unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The API at a port of 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub struct Http {
    /// The port.
    pub port: u16,
}

impl Http {
    /// Asks, with these headers.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .timeout_global(Some(PATIENCE))
            .build()
            .new_agent();
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://127.0.0.1:{}{path}", self.port));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        let mut answer = agent
            .run(request)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let headers = answer.headers().iter();
        Answer {
            status: answer.status().as_u16(),
            headers: headers
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or("").to_owned()))
                .collect(),
            body: answer.body_mut().read_to_string().expect("a body"),
        }
    }

    /// `GET`.
    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[])
    }

    /// `GET`, which must succeed with JSON.
    pub fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// `POST`.
    pub fn post(&self, path: &str) -> Answer {
        self.ask("POST", path, &[])
    }

    /// `DELETE`.
    pub fn delete(&self, path: &str) -> Answer {
        self.ask("DELETE", path, &[])
    }

    /// A connection for whatever a test likes to send.
    pub fn raw(&self) -> RawHttp {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let stream = TcpStream::connect(address).expect("a connection to the admin API");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        RawHttp {
            stream,
            unread: Vec::new(),
        }
    }
}

/// See [`Http::raw`].
pub struct RawHttp {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl RawHttp {
    /// Sends bytes. The peer may have closed already.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// The next answer; `None` when the connection has ended without one.
    pub fn answer(&mut self) -> Option<Answer> {
        let end = self.read_until(|bytes| find(bytes, b"\r\n\r\n"))?;
        let head: Vec<u8> = self.unread.drain(..end + 4).collect();
        let head = String::from_utf8(head).expect("a head in UTF-8");
        let mut lines = head.lines();
        let status = lines.next().expect("a status line");
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.map_or(0, |(_, length)| length.parse().expect("a length"));
        self.read_until(|bytes| (bytes.len() >= length).then_some(length))?;
        let body = self.unread.drain(..length).collect();
        Some(Answer {
            status: status.expect("a status"),
            headers,
            body: String::from_utf8(body).expect("a body in UTF-8"),
        })
    }

    /// Whether the connection ends within this time, with nothing more said.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).expect("a timeout");
        match self.stream.read(&mut [0; 1]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    fn read_until(&mut self, found: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
        loop {
            if let Some(at) = found(&self.unread) {
                return Some(at);
            }
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(0) => return None,
                Ok(n) => self.unread.extend_from_slice(&piece[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
