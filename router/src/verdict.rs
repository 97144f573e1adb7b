//! What a text is, for those who must choose a server for it.

use std::fmt;

/// The classes of statements, from the one that may go anywhere to the one that may go only to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// It only reads: a replica may run it, and a transaction that is `READ ONLY`.
    Read = 0,
    /// It changes or uses what belongs to the session: settings, prepared statements, cursors, channels.
    Session = 1,
    /// It begins, ends or marks a transaction.
    Transaction = 2,
    /// It keeps the database in order and leaves its data as they are, but no replica can run it: `VACUUM` and the like.
    Utility = 3,
    /// It changes data, definitions or rights, or it may, or nobody knows.
    Write = 4,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 5] = [
        Class::Read,
        Class::Session,
        Class::Transaction,
        Class::Utility,
        Class::Write,
    ];

    /// A name for logs, metrics and tables.
    pub fn label(self) -> &'static str {
        match self {
            Class::Read => "read",
            Class::Session => "session",
            Class::Transaction => "transaction",
            Class::Utility => "utility",
            Class::Write => "write",
        }
    }
}

/// What is known of a text: the classes of all its statements.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verdict {
    classes: u8,
    begins_read_only: bool,
}

impl Verdict {
    /// Of a text without statements: any server will say so.
    pub const EMPTY: Verdict = Verdict {
        classes: 0,
        begins_read_only: false,
    };
    /// Of a text that is not understood.
    pub const UNKNOWN: Verdict = Verdict::of(Class::Write);
    /// Of `BEGIN READ ONLY`.
    pub const BEGIN_READ_ONLY: Verdict = Verdict {
        classes: 1 << Class::Transaction as u8,
        begins_read_only: true,
    };

    /// Of one statement.
    pub const fn of(class: Class) -> Self {
        Verdict {
            classes: 1 << class as u8,
            begins_read_only: false,
        }
    }

    /// Of two statements, one behind the other.
    #[must_use]
    pub fn and(self, next: Verdict) -> Verdict {
        let is_first = self.classes == 0;
        Verdict {
            classes: self.classes | next.classes,
            // A later BEGIN does not say how the transaction that is open then was begun.
            begins_read_only: self.begins_read_only || (is_first && next.begins_read_only),
        }
    }

    /// The strictest class among the statements, which decides for all of them. [`Class::Read`] if there are none.
    pub fn class(self) -> Class {
        let strictest = Class::ALL.iter().rev();
        let found = strictest.copied().find(|&class| self.contains(class));
        found.unwrap_or(Class::Read)
    }

    /// Whether one of the statements is of this class.
    pub fn contains(self, class: Class) -> bool {
        self.classes & (1 << class as u8) != 0
    }

    /// Whether the first statement opens a transaction that says it is `READ ONLY`.
    pub fn begins_read_only(self) -> bool {
        self.begins_read_only
    }

    pub(crate) fn to_bits(self) -> u8 {
        self.classes | u8::from(self.begins_read_only) << 7
    }

    pub(crate) fn from_bits(bits: u8) -> Self {
        Verdict {
            classes: bits & 0x7f,
            begins_read_only: bits >> 7 != 0,
        }
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = Class::ALL.iter().filter(|&&class| self.contains(class));
        f.debug_set().entries(classes).finish()
    }
}
