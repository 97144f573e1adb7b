//! The verdict by PostgreSQL's own syntax tree.

use std::borrow::Cow;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    CopyStmt, DefElem, ExplainStmt, Node, TransactionStmt, TransactionStmtKind, VariableSetStmt,
};

use super::options::is_off;
use super::walk;
use crate::functions::Functions;
use crate::scan::{Options, Scanner, TokenKind};
use crate::verdict::{Class, Verdict};

/// Why there is no tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The parser does not take it: bad syntax, syntax of a later version, or a tree that is too deep for it.
    Parser(String),
    /// It has a zero byte, which ends a text for PostgreSQL.
    Zero,
}

/// What `text` is. The caller has bound its size and its levels ([`Caps`](super::Caps)): the parser recurses, and overflows
/// the stack on deep texts.
pub fn by_tree(
    text: &[u8],
    options: Options,
    functions: &impl Functions,
) -> Result<Verdict, Refusal> {
    if text.contains(&0) {
        return Err(Refusal::Zero);
    }
    // Bytes of other encodings are letters to PostgreSQL, as is what stands for them here; no name that is known has one.
    let text: Cow<'_, str> = String::from_utf8_lossy(text);
    let reading = match options.standard_conforming_strings {
        true => pg_query::ParserOptions::DEFAULT,
        false => pg_query::ParserOptions::DISABLE_STANDARD_CONFORMING_STRINGS,
    };
    let parsed =
        pg_query::parse(&text, reading).map_err(|error| Refusal::Parser(error.to_string()))?;
    let seen = &Seen {
        text: text.as_bytes(),
        options,
        functions,
    };
    let mut verdict = Verdict::EMPTY;
    for raw in &parsed.protobuf.stmts {
        verdict = verdict.and(statement(raw.stmt.as_deref(), seen));
    }
    Ok(verdict)
}

/// What is needed to judge a statement of a text.
struct Seen<'a, F> {
    text: &'a [u8],
    options: Options,
    functions: &'a F,
}

/// What a statement is, with all that stands in it.
fn statement(node: Option<&Node>, seen: &Seen<'_, impl Functions>) -> Verdict {
    let Some(node) = node.and_then(|node| node.node.as_ref()) else {
        return Verdict::UNKNOWN;
    };
    match role(node) {
        Role::Query => query(node, seen),
        Role::Is(class) => Verdict::of(class),
        Role::Own => own(node, seen),
        Role::Part => Verdict::UNKNOWN,
    }
}

/// Statements that are one thing or another.
fn own(node: &NodeEnum, seen: &Seen<'_, impl Functions>) -> Verdict {
    match node {
        NodeEnum::TransactionStmt(found) => transaction(found),
        NodeEnum::VariableSetStmt(found) => Verdict::of(set(found)),
        NodeEnum::ExplainStmt(found) => explain(found, seen),
        NodeEnum::CopyStmt(found) => copy(found, seen),
        // The cursor's query runs when rows are fetched.
        NodeEnum::DeclareCursorStmt(found) => match walk::writes(&found.query, seen.functions) {
            true => Verdict::UNKNOWN,
            false => Verdict::of(Class::Session),
        },
        _ => Verdict::UNKNOWN,
    }
}

fn query(node: &NodeEnum, seen: &Seen<'_, impl Functions>) -> Verdict {
    match walk::writes(node, seen.functions) {
        true => Verdict::of(Class::Write),
        false => Verdict::of(Class::Read),
    }
}

fn transaction(found: &TransactionStmt) -> Verdict {
    use TransactionStmtKind::*;
    match found.kind() {
        TransStmtBegin | TransStmtStart if is_read_only(&found.options) => Verdict::BEGIN_READ_ONLY,
        TransStmtBegin | TransStmtStart | TransStmtCommit | TransStmtRollback
        | TransStmtSavepoint | TransStmtRelease | TransStmtRollbackTo => {
            Verdict::of(Class::Transaction)
        }
        TransStmtPrepare | TransStmtCommitPrepared | TransStmtRollbackPrepared | Undefined => {
            Verdict::UNKNOWN
        }
    }
}

/// Whether all that is said of it is that it is read only.
fn is_read_only(options: &[Node]) -> bool {
    let mut said = options
        .iter()
        .filter_map(def_elem)
        .filter(|elem| elem.defname == "transaction_read_only");
    let is_on = |elem: &DefElem| integer(elem.arg.as_deref()).is_some_and(|value| value != 0);
    let first = said.next();
    first.is_some_and(is_on) && said.all(is_on)
}

fn integer(node: Option<&Node>) -> Option<i32> {
    use pg_query::protobuf::a_const::Val;
    match node?.node.as_ref()? {
        NodeEnum::Integer(integer) => Some(integer.ival),
        NodeEnum::AConst(constant) => match constant.val.as_ref()? {
            Val::Ival(integer) => Some(integer.ival),
            _ => None,
        },
        _ => None,
    }
}

fn def_elem(node: &Node) -> Option<&DefElem> {
    match node.node.as_ref()? {
        NodeEnum::DefElem(elem) => Some(elem),
        _ => None,
    }
}

fn set(found: &VariableSetStmt) -> Class {
    match found.name.as_str() {
        "TRANSACTION" => Class::Transaction,
        _ => Class::Session,
    }
}

/// Without `ANALYZE` nothing is run.
fn explain(found: &ExplainStmt, seen: &Seen<'_, impl Functions>) -> Verdict {
    let mut analyze = found
        .options
        .iter()
        .filter_map(def_elem)
        .filter(|elem| elem.defname == "analyze");
    if analyze.any(|elem| !says_off(elem, seen)) {
        return match statement(found.query.as_deref(), seen) {
            verdict if verdict == Verdict::of(Class::Read) => verdict,
            _ => Verdict::UNKNOWN,
        };
    }
    match found.query.as_deref().and_then(|node| node.node.as_ref()) {
        Some(NodeEnum::ExecuteStmt(_)) => Verdict::of(Class::Session),
        Some(_) => Verdict::of(Class::Read),
        None => Verdict::UNKNOWN,
    }
}

/// A word, not a literal, that says off. The tree has a string for either, so the text is asked: the value of a literal is
/// no part of the shape, and `'off'` must not be the verdict on `'on'`.
fn says_off<F>(elem: &DefElem, seen: &Seen<'_, F>) -> bool {
    let Ok(start) = usize::try_from(elem.location) else {
        return false;
    };
    let text = seen.text.get(start..).unwrap_or_default();
    let tokens = Scanner::new(text, seen.options).filter(|token| !token.is_comment());
    let value = tokens.take(2).nth(1);
    value.is_some_and(|value| value.kind == TokenKind::Word && is_off(value.text(text)))
}

/// Rows to the client are a read; a file or a program is written to.
fn copy(found: &CopyStmt, seen: &Seen<'_, impl Functions>) -> Verdict {
    if found.is_from || found.is_program || !found.filename.is_empty() {
        return Verdict::UNKNOWN;
    }
    match found.query.as_deref() {
        None => Verdict::of(Class::Read),
        Some(query) => match statement(Some(query), seen) {
            verdict if verdict == Verdict::of(Class::Read) => verdict,
            _ => Verdict::UNKNOWN,
        },
    }
}

/// What a node of the tree means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A query: what stands in it decides.
    Query,
    /// A statement that is always this.
    Is(Class),
    /// A statement of which more must be seen.
    Own,
    /// No statement, but a part of one, and harmless by itself.
    Part,
}

/// One role for each node. The compiler sees to it that none is missing: a node that a new version of the parser brings
/// must be put here.
macro_rules! roles {
    ($($role:expr => $($node:ident)*;)*) => {
        fn role(node: &NodeEnum) -> Role {
            match node {
                $($(NodeEnum::$node(_) => $role,)*)*
            }
        }

        /// The same by name, for the walk.
        pub(super) fn role_of(name: &str) -> Option<Role> {
            match name {
                $($(stringify!($node) => Some($role),)*)*
                _ => None,
            }
        }
    };
}

const WRITE: Role = Role::Is(Class::Write);
const SESSION: Role = Role::Is(Class::Session);

roles! {
    Role::Query => SelectStmt;
    Role::Own => TransactionStmt VariableSetStmt ExplainStmt CopyStmt DeclareCursorStmt;
    Role::Is(Class::Read) => VariableShowStmt;
    // What a cursor does is judged when it is declared; what PREPARE prepares runs only by EXECUTE.
    SESSION => FetchStmt ClosePortalStmt PrepareStmt DeallocateStmt DiscardStmt ListenStmt UnlistenStmt LoadStmt;
    Role::Is(Class::Transaction) => ConstraintsSetStmt;
    Role::Is(Class::Utility) => VacuumStmt ClusterStmt ReindexStmt CheckPointStmt;
    // Data, and what may hide a change of data.
    WRITE => InsertStmt DeleteStmt UpdateStmt MergeStmt TruncateStmt ExecuteStmt CallStmt DoStmt InlineCodeBlock CallContext
        NotifyStmt LockStmt RefreshMatViewStmt CreateTableAsStmt IntoClause LockingClause;
    // Definitions and rights.
    WRITE => CreateSchemaStmt AlterTableStmt ReplicaIdentityStmt AlterCollationStmt AlterDomainStmt GrantStmt GrantRoleStmt
        AlterDefaultPrivilegesStmt CreateStmt CreateTableSpaceStmt DropTableSpaceStmt AlterTableSpaceOptionsStmt
        AlterTableMoveAllStmt CreateExtensionStmt AlterExtensionStmt AlterExtensionContentsStmt CreateFdwStmt AlterFdwStmt
        CreateForeignServerStmt AlterForeignServerStmt CreateForeignTableStmt CreateUserMappingStmt AlterUserMappingStmt
        DropUserMappingStmt ImportForeignSchemaStmt CreatePolicyStmt AlterPolicyStmt CreateAmStmt CreateTrigStmt
        CreateEventTrigStmt AlterEventTrigStmt CreatePlangStmt CreateRoleStmt AlterRoleStmt AlterRoleSetStmt DropRoleStmt
        CreateSeqStmt AlterSeqStmt DefineStmt CreateDomainStmt CreateOpClassStmt CreateOpFamilyStmt AlterOpFamilyStmt
        DropStmt CommentStmt SecLabelStmt IndexStmt CreateStatsStmt AlterStatsStmt CreateFunctionStmt AlterFunctionStmt
        RenameStmt AlterObjectDependsStmt AlterObjectSchemaStmt AlterOwnerStmt AlterOperatorStmt AlterTypeStmt RuleStmt
        CompositeTypeStmt CreateEnumStmt CreateRangeStmt AlterEnumStmt ViewStmt CreatedbStmt AlterDatabaseStmt
        AlterDatabaseRefreshCollStmt AlterDatabaseSetStmt DropdbStmt AlterSystemStmt CreateConversionStmt CreateCastStmt
        CreateTransformStmt DropOwnedStmt ReassignOwnedStmt AlterTsdictionaryStmt AlterTsconfigurationStmt
        CreatePublicationStmt AlterPublicationStmt CreateSubscriptionStmt AlterSubscriptionStmt DropSubscriptionStmt;
    // Statements of PL/pgSQL and of rewritten trees, which no text of a client has.
    WRITE => ReturnStmt PlassignStmt SetOperationStmt RawStmt Query NextValueExpr OnConflictClause MergeAction OnConflictExpr;
    // Parts of queries.
    Role::Part => Alias RangeVar TableFunc Var Param Aggref GroupingFunc WindowFunc WindowFuncRunCondition MergeSupportFunc
        SubscriptingRef FuncExpr NamedArgExpr OpExpr DistinctExpr NullIfExpr ScalarArrayOpExpr BoolExpr SubLink SubPlan
        AlternativeSubPlan FieldSelect FieldStore RelabelType CoerceViaIo ArrayCoerceExpr ConvertRowtypeExpr CollateExpr
        CaseExpr CaseWhen CaseTestExpr ArrayExpr RowExpr RowCompareExpr CoalesceExpr MinMaxExpr SqlvalueFunction XmlExpr
        JsonFormat JsonReturning JsonValueExpr JsonConstructorExpr JsonIsPredicate JsonBehavior JsonExpr JsonTablePath
        JsonTablePathScan JsonTableSiblingJoin NullTest BooleanTest CoerceToDomain CoerceToDomainValue SetToDefault
        CurrentOfExpr InferenceElem ReturningExpr TargetEntry RangeTblRef JoinExpr FromExpr TypeName ColumnRef ParamRef AExpr
        TypeCast CollateClause RoleSpec FuncCall AStar AIndices AIndirection AArrayExpr ResTarget MultiAssignRef SortBy
        WindowDef RangeSubselect RangeFunction RangeTableFunc RangeTableFuncCol RangeTableSample ColumnDef TableLikeClause
        IndexElem DefElem XmlSerialize PartitionElem PartitionSpec PartitionBoundSpec PartitionRangeDatum PartitionCmd
        RangeTblEntry RtepermissionInfo RangeTblFunction TableSampleClause WithCheckOption SortGroupClause GroupingSet
        WindowClause RowMarkClause WithClause InferClause CtesearchClause CtecycleClause CommonTableExpr MergeWhenClause
        ReturningOption ReturningClause TriggerTransition JsonOutput JsonArgument JsonFuncExpr JsonTablePathSpec JsonTable
        JsonTableColumn JsonKeyValue JsonParseExpr JsonScalarExpr JsonSerializeExpr JsonObjectConstructor
        JsonArrayConstructor JsonArrayQueryConstructor JsonAggConstructor JsonObjectAgg JsonArrayAgg AlterTableCmd
        AtalterConstraint ObjectWithArgs AccessPriv Constraint CreateOpClassItem StatsElem FunctionParameter VacuumRelation
        PublicationTable PublicationObjSpec Integer Float Boolean String BitString List IntList OidList AConst;
}
