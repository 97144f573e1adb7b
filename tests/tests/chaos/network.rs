//! What is between pgmux and PostgreSQL: a cable that can be pulled, and a relay behind it that can be slow.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tests::netns::Cable;

/// Between pgmux and one PostgreSQL.
pub struct Network {
    /// None where nobody may make namespaces: then the relay holds everything back instead.
    cable: Option<Cable>,
    address: SocketAddr,
    state: Arc<State>,
}

/// How the relay behaves.
#[derive(Default)]
struct State {
    lag_ms: AtomicU64,
    held: AtomicBool,
}

impl Network {
    /// Leads to this port of 127.0.0.1. Its threads end with the process.
    pub fn before(port: u16) -> Self {
        let cable = Cable::new()
            .inspect_err(|reason| {
                eprintln!(
                    "cuts are made by a relay, for there are no network namespaces here: {reason}"
                )
            })
            .ok();
        let (listener, address) = match &cable {
            Some(cable) => cable.listen(),
            None => {
                let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a listener");
                let address = listener.local_addr().expect("its address");
                (listener, address)
            }
        };
        let state = Arc::new(State::default());
        let relay = Arc::clone(&state);
        std::thread::spawn(move || serve(&listener, port, &relay));
        Self {
            cable,
            address,
            state,
        }
    }

    /// Where pgmux finds PostgreSQL.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The words that start pgmux at the near end.
    pub fn words(&self) -> Vec<String> {
        self.cable.as_ref().map(Cable::words).unwrap_or_default()
    }

    /// From here on nothing arrives, and nobody is told.
    pub fn cut(&self) {
        match &self.cable {
            Some(cable) => cable.pull(),
            None => self.state.held.store(true, Ordering::Relaxed),
        }
    }

    /// Makes it whole again.
    pub fn mend(&self) {
        match &self.cable {
            Some(cable) => cable.plug(),
            None => self.state.held.store(false, Ordering::Relaxed),
        }
    }

    /// How late everything is, in each direction.
    pub fn lag(&self, lag: Duration) {
        let ms = u64::try_from(lag.as_millis()).expect("a short time");
        self.state.lag_ms.store(ms, Ordering::Relaxed);
    }
}

fn serve(listener: &TcpListener, port: u16, state: &Arc<State>) {
    while let Ok((near, _)) = listener.accept() {
        // PostgreSQL is down: the client sees an end, as from a machine whose server has gone.
        let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else {
            continue;
        };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let (Ok(near_again), Ok(far_again)) = (near.try_clone(), far.try_clone()) else {
            continue;
        };
        let forth = Arc::clone(state);
        std::thread::spawn(move || {
            pump(&near, &far, &forth);
            let _ = far.shutdown(Shutdown::Write);
        });
        let back = Arc::clone(state);
        std::thread::spawn(move || {
            pump(&far_again, &near_again, &back);
            // Whatever is gone on the far side is gone on the near one, in both directions.
            close(&near_again);
        });
    }
}

fn close(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

fn pump(mut from: impl Read, mut to: impl Write, state: &State) {
    let mut chunk = [0u8; 16 * 1024];
    loop {
        let Ok(read @ 1..) = from.read(&mut chunk) else {
            return;
        };
        while state.held.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let lag = state.lag_ms.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(lag));
        if to.write_all(&chunk[..read]).is_err() {
            return;
        }
    }
}
