//! `View`: one answer, as of the moment it was made.

use crate::convert::{self, AmbiguousAnchor, BadAnchor, Name, Names};
use crate::shared::Shared;
use crate::vectors::Vectors;
use branchmem_core::reason::{Admitted, SUPERSEDED, UNKNOWN_MEMORY};
use branchmem_core::{Ambiguous, Answer, Engine, Mem, Stand, Visible};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyIterator, PyList, PyString, PyTuple};
use std::sync::{Arc, OnceLock};

/// What is visible at an anchor, as of the moment it was made.
#[pyclass(frozen, module = "branchmem", weakref)]
pub struct View {
    pub(crate) shared: Arc<Shared>,
    /// Whose `_memory`, `_memories`, `_warn` and `_look` read content, report problems and take in what others wrote.
    owner: Py<PyAny>,
    /// One id, or a tuple of ids.
    pub(crate) anchors: Py<PyAny>,
    policy: Py<PyAny>,
    pub(crate) admit: u16,
    count: bool,
    stand: Stand,
    seq: u64,
    /// How many memories the log had.
    total: usize,
    answer: Answer,
    sorted: OnceLock<Vec<u32>>,
}

impl View {
    pub fn new(
        shared: &Arc<Shared>,
        owner: &Bound<'_, PyAny>,
        anchor: &Bound<'_, PyAny>,
        policy: &Bound<'_, PyAny>,
        count: bool,
    ) -> PyResult<Self> {
        let py = anchor.py();
        shared.check()?;
        let admit = convert::policy_bits(policy)? & !UNKNOWN_MEMORY;
        let (anchors, walked) = match anchor.cast::<PyString>() {
            Ok(id) if admit == 0 => (anchor.clone(), Self::walked(shared, id)),
            Ok(_) => (anchor.clone(), None),
            Err(_) => (convert::anchors(anchor)?.into_any(), None),
        };
        let made = if let Some(made) = walked {
            made
        } else {
            let ids = convert::anchor_texts(&anchors)?;
            let made = py.detach(|| Self::made(&shared.read_for(admit), &ids, admit));
            made.map_err(|ambiguous| refuse(shared, &ids, ambiguous))?
        };
        let Made { stand, seq, total, answer } = made;
        if stand.problems() != 0 {
            let reason = convert::reason(py, stand.problems())?;
            owner.call_method1(pyo3::intern!(py, "_warn"), (reason, convert::anchors(&anchors)?))?;
        }
        Ok(Self {
            shared: Arc::clone(shared),
            owner: owner.clone().unbind(),
            anchors: anchors.unbind(),
            policy: policy.clone().unbind(),
            admit,
            count,
            stand,
            seq,
            total,
            answer,
            sorted: OnceLock::new(),
        })
    }

    /// The short way: one anchor in strict, walked with the interpreter in hand.
    fn walked(shared: &Shared, id: &Bound<'_, PyString>) -> Option<Made> {
        let id = convert::text(id);
        let engine = shared.read();
        let number = id.and_then(|id| engine.ids().find(id));
        let stand = engine.stand(&[number]).ok()?;
        let answer = engine.walk(&stand)?;
        Some(Made::new(&engine, stand, answer))
    }

    fn made(engine: &Engine, ids: &[Option<PyBackedStr>], admit: u16) -> Result<Made, Ambiguous> {
        let stand = engine.stand(&convert::numbers(engine, ids))?;
        let answer = engine.answer(&stand, admit);
        Ok(Made::new(engine, stand, answer))
    }

    /// Ask a function of Python, whose first arguments are the owner and the view.
    fn asked<'py>(
        slf: &Bound<'py, Self>,
        ask: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let first = [slf.get().owner.bind(slf.py()), slf.as_any()].into_iter().cloned();
        ask.call(PyTuple::new(slf.py(), first.chain(args.iter()).collect::<Vec<_>>())?, options)
    }

    /// Whose view this is.
    pub(crate) fn owner(&self) -> &Py<PyAny> {
        &self.owner
    }

    /// The ordinals of what is visible, ascending.
    pub(crate) fn sorted(&self) -> &[u32] {
        self.sorted.get_or_init(|| self.answer.visible.ordinals())
    }

    fn holds(&self, mem: Mem) -> bool {
        match &self.answer.visible {
            Visible::Sparse(_) => self.sorted().binary_search(&mem.0).is_ok(),
            Visible::Dense(words) => words.get(mem.at() / 64).is_some_and(|word| word & 1 << (mem.0 % 64) != 0),
        }
    }

    /// Count a whole answer.
    pub(crate) fn count_all(&self) {
        if self.count {
            self.shared.counters.bulk(&self.answer.admitted, (self.total - self.answer.visible.len()) as u64);
        }
    }

    /// Count a part of an answer.
    fn count_some(&self, admitted: &Admitted, unlisted: usize) {
        if self.count {
            self.shared.counters.bulk(admitted, unlisted as u64);
        }
    }

    /// Add what a memory that is shown lets through, where it still does.
    fn admit(&self, engine: &Engine, mem: Mem, admitted: &mut Admitted) {
        if self.admit != 0 {
            let reasons = self.reasons_now(engine, mem);
            if reasons & !self.admit == 0 {
                admitted.add(reasons);
            }
        }
    }

    /// Whether one memory is visible, counted. The log may have grown since.
    fn verdict(&self, py: Python<'_>, id: Option<&str>) -> PyResult<bool> {
        self.shared.check()?;
        let short = {
            let engine = self.shared.read_pointed();
            let mem = id.and_then(|id| convert::memory(&engine, id));
            match mem.and_then(|mem| engine.reasons_by_tour(mem, &self.stand)) {
                Some(reasons) => Some((self.shows(&engine, mem, reasons), reasons)),
                None if self.shared.wants_tour(&engine) => None,
                None if self.may_judge(&engine, mem) => Some(self.judge(&engine, mem)),
                None => None,
            }
        };
        let (visible, reasons) = short.unwrap_or_else(|| {
            py.detach(|| {
                let engine = self.shared.read_prepared();
                self.judge(&engine, id.and_then(|id| convert::memory(&engine, id)))
            })
        });
        if self.count {
            if visible == (reasons & !self.admit == 0) {
                self.shared.counters.verdict(reasons, self.admit);
            } else if !visible {
                // The log has grown, and would show by now what this view does not.
                self.shared.counters.bulk(&Admitted::default(), 1);
            }
        }
        Ok(visible)
    }

    /// Whether what decides on a memory is up to date.
    fn may_judge(&self, engine: &Engine, mem: Option<Mem>) -> bool {
        let is_final = |mem: Mem| engine.memories().is_settled(mem) && (self.admit == 0 || !engine.is_changed(mem));
        mem.is_none_or(is_final) || engine.is_current()
    }

    fn judge(&self, engine: &Engine, mem: Option<Mem>) -> (bool, u16) {
        let reasons = mem.map_or_else(|| engine.reasons(None, &self.stand), |mem| self.reasons_now(engine, mem));
        (self.shows(engine, mem, reasons), reasons)
    }

    /// The reasons of a memory as they are now, where the view stands, as far as counters ask: where one that is not let
    /// through hides it, those that come after it may be left out.
    fn reasons_now(&self, engine: &Engine, mem: Mem) -> u16 {
        let first = engine.first_reasons(mem, &self.stand);
        if first & !self.admit != 0 || !engine.is_changed(mem) {
            return first;
        }
        let reasons = engine.reasons(Some(mem), &self.stand);
        if reasons & !self.admit != 0 || !engine.changes().supersession.related().has(mem) {
            return reasons;
        }
        let is_replaced = if engine.seq() == self.seq && self.admit & SUPERSEDED == 0 {
            // The view left it out, and for no other reason.
            !self.holds(mem)
        } else {
            engine.is_replaced(mem, &self.stand, self.admit)
        };
        if is_replaced { reasons | SUPERSEDED } else { reasons }
    }

    /// Whether the view shows a memory that has these reasons by now.
    fn shows(&self, engine: &Engine, mem: Option<Mem>, reasons: u16) -> bool {
        if engine.seq() == self.seq { reasons & !self.admit == 0 } else { mem.is_some_and(|mem| self.holds(mem)) }
    }

    /// The visible memories of a kind and about a key in path order, by depth and id.
    fn ordered(&self, kind: Option<&Name>, key: Option<&Name>, limit: usize) -> Names {
        let engine = self.shared.read_current();
        let memories = engine.memories();
        let fits = |mem: &Mem| {
            kind.is_none_or(|kind| Some(memories.label(*mem).unwrap_or("fact")) == kind.text())
                && key.is_none_or(|key| key.text().is_some() && memories.key(*mem) == key.text())
        };
        let name = |mem: Mem| engine.ids().name(memories.number(mem));
        let mut found: Vec<_> =
            self.sorted().iter().map(|&mem| Mem(mem)).filter(fits).map(|mem| (engine.depth(mem), mem)).collect();
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| name(a.1).cmp(name(b.1))));
        found.truncate(limit);
        let mut admitted = Admitted::default();
        found.iter().for_each(|&(_, mem)| self.admit(&engine, mem, &mut admitted));
        self.count_some(&admitted, self.total - self.answer.visible.len());
        Names::of_numbers(&engine, found.iter().map(|&(_, mem)| memories.number(mem)))
    }
}

/// What one hold of the lock found.
struct Made {
    stand: Stand,
    seq: u64,
    total: usize,
    answer: Answer,
}

impl Made {
    fn new(engine: &Engine, stand: Stand, answer: Answer) -> Self {
        Self { stand, seq: engine.seq(), total: engine.memories().len(), answer }
    }
}

/// The error for two anchors in one tree. Both are messages of the log, so their ids are text.
pub fn refuse(shared: &Shared, anchors: &[Option<PyBackedStr>], ambiguous: Ambiguous) -> PyErr {
    let top = {
        let engine = shared.read();
        engine.ids().name(engine.ids().of_message(ambiguous.top)).to_owned()
    };
    let id = |at: usize| anchors[at].as_deref().unwrap_or_default().to_owned();
    AmbiguousAnchor::new_err((id(ambiguous.first), id(ambiguous.second), top))
}

#[pymethods]
impl View {
    fn __contains__(&self, py: Python<'_>, id: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.verdict(py, id.cast::<PyString>().ok().and_then(convert::text))
    }

    fn __len__(&self) -> usize {
        self.answer.visible.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.ids(py)?.try_iter()
    }

    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.shared.check()?;
        let names = py.detach(|| {
            let engine = self.shared.read();
            Names::of_numbers(&engine, self.sorted().iter().map(|&mem| engine.memories().number(Mem(mem))))
        });
        self.count_all();
        names.list(py)
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, id: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        let view = slf.get();
        let visible = view.verdict(slf.py(), convert::text(id))?;
        view.owner.bind(slf.py()).call_method1(pyo3::intern!(slf.py(), "_memory"), (slf, id, visible))
    }

    fn get<'py>(slf: &Bound<'py, Self>, id: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        Self::__getitem__(slf, id)
    }

    #[pyo3(signature = (*, kind = None, key = None, limit = None))]
    fn memories<'py>(
        slf: &Bound<'py, Self>,
        kind: Option<Name>,
        key: Option<Name>,
        limit: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, view) = (slf.py(), slf.get());
        view.shared.check()?;
        let limit = limit.map_or(Ok(usize::MAX), |limit| convert::limit(&limit))?;
        let names = py.detach(|| view.ordered(kind.as_ref(), key.as_ref(), limit));
        view.owner.bind(py).call_method1(pyo3::intern!(py, "_memories"), (names.list(py)?, slf))
    }

    /// The visible memory about a key, a list of them where there are several, or none.
    fn current<'py>(slf: &Bound<'py, Self>, key: Name) -> PyResult<Bound<'py, PyAny>> {
        let found = Self::memories(slf, None, Some(key), None)?;
        match found.len()? {
            0 => Ok(slf.py().None().into_bound(slf.py())),
            1 => found.get_item(0),
            _ => Ok(found),
        }
    }

    fn filter<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        self.shared.check()?;
        let texts = convert::strings(ids)?;
        let names = py.detach(|| {
            let engine = if self.admit == 0 { self.shared.read() } else { self.shared.read_current() };
            let (mut names, mut admitted, mut shown) = (Names::default(), Admitted::default(), 0);
            for id in texts.iter().flatten() {
                if let Some(mem) = convert::memory(&engine, id).filter(|&mem| self.holds(mem)) {
                    self.admit(&engine, mem, &mut admitted);
                    names.push(id);
                    shown += 1;
                }
            }
            self.count_some(&admitted, texts.len() - shown);
            names
        });
        names.list(py)
    }

    #[pyo3(signature = (*args, **options), text_signature = "($self, query, k=10, **options)")]
    fn search<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static SEARCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        Self::asked(slf, SEARCH.import(slf.py(), "branchmem.recall", "search")?, args, options)
    }

    #[pyo3(signature = (*args, **options), text_signature = "($self, vector, k=10, **options)")]
    fn nearest<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static NEAREST: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        if options.is_none()
            && let Some(found) = Vectors::short(slf, args)?
        {
            return Ok(found.into_any());
        }
        Self::asked(slf, NEAREST.import(slf.py(), "branchmem.recall", "nearest")?, args, options)
    }

    #[pyo3(signature = (*args, **options), text_signature = "($self, message, **options)")]
    fn recall<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static RECALL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        Self::asked(slf, RECALL.import(slf.py(), "branchmem.recall", "recall")?, args, options)
    }

    fn explain<'py>(&self, py: Python<'py>, id: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        self.look(py)?;
        self.explained(py, id, self.count)
    }

    /// The verdict that an error is about to quote: counted already.
    fn _explain<'py>(&self, py: Python<'py>, id: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        self.explained(py, id, false)
    }

    fn reasons<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.look(py)?;
        let anchors = self.anchors.bind(py);
        let ids = convert::anchor_texts(anchors)?;
        let reasons = py.detach(|| {
            let engine = self.shared.read_prepared();
            let stand = engine.stand(&convert::numbers(&engine, &ids))?;
            Ok(engine.all_reasons(&stand, self.admit))
        });
        let reasons = reasons.map_err(|ambiguous| refuse(&self.shared, &ids, ambiguous))?;
        let bytes: Vec<u8> = reasons.iter().flat_map(|reasons| reasons.to_ne_bytes()).collect();
        convert::array(PyByteArray::new(py, &bytes), "uint16")
    }

    fn bitmap<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.count_all();
        PyBytes::new_with(py, self.total.div_ceil(8), |bytes| {
            self.answer.visible.set_bits(bytes);
            Ok(())
        })
    }

    fn mask<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.count_all();
        let mask = PyByteArray::new_with(py, self.total, |bytes| {
            self.sorted().iter().for_each(|&mem| bytes[mem as usize] = 1);
            Ok(())
        })?;
        convert::array(mask, "bool")
    }

    fn ordinals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.count_all();
        convert::array_u32(py, self.sorted())
    }

    fn roaring<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.count_all();
        let bitmap = roaring::RoaringBitmap::from_sorted_iter(self.sorted().iter().copied());
        let bitmap = bitmap.map_err(|error| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))?;
        let mut bytes = Vec::with_capacity(bitmap.serialized_size());
        bitmap.serialize_into(&mut bytes)?;
        Ok(PyBytes::new(py, &bytes))
    }

    #[getter]
    fn problems<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        convert::reason(py, self.stand.problems())
    }

    fn raise_for_problems(&self, py: Python<'_>) -> PyResult<()> {
        if self.stand.problems() == 0 {
            return Ok(());
        }
        let names: Vec<String> = self.problems(py)?.call_method0("names")?.extract()?;
        let anchors = convert::anchors(self.anchors.bind(py))?;
        let unusable = self.stand.unusable().iter().map(|&(at, _)| anchors.get_item(at));
        let unusable = PyTuple::new(py, unusable.collect::<PyResult<Vec<_>>>()?)?;
        Err(BadAnchor::new_err((names.join(", "), unusable.unbind())))
    }

    #[getter]
    pub(crate) fn anchors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        convert::anchors(self.anchors.bind(py))
    }

    #[getter]
    fn policy(&self, py: Python<'_>) -> Py<PyAny> {
        self.policy.clone_ref(py)
    }

    #[getter]
    fn seq(&self) -> u64 {
        self.seq
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let anchors = self.anchors(py)?.repr()?;
        let shown = format!("<View at {anchors}: {} of {} memories visible", self.answer.visible.len(), self.total);
        if self.stand.problems() == 0 {
            return Ok(shown + ">");
        }
        let names: Vec<String> = self.problems(py)?.call_method0("names")?.extract()?;
        Ok(format!("{shown}, {}>", names.join(", ")))
    }
}
