//! Orders by pgmux's control socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::process::PATIENCE;

/// Gives an order and returns the answer, a line of JSON.
pub fn order(socket: &Path, words: &str) -> String {
    let mut stream = begin(socket, words);
    finish(&mut stream)
}

/// Gives an order and does not wait.
pub fn begin(socket: &Path, words: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("the control socket");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    writeln!(stream, "{words}").expect("an order");
    stream
}

/// Waits for the answer.
pub fn finish(stream: &mut UnixStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Whether no answer has come yet.
pub fn is_pending(stream: &UnixStream) -> bool {
    stream.set_nonblocking(true).expect("non-blocking");
    let mut byte = [0];
    let peeked = rustix::net::recv(stream, &mut byte, rustix::net::RecvFlags::PEEK);
    stream.set_nonblocking(false).expect("blocking");
    matches!(peeked, Err(rustix::io::Errno::AGAIN))
}
