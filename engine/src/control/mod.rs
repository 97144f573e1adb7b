//! The control socket: by it an operator gives orders to the process, and a new process takes over from an old one.
//!
//! ```text
//! reload                    pause [DATABASE]     resume [DATABASE]
//! reconnect [DATABASE]      kill [DATABASE]      status
//! ```
//!
//! One order a connection, a line; the answer is a line of JSON. Only who may open the socket may give orders: its mode
//! is 0600. It has threads of its own, and nothing of it is on the way of a query.

mod heir;
mod kin;

pub use heir::{Inheritance, inherit};
pub use kin::Kin;

use crate::listeners::Inherited;
use crate::reload::{Operator, OrderError, Paused};
use crossbeam_channel::Sender;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the control socket has the process do that no operator's function does.
pub enum Event {
    /// Another process serves at all addresses: this one may go.
    TakenOver {
        /// Told when this one accepts no more.
        done: Sender<()>,
    },
}

/// What the control socket is about.
pub struct Control {
    /// What is ordered.
    pub operator: Arc<Operator>,
    /// The listening sockets, for a process that takes over; they are gone once one has.
    pub sockets: Mutex<Vec<Inherited>>,
    /// Where this process takes cancel requests of its own clients, whoever else listens.
    pub own: PathBuf,
    /// The processes before and after this one.
    pub kin: Arc<Kin>,
    /// Who is told what happens.
    pub events: Sender<Event>,
    taken_over: AtomicBool,
    busy: AtomicUsize,
}

impl Control {
    /// Of a process that is about to serve.
    pub fn new(
        operator: Arc<Operator>,
        sockets: Vec<Inherited>,
        own: PathBuf,
        kin: Arc<Kin>,
        events: Sender<Event>,
    ) -> Self {
        Self {
            operator,
            sockets: Mutex::new(sockets),
            own,
            kin,
            events,
            taken_over: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
        }
    }

    /// Listens, from one moment to the next in the place of whoever did before.
    pub fn listen(self: &Arc<Self>, path: &Path) -> io::Result<()> {
        let beside = beside(path, "new");
        let _ = std::fs::remove_file(&beside);
        let listener = UnixListener::bind(&beside)?;
        std::fs::set_permissions(&beside, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        std::fs::rename(&beside, path)?;
        let control = Arc::clone(self);
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || control.accept(&listener))?;
        Ok(())
    }

    /// Whether another process has taken over.
    pub fn is_taken_over(&self) -> bool {
        self.taken_over.load(SeqCst)
    }

    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of descriptors, perhaps for long.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let control = Arc::clone(self);
            let place = Place::take(&control);
            let serve = move || {
                let _place = place;
                if let Err(error) = control.serve(stream) {
                    tracing::debug!(%error, "a control connection broke");
                }
            };
            if self.busy.load(SeqCst) <= CONNECTIONS_MAX {
                // Who gets no thread gets no answer.
                let _ = std::thread::Builder::new().spawn(serve);
            }
        }
    }

    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let order = read_line(&mut stream)?;
        let mut words = order.split_whitespace();
        if words.clone().next() == Some("take-over") {
            return self.hand_over(stream, words.nth(1));
        }
        let answer = self.obey(words.next().unwrap_or_default(), words.next());
        writeln!(stream, "{answer}")
    }

    fn obey(&self, order: &str, database: Option<&str>) -> Value {
        let operator = &self.operator;
        let paused = |outcome: Result<Paused, OrderError>| match outcome {
            Ok(Paused::Quiet) => json!({"outcome": "paused"}),
            Ok(Paused::NotYet) => json!({"outcome": "pausing"}),
            Ok(Paused::Overridden) => json!({"error": "it has been resumed meanwhile"}),
            Err(error) => json!({"error": error.to_string()}),
        };
        let done = |outcome: Result<(), OrderError>, word: &str| match outcome {
            Ok(()) => json!({"outcome": word}),
            Err(error) => json!({"error": error.to_string()}),
        };
        match order {
            "reload" => json!(operator.reload()),
            "pause" => paused(operator.pause(database, PAUSE_MAX)),
            "kill" => paused(operator.kill(database, PAUSE_MAX)),
            "resume" => done(operator.resume(database), "resumed"),
            "reconnect" => done(operator.reconnect(database), "reconnecting"),
            "status" => json!({
                "pid": std::process::id(),
                "stopping": operator.is_stopping(),
                "paused": operator.paused(),
            }),
            _ => json!({"error": "expected reload, pause, resume, reconnect, kill or status"}),
        }
    }
}

/// A connection that is being served.
struct Place(Arc<Control>);

impl Place {
    fn take(control: &Arc<Control>) -> Self {
        control.busy.fetch_add(1, SeqCst);
        Self(Arc::clone(control))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, SeqCst);
    }
}

/// The path with something behind it.
pub fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    name.into()
}

/// Byte by byte: what comes behind the line may be descriptors, which a read of more would lose.
fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        match stream.read(&mut byte) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            // The kernel's own work for a ring of this thread.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if byte[0] == b'\n' {
            return String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into());
        }
        line.push(byte[0]);
        if line.len() > LINE_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// How long the other end may be silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a pause may take to be complete before it is reported to be under way.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
const CONNECTIONS_MAX: usize = 32;
/// Far more than an order, or what 256 shards at many addresses make.
const LINE_MAX: usize = 256 * 1024;
