//! Two network namespaces with a cable between them: a peer that is gone without a word is one whose end of the cable is
//! down. Nothing of it is seen outside.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A machine for pgmux and one for its peer.
#[derive(Debug)]
pub struct Cable {
    near: String,
    far: String,
}

/// The address of pgmux's machine.
pub const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The address of its peer's.
pub const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

impl Cable {
    /// Makes both; `Err` says why this machine lets nobody make them.
    pub fn new() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("pgmux-{}-{number}-{end}", std::process::id());
        let cable = Self {
            near: name("near"),
            far: name("far"),
        };
        let (near, far) = (&cable.near, &cable.far);
        ip(&format!("netns add {near}"))?;
        ip(&format!("netns add {far}"))?;
        ip(&format!(
            "-n {near} link add end0 type veth peer name end0 netns {far}"
        ))?;
        for (end, address) in [(near, NEAR), (far, FAR)] {
            ip(&format!("-n {end} addr add {address}/24 dev end0"))?;
            ip(&format!("-n {end} link set lo up"))?;
            ip(&format!("-n {end} link set end0 up"))?;
        }
        Ok(cable)
    }

    /// The words that start a command on pgmux's machine.
    pub fn words(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.near]
            .map(String::from)
            .to_vec()
    }

    /// From here on nothing reaches the other end, and nothing says so.
    pub fn pull(&self) {
        ip(&format!("-n {} link set end0 down", self.far)).expect("the far end goes down");
    }

    /// Connects from the peer's machine to pgmux's.
    pub fn connect(&self, port: u16) -> std::io::Result<TcpStream> {
        self.on_far(move || TcpStream::connect((NEAR, port)))
    }

    /// Listens on the peer's machine.
    pub fn listen(&self) -> (TcpListener, SocketAddr) {
        let listener = self.on_far(|| TcpListener::bind((FAR, 0)));
        let listener = listener.expect("a listener on the far machine");
        let address = listener.local_addr().expect("its address");
        (listener, address)
    }

    /// A socket stays in the namespace in which it was made; the thread that made it goes.
    fn on_far<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/var/run/netns/{}", self.far)).expect("the namespace");
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("into the namespace");
                work()
            });
            worker.join().expect("the worker")
        })
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for end in [&self.near, &self.far] {
            let _ = ip(&format!("netns del {end}"));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}
