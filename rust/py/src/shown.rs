//! Which memories a question of the search is about, between Python's values and the engine's.

use crate::convert::{self, Name, Ordinals, UnknownEvent};
use crate::view::View;
use branchmem_core::{Engine, Mem};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

// Locks are taken in one order: index, engine, vectors. A reader who holds one and waits for another would else wait for
// a writer who waits for it.
pub const POISONED: &str = "the search index was left half-way through a change";

/// What a search ranks: all that a view shows, counted as it hands it out, or ordinals, ascending.
#[derive(FromPyObject)]
pub enum Shown<'py> {
    View(Bound<'py, View>),
    Ordinals(Bound<'py, PyAny>),
}

impl Shown<'_> {
    /// The ordinals, and that they are handed out.
    pub fn ordinals(&self) -> PyResult<Cow<'_, [u32]>> {
        if let Self::View(view) = self {
            view.get().count_all();
        }
        self.uncounted()
    }

    pub fn uncounted(&self) -> PyResult<Cow<'_, [u32]>> {
        match self {
            Self::View(view) => Ok(view.get().sorted().into()),
            Self::Ordinals(array) => {
                let ordinals: Vec<_> = Ordinals::new(array)?.as_slice().iter().map(|one| one.load(Relaxed)).collect();
                if ordinals.is_sorted_by(|a, b| a < b) {
                    return Ok(ordinals.into());
                }
                Err(PyValueError::new_err("ordinals must ascend"))
            }
        }
    }
}

/// The id of a memory and its position in the log.
pub fn placed(engine: &Engine, ordinal: u32) -> (String, u32) {
    let number = engine.memories().number(Mem(ordinal));
    (engine.ids().name(number).to_owned(), engine.ids().seq(number).unwrap_or_default())
}

/// The ordinals of memories that must be there.
pub fn memories(engine: &Engine, ids: &[Name]) -> PyResult<Vec<u32>> {
    let find = |id: &Name| {
        let mem = id.text().and_then(|id| convert::memory(engine, id));
        mem.map(|mem| mem.0).ok_or_else(|| UnknownEvent::new_err((id.shown().to_owned(), "memory")))
    };
    ids.iter().map(find).collect()
}
