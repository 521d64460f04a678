//! Conditions on the fields of memories, as `branchmem.recall.filters` compiles them.

use branchmem_search::conditions::{Condition, Field, Given, Operator};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};

/// A condition as Python gives it: field, path within meta, operator, value.
pub type Asked<'py> = (String, Vec<String>, String, Bound<'py, PyAny>);

/// A condition, or `ValueError` for a field or an operator that there is not.
pub fn condition((field, path, operator, value): Asked<'_>) -> PyResult<Condition> {
    let field = match field.as_str() {
        "kind" => Field::Kind,
        "key" => Field::Key,
        "created" => Field::Created,
        "importance" => Field::Importance,
        "meta" => Field::Meta(path),
        _ => return Err(PyValueError::new_err(format!("{field} is no field that can be compared"))),
    };
    let (operator, is_list) = match operator.as_str() {
        "$eq" => (Operator::Equal, false),
        "$in" => (Operator::Equal, true),
        "$ne" => (Operator::Differs, false),
        "$gt" => (Operator::Above, false),
        "$gte" => (Operator::AtLeast, false),
        "$lt" => (Operator::Below, false),
        "$lte" => (Operator::AtMost, false),
        _ => return Err(PyValueError::new_err(format!("{operator} is no operator"))),
    };
    let values = if is_list {
        value.try_iter()?.map(|value| given(&value?)).collect()
    } else {
        given(&value).map(|one| vec![one])
    };
    Ok(Condition { field, operator, values: values? })
}

fn given(value: &Bound<'_, PyAny>) -> PyResult<Given> {
    if value.is_none() {
        return Ok(Given::Nothing);
    }
    if let Ok(is) = value.cast::<PyBool>() {
        return Ok(Given::Bool(is.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(Given::Int(value.extract()?));
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        return Ok(Given::Float(number.value()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Given::Text(text.to_str()?.to_owned()));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Given::Packed(bytes.as_bytes().to_vec()));
    }
    Err(PyTypeError::new_err(format!("{value:?} cannot be compared")))
}
