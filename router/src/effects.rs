//! What a text does to the session, as far as the text tells.
//!
//! Functions, triggers and rules can do anything to a session and show nothing of it in the text that calls them; what
//! can be seen is found, and what is not understood counts as [`Effect::Unknown`]. Nothing here decides about
//! transactions: the server's `ReadyForQuery` says whether one is open, the text only says what was asked for.

use std::fmt;

use crate::plain;
use crate::scan::Options;
use crate::statement::statements;

macro_rules! effects {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// One thing that a text does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Effect {
            $($(#[$doc])* $name,)*
        }

        impl Effect {
            /// Every effect.
            pub const ALL: &[Effect] = &[$(Effect::$name,)*];

            /// A name for logs and metrics.
            pub fn label(self) -> &'static str {
                match self {
                    $(Effect::$name => $label,)*
                }
            }
        }
    };
}

effects! {
    /// A statement, or an identifier, that is not understood.
    Unknown = "unknown",
    /// A string, quoted identifier or comment without an end.
    Unterminated = "unterminated",
    /// `SET x`, `SET SESSION x`, `SET TIME ZONE`, `SET NAMES`, `SET SESSION CHARACTERISTICS`, and roles.
    SetSession = "set_session",
    /// `SET LOCAL`, `SET TRANSACTION`, `SET CONSTRAINTS`, and `set_config` that is literally local.
    SetLocal = "set_local",
    /// `set_config` that lasts, or may last, beyond the transaction.
    SetConfig = "set_config",
    /// `SET ROLE`, `SET SESSION AUTHORIZATION`, `RESET` of these, and every other spelling; not if local.
    Role = "role",
    /// `RESET x`.
    Reset = "reset",
    /// `RESET ALL`.
    ResetAll = "reset_all",
    /// `LISTEN`.
    Listen = "listen",
    /// `UNLISTEN x`.
    Unlisten = "unlisten",
    /// `UNLISTEN *`.
    UnlistenAll = "unlisten_all",
    /// `NOTIFY`.
    Notify = "notify",
    /// `PREPARE name AS`.
    Prepare = "prepare",
    /// `EXECUTE name`, also in `CREATE TABLE AS` and `EXPLAIN`.
    Execute = "execute",
    /// `DEALLOCATE name`.
    Deallocate = "deallocate",
    /// `DEALLOCATE ALL`.
    DeallocateAll = "deallocate_all",
    /// `pg_prepared_statements`, or code that may name prepared statements where they are not seen (`DO`).
    PreparedNames = "prepared_names",
    /// `DISCARD ALL`.
    DiscardAll = "discard_all",
    /// `DISCARD TEMP`.
    DiscardTemp = "discard_temp",
    /// `DISCARD PLANS`.
    DiscardPlans = "discard_plans",
    /// `DISCARD SEQUENCES`.
    DiscardSequences = "discard_sequences",
    /// `DECLARE` of a cursor that ends with its transaction.
    Declare = "declare",
    /// `DECLARE ... WITH HOLD`.
    DeclareHold = "declare_hold",
    /// `CLOSE name`.
    Close = "close",
    /// `CLOSE ALL`.
    CloseAll = "close_all",
    /// A temporary table, view or sequence, or anything in `pg_temp`.
    CreateTemp = "create_temp",
    /// `DROP`, which may take a temporary object away.
    Drop = "drop",
    /// `LOAD`.
    Load = "load",
    /// A call of a function that takes a session-level advisory lock.
    AdvisoryLock = "advisory_lock",
    /// A call of `pg_advisory_unlock`.
    AdvisoryUnlock = "advisory_unlock",
    /// A call of `pg_advisory_unlock_all`.
    AdvisoryUnlockAll = "advisory_unlock_all",
    /// A call of another function that is known to leave something in the session.
    SessionFunction = "session_function",
    /// `DO` or `CALL`: code that the text does not show, or shows in a language that is not read.
    DoOrCall = "do_or_call",
    /// `BEGIN` or `START TRANSACTION`.
    Begin = "begin",
    /// `COMMIT` or `END`.
    Commit = "commit",
    /// `ROLLBACK` or `ABORT`.
    Rollback = "rollback",
    /// `AND CHAIN` of one of these: a transaction is open behind it.
    Chain = "chain",
    /// `SAVEPOINT`.
    Savepoint = "savepoint",
    /// `ROLLBACK TO`: the transaction stays open.
    RollbackTo = "rollback_to",
    /// `RELEASE`.
    Release = "release",
    /// `PREPARE TRANSACTION`.
    PrepareTransaction = "prepare_transaction",
    /// `COMMIT PREPARED`.
    CommitPrepared = "commit_prepared",
    /// `ROLLBACK PREPARED`.
    RollbackPrepared = "rollback_prepared",
    /// `COPY ... FROM STDIN`: the client sends data.
    CopyStdin = "copy_stdin",
}

/// A set of effects.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Effects(u64);

impl Effects {
    /// No effect.
    pub const NONE: Effects = Effects(0);

    /// What leaves something in the session that was not there before, or may do so.
    pub const LEAVE: Effects = Effects::of(&[
        Effect::Unknown,
        Effect::Unterminated,
        Effect::SetSession,
        Effect::SetConfig,
        Effect::Role,
        Effect::Listen,
        Effect::Prepare,
        Effect::Execute,
        Effect::DeclareHold,
        Effect::CreateTemp,
        Effect::Load,
        Effect::AdvisoryLock,
        Effect::SessionFunction,
        Effect::DoOrCall,
    ]);

    /// What takes something out of the session that was there.
    pub const CLEAR: Effects = Effects::of(&[
        Effect::Role,
        Effect::Reset,
        Effect::ResetAll,
        Effect::Unlisten,
        Effect::UnlistenAll,
        Effect::Deallocate,
        Effect::DeallocateAll,
        Effect::DiscardAll,
        Effect::DiscardTemp,
        Effect::DiscardPlans,
        Effect::DiscardSequences,
        Effect::Close,
        Effect::CloseAll,
        Effect::AdvisoryUnlock,
        Effect::AdvisoryUnlockAll,
    ]);

    /// What names prepared statements by SQL, makes such a name, or looks at them all.
    pub const NAMING: Effects = Effects::of(&[
        Effect::Prepare,
        Effect::Execute,
        Effect::Deallocate,
        Effect::PreparedNames,
    ]);

    /// The set of these effects.
    pub const fn of(effects: &[Effect]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < effects.len() {
            bits |= 1 << effects[at] as u8;
            at += 1;
        }
        Effects(bits)
    }

    /// Adds one.
    pub fn insert(&mut self, effect: Effect) {
        self.0 |= 1 << effect as u8;
    }

    /// Those of both.
    #[must_use]
    pub fn union(self, other: Effects) -> Effects {
        Effects(self.0 | other.0)
    }

    /// Whether this one is among them.
    pub fn contains(self, effect: Effect) -> bool {
        self.0 & (1 << effect as u8) != 0
    }

    /// Whether the two have one in common.
    pub fn intersects(self, other: Effects) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the session is after the transaction as it was before: nothing left, nothing taken away, nothing unknown.
    pub fn is_clean(self) -> bool {
        !self.intersects(Effects(Self::LEAVE.0 | Self::CLEAR.0))
    }

    /// Whether something may be left in the session. A text that only takes away (`UNLISTEN *`, `DISCARD ALL`) leaves
    /// nothing, though it is not clean.
    pub fn leaves(self) -> bool {
        self.intersects(Self::LEAVE)
    }

    /// Each of them, in the order of [`Effect::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Effect> {
        Effect::ALL
            .iter()
            .copied()
            .filter(move |&effect| self.contains(effect))
    }
}

impl fmt::Debug for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<Effect> for Effects {
    fn from_iter<I: IntoIterator<Item = Effect>>(effects: I) -> Self {
        let mut set = Effects::NONE;
        effects.into_iter().for_each(|effect| set.insert(effect));
        set
    }
}

const _: () = assert!(Effect::ALL.len() <= 64, "a bit for each effect");

/// All that the statements of `text` do.
pub fn scan_effects(text: &[u8], options: Options) -> Effects {
    match plain::effects(text) {
        Some(effects) => effects,
        None => scan_statements(text, options),
    }
}

/// Whether `value` has the temporary schema's name in it. As a value of `search_path` it makes every plain `CREATE` one of
/// a temporary object.
pub fn names_temp_schema(value: &[u8]) -> bool {
    crate::statement::names_temp_schema(value)
}

// A function of its own, so that plain texts do not pay for its many registers.
#[inline(never)]
fn scan_statements(text: &[u8], options: Options) -> Effects {
    statements(text, options).effects()
}
