//! Scripted servers: they speak as much PostgreSQL as a test wants, and then something else.

mod duel;
mod peer;
mod scram;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub use duel::{Duel, HONEST, read_all};
pub use peer::{Peer, data_row, error, honest_reply, ready, row_description};
pub use scram::{Lie, ScramServer};

use crate::process::{PATIENCE, eventually, free_port};

/// A server on a port of 127.0.0.1 that plays a script for each connection. It ends when it is dropped.
#[derive(Debug)]
pub struct FakeServer {
    port: u16,
    shared: Arc<Shared>,
    accept: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    accepted: AtomicUsize,
    open: AtomicUsize,
}

impl FakeServer {
    /// Starts a server whose connections are played by `script`; the number counts connections from 0. An error that
    /// the script returns ends its connection and nothing else: pgmux may well hang up on a hostile server.
    pub fn start<F>(script: F) -> Self
    where
        F: Fn(&mut Peer, usize) -> io::Result<()> + Send + Sync + 'static,
    {
        Self::start_at("127.0.0.1", free_port(), script)
    }

    /// The same at an address and a port of the test's choice.
    pub fn start_at<F>(address: &str, port: u16, script: F) -> Self
    where
        F: Fn(&mut Peer, usize) -> io::Result<()> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind((address, port)).expect("a port for the scripted server");
        listener
            .set_nonblocking(true)
            .expect("a listener that can be stopped");
        let shared = Arc::new(Shared::default());
        let accept = std::thread::spawn({
            let shared = Arc::clone(&shared);
            let script = Arc::new(script);
            move || accept_loop(&listener, &shared, &script)
        });
        Self {
            port,
            shared,
            accept: Some(accept),
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections it has accepted.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many of its connections are still being played.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Waits until all its connections have ended.
    pub fn expect_abandoned(&self) {
        let ended = eventually(PATIENCE, || (self.open() == 0).then_some(()));
        assert!(
            ended.is_some(),
            "{} connections are still open",
            self.open()
        );
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(accept) = self.accept.take() {
            let _ = accept.join();
        }
    }
}

fn accept_loop<F>(listener: &TcpListener, shared: &Arc<Shared>, script: &Arc<F>)
where
    F: Fn(&mut Peer, usize) -> io::Result<()> + Send + Sync + 'static,
{
    while !shared.stop.load(Ordering::SeqCst) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
        shared.open.fetch_add(1, Ordering::SeqCst);
        let (shared, script) = (Arc::clone(shared), Arc::clone(script));
        // Not joined: a script may wait for a peer that never comes; its own deadlines end it.
        std::thread::spawn(move || {
            let _ = Peer::new(stream).and_then(|mut peer| script(&mut peer, number));
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}
