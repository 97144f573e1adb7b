//! The client's end.

use std::fmt;

use zeroize::Zeroizing;

use crate::auth::scram::binding::{self, ChannelBinding};
use crate::auth::scram::keys::{self, Key, equal, hmac, xor};
use crate::auth::scram::message::{
    Attributes, check_nonce, from_base64, from_base64_array, iterations, text, to_base64,
};
use crate::auth::scram::{KEY_LEN, SALT_LEN_MAX, SaslError};

/// Begins an exchange: gives client-first, then waits for server-first.
pub struct ScramClient {
    nonce: String,
    gs2_header: &'static str,
    binding_input: Vec<u8>,
}

impl ScramClient {
    /// Without channel binding. The nonce must be fresh, random, and printable ASCII without comma.
    pub fn new(nonce: &str) -> Self {
        Self::with_binding(nonce, ChannelBinding::Unavailable)
    }

    /// With what this connection can be bound to.
    pub fn with_binding(nonce: &str, binding: ChannelBinding<'_>) -> Self {
        let (gs2_header, hash): (_, &[u8]) = match binding {
            ChannelBinding::Unavailable => (binding::GS2_NOT_SUPPORTED, &[]),
            ChannelBinding::Unused => (binding::GS2_NOT_OFFERED, &[]),
            ChannelBinding::TlsServerEndPoint(hash) => (binding::GS2_BOUND, hash),
        };
        Self {
            nonce: nonce.to_owned(),
            gs2_header,
            binding_input: [gs2_header.as_bytes(), hash].concat(),
        }
    }

    /// The first message. It names no user: PostgreSQL goes by the startup message.
    pub fn client_first(&self) -> Vec<u8> {
        format!("{}{}", self.gs2_header, self.bare()).into_bytes()
    }

    fn bare(&self) -> String {
        format!("n=,r={}", self.nonce)
    }

    /// Takes server-first, and refuses more than `iterations_max` iterations: a server must not be
    /// able to make us compute for minutes.
    pub fn server_first(self, message: &[u8], iterations_max: u32) -> Result<AwaitKey, SaslError> {
        let server_first = text(message)?;
        let mut attributes = Attributes::new(server_first);
        let nonce = check_nonce(attributes.expect('r')?)?;
        // A nonce to which the server added nothing of its own would let it replay an exchange.
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err(SaslError::Nonce);
        }
        let salt = from_base64(attributes.expect('s')?)
            .filter(|salt| (1..=SALT_LEN_MAX).contains(&salt.len()))
            .ok_or(SaslError::Salt)?;
        let iterations = iterations(attributes.expect('i')?)?;
        if iterations > iterations_max {
            return Err(SaslError::Iterations);
        }
        attributes.ignore_extensions()?;
        let without_proof = format!("c={},r={nonce}", to_base64(&self.binding_input));
        Ok(AwaitKey {
            auth_message: format!("{},{server_first},{without_proof}", self.bare()),
            without_proof,
            salt,
            iterations,
        })
    }
}

/// The nonce is no secret, but nothing here is worth printing either.
impl fmt::Debug for ScramClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramClient").finish_non_exhaustive()
    }
}

/// Waits for the caller to derive the key.
#[derive(Debug)]
pub struct AwaitKey {
    auth_message: String,
    without_proof: String,
    salt: Vec<u8>,
    iterations: u32,
}

impl AwaitKey {
    /// What to salt the password with.
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// How often to hash it.
    pub const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Takes what [`salted_password`](super::salted_password) gave, gives client-final.
    pub fn salted_password(self, salted: [u8; KEY_LEN]) -> (Vec<u8>, AwaitServerFinal) {
        let salted = Zeroizing::new(salted);
        self.keys(&keys::client_key(&salted), &keys::server_key(&salted))
    }

    /// The same for one who knows no password, but the client's key from a [`Proof`](super::Proof)
    /// and the server's from a [`Verifier`](super::Verifier) with this salt and iterations.
    pub fn keys(
        self,
        client_key: &[u8; KEY_LEN],
        server_key: &[u8; KEY_LEN],
    ) -> (Vec<u8>, AwaitServerFinal) {
        let auth_message = self.auth_message.as_bytes();
        let stored_key = keys::stored_key(client_key);
        let client_signature = Zeroizing::new(hmac(&*stored_key, &[auth_message]));
        let proof = xor(client_key, &client_signature);
        let message = format!("{},p={}", self.without_proof, to_base64(&proof));
        let next = AwaitServerFinal {
            signature: Zeroizing::new(hmac(server_key, &[auth_message])),
        };
        (message.into_bytes(), next)
    }
}

/// Waits for server-final. An AuthenticationOk that comes before it is a failure.
pub struct AwaitServerFinal {
    signature: Key,
}

impl AwaitServerFinal {
    /// Checks that the server knows the password too.
    pub fn server_final(self, message: &[u8]) -> Result<(), SaslError> {
        let message = text(message)?;
        if message.starts_with("e=") {
            return Err(SaslError::ServerRefused);
        }
        let mut attributes = Attributes::new(message);
        let signature: [u8; KEY_LEN] =
            from_base64_array(attributes.expect('v')?).ok_or(SaslError::Malformed)?;
        attributes.ignore_extensions()?;
        if equal(&signature, &*self.signature) {
            Ok(())
        } else {
            Err(SaslError::ServerSignature)
        }
    }
}

/// Without the signature, which whoever plays the server would like to know.
impl fmt::Debug for AwaitServerFinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitServerFinal").finish_non_exhaustive()
    }
}
