//! The TLS machine of one connection: bytes of the network in, bytes of the
//! network and of the application out. No I/O.
//!
//! rustls's unbuffered form, for it keeps no buffers: what has not come whole
//! is ours to keep, and between records there is nothing to keep.

use super::buffers;
use crate::ring::Chunk;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedConnectionCommon, UnbufferedStatus,
};
use rustls::{CommonState, Error, ServerConfig};
use std::collections::VecDeque;
use std::sync::Arc;

/// See the module's text.
pub struct Records {
    end: End,
    /// The beginning of a record.
    partial: Vec<u8>,
    opened: VecDeque<Chunk>,
    over: Option<Over>,
}

/// [`Records`] on their way to another thread: the machine, what has not come
/// whole, and what is opened and was not taken.
pub(super) struct Packed {
    end: End,
    partial: Vec<u8>,
    opened: Vec<u8>,
    over: Option<Over>,
}

/// Which end of the connection is ours.
enum End {
    /// The server's, before a record has come: who asks for TLS and says no
    /// more costs no machine.
    Listening(Arc<ServerConfig>),
    // Boxed, for a future that waits for a handshake has its parts twice.
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// Why no more will come.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Over {
    /// The other end has said so.
    Closed,
    /// Not TLS, or not what was agreed on.
    Broken(Error),
}

/// What one call of rustls came to.
enum Step {
    /// There is more to do.
    Again,
    /// It wants more bytes.
    Wants,
    /// What was to be sealed is.
    Sealed,
    /// The other end will send no more.
    PeerClosed,
}

/// What is to be done once the machine may send.
#[derive(Clone, Copy)]
enum Task<'a> {
    Nothing,
    Seal(&'a [u8]),
    Close,
}

impl Records {
    /// The server's end, before the handshake.
    pub fn server(config: Arc<ServerConfig>) -> Self {
        Self::new(End::Listening(config))
    }

    /// The client's end, before the handshake.
    pub fn client(connection: UnbufferedClientConnection) -> Self {
        Self::new(End::Client(Box::new(connection)))
    }

    fn new(end: End) -> Self {
        Self {
            end,
            partial: Vec::new(),
            opened: VecDeque::new(),
            over: None,
        }
    }

    /// What both ends know of the connection.
    pub(super) fn state(&self) -> Option<&CommonState> {
        match &self.end {
            End::Listening(_) => None,
            End::Server(connection) => Some(connection),
            End::Client(connection) => Some(connection),
        }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.state().is_none_or(|state| state.is_handshaking())
    }

    /// A client speaks first.
    pub(super) fn speaks_first(&self) -> bool {
        matches!(self.end, End::Client(_))
    }

    pub(super) fn over(&self) -> Option<&Over> {
        self.over.as_ref()
    }

    /// The next bytes of the application.
    pub(super) fn take(&mut self) -> Option<Chunk> {
        let chunk = self.opened.pop_front();
        if self.opened.is_empty() && self.opened.capacity() > OPENED_KEPT {
            self.opened = VecDeque::new();
        }
        chunk
    }

    /// What [`Records::take`] would give.
    pub(super) fn front(&self) -> Option<&[u8]> {
        self.opened.front().map(|chunk| &**chunk)
    }

    pub(super) fn put_back(&mut self, chunk: Chunk) {
        if !chunk.is_empty() {
            self.opened.push_front(chunk);
        }
    }

    /// For another thread.
    pub(super) fn pack(self) -> Packed {
        let mut opened = Vec::new();
        for chunk in &self.opened {
            opened.extend_from_slice(chunk);
        }
        Packed {
            end: self.end,
            partial: self.partial,
            opened,
            over: self.over,
        }
    }

    pub(super) fn unpack(packed: Packed) -> Self {
        let mut records = Self::new(packed.end);
        records.partial = packed.partial;
        records.put_back(Chunk::heap(packed.opened));
        records.over = packed.over;
        records
    }

    pub(super) fn has_opened(&self) -> bool {
        !self.opened.is_empty()
    }

    /// Whether part of a record waits for its end.
    pub(super) fn is_amid_record(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Whether what came so far can be worked on: a record is there whole, or
    /// what came is none at all.
    pub(super) fn has_record(&self) -> bool {
        match self.partial[..] {
            [kind, _, _, a, b, ..] if RECORD_KINDS.contains(&kind) => {
                let length = usize::from(u16::from_be_bytes([a, b]));
                length > RECORD_MAX || self.partial.len() >= RECORD_HEAD + length
            }
            [kind, ..] => !RECORD_KINDS.contains(&kind),
            [] => false,
        }
    }

    /// Adds bytes of the network without looking at them.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        if self.partial.capacity() == 0 {
            self.partial = buffers::take();
        }
        self.partial.extend_from_slice(bytes);
    }

    /// Works on all that has come; `send` takes what TLS itself answers.
    pub(super) fn open(&mut self, send: &mut dyn FnMut(&[u8])) {
        let mut incoming = std::mem::take(&mut self.partial);
        let mut read = 0;
        while self.over.is_none() {
            match self.step(&mut incoming, &mut read, Task::Nothing, send) {
                Step::Again => {}
                Step::Wants | Step::Sealed => break,
                Step::PeerClosed => self.over = Some(Over::Closed),
            }
        }
        if read == incoming.len() || self.over.is_some() {
            buffers::give(incoming);
            return;
        }
        incoming.drain(..read);
        self.partial = incoming;
    }

    /// Encrypts the bytes.
    pub(super) fn seal(&mut self, bytes: &[u8], send: &mut dyn FnMut(&[u8])) {
        for record in bytes.chunks(PLAIN_MAX) {
            self.carry_out(Task::Seal(record), send);
        }
    }

    /// Says that nothing more will be sent.
    pub(super) fn close(&mut self, send: &mut dyn FnMut(&[u8])) {
        self.carry_out(Task::Close, send);
    }

    /// What the machine wants to send after it has failed: an alert.
    pub(super) fn last_words(&mut self, send: &mut dyn FnMut(&[u8])) {
        self.over = None;
        let mut read = 0;
        while self.over.is_none()
            && matches!(
                self.step(&mut [], &mut read, Task::Nothing, send),
                Step::Again
            )
        {}
    }

    fn carry_out(&mut self, task: Task<'_>, send: &mut dyn FnMut(&[u8])) {
        let mut incoming = std::mem::take(&mut self.partial);
        let mut read = 0;
        while !matches!(self.over, Some(Over::Broken(_))) {
            match self.step(&mut incoming, &mut read, task, send) {
                Step::Again => {}
                Step::Sealed | Step::Wants => break,
                Step::PeerClosed => self.over = Some(Over::Closed),
            }
        }
        incoming.drain(..read);
        self.partial = incoming;
    }

    /// One call of rustls. A failure is kept in `over`.
    fn step(
        &mut self,
        incoming: &mut [u8],
        read: &mut usize,
        task: Task<'_>,
        send: &mut dyn FnMut(&[u8]),
    ) -> Step {
        let opened = &mut self.opened;
        let incoming = &mut incoming[*read..];
        let (discard, step) = match &mut self.end {
            End::Listening(config) => {
                // It fails for a configuration that `Acceptor` would not have made.
                let made = UnbufferedServerConnection::new(Arc::clone(config));
                let made = made.map(|machine| self.end = End::Server(Box::new(machine)));
                (0, made.map(|()| Step::Again))
            }
            End::Server(connection) => {
                let connection: &mut UnbufferedConnectionCommon<ServerConnectionData> = connection;
                act(connection.process_tls_records(incoming), opened, task, send)
            }
            End::Client(connection) => {
                let connection: &mut UnbufferedConnectionCommon<ClientConnectionData> = connection;
                act(connection.process_tls_records(incoming), opened, task, send)
            }
        };
        *read += discard;
        step.unwrap_or_else(|error| {
            self.over = Some(Over::Broken(error));
            Step::Again
        })
    }
}

/// Does what the machine's state asks for.
fn act<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    opened: &mut VecDeque<Chunk>,
    task: Task<'_>,
    send: &mut dyn FnMut(&[u8]),
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(Step::Again),
                Some(Err(error)) => break Err(error),
                Some(Ok(record)) => {
                    discard += record.discard;
                    if !record.payload.is_empty() {
                        opened.push_back(Chunk::heap(record.payload.to_vec()));
                    }
                }
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            written(send, 0, |out| match data.encode(out) {
                Err(EncodeError::InsufficientSize(size)) => Err(Some(size.required_size)),
                Err(EncodeError::AlreadyEncoded) => Err(None),
                Ok(length) => Ok(length),
            })
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Step::Again)
        }
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let missing = |error| match error {
                EncryptError::InsufficientSize(size) => Some(size.required_size),
                EncryptError::EncryptExhausted => None,
            };
            match task {
                Task::Nothing => Ok(Step::Wants),
                Task::Seal(bytes) => written(send, bytes.len() + RECORD_EXTRA, |out| {
                    traffic.encrypt(bytes, out).map_err(missing)
                })
                .map(|_| Step::Sealed),
                Task::Close => written(send, ALERT_ROOM, |out| {
                    traffic.queue_close_notify(out).map_err(missing)
                })
                .map(|_| Step::Sealed),
            }
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Wants),
        Ok(ConnectionState::PeerClosed) => Ok(Step::PeerClosed),
        Ok(ConnectionState::Closed) => Ok(Step::Wants),
        // Early data is never offered nor accepted.
        Ok(_) => Err(Error::General("an unexpected state of TLS".into())),
    };
    (discard, step)
}

/// Has `make` write into a buffer of at least `room`, or of the size that it
/// then asks for.
fn written(
    send: &mut dyn FnMut(&[u8]),
    room: usize,
    mut make: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<Step, Error> {
    buffers::with_out(|out| {
        if out.len() < room {
            out.resize(room, 0);
        }
        let made = match make(out) {
            Err(Some(size)) => {
                out.resize(size, 0);
                make(out)
            }
            made => made,
        };
        match made {
            Ok(length) => {
                send(&out[..length]);
                Ok(Step::Again)
            }
            Err(_) => Err(Error::EncryptError),
        }
    })
}

/// Bytes of the application in one record (RFC 8446 section 5.1).
pub(super) const PLAIN_MAX: usize = 16 * 1024;
/// What encryption adds to a record at most: header, nonce, tag, content type.
const RECORD_EXTRA: usize = 64;
/// Type, version, length.
const RECORD_HEAD: usize = 5;
/// The longest encrypted record (RFC 5246 section 6.2.3).
const RECORD_MAX: usize = PLAIN_MAX + 2048;
/// The record with which TLS begins.
pub(super) const HANDSHAKE: u8 = 22;
/// change_cipher_spec, alert, handshake, application_data.
const RECORD_KINDS: std::ops::RangeInclusive<u8> = 20..=23;
const ALERT_ROOM: usize = 64;
/// Chunks for which an idle link keeps room.
const OPENED_KEPT: usize = 4;
