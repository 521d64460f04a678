//! Does a memory fit what was asked for besides words?
//!
//! A condition compares one field with one value. Numbers are compared with numbers, strings with strings; what
//! cannot be compared does not fit. Fields of meta are read where they stand in the body.

use crate::content::Content;
use branchmem_core::msgpack::Reader;
use std::cmp::Ordering;

/// What a condition compares.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// The kind of the memory.
    Kind,
    /// What it is about.
    Key,
    /// When it was made, in microseconds since 1970.
    Created,
    /// Between 0 and 1.
    Importance,
    /// A field of meta, by the names that lead to it.
    Meta(Vec<String>),
}

/// How a condition compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Equal to the value, or to one of them.
    Equal,
    /// Not so.
    Differs,
    /// Above it.
    Above,
    /// Above or equal to it.
    AtLeast,
    /// Below it.
    Below,
    /// Below or equal to it.
    AtMost,
}

/// What a field holds, or a condition names.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing, or no such field.
    Nothing,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(&'a str),
    /// A list or a map, as its canonical bytes.
    Packed(&'a [u8]),
}

/// A value of a condition, which outlives the call.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// As [`Value::Nothing`].
    Nothing,
    /// As [`Value::Bool`].
    Bool(bool),
    /// As [`Value::Int`].
    Int(i128),
    /// As [`Value::Float`].
    Float(f64),
    /// As [`Value::Text`].
    Text(String),
    /// As [`Value::Packed`].
    Packed(Vec<u8>),
}

impl Given {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Nothing => Value::Nothing,
            Self::Bool(is) => Value::Bool(*is),
            Self::Int(number) => Value::Int(*number),
            Self::Float(number) => Value::Float(*number),
            Self::Text(text) => Value::Text(text),
            Self::Packed(bytes) => Value::Packed(bytes),
        }
    }
}

/// A field, an operator, and the values: one, or for [`Operator::Equal`] any number of which one must be it.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// What is compared.
    pub field: Field,
    /// How.
    pub operator: Operator,
    /// With what.
    pub values: Vec<Given>,
}

/// What conditions ask of a memory.
pub struct Facts<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Its key.
    pub key: Option<&'a str>,
    /// The rest.
    pub importance: f64,
    /// As [`Content::created`].
    pub created: Option<i64>,
    /// As [`Content::meta`].
    pub meta: &'a [u8],
}

impl<'a> Facts<'a> {
    /// The facts of a memory with this content.
    #[must_use]
    pub fn new(kind: &'a str, key: Option<&'a str>, content: &Content<'a>) -> Self {
        Self { kind, key, importance: content.importance, created: content.created, meta: content.meta }
    }
}

impl Condition {
    /// Whether a memory fits.
    #[must_use]
    pub fn fits(&self, facts: &Facts<'_>) -> bool {
        let held = match &self.field {
            Field::Kind => Value::Text(facts.kind),
            Field::Key => facts.key.map_or(Value::Nothing, Value::Text),
            Field::Created => facts.created.map_or(Value::Nothing, |created| Value::Int(created.into())),
            Field::Importance => Value::Float(facts.importance),
            Field::Meta(path) => lookup(facts.meta, path),
        };
        let compared = |wanted: fn(Ordering) -> bool| {
            self.values.iter().any(|value| compare(&held, &value.value()).is_some_and(wanted))
        };
        let equal = || self.values.iter().any(|value| equal(&held, &value.value()));
        match self.operator {
            Operator::Equal => equal(),
            Operator::Differs => !equal(),
            Operator::Above => compared(Ordering::is_gt),
            Operator::AtLeast => compared(Ordering::is_ge),
            Operator::Below => compared(Ordering::is_lt),
            Operator::AtMost => compared(Ordering::is_le),
        }
    }
}

fn equal(a: &Value<'_>, b: &Value<'_>) -> bool {
    a == b || compare(a, b) == Some(Ordering::Equal)
}

/// The order of two numbers or two strings.
fn compare(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Int(a), &Value::Float(b)) => int_with_float(*a, b),
        (&Value::Float(a), Value::Int(b)) => int_with_float(*b, a).map(Ordering::reverse),
        _ => None,
    }
}

/// Exact, where the number as a float would be rounded.
fn int_with_float(int: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // A cast of a float beyond all i128 gives the nearest one, which no number of a body is.
    let whole = float.floor();
    Some(int.cmp(&(whole as i128)).then(if float > whole { Ordering::Less } else { Ordering::Equal }))
}

/// The value of a field of a map, [`Value::Nothing`] where there is none.
fn lookup<'a>(map: &'a [u8], path: &[String]) -> Value<'a> {
    let mut bytes = map;
    for name in path {
        match field(bytes, name) {
            Some(value) => bytes = value,
            None => return Value::Nothing,
        }
    }
    read(bytes).unwrap_or(Value::Nothing)
}

/// The bytes from a field of a map on.
fn field<'a>(map: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut reader = Reader { bytes: map };
    let Ok(Some((items, true))) = reader.container() else { return None };
    for _ in 0..items {
        if reader.string(usize::MAX).ok()? == name {
            return Some(reader.bytes);
        }
        skip(&mut reader)?;
    }
    None
}

/// Go past one value.
fn skip(reader: &mut Reader<'_>) -> Option<()> {
    let mut left = 1_usize;
    while left > 0 {
        left -= 1;
        match reader.container().ok()? {
            // A key of a map is a value like any other.
            Some((items, is_map)) => left += if is_map { 2 * items } else { items },
            None => reader.scalar().ok()?,
        }
    }
    Some(())
}

fn read(bytes: &[u8]) -> Option<Value<'_>> {
    let mut reader = Reader { bytes };
    if reader.nil() {
        return Some(Value::Nothing);
    }
    Some(match *bytes.first()? {
        0xc2 => Value::Bool(false),
        0xc3 => Value::Bool(true),
        0xcb => Value::Float(reader.float().ok()?),
        0xa0..=0xbf | 0xd9..=0xdb => Value::Text(reader.string(usize::MAX).ok()?),
        0x80..=0x9f | 0xdc..=0xdf => {
            skip(&mut reader)?;
            Value::Packed(&bytes[..bytes.len() - reader.bytes.len()])
        }
        _ => Value::Int(reader.integer().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // {"a": {"b": 3}, "big": 2^64 - 1, "f": 2.5, "l": [1], "n": nil, "t": "tea", "y": true, "z": -7}
    const META: &[u8] =
        b"\x88\xa1a\x81\xa1b\x03\xa3big\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xa1f\xcb\x40\x04\0\0\0\0\0\0\
        \xa1l\x91\x01\xa1n\xc0\xa1t\xa3tea\xa1y\xc3\xa1z\xf9";

    fn fits(path: &[&str], operator: Operator, values: &[Given]) -> bool {
        let field = Field::Meta(path.iter().map(|&name| name.to_owned()).collect());
        let facts = Facts { kind: "fact", key: None, importance: 1.0, created: None, meta: META };
        Condition { field, operator, values: values.to_vec() }.fits(&facts)
    }

    #[test]
    fn every_type_is_read_where_it_stands() {
        let equal = |path: &[&str], value: Given| fits(path, Operator::Equal, &[value]);
        assert!(equal(&["a", "b"], Given::Float(3.0)));
        assert!(equal(&["a"], Given::Packed(b"\x81\xa1b\x03".to_vec())));
        assert!(
            equal(&["big"], Given::Int(u64::MAX.into()))
                && !equal(&["big"], Given::Float(18_446_744_073_709_551_615.0))
        );
        assert!(equal(&["l"], Given::Packed(b"\x91\x01".to_vec())));
        assert!(equal(&["t"], Given::Text("tea".into())) && equal(&["y"], Given::Bool(true)));
        assert!(equal(&["z"], Given::Int(-7)) && equal(&["f"], Given::Float(2.5)));
        for nothing in [&["n"][..], &["none"], &["t", "deeper"], &["a", "c"]] {
            assert!(equal(nothing, Given::Nothing), "{nothing:?}");
        }
        assert!(!equal(&["y"], Given::Int(1)));
    }

    #[test]
    fn only_like_is_compared_with_like() {
        use Operator::{Above, AtLeast, AtMost, Below, Differs};
        assert!(fits(&["f"], Above, &[Given::Int(2)]) && fits(&["f"], Below, &[Given::Int(3)]));
        assert!(fits(&["z"], AtMost, &[Given::Float(-7.0)]) && fits(&["t"], AtLeast, &[Given::Text("sea".into())]));
        for operator in [Above, AtLeast, Below, AtMost] {
            assert!(!fits(&["t"], operator, &[Given::Int(1)]) && !fits(&["none"], operator, &[Given::Int(1)]));
            assert!(
                !fits(&["y"], operator, &[Given::Bool(false)]) && !fits(&["f"], operator, &[Given::Float(f64::NAN)])
            );
        }
        assert!(fits(&["none"], Differs, &[Given::Int(1)]) && !fits(&["none"], Differs, &[Given::Nothing]));
        assert!(fits(&["z"], Operator::Equal, &[Given::Int(1), Given::Int(-7)]) && !fits(&["z"], Operator::Equal, &[]));
    }
}
