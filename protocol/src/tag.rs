//! The letters that open a message. The two directions share letters (`C`, `D`, `E`, `S`...) with
//! different meanings, so each has its own constants and its own enum.

/// Declares one direction: constants to match bytes with, and the enum over them.
macro_rules! tags {
    ($module:ident, $enum:ident, $who:literal, $($konst:ident $variant:ident $byte:literal $text:literal,)+) => {
        #[doc = concat!("Tags of the messages that a ", $who, " sends, as bytes.")]
        pub mod $module {
            $(#[doc = $text] pub const $konst: u8 = $byte;)+
        }

        #[doc = concat!("Tags of the messages that a ", $who, " sends.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $enum {
            $(#[doc = $text] $variant = $byte,)+
        }

        impl $enum {
            /// Every tag of this direction.
            pub const ALL: &'static [$enum] = &[$($enum::$variant,)+];

            /// The tag that `byte` is in this direction.
            pub const fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The byte on the wire.
            pub const fn as_byte(self) -> u8 {
                match self {
                    $(Self::$variant => $byte,)+
                }
            }
        }
    };
}

tags! { frontend_tag, FrontendTag, "frontend",
    BIND Bind b'B' "Bind.",
    CLOSE Close b'C' "Close.",
    COPY_DATA CopyData b'd' "CopyData.",
    COPY_DONE CopyDone b'c' "CopyDone.",
    COPY_FAIL CopyFail b'f' "CopyFail.",
    DESCRIBE Describe b'D' "Describe.",
    EXECUTE Execute b'E' "Execute.",
    FLUSH Flush b'H' "Flush.",
    FUNCTION_CALL FunctionCall b'F' "FunctionCall.",
    PARSE Parse b'P' "Parse.",
    PASSWORD Password b'p' "PasswordMessage, SASLInitialResponse, SASLResponse or GSSResponse: only the state of the login tells which.",
    QUERY Query b'Q' "Query.",
    SYNC Sync b'S' "Sync.",
    TERMINATE Terminate b'X' "Terminate.",
}

tags! { backend_tag, BackendTag, "backend",
    AUTHENTICATION Authentication b'R' "An authentication request, or its success.",
    BACKEND_KEY_DATA BackendKeyData b'K' "BackendKeyData.",
    BIND_COMPLETE BindComplete b'2' "BindComplete.",
    CLOSE_COMPLETE CloseComplete b'3' "CloseComplete.",
    COMMAND_COMPLETE CommandComplete b'C' "CommandComplete.",
    COPY_DATA CopyData b'd' "CopyData.",
    COPY_DONE CopyDone b'c' "CopyDone.",
    COPY_IN_RESPONSE CopyInResponse b'G' "CopyInResponse.",
    COPY_OUT_RESPONSE CopyOutResponse b'H' "CopyOutResponse.",
    COPY_BOTH_RESPONSE CopyBothResponse b'W' "CopyBothResponse.",
    DATA_ROW DataRow b'D' "DataRow.",
    EMPTY_QUERY_RESPONSE EmptyQueryResponse b'I' "EmptyQueryResponse.",
    ERROR_RESPONSE ErrorResponse b'E' "ErrorResponse.",
    FUNCTION_CALL_RESPONSE FunctionCallResponse b'V' "FunctionCallResponse.",
    NEGOTIATE_PROTOCOL_VERSION NegotiateProtocolVersion b'v' "NegotiateProtocolVersion.",
    NO_DATA NoData b'n' "NoData.",
    NOTICE_RESPONSE NoticeResponse b'N' "NoticeResponse.",
    NOTIFICATION_RESPONSE NotificationResponse b'A' "NotificationResponse.",
    PARAMETER_DESCRIPTION ParameterDescription b't' "ParameterDescription.",
    PARAMETER_STATUS ParameterStatus b'S' "ParameterStatus.",
    PARSE_COMPLETE ParseComplete b'1' "ParseComplete.",
    PORTAL_SUSPENDED PortalSuspended b's' "PortalSuspended.",
    READY_FOR_QUERY ReadyForQuery b'Z' "ReadyForQuery.",
    ROW_DESCRIPTION RowDescription b'T' "RowDescription.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_tags_are_one_to_one() {
        let mut known = (0, 0);
        for byte in 0..=u8::MAX {
            if let Some(tag) = FrontendTag::from_byte(byte) {
                assert_eq!(tag.as_byte(), byte);
                known.0 += 1;
            }
            if let Some(tag) = BackendTag::from_byte(byte) {
                assert_eq!(tag.as_byte(), byte);
                known.1 += 1;
            }
        }
        assert_eq!(known, (FrontendTag::ALL.len(), BackendTag::ALL.len()));
        assert_eq!(known, (14, 24));
    }

    #[test]
    fn the_same_letter_means_different_things_in_the_two_directions() {
        assert_eq!(FrontendTag::from_byte(b'S'), Some(FrontendTag::Sync));
        assert_eq!(
            BackendTag::from_byte(b'S'),
            Some(BackendTag::ParameterStatus)
        );
        assert_eq!(FrontendTag::from_byte(b'T'), None);
        assert_eq!(BackendTag::from_byte(b'Q'), None);
    }
}
