//! The verdict of a view, with the ids at fault.

use crate::convert::{self, Names};
use crate::view::{View, refuse};
use branchmem_core::reason::{RETRACTED, UNKNOWN_MEMORY};
use branchmem_core::retraction::{self, Retraction};
use branchmem_core::{Ambiguous, Engine};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString};

static VERDICT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A message, the name of a scope, and restorations, each with the same two.
type Placed = (String, &'static str, Vec<(String, String, &'static str)>);

/// Where a retraction stands.
fn placed(engine: &Engine, retraction: &Retraction) -> Placed {
    let name = |number| engine.ids().name(number).to_owned();
    let restorations = engine.changes().retractions.restorations();
    let lifting = retraction.restorations.iter().map(|&at| &restorations[at as usize]);
    // One without a place lifts nothing anywhere.
    let lifting = lifting.filter(|lift| retraction::placed(lift.at, engine.ids(), engine.forest()).is_some());
    let lifting = lifting.map(|lift| (name(lift.number), name(lift.at), convert::scope_name(lift.scope)));
    let mut lifting: Vec<_> = lifting.collect();
    lifting.sort_unstable();
    (name(retraction.at), convert::scope_name(retraction.scope), lifting)
}

/// An explanation, in texts that outlive the lock.
struct Told {
    reasons: u16,
    blamed: Vec<u16>,
    names: Names,
    anchors: Vec<(usize, u16)>,
    parted: Vec<(String, String)>,
    /// The retractions that cover it, each with its place, its scope and the restorations that lift it elsewhere.
    retractions: Vec<(String, Placed)>,
    superseded_upstream: Names,
    seq: u64,
}

impl View {
    /// Let the owner take in what others wrote: what is told from here on is of the log as it is now.
    pub(crate) fn look(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.check()?;
        self.owner().bind(py).call_method0(pyo3::intern!(py, "_look"))?;
        Ok(())
    }

    pub(crate) fn explained<'py>(
        &self,
        py: Python<'py>,
        id: &Bound<'py, PyString>,
        count: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.shared.check()?;
        let anchors = self.anchors.bind(py);
        let (anchor_ids, text) = (convert::anchor_texts(anchors)?, convert::text(id).map(str::to_owned));
        let told = py.detach(|| self.told(&anchor_ids, text.as_deref()));
        let told = told.map_err(|ambiguous| refuse(&self.shared, &anchor_ids, ambiguous))?;
        if count {
            self.shared.counters.verdict(told.reasons, self.admit);
        }
        let culprits = PyList::empty(py);
        let names = told.names.list(py)?;
        for (reason, name) in told.blamed.iter().zip(&names) {
            culprits.append((*reason, name))?;
        }
        for (at, reason) in told.anchors {
            culprits.append((reason, self.anchors(py)?.get_item(at)?))?;
        }
        if told.reasons & UNKNOWN_MEMORY != 0 {
            culprits.append((UNKNOWN_MEMORY, id))?;
        }
        let parted = PyDict::new(py);
        for (source, at) in told.parted {
            parted.set_item(source, at)?;
        }
        let retractions = PyDict::new(py);
        for (retraction, placed) in told.retractions {
            retractions.set_item(retraction, placed)?;
        }
        let visible = told.reasons & !self.admit == 0;
        let verdict = VERDICT.import(py, "branchmem.verdict", "verdict_from_parts")?;
        let superseded = told.superseded_upstream.list(py)?;
        verdict.call1((id, visible, told.reasons, culprits, parted, told.seq, retractions, superseded))
    }

    fn told(&self, anchors: &[Option<PyBackedStr>], id: Option<&str>) -> Result<Told, Ambiguous> {
        let engine = self.shared.read_current();
        let numbers = convert::numbers(&engine, anchors);
        let stand = engine.stand(&numbers)?;
        let mem = id.and_then(|id| convert::memory(&engine, id));
        let explanation = mem.map(|mem| engine.explain(mem, &stand, self.admit)).unwrap_or_default();
        let reasons = mem.map_or_else(|| engine.reasons(None, &stand), |_| explanation.reasons);
        let name = |number| engine.ids().name(number).to_owned();
        let retractions = explanation.culprits.iter().filter(|(reason, _)| *reason == RETRACTED);
        let retractions = retractions.filter_map(|&(_, number)| engine.changes().retractions.find(number));
        Ok(Told {
            retractions: retractions.map(|found| (name(found.number), placed(&engine, found))).collect(),
            superseded_upstream: Names::of_numbers(&engine, explanation.superseded_upstream.iter().copied()),
            reasons,
            blamed: explanation.culprits.iter().map(|&(reason, _)| reason).collect(),
            names: Names::of_numbers(&engine, explanation.culprits.iter().map(|&(_, number)| number)),
            anchors: stand.unusable().iter().filter(|(_, problem)| problem & reasons != 0).copied().collect(),
            parted: explanation.parted.iter().map(|&(source, at)| (name(source), name(at))).collect(),
            seq: engine.seq(),
        })
    }
}
