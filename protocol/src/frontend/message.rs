//! Any message of a client.

use std::fmt;

use crate::cursor::ParseError;
use crate::encode::{self, EncodeError};
use crate::frontend::{
    Bind, Close, CopyData, CopyDone, CopyFail, Describe, Execute, Flush, FunctionCall, Parse,
    Query, Sync, Terminate,
};
use crate::tag::frontend_tag;

/// A message by its tag, for those who look at all of them: traces, tests, fuzzers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message<'a> {
    /// Bind.
    Bind(Bind<'a>),
    /// Close.
    Close(Close<'a>),
    /// CopyData.
    CopyData(CopyData<'a>),
    /// CopyDone.
    CopyDone(CopyDone),
    /// CopyFail.
    CopyFail(CopyFail<'a>),
    /// Describe.
    Describe(Describe<'a>),
    /// Execute.
    Execute(Execute<'a>),
    /// Flush.
    Flush(Flush),
    /// FunctionCall.
    FunctionCall(FunctionCall<'a>),
    /// Parse.
    Parse(Parse<'a>),
    /// Query.
    Query(Query<'a>),
    /// Sync.
    Sync(Sync),
    /// Terminate.
    Terminate(Terminate),
    /// One of the four that share the tag `p`, unread: only the state of the login tells which.
    Password(PasswordBody<'a>),
}

impl<'a> Message<'a> {
    /// Reads the body that came under a tag.
    pub fn decode(tag: u8, body: &'a [u8]) -> Result<Self, ParseError> {
        Ok(match tag {
            frontend_tag::BIND => Self::Bind(Bind::decode(body)?),
            frontend_tag::CLOSE => Self::Close(Close::decode(body)?),
            frontend_tag::COPY_DATA => Self::CopyData(CopyData::decode(body)?),
            frontend_tag::COPY_DONE => Self::CopyDone(CopyDone::decode(body)?),
            frontend_tag::COPY_FAIL => Self::CopyFail(CopyFail::decode(body)?),
            frontend_tag::DESCRIBE => Self::Describe(Describe::decode(body)?),
            frontend_tag::EXECUTE => Self::Execute(Execute::decode(body)?),
            frontend_tag::FLUSH => Self::Flush(Flush::decode(body)?),
            frontend_tag::FUNCTION_CALL => Self::FunctionCall(FunctionCall::decode(body)?),
            frontend_tag::PARSE => Self::Parse(Parse::decode(body)?),
            frontend_tag::QUERY => Self::Query(Query::decode(body)?),
            frontend_tag::SYNC => Self::Sync(Sync::decode(body)?),
            frontend_tag::TERMINATE => Self::Terminate(Terminate::decode(body)?),
            frontend_tag::PASSWORD => Self::Password(PasswordBody(body)),
            _ => return Err(ParseError::UnknownTag),
        })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Bind(message) => message.encode(out),
            Self::Close(message) => message.encode(out),
            Self::CopyData(message) => message.encode(out),
            Self::CopyDone(message) => message.encode(out),
            Self::CopyFail(message) => message.encode(out),
            Self::Describe(message) => message.encode(out),
            Self::Execute(message) => message.encode(out),
            Self::Flush(message) => message.encode(out),
            Self::FunctionCall(message) => message.encode(out),
            Self::Parse(message) => message.encode(out),
            Self::Query(message) => message.encode(out),
            Self::Sync(message) => message.encode(out),
            Self::Terminate(message) => message.encode(out),
            Self::Password(body) => {
                encode::frontend_message(out, frontend_tag::PASSWORD, |w| w.bytes(body.0))
            }
        }
    }
}

/// The body of a message with the tag `p`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PasswordBody<'a>(pub &'a [u8]);

/// Without the body, which is likely a secret.
impl fmt::Debug for PasswordBody<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordBody").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::FrontendTag;

    #[test]
    fn every_tag_opens_a_message() {
        for tag in FrontendTag::ALL {
            let smallest =
                (0..20).find_map(|len| Message::decode(tag.as_byte(), &[0; 20][..len]).ok());
            match tag {
                // Zero is neither a statement nor a portal.
                FrontendTag::Close | FrontendTag::Describe => assert_eq!(smallest, None),
                _ => {
                    let mut out = Vec::new();
                    smallest.unwrap().encode(&mut out).unwrap();
                    assert_eq!(out[0], tag.as_byte());
                }
            }
        }
    }

    #[test]
    fn no_other_byte_does() {
        for byte in (0..=u8::MAX).filter(|byte| FrontendTag::from_byte(*byte).is_none()) {
            assert_eq!(Message::decode(byte, b""), Err(ParseError::UnknownTag));
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        let message = Message::decode(frontend_tag::PASSWORD, b"secret\0").unwrap();
        assert_eq!(format!("{message:?}"), "Password(PasswordBody { .. })");
    }
}
