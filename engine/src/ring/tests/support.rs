//! A shard for a test, sockets with small buffers, bytes to recognize.

use super::super::{Chunk, Ring, RxEnd, Sizes, Socket, WakeHandle, drive, task};
use futures_lite::FutureExt;
use glommio::{LocalExecutorBuilder, Placement};
use socket2::SockRef;
use std::cell::RefCell;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Runs `body` as a task of a shard; fails when it panics or hangs.
pub fn shard<F>(sizes: Sizes, body: impl FnOnce(Ring) -> F + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let executor = LocalExecutorBuilder::new(Placement::Unbound);
    let outcome = executor.spawn(move || async move {
        let ring = Ring::new(sizes).expect("a ring");
        let body = body(ring.clone());
        let limit = ring.clone();
        let outcome = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&outcome);
        task::spawn(async move {
            let limited = limit.until(Some(Instant::now() + TEST_LIMIT), body);
            let result = AssertUnwindSafe(limited).catch_unwind().await;
            *slot.borrow_mut() = Some(result);
        });
        drive(&ring, || false, || outcome.borrow().is_some()).expect("the ring works");
        outcome.take().expect("an outcome")
    });
    match outcome
        .expect("an executor")
        .join()
        .expect("the shard lives")
    {
        Ok(result) => result.expect("the test does not hang"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Spawns a task and gives a future of its output.
pub fn start<T: 'static>(future: impl Future<Output = T> + 'static) -> impl Future<Output = T> {
    let slot: Rc<RefCell<(Option<T>, Option<Waker>)>> = Rc::new(RefCell::new((None, None)));
    let filled = Rc::clone(&slot);
    task::spawn(async move {
        let output = future.await;
        let mut slot = filled.borrow_mut();
        slot.0 = Some(output);
        if let Some(waker) = slot.1.take() {
            waker.wake();
        }
    });
    std::future::poll_fn(move |cx| {
        let mut slot = slot.borrow_mut();
        slot.1 = Some(cx.waker().clone());
        slot.0.take().map_or(Poll::Pending, Poll::Ready)
    })
}

/// Runs a test alone in a process of its own, for what counts or limits a
/// whole process. `name` is the test's full path.
pub fn alone(name: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let (_, name) = name.split_once("::").expect("a path below the crate");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .expect("this program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("1 passed"), "the child ran the test: {text}");
}

/// Two shards that send each other things: each body gets its ring, and what
/// reaches the other one.
pub fn two_shards<T, F>(body: impl Fn(Ring, Post<T>) -> F + Clone + Send + 'static)
where
    T: Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let (to_first, for_first) = mpsc::channel();
    let (to_second, for_second) = mpsc::channel();
    let (call_first, first_call) = mpsc::channel();
    let (call_second, second_call) = mpsc::channel();
    let run = |is_first, to, from, call: mpsc::Sender<WakeHandle>, other: mpsc::Receiver<_>| {
        let body = body.clone();
        std::thread::spawn(move || {
            shard(small(), move |ring| {
                call.send(ring.wake_handle()).expect("both live");
                let wake = other.recv().expect("both live");
                let post = Post {
                    is_first,
                    to,
                    from,
                    wake,
                };
                body(ring, post)
            });
        })
    };
    let first = run(true, to_second, for_first, call_second, first_call);
    let second = run(false, to_first, for_second, call_first, second_call);
    for shard in [first, second] {
        if let Err(panic) = shard.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// What one of two shards has of the other.
pub struct Post<T> {
    /// Whether it is the one that begins.
    pub is_first: bool,
    to: mpsc::Sender<T>,
    from: mpsc::Receiver<T>,
    wake: WakeHandle,
}

impl<T> Post<T> {
    /// Sends; a shard that has ended loses it.
    pub fn send(&self, thing: T) {
        let _ = self.to.send(thing);
        self.wake.wake();
    }

    /// The next that the other shard sends.
    pub async fn receive(&self, ring: &Ring) -> T {
        loop {
            if let Ok(thing) = self.from.try_recv() {
                return thing;
            }
            ring.woken().await;
        }
    }
}

/// Sizes for tests: small, so that a shard costs little.
pub fn small() -> Sizes {
    Sizes {
        submissions: 64,
        completions: 256,
        buffers: 64,
        buffer_bytes: 4096,
    }
}

/// A loopback connection: one end for the ring, one for the test.
pub fn tcp() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let peer = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (ours, _) = listener.accept().expect("accepted");
    peer.set_nodelay(true).expect("an option");
    ours.set_nodelay(true).expect("an option");
    (ours.into(), peer)
}

/// The smallest send buffer that the kernel allows, and a small window: with
/// the smallest one TCP on loopback waits for its own timers.
pub fn shrink(socket: &impl AsFd) {
    let socket = SockRef::from(socket);
    socket.set_send_buffer_size(1).expect("an option");
    socket.set_recv_buffer_size(32 << 10).expect("an option");
}

/// The same bytes for the same seed, without a short period.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..length).map(|_| random.next() as u8).collect()
}

/// A small generator (xorshift), so that a failure repeats.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A peer's thread that writes all, in random pieces, and then half-closes.
pub fn writer(mut peer: TcpStream, bytes: Vec<u8>, mut random: Random) {
    std::thread::spawn(move || {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.len().min(1 + random.below(20_000)));
            if peer.write_all(piece).is_err() {
                return;
            }
            rest = later;
        }
        let _ = peer.shutdown(std::net::Shutdown::Write);
    });
}

/// A peer's thread that reads to the end and now and then stops for a while.
pub fn reader(mut peer: TcpStream, mut random: Random) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        let mut piece = vec![0; 32 * 1024];
        loop {
            if random.below(40) == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            let length = 1 + random.below(piece.len());
            match peer.read(&mut piece[..length]) {
                Ok(0) | Err(_) => return all,
                Ok(read) => all.extend_from_slice(&piece[..read]),
            }
        }
    })
}

/// The next chunk, or why there is none.
pub async fn next(socket: &Socket) -> Result<Chunk, RxEnd> {
    loop {
        socket.readable().await;
        if let Some(chunk) = socket.take() {
            return Ok(chunk);
        }
        if let Some(end) = socket.end() {
            return Err(end);
        }
    }
}

/// Exactly `length` bytes from a socket.
pub async fn exactly(socket: &Socket, length: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < length {
        let mut chunk = next(socket).await.expect("more bytes");
        let head = chunk.split_to(chunk.len().min(length - all.len()));
        all.extend_from_slice(&head);
        socket.put_back(chunk);
    }
    all
}

/// Waits, by the ring's clock, until `done`.
pub async fn eventually(ring: &Ring, what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < limit, "in time: {what}");
        ring.sleep(Duration::from_millis(1)).await;
    }
}

/// What a thread returns; the shard goes on meanwhile.
pub async fn joined<T>(ring: &Ring, thread: std::thread::JoinHandle<T>) -> T {
    eventually(ring, "the thread ends", || thread.is_finished()).await;
    thread.join().expect("the thread's asserts hold")
}

/// Descriptors of this process.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

/// CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("procfs");
    let nanoseconds = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.expect("time on the CPU comes first"))
}

const ALONE: &str = "RING_TEST_ALONE";
/// Generous: a build may share the machine.
const TEST_LIMIT: Duration = Duration::from_secs(60);
