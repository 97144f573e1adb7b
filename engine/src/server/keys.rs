//! With what somebody logs in to a server.

use crate::config::Secret;
use protocol::auth::scram::{KEY_LEN, Verifier};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Wiped when dropped, never printed.
#[derive(Clone)]
pub enum Keys {
    /// The password, or its hash for MD5.
    Password(Secret),
    /// What a client has proved by SCRAM: good for a server that has the same
    /// verifier.
    Scram {
        /// The key that a client has, and the server a hash of.
        client_key: Zeroizing<[u8; KEY_LEN]>,
        /// What it was proved against.
        verifier: Arc<Verifier>,
    },
}
