//! The server's half of SCRAM-SHA-256, which can lie at each step.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::wire::{hmac_sha256, salted_password};

/// What a server does wrong in its SCRAM exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Nothing.
    None,
    /// The iteration count it asks for.
    Iterations(i64),
    /// Its nonce does not extend the client's.
    ForeignNonce,
    /// Its nonce adds so many bytes to the client's.
    LongNonce(usize),
    /// Its nonce is the client's and nothing more.
    BareNonce,
    /// The signature is not the right one.
    WrongSignature,
    /// AuthenticationOk comes without any signature.
    NoSignature,
    /// server-first-message is no list of attributes.
    Garbage,
    /// The salt is no Base64.
    BadSalt,
}

/// A server's exchange.
#[derive(Debug)]
pub struct ScramServer {
    password: String,
    lie: Lie,
    first_bare: String,
    server_first: String,
}

const SALT: &[u8] = b"salt of a liar--";

impl ScramServer {
    /// Starts an exchange.
    pub fn new(password: &str, lie: Lie) -> Self {
        Self {
            password: password.into(),
            lie,
            first_bare: String::new(),
            server_first: String::new(),
        }
    }

    /// server-first-message for the body of a SASLInitialResponse.
    pub fn first(&mut self, initial: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(initial).into_owned();
        let bare = text.find("n,,").map_or("", |at| &text[at + 3..]);
        self.first_bare = bare.into();
        let client_nonce = bare
            .split(',')
            .find_map(|part| part.strip_prefix("r="))
            .unwrap_or_default();
        let nonce = match self.lie {
            Lie::ForeignNonce => "x".repeat(client_nonce.len() + 18),
            Lie::LongNonce(more) => format!("{client_nonce}{}", "n".repeat(more)),
            Lie::BareNonce => client_nonce.into(),
            _ => format!("{client_nonce}3rfcNHYJY1ZVvWVs7j"),
        };
        let iterations = match self.lie {
            Lie::Iterations(count) => count,
            _ => 4096,
        };
        let salt = match self.lie {
            Lie::BadSalt => "?!".into(),
            _ => STANDARD.encode(SALT),
        };
        self.server_first = match self.lie {
            Lie::Garbage => "what?".into(),
            _ => format!("r={nonce},s={salt},i={iterations}"),
        };
        self.server_first.clone().into_bytes()
    }

    /// server-final-message for a client-final-message, if the server sends one.
    pub fn last(&self, client_final: &[u8]) -> Option<Vec<u8>> {
        let text = String::from_utf8_lossy(client_final);
        let without_proof = text.split(",p=").next().unwrap_or_default();
        let auth_message = format!("{},{},{without_proof}", self.first_bare, self.server_first);
        let salted = salted_password(&self.password, SALT, 4096);
        let signature = hmac_sha256(
            &hmac_sha256(&salted, b"Server Key"),
            auth_message.as_bytes(),
        );
        match self.lie {
            Lie::NoSignature => None,
            Lie::WrongSignature => Some(format!("v={}", STANDARD.encode([7; 32])).into_bytes()),
            _ => Some(format!("v={}", STANDARD.encode(signature)).into_bytes()),
        }
    }
}
