//! A connection as hyper has it, with what hyper leaves out: a deadline for
//! writes, and a body for the errors that it answers by itself.

use crate::answer;
use hyper::StatusCode;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, timeout};

/// See the module's text.
pub(crate) struct Stream {
    inner: TcpStream,
    /// An answer of ours in the place of one of hyper's, as far as it is not sent.
    instead: Vec<u8>,
    /// Ends when the peer has taken nothing for too long.
    stalled: Pin<Box<Sleep>>,
    waits: bool,
}

impl Stream {
    pub(crate) fn new(inner: TcpStream) -> Self {
        Self {
            inner,
            instead: Vec::new(),
            stalled: Box::pin(tokio::time::sleep(WRITE_PATIENCE)),
            waits: false,
        }
    }

    /// The last that is said here, and the end. What the peer still sends is
    /// taken for a moment, or the kernel would answer it by a reset, which may
    /// overtake our words.
    pub(crate) async fn end(mut self, words: &[u8]) {
        let farewell = async {
            self.write_all(words).await?;
            self.shutdown().await?;
            let mut dropped = [0; 4096];
            for _ in 0..LINGER_READS {
                if self.inner.read(&mut dropped).await? == 0 {
                    break;
                }
            }
            io::Result::Ok(())
        };
        // It is the end, whatever becomes of it.
        let _ = timeout(LINGER, farewell).await;
    }

    fn send_instead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.instead.is_empty() {
            let sent = ready!(self.write_some(cx, None))?;
            self.instead.drain(..sent);
        }
        Poll::Ready(Ok(()))
    }

    /// Of `bytes`, or of what stands instead.
    fn write_some(
        &mut self,
        cx: &mut Context<'_>,
        bytes: Option<&[u8]>,
    ) -> Poll<io::Result<usize>> {
        let bytes = bytes.unwrap_or(&self.instead);
        if let Poll::Ready(sent) = Pin::new(&mut self.inner).poll_write(cx, bytes) {
            self.waits = false;
            return Poll::Ready(match sent {
                Ok(0) if !bytes.is_empty() => Err(io::ErrorKind::WriteZero.into()),
                sent => sent,
            });
        }
        if !self.waits {
            self.waits = true;
            self.stalled.as_mut().reset(Instant::now() + WRITE_PATIENCE);
        }
        ready!(self.stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.send_instead(cx))?;
        if let Some(status) = bare_error(bytes) {
            self.instead = answer::last_words(status, words(status));
            return Poll::Ready(Ok(bytes.len()));
        }
        self.write_some(cx, Some(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.send_instead(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.send_instead(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The status of an error without a body: none of ours is, so it is hyper's
/// answer to what it could not read as a request.
fn bare_error(bytes: &[u8]) -> Option<StatusCode> {
    let head = std::str::from_utf8(bytes).ok()?;
    let code = head.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    let status: StatusCode = code.parse().ok()?;
    let empty = head.ends_with("\r\n\r\n")
        && head
            .lines()
            .any(|line| line.eq_ignore_ascii_case("content-length: 0"));
    (status.is_client_error() && empty).then_some(status)
}

fn words(status: StatusCode) -> &'static str {
    match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "the head of the request is too long",
        StatusCode::URI_TOO_LONG => "the address of the request is too long",
        _ => "this is no HTTP request that can be understood",
    }
}

/// How long a peer may take nothing of an answer.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// For the last words, and for what the peer still sends.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_READS: usize = 64;
