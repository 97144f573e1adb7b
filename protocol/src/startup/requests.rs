//! SSLRequest and GSSENCRequest: eight bytes that ask for encryption before anything else is said.
//!
//! Spec: protocol-message-formats, SSLRequest (F) and GSSENCRequest (F).

use crate::encode::{self, EncodeError};
use crate::startup::{GSSENC_REQUEST_CODE, PACKET_LEN_MIN, SSL_REQUEST_CODE};

/// Asks for TLS; the answer is one byte, `S` or `N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SslRequest;

impl SslRequest {
    /// Appends the packet.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::packet(out, &[], PACKET_LEN_MIN, |w| w.u32(SSL_REQUEST_CODE))
    }
}

/// Asks for GSSAPI encryption; the answer is one byte, `G` or `N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GssEncRequest;

impl GssEncRequest {
    /// Appends the packet.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::packet(out, &[], PACKET_LEN_MIN, |w| w.u32(GSSENC_REQUEST_CODE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_look_like_this() {
        let mut out = Vec::new();
        SslRequest.encode(&mut out).unwrap();
        GssEncRequest.encode(&mut out).unwrap();
        assert_eq!(out, b"\0\0\0\x08\x04\xd2\x16\x2f\0\0\0\x08\x04\xd2\x16\x30");
    }
}
