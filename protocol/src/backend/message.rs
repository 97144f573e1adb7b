//! Any message of a server.

use crate::backend::{
    Authentication, BackendKeyData, BindComplete, CloseComplete, CommandComplete, CopyBothResponse,
    CopyData, CopyDone, CopyInResponse, CopyOutResponse, DataRow, EmptyQueryResponse,
    ErrorResponse, FunctionCallResponse, NegotiateProtocolVersion, NoData, NoticeResponse,
    NotificationResponse, ParameterDescription, ParameterStatus, ParseComplete, PortalSuspended,
    ReadyForQuery, RowDescription,
};
use crate::cursor::ParseError;
use crate::encode::EncodeError;
use crate::tag::backend_tag;

/// A message by its tag, for those who look at all of them: traces, tests, fuzzers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message<'a> {
    /// Authentication.
    Authentication(Authentication<'a>),
    /// BackendKeyData.
    BackendKeyData(BackendKeyData<'a>),
    /// BindComplete.
    BindComplete(BindComplete),
    /// CloseComplete.
    CloseComplete(CloseComplete),
    /// CommandComplete.
    CommandComplete(CommandComplete<'a>),
    /// CopyBothResponse.
    CopyBothResponse(CopyBothResponse<'a>),
    /// CopyData.
    CopyData(CopyData<'a>),
    /// CopyDone.
    CopyDone(CopyDone),
    /// CopyInResponse.
    CopyInResponse(CopyInResponse<'a>),
    /// CopyOutResponse.
    CopyOutResponse(CopyOutResponse<'a>),
    /// DataRow.
    DataRow(DataRow<'a>),
    /// EmptyQueryResponse.
    EmptyQueryResponse(EmptyQueryResponse),
    /// ErrorResponse.
    ErrorResponse(ErrorResponse<'a>),
    /// FunctionCallResponse.
    FunctionCallResponse(FunctionCallResponse<'a>),
    /// NegotiateProtocolVersion.
    NegotiateProtocolVersion(NegotiateProtocolVersion<'a>),
    /// NoData.
    NoData(NoData),
    /// NoticeResponse.
    NoticeResponse(NoticeResponse<'a>),
    /// NotificationResponse.
    NotificationResponse(NotificationResponse<'a>),
    /// ParameterDescription.
    ParameterDescription(ParameterDescription<'a>),
    /// ParameterStatus.
    ParameterStatus(ParameterStatus<'a>),
    /// ParseComplete.
    ParseComplete(ParseComplete),
    /// PortalSuspended.
    PortalSuspended(PortalSuspended),
    /// ReadyForQuery.
    ReadyForQuery(ReadyForQuery),
    /// RowDescription.
    RowDescription(RowDescription<'a>),
}

impl<'a> Message<'a> {
    /// Reads the body that came under a tag.
    pub fn decode(tag: u8, body: &'a [u8]) -> Result<Self, ParseError> {
        Ok(match tag {
            backend_tag::AUTHENTICATION => Self::Authentication(Authentication::decode(body)?),
            backend_tag::BACKEND_KEY_DATA => Self::BackendKeyData(BackendKeyData::decode(body)?),
            backend_tag::BIND_COMPLETE => Self::BindComplete(BindComplete::decode(body)?),
            backend_tag::CLOSE_COMPLETE => Self::CloseComplete(CloseComplete::decode(body)?),
            backend_tag::COMMAND_COMPLETE => Self::CommandComplete(CommandComplete::decode(body)?),
            backend_tag::COPY_BOTH_RESPONSE => {
                Self::CopyBothResponse(CopyBothResponse::decode(body)?)
            }
            backend_tag::COPY_DATA => Self::CopyData(CopyData::decode(body)?),
            backend_tag::COPY_DONE => Self::CopyDone(CopyDone::decode(body)?),
            backend_tag::COPY_IN_RESPONSE => Self::CopyInResponse(CopyInResponse::decode(body)?),
            backend_tag::COPY_OUT_RESPONSE => Self::CopyOutResponse(CopyOutResponse::decode(body)?),
            backend_tag::DATA_ROW => Self::DataRow(DataRow::decode(body)?),
            backend_tag::EMPTY_QUERY_RESPONSE => {
                Self::EmptyQueryResponse(EmptyQueryResponse::decode(body)?)
            }
            backend_tag::ERROR_RESPONSE => Self::ErrorResponse(ErrorResponse::decode(body)?),
            backend_tag::FUNCTION_CALL_RESPONSE => {
                Self::FunctionCallResponse(FunctionCallResponse::decode(body)?)
            }
            backend_tag::NEGOTIATE_PROTOCOL_VERSION => {
                Self::NegotiateProtocolVersion(NegotiateProtocolVersion::decode(body)?)
            }
            backend_tag::NO_DATA => Self::NoData(NoData::decode(body)?),
            backend_tag::NOTICE_RESPONSE => Self::NoticeResponse(NoticeResponse::decode(body)?),
            backend_tag::NOTIFICATION_RESPONSE => {
                Self::NotificationResponse(NotificationResponse::decode(body)?)
            }
            backend_tag::PARAMETER_DESCRIPTION => {
                Self::ParameterDescription(ParameterDescription::decode(body)?)
            }
            backend_tag::PARAMETER_STATUS => Self::ParameterStatus(ParameterStatus::decode(body)?),
            backend_tag::PARSE_COMPLETE => Self::ParseComplete(ParseComplete::decode(body)?),
            backend_tag::PORTAL_SUSPENDED => Self::PortalSuspended(PortalSuspended::decode(body)?),
            backend_tag::READY_FOR_QUERY => Self::ReadyForQuery(ReadyForQuery::decode(body)?),
            backend_tag::ROW_DESCRIPTION => Self::RowDescription(RowDescription::decode(body)?),
            _ => return Err(ParseError::UnknownTag),
        })
    }

    /// Appends the message; on error `out` is left as it was.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Authentication(message) => message.encode(out),
            Self::BackendKeyData(message) => message.encode(out),
            Self::BindComplete(message) => message.encode(out),
            Self::CloseComplete(message) => message.encode(out),
            Self::CommandComplete(message) => message.encode(out),
            Self::CopyBothResponse(message) => message.encode(out),
            Self::CopyData(message) => message.encode(out),
            Self::CopyDone(message) => message.encode(out),
            Self::CopyInResponse(message) => message.encode(out),
            Self::CopyOutResponse(message) => message.encode(out),
            Self::DataRow(message) => message.encode(out),
            Self::EmptyQueryResponse(message) => message.encode(out),
            Self::ErrorResponse(message) => message.encode(out),
            Self::FunctionCallResponse(message) => message.encode(out),
            Self::NegotiateProtocolVersion(message) => message.encode(out),
            Self::NoData(message) => message.encode(out),
            Self::NoticeResponse(message) => message.encode(out),
            Self::NotificationResponse(message) => message.encode(out),
            Self::ParameterDescription(message) => message.encode(out),
            Self::ParameterStatus(message) => message.encode(out),
            Self::ParseComplete(message) => message.encode(out),
            Self::PortalSuspended(message) => message.encode(out),
            Self::ReadyForQuery(message) => message.encode(out),
            Self::RowDescription(message) => message.encode(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::BackendTag;

    #[test]
    fn every_tag_opens_a_message() {
        for tag in BackendTag::ALL {
            let zeros =
                (0..20).find_map(|len| Message::decode(tag.as_byte(), &[0; 20][..len]).ok());
            match tag {
                // Zero is no status.
                BackendTag::ReadyForQuery => assert_eq!(zeros, None),
                _ => {
                    let mut out = Vec::new();
                    zeros.unwrap().encode(&mut out).unwrap();
                    assert_eq!(out[0], tag.as_byte());
                }
            }
        }
    }

    #[test]
    fn no_other_byte_does() {
        for byte in (0..=u8::MAX).filter(|byte| BackendTag::from_byte(*byte).is_none()) {
            assert_eq!(Message::decode(byte, b""), Err(ParseError::UnknownTag));
        }
    }
}
