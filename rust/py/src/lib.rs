//! `branchmem._core`: the engine as Python sees it.
//!
//! Every method has four steps: convert, lock (detached from Python where the
//! work is long), call once, convert. Who holds the lock touches no Python, so
//! a thread that waits for the lock with the interpreter in hand waits only for
//! work that needs no interpreter.

#![expect(clippy::needless_pass_by_value, reason = "PyO3 hands arguments over by value")]

mod conditions;
mod convert;
mod engine;
mod explain;
mod listing;
#[cfg(target_os = "linux")]
mod pages;
mod records;
mod search;
mod shared;
mod shown;
mod vectors;
mod view;

use pyo3::prelude::*;

#[cfg(target_os = "linux")]
#[global_allocator]
static PAGES: pages::LargePages = pages::LargePages;

pyo3::create_exception!(
    branchmem._core,
    BlockError,
    pyo3::exceptions::PyValueError,
    "A skeleton block was refused: args are the reason and whether a later version wrote it."
);

#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<engine::Engine>()?;
    module.add_class::<view::View>()?;
    module.add_class::<search::Ranked>()?;
    module.add_class::<search::SearchIndex>()?;
    module.add_class::<vectors::Vectors>()?;
    module.add_function(wrap_pyfunction!(search::rank_texts, module)?)?;
    module.add_function(wrap_pyfunction!(records::check_records, module)?)?;
    module.add_function(wrap_pyfunction!(records::split_records, module)?)?;
    module.add("BlockError", module.py().get_type::<BlockError>())
}
