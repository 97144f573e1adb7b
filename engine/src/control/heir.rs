//! One process takes over from another: the listening sockets themselves go to it, so no connection waits in a queue
//! that nobody reads any more.
//!
//! ```text
//! new                                              old
//!   take-over PID SOCKET              ──────▶
//!                                     ◀──────       {"listeners": [...], "before": [SOCKET, ...]}, then the descriptors
//!   (shards start, both accept)
//!   ready                             ──────▶
//!                                                   (accepts no more)
//!                                     ◀──────       ok
//!                                                   (lets logins end, drains)
//!   (tries all listeners anew)
//! ```
//!
//! Until `ready` the old process goes on as if nothing were. A new one that fails changes nothing.

use super::{Control, Event, PATIENCE, read_line};
use crate::config::parse_listen;
use crate::listeners::Inherited;
use crossbeam_channel::bounded;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde_json::{Value, json};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a process has from the one that it takes over from.
pub struct Inheritance {
    /// Its listening sockets.
    pub sockets: Vec<Inherited>,
    /// Where it takes cancel requests for its clients, and those before it for theirs.
    pub before: Vec<PathBuf>,
    stream: UnixStream,
}

/// Asks whoever has this control socket for its listeners; `None`: there is nobody.
///
/// `own`: where this process takes cancel requests.
pub fn inherit(path: &Path, own: &Path) -> io::Result<Option<Inheritance>> {
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    writeln!(stream, "take-over {} {}", std::process::id(), own.display())?;
    let header: Value = serde_json::from_str(&read_line(&mut stream)?)?;
    if let Some(error) = header["error"].as_str() {
        return Err(io::Error::other(error.to_owned()));
    }
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "it answers something else");
    let listeners = header["listeners"].as_array().ok_or_else(invalid)?;
    let before = header["before"].as_array().ok_or_else(invalid)?;
    let before = before.iter().filter_map(Value::as_str).map(PathBuf::from);
    let mut sockets = Vec::new();
    for listener in listeners {
        let socket = receive(&stream)?;
        let address = listener.as_str().ok_or_else(invalid)?;
        let mut address = parse_listen(&[address]).map_err(|_| invalid())?;
        sockets.push((address.swap_remove(0), socket));
    }
    Ok(Some(Inheritance {
        sockets,
        before: before.collect(),
        stream,
    }))
}

impl Inheritance {
    /// This process serves: the other may go.
    pub fn is_ready(mut self) -> io::Result<()> {
        self.stream.write_all(b"ready\n")?;
        read_line(&mut self.stream).map(drop)
    }
}

impl Control {
    /// The old process's side.
    pub(super) fn hand_over(&self, mut stream: UnixStream, heir: Option<&str>) -> io::Result<()> {
        let Some(heir) = heir.filter(|_| !self.operator.is_stopping()) else {
            return writeln!(stream, "{}", json!({"error": "it is stopping"}));
        };
        // One at a time; whoever comes second waits, and then finds it stopping.
        let Ok(mut sockets) = self.sockets.try_lock() else {
            let error = "another process takes over already";
            return writeln!(stream, "{}", json!({"error": error}));
        };
        let listeners: Vec<_> = sockets.iter().map(|(at, _)| at.to_string()).collect();
        // An older one may still drain when this one has gone.
        let mut before = self.kin.before();
        before.push(self.own.clone());
        let before: Vec<_> = before
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let header = json!({"listeners": listeners, "before": before});
        writeln!(stream, "{header}")?;
        for (_, socket) in sockets.iter() {
            send(&stream, socket)?;
        }
        stream.set_read_timeout(Some(STARTING))?;
        if read_line(&mut stream)? != "ready" {
            return Ok(());
        }
        self.kin.add_after(heir.into());
        self.taken_over
            .store(true, std::sync::atomic::Ordering::SeqCst);
        sockets.clear();
        tracing::info!("another process has taken over");
        // The process may be stopping by itself.
        let (done, is_done) = bounded(1);
        let _ = self.events.send(Event::TakenOver { done });
        let _ = is_done.recv_timeout(PATIENCE / 2);
        writeln!(stream, "ok")
    }
}

/// One descriptor a message: simple, and never too many for one.
fn send(stream: &UnixStream, socket: &OwnedFd) -> io::Result<()> {
    let fds = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    let byte = [IoSlice::new(b"s")];
    retry_on_intr(|| sendmsg(stream, &byte, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

fn receive(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    retry_on_intr(|| {
        let mut room = [IoSliceMut::new(&mut byte)];
        recvmsg(stream, &mut room, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let lost = || io::Error::new(io::ErrorKind::InvalidData, "a listening socket is missing");
    fds.flatten().next().ok_or_else(lost)
}

/// How long a new process may take from its listeners to its shards.
const STARTING: Duration = Duration::from_secs(60);
