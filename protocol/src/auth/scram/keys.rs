//! The key schedule of RFC 5802 section 3.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::auth::saslprep;
use crate::auth::scram::KEY_LEN;

/// A key that is wiped when dropped.
pub(super) type Key = Zeroizing<[u8; KEY_LEN]>;

/// `Hi` of the RFC: PBKDF2 over the password after SASLprep.
///
/// This is the slow part (about a millisecond for 4,096 iterations): call it where a connection's
/// neighbours do not wait. `iterations` must have been compared with a limit.
pub fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> [u8; KEY_LEN] {
    let normalized = saslprep(password);
    let keyed = keyed(&normalized);
    if let std::borrow::Cow::Owned(mut copy) = normalized {
        copy.zeroize();
    }
    let mut first = keyed.clone();
    first.update(salt);
    first.update(&1_u32.to_be_bytes());
    let mut block: [u8; KEY_LEN] = first.finalize().into_bytes().into();
    let mut sum = block;
    for _ in 1..iterations {
        let mut next = keyed.clone();
        next.update(&block);
        block = next.finalize().into_bytes().into();
        for (total, byte) in sum.iter_mut().zip(block) {
            *total ^= byte;
        }
    }
    block.zeroize();
    sum
}

pub(super) fn client_key(salted: &[u8; KEY_LEN]) -> Key {
    Zeroizing::new(hmac(salted, &[b"Client Key"]))
}

pub(super) fn server_key(salted: &[u8; KEY_LEN]) -> Key {
    Zeroizing::new(hmac(salted, &[b"Server Key"]))
}

pub(super) fn stored_key(client_key: &[u8; KEY_LEN]) -> Key {
    Zeroizing::new(Sha256::digest(client_key).into())
}

pub(super) fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; KEY_LEN] {
    let mut mac = keyed(key);
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Turns a client key into a proof by a signature, and a proof back into the key.
pub(super) fn xor(left: &[u8; KEY_LEN], right: &[u8; KEY_LEN]) -> [u8; KEY_LEN] {
    let mut out = *left;
    for (byte, other) in out.iter_mut().zip(right) {
        *byte ^= other;
    }
    out
}

pub(super) fn equal(left: &[u8], right: &[u8]) -> bool {
    left.ct_eq(right).into()
}

/// HMAC takes a key of any length: longer ones than a block are hashed first, so the error arm of
/// `new_from_slice` cannot be reached. It falls back to that same rule instead of panicking.
fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default()))
}
