//! Authentication requests and their success, which share one tag and differ by a code.
//!
//! Spec: protocol-message-formats, AuthenticationOk to AuthenticationSASLFinal (B).
//!
//! ```text
//! R · length · u32 code · (what the code brings)
//! ```

use crate::cursor::{Cursor, ParseError};
use crate::encode::{self, EncodeError};
use crate::list::List;
use crate::tag::backend_tag;

/// What the server wants to see, or that it has seen enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// 0: the client is who it says.
    Ok,
    /// 2: Kerberos V5, which no server since 9.3 asks for.
    KerberosV5,
    /// 3: the password itself.
    CleartextPassword,
    /// 5: the MD5 hash of the password, hashed once more.
    MD5Password {
        /// What to hash it with.
        salt: [u8; 4],
    },
    /// 6: Unix socket credentials, which no server since 9.1 asks for.
    SCMCredential,
    /// 7: GSSAPI.
    GSS,
    /// 8: the next message of a GSSAPI or SSPI exchange.
    GSSContinue(&'a [u8]),
    /// 9: SSPI.
    SSPI,
    /// 10: one of these SASL mechanisms, the server's favourite first.
    SASL(List<'a, &'a [u8]>),
    /// 11: the next message of a SASL exchange.
    SASLContinue(&'a [u8]),
    /// 12: the last message of a SASL exchange.
    SASLFinal(&'a [u8]),
}

impl<'a> Authentication<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(body);
        let request = match cursor.u32()? {
            OK => Self::Ok,
            KERBEROS_V5 => Self::KerberosV5,
            CLEARTEXT_PASSWORD => Self::CleartextPassword,
            MD5_PASSWORD => Self::MD5Password {
                salt: cursor.array()?,
            },
            SCM_CREDENTIAL => Self::SCMCredential,
            GSS => Self::GSS,
            GSS_CONTINUE => Self::GSSContinue(cursor.rest()?),
            SSPI => Self::SSPI,
            SASL => Self::SASL(List::read_terminated(&mut cursor)?),
            SASL_CONTINUE => Self::SASLContinue(cursor.rest()?),
            SASL_FINAL => Self::SASLFinal(cursor.rest()?),
            _ => return Err(ParseError::UnknownAuthentication),
        };
        cursor.finish()?;
        Ok(request)
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::backend_message(out, backend_tag::AUTHENTICATION, |w| {
            w.u32(self.code())?;
            match self {
                Self::MD5Password { salt } => w.bytes(salt),
                Self::SASL(mechanisms) => mechanisms.write_terminated(w),
                Self::GSSContinue(data) | Self::SASLContinue(data) | Self::SASLFinal(data) => {
                    w.bytes(data)
                }
                Self::Ok
                | Self::KerberosV5
                | Self::CleartextPassword
                | Self::SCMCredential
                | Self::GSS
                | Self::SSPI => Ok(()),
            }
        })
    }

    /// The code on the wire.
    pub const fn code(&self) -> u32 {
        match self {
            Self::Ok => OK,
            Self::KerberosV5 => KERBEROS_V5,
            Self::CleartextPassword => CLEARTEXT_PASSWORD,
            Self::MD5Password { .. } => MD5_PASSWORD,
            Self::SCMCredential => SCM_CREDENTIAL,
            Self::GSS => GSS,
            Self::GSSContinue(_) => GSS_CONTINUE,
            Self::SSPI => SSPI,
            Self::SASL(_) => SASL,
            Self::SASLContinue(_) => SASL_CONTINUE,
            Self::SASLFinal(_) => SASL_FINAL,
        }
    }
}

const OK: u32 = 0;
const KERBEROS_V5: u32 = 2;
const CLEARTEXT_PASSWORD: u32 = 3;
const MD5_PASSWORD: u32 = 5;
const SCM_CREDENTIAL: u32 = 6;
const GSS: u32 = 7;
const GSS_CONTINUE: u32 = 8;
const SSPI: u32 = 9;
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_open_wire, assert_refused, assert_unencodable, assert_wire};

    #[test]
    fn each_looks_like_this() {
        let table: &[(Authentication<'_>, &[u8])] = &[
            (Authentication::Ok, b"R\0\0\0\x08\0\0\0\0"),
            (Authentication::KerberosV5, b"R\0\0\0\x08\0\0\0\x02"),
            (Authentication::CleartextPassword, b"R\0\0\0\x08\0\0\0\x03"),
            (
                Authentication::MD5Password { salt: *b"salt" },
                b"R\0\0\0\x0c\0\0\0\x05salt",
            ),
            (Authentication::SCMCredential, b"R\0\0\0\x08\0\0\0\x06"),
            (Authentication::GSS, b"R\0\0\0\x08\0\0\0\x07"),
            (Authentication::SSPI, b"R\0\0\0\x08\0\0\0\x09"),
            (
                Authentication::SASL(List::new(&[b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256"])),
                b"R\0\0\0\x2a\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
            ),
        ];
        for (value, wire) in table {
            assert_wire!(Authentication, *value, wire);
        }
        let open: &[(Authentication<'_>, &[u8])] = &[
            (Authentication::GSSContinue(b"x"), b"R\0\0\0\x09\0\0\0\x08x"),
            (
                Authentication::SASLContinue(b"r="),
                b"R\0\0\0\x0a\0\0\0\x0br=",
            ),
            (Authentication::SASLFinal(b"v="), b"R\0\0\0\x0a\0\0\0\x0cv="),
        ];
        for (value, wire) in open {
            assert_open_wire!(Authentication, *value, wire);
        }
    }

    #[test]
    fn unknown_codes_are_refused() {
        for code in [1, 4, 13, u32::MAX] {
            assert_refused!(Authentication, &code.to_be_bytes(), UnknownAuthentication);
        }
    }

    #[test]
    fn a_list_of_mechanisms_needs_its_end_and_ends_there() {
        assert_refused!(Authentication, b"\0\0\0\x0aSCRAM-SHA-256\0", Unterminated);
        assert_refused!(
            Authentication,
            b"\0\0\0\x0a\0SCRAM-SHA-256\0\0",
            TrailingBytes
        );
        assert_unencodable!(Authentication::SASL(List::new(&[b"", b"X"])), EmptyName);
    }
}
