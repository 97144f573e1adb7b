//! One client twice: through pgmux, and direct in a database of its own. What PostgreSQL answers the second is what
//! the first must be answered, byte for byte where nothing is masked.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tests::wire::{
    Conn, Endpoint, Login, Message, Session, Slicing, WireError, describe, frontend,
};

use crate::work::Request;

/// Long, because a loaded machine may have 64 clients wait for four servers.
const PATIENCE: Duration = Duration::from_secs(150);
/// How many requests are shown when a reply is wrong.
const HISTORY: usize = 40;

/// See the module's text.
#[derive(Debug)]
pub struct Twins {
    pgmux: Line,
    direct: Line,
    tag: String,
    history: VecDeque<String>,
    /// What the last ReadyForQuery said.
    pub status: u8,
}

/// One connection, and the settings that it was told last.
#[derive(Debug)]
struct Line {
    conn: Conn,
    endpoint: Endpoint,
    told: BTreeMap<String, String>,
    key: (i32, Vec<u8>),
}

/// A client's cancel key and where it is good.
pub type Key = (i32, Vec<u8>);

impl Twins {
    /// Logs both in. `logins` are pgmux's and PostgreSQL's.
    pub fn open(endpoints: &[Endpoint; 2], logins: &[Login; 2], tag: &str) -> Result<Self, String> {
        let direct = Line::open(&endpoints[1], &logins[1]).map_err(|e| format!("direct: {e}"))?;
        let pgmux = Line::open(&endpoints[0], &logins[0]).map_err(|e| format!("login: {e}"))?;
        let mut twins = Self {
            pgmux,
            direct,
            tag: tag.into(),
            history: VecDeque::new(),
            status: b'I',
        };
        twins.note(&format!("login {:?}", logins[0].params));
        twins.compare(&[], &[])?;
        Ok(twins)
    }

    /// Sends a request to both and compares every reply.
    pub fn exchange(&mut self, request: &Request, slicing: Slicing) -> Result<(), String> {
        self.note(&request.outline());
        if !request.flushed.is_empty() {
            self.send(&request.flushed, Slicing::Whole)?;
            self.hear(b"TnEsC")?;
        }
        self.send(&request.bytes, slicing)?;
        for _ in 0..request.ends {
            self.hear(b"Z")?;
        }
        Ok(())
    }

    /// The values of the rows with which PostgreSQL itself answers, once both have answered the same.
    pub fn ask(&mut self, sql: &str) -> Result<Vec<String>, String> {
        self.note(sql);
        self.send(&frontend::query(sql), Slicing::Whole)?;
        let messages = self.hear(b"Z")?;
        let rows = messages.iter().filter(|message| message.tag == b'D');
        Ok(rows.flat_map(Message::row).flatten().collect())
    }

    /// Runs a statement that sleeps for long and cancels it until it has ended.
    pub fn cancel(&mut self, sql: &str) -> Result<(), String> {
        self.note(&format!("cancelled: {sql}"));
        self.send(&frontend::query(sql), Slicing::Whole)?;
        for line in [&mut self.direct, &mut self.pgmux] {
            while line.conn.is_quiet(Duration::from_millis(30)) {
                cancel(&line.endpoint, &line.key)?;
            }
        }
        self.hear(b"Z")?;
        Ok(())
    }

    /// Runs a short statement and cancels it about when it ends. Either outcome is right; the next request must not
    /// feel it.
    pub fn race(&mut self, sql: &str) -> Result<(), String> {
        self.note(&format!("raced: {sql}"));
        self.send(&frontend::query(sql), Slicing::Whole)?;
        cancel(&self.pgmux.endpoint, &self.pgmux.key)?;
        let expected = self.direct.turn(b"Z")?;
        let got = self.pgmux.turn(b"Z")?;
        self.check_tags(&got)?;
        let error = got.iter().find(|message| message.tag == b'E');
        match error {
            Some(error) if error.sqlstate() == "57014" => Ok(()),
            _ => self.compare(&expected, &got),
        }
    }

    /// Has the server end the session: both hear the same last words.
    pub fn die(mut self) -> Result<(), String> {
        let sql = "select pg_terminate_backend(pg_backend_pid())";
        self.note(sql);
        self.send(&frontend::query(sql), Slicing::Whole)?;
        let expected = self.direct.last_words();
        let expected = expected.map_err(|error| self.wrong(&format!("direct: {error}")))?;
        let got = self.pgmux.last_words();
        let got = got.map_err(|error| self.wrong(&error))?;
        self.compare(&expected, &got)
    }

    /// Sends bytes through pgmux only, and leaves.
    pub fn leave(mut self, bytes: &[u8], how: Leaving, first_wait: bool) -> Result<(), String> {
        self.note(&format!(
            "leaves by {how:?} after {:?}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(300)])
        ));
        let conn = &mut self.pgmux.conn;
        conn.send(bytes).map_err(|error| self.wrong(&error))?;
        let conn = &mut self.pgmux.conn;
        if first_wait {
            conn.is_quiet(Duration::from_millis(20));
        }
        match how {
            Leaving::Fin => {}
            Leaving::Rst => self.pgmux.conn.reset(),
            Leaving::HalfClose => {
                conn.close_write();
                let messages = self.pgmux.last_words();
                let messages = messages.map_err(|error| self.wrong(&error))?;
                self.check_tags(&messages)?;
            }
        }
        Ok(())
    }

    /// The key by which a cancel request finds this client.
    pub fn key(&self) -> Key {
        self.pgmux.key.clone()
    }

    /// An error with all that is needed to understand it.
    pub fn wrong(&self, what: &dyn std::fmt::Display) -> String {
        let history: Vec<_> = self.history.iter().map(String::as_str).collect();
        format!(
            "client {} (local port {}): {what}\nits last requests:\n  {}",
            self.tag,
            self.pgmux.conn.local_port(),
            history.join("\n  ")
        )
    }

    fn send(&mut self, bytes: &[u8], slicing: Slicing) -> Result<(), String> {
        let direct = self.direct.conn.send(bytes);
        let pgmux = self.pgmux.conn.send_sliced(bytes, slicing);
        direct.map_err(|error| self.wrong(&format!("direct: {error}")))?;
        // What pgmux said before it closed is more telling than that it did.
        if let Err(error) = pgmux {
            let words = self.pgmux.last_words().unwrap_or_default();
            let words: Vec<_> = words.iter().map(describe).collect();
            return Err(self.wrong(&format!("{error}; pgmux's last words: {words:#?}")));
        }
        Ok(())
    }

    /// Reads from both up to one of these tags and compares.
    fn hear(&mut self, until: &[u8]) -> Result<Vec<Message>, String> {
        let expected = self.direct.turn(until);
        let expected = expected.map_err(|error| self.wrong(&format!("direct: {error}")))?;
        let got = self.pgmux.turn(until);
        let got = got.map_err(|error| {
            let expected: Vec<_> = expected.iter().map(describe).collect();
            self.wrong(&format!("{error}\nexpected: {expected:#?}"))
        })?;
        self.compare(&expected, &got)?;
        if let Some(last) = expected.last().filter(|last| last.tag == b'Z') {
            self.status = last.body[0];
        }
        Ok(expected)
    }

    fn compare(&mut self, expected: &[Message], got: &[Message]) -> Result<(), String> {
        self.check_tags(got)?;
        let lines =
            |messages: &[Message]| -> Vec<String> { messages.iter().map(describe).collect() };
        let (expected, got) = (lines(expected), lines(got));
        if expected != got {
            return Err(self.wrong(&format!("expected {expected:#?}\ngot {got:#?}")));
        }
        if self.direct.told != self.pgmux.told {
            return Err(self.wrong(&format!(
                "settings told: expected {:#?}\ngot {:#?}",
                self.direct.told, self.pgmux.told
            )));
        }
        Ok(())
    }

    /// Whatever bears a tag must bear ours.
    fn check_tags(&self, messages: &[Message]) -> Result<(), String> {
        let told = self.pgmux.told.values().map(String::as_bytes);
        let bodies = messages.iter().map(|message| message.body.as_slice());
        for text in bodies.chain(told) {
            let parts: Vec<&[u8]> = text.split(|byte| *byte == b'~').collect();
            let own = self.tag.trim_matches('~').as_bytes();
            let foreign = parts
                .iter()
                .find(|part| looks_like_tag(part) && **part != own);
            if let Some(foreign) = foreign {
                let foreign = String::from_utf8_lossy(foreign);
                let all: Vec<_> = messages.iter().map(describe).collect();
                return Err(self.wrong(&format!("saw what is of ~{foreign}~ in {all:#?}")));
            }
        }
        Ok(())
    }

    fn note(&mut self, what: &str) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        let status = char::from(self.status);
        self.history.push_back(format!("{status} {what}"));
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
pub enum Leaving {
    /// The socket is closed; a FIN, or a RST if something is unread.
    Fin,
    /// A RST.
    Rst,
    /// A FIN, and whatever still comes is read.
    HalfClose,
}

impl Line {
    fn open(endpoint: &Endpoint, login: &Login) -> Result<Self, String> {
        let mut conn = Conn::open(endpoint).map_err(|error| error.to_string())?;
        conn.patience = PATIENCE;
        let session = Session::log_in(conn, login)?;
        Ok(Self {
            conn: session.conn,
            endpoint: endpoint.clone(),
            told: session.parameters,
            key: session.key.ok_or("no cancel key")?,
        })
    }

    /// The messages up to one of these tags. ParameterStatus is kept apart: pgmux may report a value on its way to
    /// the last one, and only the last one counts.
    fn turn(&mut self, until: &[u8]) -> Result<Vec<Message>, String> {
        let mut messages = Vec::new();
        loop {
            let message = self.conn.recv().map_err(|error| {
                let before: Vec<_> = messages.iter().map(describe).collect();
                format!("{error} after {before:#?}")
            })?;
            if message.tag == b'S' {
                self.learn(&message.body);
                continue;
            }
            let last = until.contains(&message.tag);
            messages.push(message);
            if last {
                return Ok(messages);
            }
        }
    }

    fn last_words(&mut self) -> Result<Vec<Message>, String> {
        let mut messages = Vec::new();
        loop {
            match self.conn.recv() {
                Ok(message) if message.tag == b'S' => self.learn(&message.body),
                Ok(message) => messages.push(message),
                // pgmux takes a FIN for the end of the client, in the middle of a reply too.
                Err(WireError::Closed | WireError::Partial(_)) => return Ok(messages),
                Err(error) => return Err(format!("no end of the connection: {error}")),
            }
        }
    }

    fn learn(&mut self, body: &[u8]) {
        let mut parts = body.split(|byte| *byte == 0);
        let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
        self.told.insert(text(), text());
    }
}

/// Sends a cancel request and waits until it can hit nothing any more.
pub fn cancel(endpoint: &Endpoint, (pid, key): &Key) -> Result<(), String> {
    let mut conn = Conn::open(endpoint).map_err(|error| error.to_string())?;
    conn.patience = PATIENCE;
    let _ = conn.send(&frontend::cancel_request(*pid, key));
    match conn.recv_to_end() {
        Ok(reply) if reply.is_empty() => Ok(()),
        other => Err(format!("a cancel connection ended with {other:?}")),
    }
}

/// `round.client.life`.
fn looks_like_tag(text: &[u8]) -> bool {
    let dots = text.iter().filter(|byte| **byte == b'.').count();
    dots == 2
        && text
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'.')
}
