//! One request to an admin API, for the subcommands.

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What is asked of whom.
pub struct Call<'a> {
    /// Where the API is.
    pub address: SocketAddr,
    /// `GET`, `POST` or `DELETE`.
    pub method: &'a str,
    /// The path, with what stands behind the `?`.
    pub path: &'a str,
    /// The key, if it takes one.
    pub key: Option<&'a str>,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// Asks, and waits for the answer. The error is a sentence for people.
pub fn call(call: &Call<'_>) -> Result<Reply, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot begin: {error}"))?;
    let asking = async { timeout(PATIENCE, ask(call)).await };
    match runtime.block_on(asking) {
        Ok(reply) => reply,
        Err(_) => Err(format!("{} has not answered in time", call.address)),
    }
}

async fn ask(call: &Call<'_>) -> Result<Reply, String> {
    let address = call.address;
    let broken = |error: hyper::Error| format!("the connection to {address} broke: {error}");
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| format!("cannot connect to {address}: {error}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let mut request = Request::builder()
        .method(
            call.method
                .parse::<Method>()
                .map_err(|error| error.to_string())?,
        )
        .uri(call.path)
        .header(header::HOST, address.to_string())
        .header(header::CONNECTION, "close");
    if let Some(key) = call.key {
        request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|error| format!("this cannot be asked: {error}"))?;
    let answering = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES)
            .collect()
            .await;
        let body = body.map_err(|error| format!("the answer of {address} broke off: {error}"))?;
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        Ok(Reply { status, body })
    };
    tokio::pin!(answering);
    tokio::select! {
        reply = &mut answering => reply,
        // It ends with the answer, which may still have to be taken.
        _ = connection => answering.await,
    }
}

/// Longer than the API takes for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pages are a few megabytes at most.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;
