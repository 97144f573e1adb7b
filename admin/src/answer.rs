//! Statuses and bodies.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// What a request is answered.
#[derive(Debug)]
pub struct Answer {
    status: StatusCode,
    kind: &'static str,
    body: String,
    more: Vec<(HeaderName, String)>,
}

impl Answer {
    /// With one header more.
    pub(crate) fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.more.push((name, value.into()));
        self
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// As hyper has it.
    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from(self.body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in self.more {
            // All of ours are plain words.
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        response
    }
}

/// Text of a kind.
pub(crate) fn text(status: StatusCode, kind: &'static str, body: String) -> Answer {
    Answer {
        status,
        kind,
        body,
        more: Vec::new(),
    }
}

/// A value.
pub(crate) fn json(status: StatusCode, value: &Value) -> Answer {
    text(status, JSON, format!("{value}\n"))
}

/// What could not be done, and why.
pub(crate) fn error(status: StatusCode, message: &str) -> Answer {
    json(status, &json!({ "error": message }))
}

/// The same for what no request has come of: the whole answer, after which the
/// connection closes.
pub(crate) fn last_words(status: StatusCode, message: &str) -> Vec<u8> {
    let body = format!("{}\n", json!({ "error": message }));
    let (code, reason) = (
        status.as_u16(),
        status.canonical_reason().unwrap_or("Error"),
    );
    let length = body.len();
    format!("HTTP/1.1 {code} {reason}\r\ncontent-type: {JSON}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").into_bytes()
}

const JSON: &str = "application/json";
