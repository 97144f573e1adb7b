//! A raw PostgreSQL client: it sends what it is told, in whatever pieces, and tells what came back.

mod auth;
mod conn;
pub mod frontend;
mod session;
mod trace;

pub use auth::{
    ScramClient, hmac_sha256, md5_password, md5_verifier, salted_password, scram_verifier, sha256,
};
pub use conn::{Conn, Endpoint, Slicing, WireError};
pub use session::{Login, Session};
pub use trace::{describe, error_field, quote};

/// One message from a server: its tag and its body without the length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The tag byte.
    pub tag: u8,
    /// What follows the length.
    pub body: Vec<u8>,
}

impl Message {
    /// The message as it was on the wire.
    pub fn to_bytes(&self) -> Vec<u8> {
        frontend::tagged(self.tag, &self.body)
    }

    /// The values of a DataRow as text; NULL is `None`.
    pub fn row(&self) -> Vec<Option<String>> {
        assert_eq!(self.tag, b'D', "not a row: {}", describe(self));
        let mut reader = trace::Reader::new(&self.body);
        let count = reader.i16();
        (0..count)
            .map(|_| {
                reader
                    .value()
                    .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            })
            .collect()
    }

    /// A field of an ErrorResponse or NoticeResponse, empty when there is none.
    pub fn field(&self, field: u8) -> String {
        error_field(&self.body, field).unwrap_or_default()
    }

    /// The SQLSTATE of an ErrorResponse or NoticeResponse.
    pub fn sqlstate(&self) -> String {
        error_field(&self.body, b'C').unwrap_or_default()
    }
}
