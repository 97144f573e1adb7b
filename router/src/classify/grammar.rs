//! Words of the grammar that can stand before a parenthesis and call nothing that a user made.

use crate::word::{Key, key};

/// Reserved words, which are no names, and words that cannot be names of functions (`col_name_keyword` in `gram.y`), in
/// PostgreSQL 15. Those that came later, as `JSON_TABLE`, may be a user's functions on an older server.
pub(super) fn is_syntax(word: Key) -> bool {
    matches!(
        word,
        ALL | AND
            | ANY
            | ARRAY
            | AS
            | ASC
            | BOTH
            | CASE
            | CAST
            | COLLATE
            | DESC
            | DISTINCT
            | ELSE
            | END
            | EXCEPT
            | FALSE
            | FETCH
            | FOR
            | FROM
            | GROUP
            | HAVING
            | IN
            | INTERSECT
            | LATERAL
            | LEADING
            | LIMIT
            | NOT
            | NULL
            | OFFSET
            | ON
            | ONLY
            | OR
            | ORDER
            | PLACING
            | SELECT
            | SOME
            | SYMMETRIC
            | TABLE
            | THEN
            | TO
            | TRAILING
            | TRUE
            | UNION
            | USING
            | VARIADIC
            | WHEN
            | WHERE
            | WINDOW
            | WITH
            | BETWEEN
            | BIGINT
            | BIT
            | BOOLEAN
            | CHAR
            | CHARACTER
            | COALESCE
            | DEC
            | DECIMAL
            | EXISTS
            | EXTRACT
            | FLOAT
            | GREATEST
            | GROUPING
            | INT
            | INTEGER
            | INTERVAL
            | LEAST
            | NATIONAL
            | NCHAR
            | NORMALIZE
            | NULLIF
            | NUMERIC
            | OVERLAY
            | POSITION
            | PRECISION
            | REAL
            | ROW
            | SMALLINT
            | SUBSTRING
            | TIME
            | TIMESTAMP
            | TREAT
            | TRIM
            | VALUES
            | VARCHAR
    )
}

macro_rules! words {
    ($($name:ident = $word:literal),* $(,)?) => {
        $(pub(super) const $name: Key = key($word);)*
    };
}

words! {
    ABORT = "abort", ALL = "all", ANALYSE = "analyse", ANALYZE = "analyze", AND = "and", ANY = "any", ARRAY = "array",
    AS = "as", ASC = "asc", BEGIN = "begin", BETWEEN = "between", BIGINT = "bigint", BIT = "bit", BOOLEAN = "boolean",
    BOTH = "both", BY = "by", CASE = "case", CAST = "cast", CHAR = "char", CHARACTER = "character",
    CHECKPOINT = "checkpoint", CLOSE = "close", CLUSTER = "cluster", COALESCE = "coalesce", COLLATE = "collate",
    COMMIT = "commit", CONSTRAINTS = "constraints", COPY = "copy", DEALLOCATE = "deallocate",
    DEC = "dec", DECIMAL = "decimal", DECLARE = "declare", DELETE = "delete", DESC = "desc", DISCARD = "discard",
    DISTINCT = "distinct", ELSE = "else", END = "end", EXCEPT = "except", EXECUTE = "execute", EXISTS = "exists",
    EXPLAIN = "explain", EXTRACT = "extract", FALSE = "false", FETCH = "fetch", FILTER = "filter", FLOAT = "float",
    FOR = "for", FROM = "from", GREATEST = "greatest", GROUP = "group", GROUPING = "grouping", HAVING = "having",
    IN = "in", INSERT = "insert", INT = "int", INTEGER = "integer", INTERSECT = "intersect", INTERVAL = "interval",
    INTO = "into", KEY = "key", LATERAL = "lateral", LEADING = "leading", LEAST = "least", LIMIT = "limit",
    LISTEN = "listen", LOAD = "load", MATERIALIZED = "materialized", MERGE = "merge", MOVE = "move",
    NATIONAL = "national", NCHAR = "nchar", NO = "no", NORMALIZE = "normalize", NOT = "not", NULL = "null",
    NULLIF = "nullif", NUMERIC = "numeric", OFFSET = "offset", ON = "on", ONLY = "only", OR = "or", ORDER = "order",
    OVER = "over", OVERLAY = "overlay", PARTITION = "partition", PLACING = "placing", POSITION = "position",
    PRECISION = "precision", PREPARE = "prepare", PREPARED = "prepared", READ = "read", REAL = "real",
    RECURSIVE = "recursive", REINDEX = "reindex", RELEASE = "release", RESET = "reset", ROLLBACK = "rollback",
    ROW = "row", SAVEPOINT = "savepoint", SELECT = "select", SET = "set", SETS = "sets", SHARE = "share",
    SHOW = "show", SMALLINT = "smallint", SOME = "some", START = "start", STDOUT = "stdout", SUBSTRING = "substring",
    SYMMETRIC = "symmetric", TABLE = "table", THEN = "then", TIME = "time", TIMESTAMP = "timestamp", TO = "to",
    TRAILING = "trailing", TRANSACTION = "transaction", TREAT = "treat", TRIM = "trim", TRUE = "true", UNION = "union",
    UNLISTEN = "unlisten", UPDATE = "update", USING = "using", VACUUM = "vacuum", VALUES = "values",
    VARCHAR = "varchar", VARIADIC = "variadic", VARYING = "varying", VERBOSE = "verbose", WHEN = "when", WHERE = "where", WINDOW = "window",
    WITH = "with", WRITE = "write",
}
