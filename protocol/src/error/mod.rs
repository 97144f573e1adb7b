//! SQLSTATEs, severities, and the fields of ErrorResponse and NoticeResponse.

mod error_fields;
mod fields;
mod severity;
mod sqlstate;

pub use error_fields::ErrorFields;
pub use fields::{Fields, FieldsIter};
pub use severity::Severity;
pub use sqlstate::SqlState;

/// The letters that say what a field is.
pub mod field {
    /// Severity, in the language of the session.
    pub const SEVERITY: u8 = b'S';
    /// Severity, never translated.
    pub const SEVERITY_NON_LOCALIZED: u8 = b'V';
    /// SQLSTATE.
    pub const CODE: u8 = b'C';
    /// The message.
    pub const MESSAGE: u8 = b'M';
    /// More about the cause.
    pub const DETAIL: u8 = b'D';
    /// What to do about it.
    pub const HINT: u8 = b'H';
    /// Position in the query, in characters from 1.
    pub const POSITION: u8 = b'P';
    /// Call stack, or what stands for it.
    pub const WHERE: u8 = b'W';
    /// Schema that the error is about.
    pub const SCHEMA: u8 = b's';
    /// Table that the error is about.
    pub const TABLE: u8 = b't';
    /// Column that the error is about.
    pub const COLUMN: u8 = b'c';
    /// Type that the error is about.
    pub const DATA_TYPE: u8 = b'd';
    /// Constraint that was violated.
    pub const CONSTRAINT: u8 = b'n';
    /// Source file of the server.
    pub const FILE: u8 = b'F';
    /// Line in it.
    pub const LINE: u8 = b'L';
    /// Routine in it.
    pub const ROUTINE: u8 = b'R';
}
