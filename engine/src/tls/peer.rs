//! Who a certificate says its owner is, and the hash that binds a login to it.

use super::der::{self, OID, Parts, Reader, SEQUENCE, SET, VERSION, Value};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use std::fmt::Write;

/// The names in a certificate, as authentication looks at them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The first CN of the subject, as PostgreSQL takes it.
    pub common_name: Option<String>,
    /// The subject in the form of RFC 2253, as PostgreSQL shows and compares it.
    pub dn: String,
}

impl PeerCertificate {
    /// Reads a certificate. `None` where a name cannot be trusted to be what
    /// it looks like: not well formed, or with a NUL in it.
    pub fn read(certificate: &[u8]) -> Option<Self> {
        let Parts { mut subject, .. } = der::parts(certificate)?;
        let mut common_name = None;
        let mut names = Vec::new();
        while !subject.is_empty() {
            let mut set = subject.inside(SET)?;
            let mut name = String::new();
            while !set.is_empty() {
                let mut attribute = set.inside(SEQUENCE)?;
                let oid = attribute.expect(OID)?;
                let value = attribute.value()?;
                if !name.is_empty() {
                    name.push('+');
                }
                name.push_str(&type_name(oid)?);
                name.push('=');
                let text = text(value);
                if oid == COMMON_NAME && common_name.is_none() {
                    let text = text.as_ref().filter(|text| !text.contains('\0'))?;
                    common_name = Some(text.clone());
                }
                match text {
                    Some(text) => escape(&text, &mut name),
                    None => hex(value, &mut name),
                }
            }
            names.push(name);
        }
        names.reverse();
        Some(Self {
            common_name,
            dn: names.join(","),
        })
    }
}

/// The hash of a certificate by the algorithm with which it is signed (RFC
/// 5929 section 4.1). `None` where that has none, as Ed25519.
pub fn endpoint_hash(certificate: &[u8]) -> Option<Vec<u8>> {
    let Parts { mut algorithm, .. } = der::parts(certificate)?;
    Some(match hash_of(algorithm.expect(OID)?, algorithm)? {
        Hash::Sha224 => Sha224::digest(certificate).to_vec(),
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// MD5 and SHA-1 count as SHA-256.
fn hash_of(algorithm: &[u8], mut parameters: Reader<'_>) -> Option<Hash> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4];
    if let Some(rsa) = algorithm.strip_prefix(RSA) {
        return Some(match rsa {
            [4 | 5 | 11] => Hash::Sha256,
            [12] => Hash::Sha384,
            [13] => Hash::Sha512,
            [14] => Hash::Sha224,
            // RSASSA-PSS names its hash, SHA-1 if it does not.
            [10] => match parameters.inside(SEQUENCE)?.inside(VERSION) {
                Some(mut hash) => digest(hash.inside(SEQUENCE)?.expect(OID)?)?,
                None => Hash::Sha256,
            },
            _ => return None,
        });
    }
    Some(match algorithm.strip_prefix(ECDSA)? {
        [1] | [3, 2] => Hash::Sha256,
        [3, 1] => Hash::Sha224,
        [3, 3] => Hash::Sha384,
        [3, 4] => Hash::Sha512,
        _ => return None,
    })
}

fn digest(oid: &[u8]) -> Option<Hash> {
    const SHA2: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2];
    const SHA1: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1a];
    if oid == SHA1 {
        return Some(Hash::Sha256);
    }
    Some(match oid.strip_prefix(SHA2)? {
        [1] => Hash::Sha256,
        [2] => Hash::Sha384,
        [3] => Hash::Sha512,
        [4] => Hash::Sha224,
        _ => return None,
    })
}

/// The short name of an attribute's type as OpenSSL has it, or its number.
fn type_name(oid: &[u8]) -> Option<String> {
    let known = TYPES.iter().find(|(known, _)| *known == oid);
    if let Some((_, name)) = known {
        return Some((*name).to_owned());
    }
    let mut number: u64 = 0;
    let mut numbers = Vec::new();
    for &byte in oid {
        number = number
            .checked_mul(128)?
            .checked_add(u64::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            numbers.push(std::mem::take(&mut number));
        }
    }
    let (first, rest) = numbers.split_first()?;
    let root = (*first / 40).min(2);
    let mut name = format!("{root}.{}", first - root * 40);
    for number in rest {
        let _ = write!(name, ".{number}");
    }
    Some(name)
}

/// The text of a string type; `None` if it is none, or not valid.
fn text(Value { tag, content }: Value<'_>) -> Option<String> {
    match tag {
        UTF8_STRING => String::from_utf8(content.to_vec()).ok(),
        PRINTABLE_STRING | IA5_STRING | NUMERIC_STRING => content
            .is_ascii()
            .then(|| String::from_utf8_lossy(content).into_owned()),
        // Latin-1, as everybody reads it.
        TELETEX_STRING => Some(content.iter().map(|&byte| char::from(byte)).collect()),
        BMP_STRING if content.len().is_multiple_of(2) => {
            let units = content
                .chunks_exact(2)
                .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).collect::<Result<_, _>>().ok()
        }
        _ => None,
    }
}

/// RFC 2253 section 2.4; what is not printable ASCII in hexadecimal, as
/// PostgreSQL shows it.
fn escape(text: &str, out: &mut String) {
    let bytes = text.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        let edge = at == 0 && matches!(byte, b' ' | b'#') || at + 1 == bytes.len() && byte == b' ';
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            _ if edge => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\{byte:02X}");
            }
        }
    }
}

fn hex(value: Value<'_>, out: &mut String) {
    let _ = write!(out, "#{:02X}", value.tag);
    for byte in value.content {
        let _ = write!(out, "{byte:02X}");
    }
}

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const TYPES: &[(&[u8], &str)] = &[
    (COMMON_NAME, "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 42], "GN"),
    (&[0x55, 4, 46], "dnQualifier"),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
        "emailAddress",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 100, 1, 1],
        "UID",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 100, 1, 25],
        "DC",
    ),
];
const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const TELETEX_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const BMP_STRING: u8 = 0x1e;
#[cfg(test)]
mod tests;
