//! What a server keeps instead of a password.

use std::fmt;

use zeroize::Zeroizing;

use crate::auth::scram::keys::{self, hmac};
use crate::auth::scram::message::{from_base64, from_base64_array, iterations, to_base64};
use crate::auth::scram::{
    ITERATIONS_DEFAULT, KEY_LEN, MECHANISM, SALT_LEN_MAX, SaslError, salted_password,
};

/// PostgreSQL's verifier, `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`.
#[derive(Clone)]
pub struct Verifier {
    /// How often the password is hashed.
    pub iterations: u32,
    /// What it is hashed with.
    pub salt: Vec<u8>,
    /// Hash of the client's key: what its proof is checked against.
    pub stored_key: Zeroizing<[u8; KEY_LEN]>,
    /// What the server signs with.
    pub server_key: Zeroizing<[u8; KEY_LEN]>,
    /// Stands for a user who does not exist: no proof will do.
    pub(super) mock: bool,
}

impl Verifier {
    /// Reads the form that `pg_authid.rolpassword` has.
    pub fn parse(text: &str) -> Result<Self, SaslError> {
        Self::parse_parts(text).ok_or(SaslError::Verifier)
    }

    fn parse_parts(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(MECHANISM)?.strip_prefix('$')?;
        let (cost, keys) = rest.split_once('$')?;
        let (count, salt) = cost.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let salt = from_base64(salt).filter(|salt| (1..=SALT_LEN_MAX).contains(&salt.len()))?;
        Some(Self {
            iterations: iterations(count).ok()?,
            salt,
            stored_key: Zeroizing::new(from_base64_array(stored)?),
            server_key: Zeroizing::new(from_base64_array(server)?),
            mock: false,
        })
    }

    /// Derives the verifier of a password. As slow as [`salted_password`].
    pub fn from_password(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let salted = Zeroizing::new(salted_password(password, salt, iterations));
        Self {
            iterations,
            salt: salt.to_vec(),
            stored_key: keys::stored_key(&keys::client_key(&salted)),
            server_key: keys::server_key(&salted),
            mock: false,
        }
    }

    /// Stands for a user who does not exist: the exchange looks like any other, with a salt that
    /// stays the same for the same name as long as `secret` does, and never succeeds.
    pub fn mock(user: &[u8], secret: &[u8]) -> Self {
        let salt = hmac(secret, &[b"salt\0", user]);
        Self {
            iterations: ITERATIONS_DEFAULT,
            salt: salt.iter().copied().take(MOCK_SALT_LEN).collect(),
            stored_key: Zeroizing::new(hmac(secret, &[b"stored\0", user])),
            server_key: Zeroizing::new(hmac(secret, &[b"server\0", user])),
            mock: true,
        }
    }

    /// The same, with the number of iterations that the real users have.
    #[must_use]
    pub const fn with_iterations(mut self, iterations: u32) -> Self {
        self.iterations = iterations;
        self
    }
}

/// The form that `pg_authid.rolpassword` has.
impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{MECHANISM}${}:{}${}:{}",
            self.iterations,
            to_base64(&self.salt),
            to_base64(&*self.stored_key),
            to_base64(&*self.server_key)
        )
    }
}

/// Without the keys, which are secrets.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

/// PostgreSQL's SCRAM_DEFAULT_SALT_LEN.
const MOCK_SALT_LEN: usize = 16;
