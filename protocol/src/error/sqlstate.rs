//! SQLSTATE codes.
//!
//! Spec: errcodes-appendix.

use std::fmt;

/// The five characters that name an error to programs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SqlState([u8; 5]);

impl SqlState {
    /// The state with these characters, which must be digits or upper-case letters.
    pub const fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, d, e] = bytes else {
            return None;
        };
        if is_valid(*a) && is_valid(*b) && is_valid(*c) && is_valid(*d) && is_valid(*e) {
            Some(Self([*a, *b, *c, *d, *e]))
        } else {
            None
        }
    }

    /// The characters.
    pub const fn as_bytes(&self) -> &[u8; 5] {
        &self.0
    }

    /// The characters as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The first two characters, which name the class of the error.
    pub const fn class(&self) -> [u8; 2] {
        let [a, b, ..] = self.0;
        [a, b]
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqlState({})", self.as_str())
    }
}

const fn is_valid(byte: u8) -> bool {
    byte.is_ascii_digit() || byte.is_ascii_uppercase()
}

/// What a pooler sends, or acts upon when a server sends it. Names are PostgreSQL's condition names.
impl SqlState {
    /// `successful_completion`
    pub const SUCCESSFUL_COMPLETION: Self = Self(*b"00000");
    /// `warning`
    pub const WARNING: Self = Self(*b"01000");
    /// `connection_exception`
    pub const CONNECTION_EXCEPTION: Self = Self(*b"08000");
    /// `sqlclient_unable_to_establish_sqlconnection`
    pub const SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION: Self = Self(*b"08001");
    /// `connection_does_not_exist`
    pub const CONNECTION_DOES_NOT_EXIST: Self = Self(*b"08003");
    /// `sqlserver_rejected_establishment_of_sqlconnection`
    pub const SQLSERVER_REJECTED_ESTABLISHMENT_OF_SQLCONNECTION: Self = Self(*b"08004");
    /// `connection_failure`
    pub const CONNECTION_FAILURE: Self = Self(*b"08006");
    /// `transaction_resolution_unknown`
    pub const TRANSACTION_RESOLUTION_UNKNOWN: Self = Self(*b"08007");
    /// `protocol_violation`
    pub const PROTOCOL_VIOLATION: Self = Self(*b"08P01");
    /// `feature_not_supported`
    pub const FEATURE_NOT_SUPPORTED: Self = Self(*b"0A000");
    /// `invalid_parameter_value`
    pub const INVALID_PARAMETER_VALUE: Self = Self(*b"22023");
    /// `character_not_in_repertoire`
    pub const CHARACTER_NOT_IN_REPERTOIRE: Self = Self(*b"22021");
    /// `invalid_transaction_state`
    pub const INVALID_TRANSACTION_STATE: Self = Self(*b"25000");
    /// `active_sql_transaction`
    pub const ACTIVE_SQL_TRANSACTION: Self = Self(*b"25001");
    /// `read_only_sql_transaction`
    pub const READ_ONLY_SQL_TRANSACTION: Self = Self(*b"25006");
    /// `no_active_sql_transaction`
    pub const NO_ACTIVE_SQL_TRANSACTION: Self = Self(*b"25P01");
    /// `in_failed_sql_transaction`
    pub const IN_FAILED_SQL_TRANSACTION: Self = Self(*b"25P02");
    /// `idle_in_transaction_session_timeout`
    pub const IDLE_IN_TRANSACTION_SESSION_TIMEOUT: Self = Self(*b"25P03");
    /// `transaction_timeout`
    pub const TRANSACTION_TIMEOUT: Self = Self(*b"25P04");
    /// `invalid_sql_statement_name`
    pub const INVALID_SQL_STATEMENT_NAME: Self = Self(*b"26000");
    /// `invalid_authorization_specification`
    pub const INVALID_AUTHORIZATION_SPECIFICATION: Self = Self(*b"28000");
    /// `invalid_password`
    pub const INVALID_PASSWORD: Self = Self(*b"28P01");
    /// `invalid_cursor_name`
    pub const INVALID_CURSOR_NAME: Self = Self(*b"34000");
    /// `invalid_catalog_name`
    pub const INVALID_CATALOG_NAME: Self = Self(*b"3D000");
    /// `transaction_rollback`
    pub const TRANSACTION_ROLLBACK: Self = Self(*b"40000");
    /// `serialization_failure`
    pub const SERIALIZATION_FAILURE: Self = Self(*b"40001");
    /// `statement_completion_unknown`
    pub const STATEMENT_COMPLETION_UNKNOWN: Self = Self(*b"40003");
    /// `deadlock_detected`
    pub const DEADLOCK_DETECTED: Self = Self(*b"40P01");
    /// `syntax_error`
    pub const SYNTAX_ERROR: Self = Self(*b"42601");
    /// `insufficient_privilege`
    pub const INSUFFICIENT_PRIVILEGE: Self = Self(*b"42501");
    /// `undefined_object`
    pub const UNDEFINED_OBJECT: Self = Self(*b"42704");
    /// `duplicate_cursor`
    pub const DUPLICATE_CURSOR: Self = Self(*b"42P03");
    /// `duplicate_prepared_statement`
    pub const DUPLICATE_PREPARED_STATEMENT: Self = Self(*b"42P05");
    /// `insufficient_resources`
    pub const INSUFFICIENT_RESOURCES: Self = Self(*b"53000");
    /// `disk_full`
    pub const DISK_FULL: Self = Self(*b"53100");
    /// `out_of_memory`
    pub const OUT_OF_MEMORY: Self = Self(*b"53200");
    /// `too_many_connections`
    pub const TOO_MANY_CONNECTIONS: Self = Self(*b"53300");
    /// `configuration_limit_exceeded`
    pub const CONFIGURATION_LIMIT_EXCEEDED: Self = Self(*b"53400");
    /// `program_limit_exceeded`
    pub const PROGRAM_LIMIT_EXCEEDED: Self = Self(*b"54000");
    /// `statement_too_complex`
    pub const STATEMENT_TOO_COMPLEX: Self = Self(*b"54001");
    /// `object_not_in_prerequisite_state`
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: Self = Self(*b"55000");
    /// `lock_not_available`
    pub const LOCK_NOT_AVAILABLE: Self = Self(*b"55P03");
    /// `operator_intervention`
    pub const OPERATOR_INTERVENTION: Self = Self(*b"57000");
    /// `query_canceled`
    pub const QUERY_CANCELED: Self = Self(*b"57014");
    /// `admin_shutdown`
    pub const ADMIN_SHUTDOWN: Self = Self(*b"57P01");
    /// `crash_shutdown`
    pub const CRASH_SHUTDOWN: Self = Self(*b"57P02");
    /// `cannot_connect_now`
    pub const CANNOT_CONNECT_NOW: Self = Self(*b"57P03");
    /// `database_dropped`
    pub const DATABASE_DROPPED: Self = Self(*b"57P04");
    /// `idle_session_timeout`
    pub const IDLE_SESSION_TIMEOUT: Self = Self(*b"57P05");
    /// `system_error`
    pub const SYSTEM_ERROR: Self = Self(*b"58000");
    /// `io_error`
    pub const IO_ERROR: Self = Self(*b"58030");
    /// `config_file_error`
    pub const CONFIG_FILE_ERROR: Self = Self(*b"F0000");
    /// `internal_error`
    pub const INTERNAL_ERROR: Self = Self(*b"XX000");
    /// `data_corrupted`
    pub const DATA_CORRUPTED: Self = Self(*b"XX001");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_five_digits_or_capitals() {
        assert_eq!(
            SqlState::from_bytes(b"57P01"),
            Some(SqlState::ADMIN_SHUTDOWN)
        );
        for bytes in [&b""[..], b"57P0", b"57P011", b"57p01", b"57P0 ", b"57P0\0"] {
            assert_eq!(SqlState::from_bytes(bytes), None);
        }
    }

    #[test]
    fn a_state_shows_its_characters_and_its_class() {
        assert_eq!(SqlState::ADMIN_SHUTDOWN.to_string(), "57P01");
        assert_eq!(
            format!("{:?}", SqlState::PROTOCOL_VIOLATION),
            "SqlState(08P01)"
        );
        assert_eq!(SqlState::CONNECTION_FAILURE.class(), *b"08");
        assert_eq!(SqlState::QUERY_CANCELED.as_bytes(), b"57014");
    }
}
