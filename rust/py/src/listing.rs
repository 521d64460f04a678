//! How the engine answers with many values at once: lists of ids, arrays of ordinals, rows of bits.

use crate::convert::{self, Name, Names, UNKNOWN, UnknownEvent};
use crate::engine::Engine;
use crate::shared::Shared;
use branchmem_core::reason::Admitted;
use branchmem_core::{Ambiguous, Engine as Core, Node};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyList;
use std::sync::Arc;

impl Engine {
    /// The engine behind its lock.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The message with this id, for questions about the tree.
    pub(crate) fn node(engine: &Core, id: &Name) -> PyResult<Node> {
        let node = convert::number(engine, id).and_then(|number| engine.ids().message(number));
        node.ok_or_else(|| UnknownEvent::new_err((id.shown().to_owned(), "message")))
    }

    /// Write a bitmap a row, each while it is in the cache; false where the log has grown past `total`.
    pub(crate) fn fill(
        &self,
        rows: &[Vec<Option<PyBackedStr>>],
        admit: u16,
        total: usize,
        bytes: &mut [u8],
    ) -> Result<bool, (usize, Ambiguous)> {
        let engine = self.shared.read_for(admit);
        if engine.memories().len() != total {
            return Ok(false);
        }
        let (mut admitted, mut unlisted) = (Admitted::default(), 0);
        let width = total.div_ceil(8);
        let stands = rows
            .iter()
            .enumerate()
            .map(|(at, ids)| engine.stand(&convert::numbers(&engine, ids)).map_err(|ambiguous| (at, ambiguous)));
        let stands = stands.collect::<Result<Vec<_>, _>>()?;
        // Neighbours one after the other, so that what one walks is in the cache for the next.
        let mut order: Vec<_> =
            stands.iter().map(|stand| stand.position(engine.forest(), engine.tour())).enumerate().collect();
        order.sort_unstable_by_key(|&(_, position)| position);
        for (at, _) in order {
            let stand = &stands[at];
            let answer = engine.answer(stand, admit);
            let row = &mut bytes[at * width..][..width];
            row.fill(0);
            answer.visible.set_bits(row);
            admitted.merge(&answer.admitted);
            unlisted += total - answer.visible.len();
        }
        self.shared.counters.bulk(&admitted, unlisted as u64);
        Ok(true)
    }

    /// The ordinal of each id; `UNKNOWN` where there is none.
    pub(crate) fn ordinals<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyAny>,
        find: fn(&Core, &str) -> Option<u32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ids = convert::strings(ids)?;
        self.shared.check()?;
        let found: Vec<u32> = py.detach(|| {
            let engine = self.shared.read();
            ids.iter().map(|id| id.as_deref().and_then(|id| find(&engine, id)).unwrap_or(UNKNOWN)).collect()
        });
        convert::array_u32(py, &found)
    }

    /// Answer a question with a list of ids.
    pub(crate) fn listed<'py>(
        &self,
        py: Python<'py>,
        find: impl Fn(&Core) -> Names + Sync + Send,
    ) -> PyResult<Bound<'py, PyList>> {
        self.shared.check()?;
        py.detach(|| find(&self.shared.read())).list(py)
    }

    /// Answer a question about one message with a list of messages.
    pub(crate) fn nodes<'py>(
        &self,
        py: Python<'py>,
        id: Name,
        find: impl Fn(&Core, Node) -> Vec<Node> + Sync + Send,
    ) -> PyResult<Bound<'py, PyList>> {
        self.shared.check()?;
        let names = py.detach(|| {
            let engine = self.shared.read();
            let node = Self::node(&engine, &id)?;
            Ok::<_, PyErr>(Names::of_nodes(&engine, find(&engine, node).into_iter()))
        });
        names?.list(py)
    }
}
