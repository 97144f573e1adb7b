//! The walk over all that stands in a query.
//!
//! The tree's types are made by a generator and have no visitor, but each of them can be serialised. So the walk is a
//! serialiser: it is handed every node and every field with its name, and can miss none, also of those that a later version
//! brings. It stops at the first thing that may write.

use serde::ser::{self, Serialize, Serializer};

use super::tree::{Role, role_of};
use crate::functions::{Functions, Volatility};

/// Whether something in the tree below `node` may write.
pub(super) fn writes(node: &impl Serialize, functions: &impl Functions) -> bool {
    let mut walk = Walk {
        functions,
        at: "",
        names: None,
    };
    node.serialize(&mut walk).is_err()
}

/// Something may write; or the tree is not what this walk was made for.
#[derive(Debug)]
struct Writes;

impl std::fmt::Display for Writes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it may write")
    }
}

impl std::error::Error for Writes {}

impl ser::Error for Writes {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Writes
    }
}

struct Walk<'a, F> {
    functions: &'a F,
    /// The node whose fields are seen.
    at: &'static str,
    /// The parts of a name, while one is read.
    names: Option<Names>,
}

/// The strings of a name. The last two parts are what counts; more are counted.
#[derive(Default)]
struct Names {
    count: usize,
    ahead: Vec<u8>,
    last: Vec<u8>,
}

impl Names {
    fn push(&mut self, part: &str) {
        self.ahead = std::mem::replace(&mut self.last, part.into());
        self.count += 1;
    }

    /// The schema, if there is one. None for names of more parts.
    fn split(&self) -> Option<(Option<&[u8]>, &[u8])> {
        match self.count {
            1 => Some((None, &self.last)),
            2 => Some((Some(&self.ahead), &self.last)),
            _ => None,
        }
    }
}

impl<F: Functions> Walk<'_, F> {
    fn enter(&mut self, node: &str) -> Result<(), Writes> {
        match role_of(node).or_else(|| other(node)) {
            Some(Role::Query | Role::Part) => {}
            _ => return Err(Writes),
        }
        // Functions by other names on a server that is older than these words.
        let since_16 = match node {
            "JsonFuncExpr" => ["json_exists", "json_query", "json_value"].as_slice(),
            "JsonTable" => &["json_table"],
            "JsonParseExpr" => &["json"],
            "JsonScalarExpr" => &["json_scalar"],
            "JsonSerializeExpr" => &["json_serialize"],
            "JsonArrayConstructor" | "JsonArrayQueryConstructor" => &["json_array"],
            "JsonObjectConstructor" => &["json_object"],
            "JsonObjectAgg" => &["json_objectagg"],
            "JsonArrayAgg" => &["json_arrayagg"],
            _ => &[],
        };
        let volatile = |name: &&str| {
            self.functions.function(None, name.as_bytes()) == Some(Volatility::Volatile)
        };
        if since_16.iter().any(volatile) {
            Err(Writes)
        } else {
            Ok(())
        }
    }

    fn field<T: Serialize + ?Sized>(
        &mut self,
        node: &'static str,
        field: &'static str,
        value: &T,
    ) -> Result<(), Writes> {
        let reads_name = self.names.is_none()
            && matches!(
                (node, field),
                ("FuncCall", "funcname")
                    | ("AExpr", "name")
                    | ("SubLink", "oper_name")
                    | ("SortBy", "use_op")
                    | ("RangeTableSample", "method")
                    | ("ColumnRef", "fields")
                    | ("AIndirection", "indirection")
            );
        if !reads_name {
            return value.serialize(self);
        }
        self.names = Some(Names::default());
        value.serialize(&mut *self)?;
        let names = self.names.take().unwrap_or_default();
        let is_safe = match field {
            "funcname" | "method" => self.is_safe_call(&names),
            "fields" => names.count < 2 || !self.functions.may_be_attribute(&names.last),
            "indirection" => names.count == 0 || !self.functions.may_be_attribute(&names.last),
            _ => names.count == 0 || self.is_safe_operator(&names),
        };
        // Subscripts are expressions of their own.
        if is_safe && field == "indirection" {
            return value.serialize(&mut Walk {
                functions: self.functions,
                at: "",
                names: None,
            });
        }
        if is_safe { Ok(()) } else { Err(Writes) }
    }

    fn is_safe_call(&self, names: &Names) -> bool {
        let found = names
            .split()
            .and_then(|(schema, name)| self.functions.function(schema, name));
        found == Some(Volatility::Safe)
    }

    /// `BETWEEN` and its like are words here, and made of operators of PostgreSQL's or of the search path.
    fn is_safe_operator(&self, names: &Names) -> bool {
        if names.count == 1 && names.last.first().is_some_and(u8::is_ascii_alphabetic) {
            return true;
        }
        let found = names
            .split()
            .and_then(|(schema, name)| self.functions.operator(schema, name));
        found == Some(Volatility::Safe)
    }
}

/// Types that are no nodes of their own, or whose name is not that of the node.
fn other(name: &str) -> Option<Role> {
    matches!(
        name,
        "Node" | "SqlValueFunction" | "CteSearchClause" | "CteCycleClause" | "Val"
    )
    .then_some(Role::Part)
}

impl<'a, 'b, F: Functions> Serializer for &'a mut Walk<'b, F> {
    type Ok = ();
    type Error = Writes;
    type SerializeSeq = Self;
    type SerializeTuple = ser::Impossible<(), Writes>;
    type SerializeTupleStruct = ser::Impossible<(), Writes>;
    type SerializeTupleVariant = ser::Impossible<(), Writes>;
    type SerializeMap = ser::Impossible<(), Writes>;
    type SerializeStruct = Fields<'a, 'b, F>;
    type SerializeStructVariant = ser::Impossible<(), Writes>;

    fn serialize_struct(
        self,
        name: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStruct, Writes> {
        self.enter(name)?;
        let outer = std::mem::replace(&mut self.at, name);
        Ok(Fields {
            walk: self,
            name,
            outer,
        })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Writes> {
        // The constants of `A_Const` are told apart by names of fields.
        if self.at != "AConst" {
            self.enter(variant)?;
        }
        value.serialize(self)
    }

    fn serialize_str(self, text: &str) -> Result<(), Writes> {
        if let Some(names) = &mut self.names {
            names.push(text);
        }
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Writes> {
        Ok(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Writes> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Writes> {
        value.serialize(self)
    }

    fn serialize_none(self) -> Result<(), Writes> {
        Ok(())
    }

    fn serialize_bool(self, _: bool) -> Result<(), Writes> {
        Ok(())
    }

    fn serialize_i32(self, _: i32) -> Result<(), Writes> {
        Ok(())
    }

    fn serialize_i64(self, _: i64) -> Result<(), Writes> {
        Ok(())
    }

    fn serialize_u32(self, _: u32) -> Result<(), Writes> {
        Ok(())
    }

    fn serialize_u64(self, _: u64) -> Result<(), Writes> {
        Ok(())
    }

    fn serialize_f64(self, _: f64) -> Result<(), Writes> {
        Ok(())
    }

    // The parser's tree has nothing of what follows. If that changes, reads become writes until someone looks at it.

    fn serialize_i8(self, _: i8) -> Result<(), Writes> {
        Err(Writes)
    }

    fn serialize_i16(self, _: i16) -> Result<(), Writes> {
        Err(Writes)
    }

    fn serialize_u8(self, _: u8) -> Result<(), Writes> {
        Err(Writes)
    }

    fn serialize_u16(self, _: u16) -> Result<(), Writes> {
        Err(Writes)
    }

    fn serialize_f32(self, _: f32) -> Result<(), Writes> {
        Err(Writes)
    }

    fn serialize_char(self, _: char) -> Result<(), Writes> {
        Err(Writes)
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Writes> {
        Err(Writes)
    }

    fn serialize_unit(self) -> Result<(), Writes> {
        Err(Writes)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Writes> {
        Err(Writes)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
    ) -> Result<(), Writes> {
        Err(Writes)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Writes> {
        Err(Writes)
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, Writes> {
        Err(Writes)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Writes> {
        Err(Writes)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Writes> {
        Err(Writes)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Writes> {
        Err(Writes)
    }
}

impl<F: Functions> ser::SerializeSeq for &mut Walk<'_, F> {
    type Ok = ();
    type Error = Writes;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Writes> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Writes> {
        Ok(())
    }
}

/// The fields of a node.
struct Fields<'a, 'b, F> {
    walk: &'a mut Walk<'b, F>,
    name: &'static str,
    outer: &'static str,
}

impl<F: Functions> ser::SerializeStruct for Fields<'_, '_, F> {
    type Ok = ();
    type Error = Writes;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        field: &'static str,
        value: &T,
    ) -> Result<(), Writes> {
        self.walk.at = self.name;
        self.walk.field(self.name, field, value)
    }

    fn end(self) -> Result<(), Writes> {
        self.walk.at = self.outer;
        Ok(())
    }
}
