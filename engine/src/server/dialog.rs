//! Conversations of our own with a server, a message at a time: logging in,
//! cleaning, asking for state. Never on the path of a client's query.

use super::{Note, Server, Slot};
use crate::limits::{LOGIN_MESSAGE_BYTES, OWN_ROWS};
use crate::link::Link;
use protocol::backend::{DataRow, ReadyForQuery};
use protocol::encode::{Writer, backend_message};
use protocol::error::Fields;
use protocol::frame::{Deframer, FrameError, Step};
use protocol::frontend::{CopyFail, Query, Sync};
use protocol::ledger::{Kind, Reply, Whose};
use std::fmt;
use std::io;

/// Why a conversation came to an end too early.
#[derive(Debug)]
pub enum Broken {
    /// The server closed the connection, or it broke.
    Closed,
    /// Not PostgreSQL's protocol.
    Frame(FrameError),
    /// A message that answers nothing, or is too long to be ours.
    Unexpected(u8),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Closed => f.write_str("the server closed the connection"),
            Broken::Frame(error) => write!(f, "the server sent garbage: {error}"),
            Broken::Unexpected(tag) => write!(
                f,
                "the server sent an unexpected message of type {:?}",
                *tag as char
            ),
        }
    }
}

impl std::error::Error for Broken {}

impl From<FrameError> for Broken {
    fn from(error: FrameError) -> Self {
        Broken::Frame(error)
    }
}

impl From<Broken> for io::Error {
    fn from(broken: Broken) -> Self {
        io::Error::other(broken)
    }
}

/// A message read whole.
pub struct Message {
    /// Its type.
    pub tag: u8,
    /// Its body, or of a long one as much as is kept.
    pub body: Vec<u8>,
}

/// Reads the next message. Bodies past `keep` bytes are cut short; the rest
/// is read and dropped. Dropping the future may lose a part of a message:
/// the connection is of no use then.
pub async fn read(socket: &Link, frames: &mut Deframer, keep: usize) -> Result<Message, Broken> {
    let mut message: Option<Message> = None;
    loop {
        let Some(mut chunk) = socket.take() else {
            if socket.ended() {
                return Err(Broken::Closed);
            }
            socket.readable().await;
            continue;
        };
        while !chunk.is_empty() {
            match frames.step(&chunk)? {
                Step::Starved { consumed } => chunk.advance(consumed),
                Step::Head(head) => {
                    chunk.advance(head.consumed);
                    message = Some(Message {
                        tag: head.tag,
                        body: Vec::new(),
                    });
                }
                Step::Body { len, .. } => {
                    if let Some(message) = &mut message {
                        let room = keep.saturating_sub(message.body.len()).min(len);
                        message.body.extend_from_slice(&chunk[..room]);
                    }
                    chunk.advance(len);
                }
            }
            if frames.at_boundary()
                && let Some(message) = message.take()
            {
                socket.put_back(chunk);
                return Ok(message);
            }
        }
    }
}

/// What came of a request of ours.
#[derive(Debug, Default)]
pub struct Answer {
    /// Rows, each column as text; `None` is NULL.
    pub rows: Vec<Vec<Option<Box<[u8]>>>>,
    /// Command tags.
    pub tags: Vec<Box<[u8]>>,
    /// The body of the first error.
    pub error: Option<Box<[u8]>>,
    /// Notifications, which are not ours, as messages.
    pub notifications: Vec<u8>,
}

impl Server {
    /// Sends one simple query of ours and reads to its end.
    pub async fn query(&mut self, text: &[u8]) -> Result<Answer, Broken> {
        let mut out = Vec::with_capacity(text.len() + 6);
        Query { text }
            .encode(&mut out)
            .map_err(|_| Broken::Unexpected(b'Q'))?;
        self.ledger.push(Kind::Query, Whose::Ours, None);
        // A simple query destroys the unnamed statement.
        self.unnamed = Slot::Empty;
        self.socket.write(&out);
        self.settle().await
    }

    /// Reads until nothing is owed any more.
    pub async fn settle(&mut self) -> Result<Answer, Broken> {
        let mut answer = Answer::default();
        while !self.ledger.is_empty() {
            let message = read(&self.socket, &mut self.frames, LOGIN_MESSAGE_BYTES).await?;
            self.book(&message, &mut answer)?;
            self.fail_copy(LEFT)?;
            self.end_skipping()?;
            while self.ledger.take_local().is_some() {}
        }
        Ok(answer)
    }

    /// Whoever wanted to send data is not there any more.
    pub fn fail_copy(&mut self, reason: &[u8]) -> Result<(), Broken> {
        if self.ledger.is_copy_in() {
            let mut out = Vec::new();
            let fail = CopyFail { reason };
            fail.encode(&mut out)
                .map_err(|_| Broken::Unexpected(b'f'))?;
            self.socket.write(&out);
            self.ledger.push(Kind::CopyEnd, Whose::Ours, None);
        }
        Ok(())
    }

    /// COPY may have eaten the `Sync` that was to end the batch.
    fn end_skipping(&mut self) -> Result<(), Broken> {
        if self.ledger.is_skipping() {
            let mut out = Vec::new();
            Sync.encode(&mut out)
                .map_err(|_| Broken::Unexpected(b'S'))?;
            self.socket.write(&out);
            self.ledger.push(Kind::Sync, Whose::Ours, None);
        }
        Ok(())
    }

    /// Books one message that no client will see.
    fn book(&mut self, message: &Message, answer: &mut Answer) -> Result<(), Broken> {
        let unexpected = Broken::Unexpected(message.tag);
        if message.tag == b'E' && Fields::new(&message.body).is_fatal() {
            self.last_words = Some(message.body.as_slice().into());
        }
        match self
            .ledger
            .reply(message.tag)
            .map_err(|_| Broken::Unexpected(message.tag))?
        {
            Reply::Async(_) if message.tag == b'S' => self.parameters.read(&message.body),
            Reply::Async(_) if message.tag == b'A' => {
                let copy = |body: &mut Writer<'_>| body.bytes(&message.body);
                backend_message(&mut answer.notifications, b'A', copy).map_err(|_| unexpected)?;
            }
            Reply::Ready(_) => {
                self.status = ReadyForQuery::decode(&message.body)
                    .map_err(|_| unexpected)?
                    .status
            }
            Reply::Failed(_) => {
                answer
                    .error
                    .get_or_insert_with(|| message.body.as_slice().into());
                let undone: Vec<_> = self.ledger.take_undone().collect();
                undone.into_iter().for_each(|entry| self.undo(entry.note));
                self.unnamed = Slot::Unknown;
            }
            Reply::Unsolicited => return Err(Broken::Closed),
            Reply::Part(Whose::Ours) if message.tag == b'D' && answer.rows.len() < OWN_ROWS => {
                answer.rows.push(columns(&message.body).ok_or(unexpected)?);
            }
            _ if message.tag == b'C' => answer
                .tags
                .push(message.body.strip_suffix(&[0]).unwrap_or_default().into()),
            _ => {}
        }
        Ok(())
    }

    /// Takes back what a message that the server has not carried out would
    /// have done to the server's copies. What it means for the client is the
    /// session's business.
    pub fn undo(&mut self, note: Option<Note>) {
        match note {
            Some(Note::Defines(statement)) => {
                self.prepared.forget(statement.definition.id, None);
            }
            Some(Note::Prepares(definition)) => {
                self.prepared.forget(definition.id, None);
            }
            Some(Note::Supplies(statement)) => {
                if let Some(native) = &mut self.native {
                    native.remove(&statement);
                }
            }
            Some(Note::Drops { definition, number }) => self.prepared.restore(definition, number),
            _ => {}
        }
    }
}

fn columns(body: &[u8]) -> Option<Vec<Option<Box<[u8]>>>> {
    let row = DataRow::decode(body).ok()?;
    Some(
        row.columns
            .iter()
            .map(|column| column.map(Into::into))
            .collect(),
    )
}

/// Why COPY data end that a client has left behind.
pub const LEFT: &[u8] = b"the client has left";
