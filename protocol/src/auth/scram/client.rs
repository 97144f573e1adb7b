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

#[cfg(test)]
mod tests {
    use super::*;

    use crate::auth::scram::{ScramServer, Verifier, salted_password};

    const ITERATIONS_MAX: u32 = 100_000;

    fn first(message: &str) -> Result<AwaitKey, SaslError> {
        ScramClient::new("ours").server_first(message.as_bytes(), ITERATIONS_MAX)
    }

    #[test]
    fn proves_and_checks_like_the_example_of_rfc_7677_section_3() {
        let server_first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
            s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let client = ScramClient::new("rOprNGfwEbeRWgbNEkqO");
        assert_eq!(client.client_first(), b"n,,n=,r=rOprNGfwEbeRWgbNEkqO");
        let mut next = client
            .server_first(server_first.as_bytes(), ITERATIONS_MAX)
            .unwrap();
        assert_eq!(next.iterations(), 4096);
        // PostgreSQL's clients leave the name empty; the example does not.
        next.auth_message = next.auth_message.replace("n=,", "n=user,");
        let salted = salted_password(b"pencil", next.salt(), next.iterations());
        let (client_final, next) = next.salted_password(salted);
        assert_eq!(
            client_final,
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
              p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(
            next.server_final(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
            Ok(())
        );
    }

    #[test]
    fn malformed_first_messages_are_refused() {
        for (message, error) in [
            ("", SaslError::Malformed),
            ("s=c2FsdA==,i=1", SaslError::Malformed),
            ("m=x,r=ours1,s=c2FsdA==,i=1", SaslError::Extension),
            ("r=,s=c2FsdA==,i=1", SaslError::Nonce),
            ("r=theirs,s=c2FsdA==,i=1", SaslError::Nonce),
            ("r=ours,s=c2FsdA==,i=1", SaslError::Nonce),
            ("r=ours1,s=,i=1", SaslError::Salt),
            ("r=ours1,s=!,i=1", SaslError::Salt),
            ("r=ours1,s=c2FsdA==,i=0", SaslError::Iterations),
            ("r=ours1,s=c2FsdA==,i=-1", SaslError::Iterations),
            ("r=ours1,s=c2FsdA==,i=2147483647", SaslError::Iterations),
            ("r=ours1,s=c2FsdA==,i=100001", SaslError::Iterations),
            ("r=ours1,s=c2FsdA==", SaslError::Malformed),
            ("r=ours1,s=c2FsdA==,i=1,x", SaslError::Malformed),
            ("e=other-error", SaslError::Malformed),
        ] {
            assert_eq!(first(message).err(), Some(error), "{message}");
        }
        assert!(first("r=ours1,s=c2FsdA==,i=100000").is_ok());
        assert!(first("r=ours1,s=c2FsdA==,i=1,x=extension").is_ok());
    }

    #[test]
    fn nonce_and_salt_are_bounded() {
        let with = |nonce: usize, salt: usize| {
            let salt = to_base64(&vec![1; salt]);
            first(&format!("r=ours{},s={salt},i=1", "x".repeat(nonce - 4))).err()
        };
        assert_eq!(with(256, 256), None);
        assert_eq!(with(257, 16), Some(SaslError::Nonce));
        assert_eq!(with(32, 257), Some(SaslError::Salt));
        assert_eq!(with(65_536, 16), Some(SaslError::TooLong));
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_found_out() {
        let wait = || {
            first("r=ours1,s=c2FsdA==,i=1")
                .unwrap()
                .salted_password([1; KEY_LEN])
                .1
        };
        let forged = format!("v={}", to_base64(&[7; KEY_LEN]));
        for (message, error) in [
            (forged.as_str(), SaslError::ServerSignature),
            ("v=", SaslError::Malformed),
            ("v=AAAA", SaslError::Malformed),
            ("", SaslError::Malformed),
            ("x=1", SaslError::Malformed),
            ("e=invalid-proof", SaslError::ServerRefused),
        ] {
            assert_eq!(
                wait().server_final(message.as_bytes()),
                Err(error),
                "{message}"
            );
        }
    }

    /// Both ends of an exchange; what the server, then the client, make of it.
    fn exchange(
        client: ChannelBinding<'_>,
        server: ChannelBinding<'_>,
        password: &[u8],
    ) -> Result<(), SaslError> {
        let verifier = Verifier::from_password(b"pencil", b"salt", 2);
        let client = ScramClient::with_binding("ours", client);
        let (server_first, server) = ScramServer::new(&verifier, "theirs")
            .with_binding(server)
            .client_first(&client.client_first())?;
        let client = client.server_first(&server_first, ITERATIONS_MAX)?;
        let salted = salted_password(password, client.salt(), client.iterations());
        let (client_final, client) = client.salted_password(salted);
        let (server_final, _) = server.client_final(&client_final)?;
        client.server_final(&server_final)
    }

    #[test]
    fn both_ends_agree_when_binding_and_password_are_the_same() {
        let plus = ChannelBinding::TlsServerEndPoint(b"certificate hash");
        let unavailable = ChannelBinding::Unavailable;
        assert_eq!(exchange(unavailable, unavailable, b"pencil"), Ok(()));
        assert_eq!(exchange(plus, plus, b"pencil"), Ok(()));
        assert_eq!(exchange(plus, plus, b"pen"), Err(SaslError::Proof));
        let relayed = ChannelBinding::TlsServerEndPoint(b"another hash");
        assert_eq!(
            exchange(relayed, plus, b"pencil"),
            Err(SaslError::ChannelBinding)
        );
        let stripped = exchange(ChannelBinding::Unused, ChannelBinding::Unused, b"pencil");
        assert_eq!(stripped, Err(SaslError::Downgrade));
        assert_eq!(
            exchange(ChannelBinding::Unused, unavailable, b"pencil"),
            Ok(())
        );
    }

    #[test]
    fn the_key_that_a_client_proved_logs_in_elsewhere() {
        let verifier = Verifier::from_password(b"pencil", b"salt", 2);
        let salted = salted_password(b"pencil", b"salt", 2);
        let client = ScramClient::new("ours");
        let (server_first, server) = ScramServer::new(&verifier, "theirs")
            .client_first(&client.client_first())
            .unwrap();
        let client = client.server_first(&server_first, ITERATIONS_MAX).unwrap();
        let (client_final, client) = client.keys(&keys::client_key(&salted), &verifier.server_key);
        let (server_final, _) = server.client_final(&client_final).unwrap();
        assert_eq!(client.server_final(&server_final), Ok(()));
    }
}
