//! The client's and the server's halves of SCRAM-SHA-256, and MD5, from RFC 5802, RFC 7677 and the protocol chapter.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::Md5;
use sha2::{Digest as _, Sha256};

/// HMAC-SHA-256.
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// SHA-256.
pub fn sha256(message: &[u8]) -> [u8; 32] {
    Sha256::digest(message).into()
}

/// SaltedPassword of RFC 5802. Thousands of test clients log in with few passwords and few salts, so each is derived
/// once.
pub fn salted_password(password: &str, salt: &[u8], iterations: u32) -> [u8; 32] {
    type Key = (String, Vec<u8>, u32);
    static KNOWN: Mutex<BTreeMap<Key, [u8; 32]>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (password.to_owned(), salt.to_vec(), iterations);
    let found = known().get(&key).copied();
    found.unwrap_or_else(|| {
        let derived = pbkdf2(password, salt, iterations);
        known().insert(key, derived);
        derived
    })
}

/// PBKDF2 with HMAC-SHA-256 and one block.
fn pbkdf2(password: &str, salt: &[u8], iterations: u32) -> [u8; 32] {
    let first: Vec<u8> = salt.iter().copied().chain([0, 0, 0, 1]).collect();
    let mut block = hmac_sha256(password.as_bytes(), &first);
    let mut sum = block;
    for _ in 1..iterations {
        block = hmac_sha256(password.as_bytes(), &block);
        sum.iter_mut()
            .zip(block)
            .for_each(|(left, right)| *left ^= right);
    }
    sum
}

/// The text that PostgreSQL stores for a password: `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`.
pub fn scram_verifier(password: &str, salt: &[u8], iterations: u32) -> String {
    let salted = salted_password(password, salt, iterations);
    let stored = sha256(&hmac_sha256(&salted, b"Client Key"));
    let server = hmac_sha256(&salted, b"Server Key");
    format!(
        "SCRAM-SHA-256${iterations}:{}${}:{}",
        STANDARD.encode(salt),
        STANDARD.encode(stored),
        STANDARD.encode(server)
    )
}

/// The text that PostgreSQL stores for a password under `password_encryption = md5`.
pub fn md5_verifier(user: &str, password: &str) -> String {
    format!(
        "md5{}",
        hex(&Md5::digest(
            [password.as_bytes(), user.as_bytes()].concat()
        ))
    )
}

/// The answer to AuthenticationMD5Password.
pub fn md5_password(user: &str, password: &str, salt: &[u8]) -> String {
    let stored = md5_verifier(user, password);
    let inner = stored.trim_start_matches("md5").as_bytes();
    format!("md5{}", hex(&Md5::digest([inner, salt].concat())))
}

/// A client's SCRAM exchange, step by step, so that a test can stop or lie at each.
#[derive(Clone, Debug)]
pub struct ScramClient {
    password: String,
    nonce: String,
    signature: Option<[u8; 32]>,
}

impl ScramClient {
    /// Starts an exchange. The nonce is fixed: nothing here is a secret.
    pub fn new(password: &str) -> Self {
        Self {
            password: password.into(),
            nonce: "rOprNGfwEbeRWgbNEkqO".into(),
            signature: None,
        }
    }

    /// client-first-message, without channel binding.
    pub fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.first_bare()).into_bytes()
    }

    /// client-final-message for a server-first-message; `None` when that makes no sense.
    pub fn last(&mut self, server_first: &[u8]) -> Option<Vec<u8>> {
        let server_first = std::str::from_utf8(server_first).ok()?;
        let attribute = |name: &str| {
            server_first
                .split(',')
                .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        };
        let nonce = attribute("r").filter(|nonce| nonce.starts_with(&self.nonce))?;
        let salt = STANDARD.decode(attribute("s")?).ok()?;
        let salted = salted_password(&self.password, &salt, attribute("i")?.parse().ok()?);
        let client_key = hmac_sha256(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let auth_message = format!("{},{server_first},{without_proof}", self.first_bare());
        let mut proof = hmac_sha256(&sha256(&client_key), auth_message.as_bytes());
        proof
            .iter_mut()
            .zip(client_key)
            .for_each(|(left, right)| *left ^= right);
        let server_key = hmac_sha256(&salted, b"Server Key");
        self.signature = Some(hmac_sha256(&server_key, auth_message.as_bytes()));
        Some(format!("{without_proof},p={}", STANDARD.encode(proof)).into_bytes())
    }

    /// Whether a server-final-message proves that the server knows the password.
    pub fn accepts(&self, server_final: &[u8]) -> bool {
        let expected = self
            .signature
            .map(|bytes| format!("v={}", STANDARD.encode(bytes)));
        expected.is_some_and(|expected| expected.as_bytes() == server_final)
    }

    fn first_bare(&self) -> String {
        format!("n=,r={}", self.nonce)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scram_client_gives_the_proof_of_rfc_7677() {
        // The RFC's example names the user in client-first; ours leaves it empty as libpq does, so only the key
        // derivation and the verifier are compared with published values.
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("salt");
        let salted = salted_password("pencil", &salt, 4096);
        let client_first = "n=user,r=rOprNGfwEbeRWgbNEkqO";
        let server_first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let without_proof = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let message = format!("{client_first},{server_first},{without_proof}");
        let signature = hmac_sha256(&hmac_sha256(&salted, b"Server Key"), message.as_bytes());
        assert_eq!(
            STANDARD.encode(signature),
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
    }
}
