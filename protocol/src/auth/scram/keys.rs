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
/// This is the slow part (half a millisecond for 4,096 iterations, measured): call it where a connection's
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_function_is_pbkdf2_with_hmac_sha_256() {
        // RFC 7914 section 11.
        assert_eq!(
            salted_password(b"passwd", b"salt", 1),
            [
                0x55, 0xac, 0x04, 0x6e, 0x56, 0xe3, 0x08, 0x9f, 0xec, 0x16, 0x91, 0xc2, 0x25, 0x44,
                0xb6, 0x05, 0xf9, 0x41, 0x85, 0x21, 0x6d, 0xde, 0x04, 0x65, 0xe6, 0x8b, 0x9d, 0x57,
                0xc2, 0x0d, 0xac, 0xbc
            ]
        );
    }

    #[test]
    fn keys_longer_than_a_block_are_hashed_first() {
        let long = [0xAA; 131];
        let hashed: [u8; KEY_LEN] = Sha256::digest(long).into();
        assert_eq!(hmac(&long, &[b"x"]), hmac(&hashed, &[b"x"]));
    }

    #[test]
    fn equal_is_by_all_bytes_and_the_length() {
        assert!(equal(b"ab", b"ab"));
        assert!(!equal(b"ab", b"aB") && !equal(b"ab", b"abc") && !equal(b"", b"a"));
    }
}
