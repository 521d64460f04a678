//! `Engine`: the log's fold, as `branchmem.store` drives it.

use crate::convert::{self, Name, Names, Ordinals, UnknownEvent};
use crate::shared::Shared;
use crate::view::{View, refuse};
use branchmem_core::reason::UNKNOWN_MEMORY;
use branchmem_core::topology::Above;
use branchmem_core::{BlockError, Engine as Core, Mem, Node, Number};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::sync::Arc;

/// The engine behind a store, or without a file.
#[pyclass(frozen, module = "branchmem._core")]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

#[pymethods]
impl Engine {
    #[new]
    fn new(seed: u64) -> Self {
        Self { shared: Arc::new(Shared::new(seed)) }
    }

    fn forsake(&self, path: String) {
        self.shared.forsake(path);
    }

    #[getter]
    fn seq(&self) -> PyResult<u64> {
        Ok(self.shared.checked()?.seq())
    }

    fn plan<'py>(&self, py: Python<'py>, skeletons: Vec<PyBackedBytes>) -> PyResult<Bound<'py, PyTuple>> {
        self.shared.check()?;
        let slices: Vec<&[u8]> = skeletons.iter().map(|skeleton| &**skeleton).collect();
        let plan = py.detach(|| self.shared.read().plan(&slices)).map_err(|error| convert::block_error(&error))?;
        (plan.new, plan.stored, plan.repeated, plan.conflict).into_pyobject(py)
    }

    fn encode<'py>(&self, py: Python<'py>, skeletons: Vec<PyBackedBytes>) -> PyResult<Vec<(u64, Bound<'py, PyBytes>)>> {
        self.shared.check()?;
        let slices: Vec<&[u8]> = skeletons.iter().map(|skeleton| &**skeleton).collect();
        let blocks = py.detach(|| self.shared.read().encode(&slices)).map_err(|error| convert::block_error(&error))?;
        Ok(blocks.into_iter().map(|(seq, block)| (seq, PyBytes::new(py, &block))).collect())
    }

    /// Which of these skeletons, once appended, bear an erased id, and where the stored events lie whose content goes.
    fn erased_by(&self, py: Python<'_>, skeletons: Vec<PyBackedBytes>) -> PyResult<(Vec<usize>, Vec<u32>)> {
        self.shared.check()?;
        let slices: Vec<&[u8]> = skeletons.iter().map(|skeleton| &**skeleton).collect();
        let find = || {
            let may_erase = self.shared.read().may_erase(&slices);
            if may_erase { self.shared.write().erased_by(&slices) } else { Ok((Vec::new(), Vec::new())) }
        };
        py.detach(find).map_err(|error| convert::block_error(&error))
    }

    /// Keep room for so many more events, which a log to be read is known to hold.
    fn reserve(&self, py: Python<'_>, events: usize) -> PyResult<()> {
        self.shared.check()?;
        py.detach(|| self.shared.write().reserve(events));
        Ok(())
    }

    /// Take in blocks that follow on each other. Nobody sees the engine in between.
    fn fold(&self, py: Python<'_>, blocks: Vec<(u64, PyBackedBytes)>) -> PyResult<usize> {
        self.shared.check()?;
        let fold = || {
            let mut engine = self.shared.write();
            blocks.iter().map(|(first_seq, block)| engine.fold(*first_seq, block)).sum::<Result<usize, BlockError>>()
        };
        py.detach(fold).map_err(|error| convert::block_error(&error))
    }

    fn at(
        &self,
        owner: &Bound<'_, PyAny>,
        anchor: &Bound<'_, PyAny>,
        policy: &Bound<'_, PyAny>,
        count: bool,
    ) -> PyResult<View> {
        View::new(&self.shared, owner, anchor, policy, count)
    }

    /// `empty` makes a uint8 array of a length: 1 where the pair is visible. An ordinal beyond all is
    /// not in the log.
    fn visible<'py>(
        &self,
        py: Python<'py>,
        memories: &Bound<'py, PyAny>,
        anchors: &Bound<'py, PyAny>,
        policy: &Bound<'py, PyAny>,
        empty: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.shared.check()?;
        let (memories, anchors) = (Ordinals::new(memories)?, Ordinals::new(anchors)?);
        let (memories, anchors) = (memories.as_slice(), anchors.as_slice());
        let admit = convert::policy_bits(policy)?;
        convert::same_length(memories.len(), anchors.len())?;
        let array = empty.call1((memories.len(),))?;
        let mut buffer: PyBuffer<u8> = array.extract()?;
        let visible = convert::fresh_bytes(&mut buffer);
        py.detach(|| {
            let engine = self.shared.read_for(admit);
            let admitted = engine.pairs(memories, anchors, admit, visible);
            // Bytes of 1 add up without overflow in 255 of them, which vectorises.
            let shown: usize = visible.chunks(255).map(|part| usize::from(part.iter().sum::<u8>())).sum();
            self.shared.counters.bulk(&admitted, (visible.len() - shown) as u64);
        });
        Ok(array)
    }

    /// `empty` makes a uint8 array of a shape.
    fn bitmaps<'py>(
        &self,
        py: Python<'py>,
        anchors: Vec<Bound<'py, PyAny>>,
        policy: &Bound<'py, PyAny>,
        empty: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.shared.check()?;
        let admit = convert::policy_bits(policy)? & !UNKNOWN_MEMORY;
        let rows = anchors.iter().map(convert::anchor_texts).collect::<PyResult<Vec<_>>>()?;
        loop {
            let total = self.memory_count()?;
            let array = empty.call1(((rows.len(), total.div_ceil(8)),))?;
            let mut buffer: PyBuffer<u8> = array.extract()?;
            let bytes = convert::fresh_bytes(&mut buffer);
            let filled = py.detach(|| self.fill(&rows, admit, total, bytes));
            let filled = filled.map_err(|(at, ambiguous)| refuse(&self.shared, &rows[at], ambiguous))?;
            if filled {
                return Ok(array);
            }
        }
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (hidden, admitted, unlisted) = self.shared.counters.read();
        let out = PyDict::new(py);
        out.set_item("hidden", convert::by_reason(py, &hidden)?)?;
        out.set_item("admitted", convert::by_reason(py, &admitted)?)?;
        out.set_item("unlisted", unlisted)?;
        Ok(out)
    }

    // What bears an id.

    fn event_seq(&self, id: Name) -> PyResult<Option<u32>> {
        let engine = self.shared.checked()?;
        Ok(convert::number(&engine, &id).and_then(|number| engine.ids().seq(number)))
    }

    fn event_ids<'py>(&self, py: Python<'py>, start: u32, stop: u32) -> PyResult<Bound<'py, PyList>> {
        self.listed(py, |engine| Names::of_numbers(engine, engine.events(start, stop).into_iter()))
    }

    fn skeleton<'py>(&self, py: Python<'py>, id: Name) -> PyResult<Option<(u32, Bound<'py, PyBytes>)>> {
        let found = {
            let engine = self.shared.checked()?;
            let number = convert::number(&engine, &id);
            number.and_then(|number| Some((engine.ids().seq(number)?, engine.skeleton(number)?)))
        };
        Ok(found.map(|(seq, skeleton)| (seq, PyBytes::new(py, &skeleton))))
    }

    fn memory_count(&self) -> PyResult<usize> {
        Ok(self.shared.checked()?.memories().len())
    }

    fn message_count(&self) -> PyResult<usize> {
        Ok(self.shared.checked()?.forest().len())
    }

    fn memory_ids<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> PyResult<Bound<'py, PyList>> {
        self.listed(py, |engine| {
            let stop = stop.min(engine.memories().len());
            Names::of_numbers(engine, (start..stop).map(|at| engine.memories().number(Mem(at as u32))))
        })
    }

    fn message_ids<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> PyResult<Bound<'py, PyList>> {
        self.listed(py, |engine| {
            Names::of_nodes(engine, (start..stop.min(engine.forest().len())).map(|at| Node(at as u32)))
        })
    }

    /// Ordinals of memories; `UNKNOWN` where an id is none.
    fn memory_ordinals<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.ordinals(py, ids, |engine, id| convert::memory(engine, id).map(|mem| mem.0))
    }

    /// Ordinals of messages; `UNKNOWN` where an id is none.
    fn message_ordinals<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.ordinals(py, ids, |engine, id| convert::message(engine, id).map(|node| node.0))
    }

    /// The ids of all events, sorted by their bytes.
    fn sorted_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.listed(py, |engine| {
            let ids = engine.ids();
            let mut numbers: Vec<_> =
                (0..ids.len() as u32).map(Number).filter(|&number| ids.seq(number).is_some()).collect();
            numbers.sort_unstable_by(|&a, &b| ids.name(a).cmp(ids.name(b)));
            Names::of_numbers(engine, numbers.into_iter())
        })
    }

    // The tree.

    fn parent<'py>(&self, py: Python<'py>, id: Name) -> PyResult<Option<Bound<'py, PyAny>>> {
        static LEGACY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let above = {
            let engine = self.shared.checked()?;
            match engine.forest().above(Self::node(&engine, &id)?) {
                Above::Root => return Ok(None),
                Above::Legacy => None,
                Above::Message(parent) => Some(engine.ids().name(engine.ids().of_message(parent)).to_owned()),
                Above::Missing(number) => Some(engine.ids().name(number).to_owned()),
            }
        };
        match above {
            Some(parent) => Ok(Some(PyString::new(py, &parent).into_any())),
            None => Ok(Some(LEGACY.import(py, "branchmem.events", "LEGACY")?.clone())),
        }
    }

    fn children<'py>(&self, py: Python<'py>, id: Name) -> PyResult<Bound<'py, PyList>> {
        self.nodes(py, id, |engine, node| {
            let mut children: Vec<_> = engine.forest().children(node).collect();
            children.sort_unstable();
            children
        })
    }

    fn siblings<'py>(&self, py: Python<'py>, id: Name) -> PyResult<Bound<'py, PyList>> {
        self.nodes(py, id, Core::siblings)
    }

    fn roots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.listed(py, |engine| Names::of_nodes(engine, engine.forest().tops().iter().copied()))
    }

    /// The path from the top; where it is broken, the id that is missing, or the id at which it comes round.
    fn path<'py>(&self, py: Python<'py>, id: Name) -> PyResult<(Bound<'py, PyList>, Option<String>)> {
        self.shared.check()?;
        let (names, broken) = py.detach(|| {
            let engine = self.shared.read();
            let (path, broken) = engine.path(Self::node(&engine, &id)?);
            let broken = broken.map(|number| engine.ids().name(number).to_owned());
            Ok::<_, PyErr>((Names::of_nodes(&engine, path.into_iter()), broken))
        })?;
        Ok((names.list(py)?, broken))
    }

    #[pyo3(signature = (root = None))]
    fn leaves<'py>(&self, py: Python<'py>, root: Option<Name>) -> PyResult<Bound<'py, PyList>> {
        if let Some(root) = root {
            return self.nodes(py, root, |engine, node| engine.leaves(&[node]));
        }
        self.listed(py, |engine| Names::of_nodes(engine, engine.leaves(engine.forest().tops()).into_iter()))
    }

    fn is_ancestor(&self, a: Name, b: Name) -> PyResult<bool> {
        let engine = self.shared.checked()?;
        Ok(engine.is_ancestor(Self::node(&engine, &a)?, Self::node(&engine, &b)?))
    }

    fn common_ancestor(&self, a: Name, b: Name) -> PyResult<Option<String>> {
        let engine = self.shared.checked()?;
        let common = engine.common_ancestor(Self::node(&engine, &a)?, Self::node(&engine, &b)?);
        Ok(common.map(|node| engine.ids().name(engine.ids().of_message(node)).to_owned()))
    }

    fn is_message(&self, id: Name) -> PyResult<bool> {
        let engine = self.shared.checked()?;
        Ok(convert::number(&engine, &id).is_some_and(|number| engine.ids().message(number).is_some()))
    }

    fn is_memory(&self, id: Name) -> PyResult<bool> {
        let engine = self.shared.checked()?;
        Ok(convert::number(&engine, &id).is_some_and(|number| engine.ids().memory(number).is_some()))
    }

    /// The memories that no anchor can show in strict, with their reasons.
    fn unshowable(&self, py: Python<'_>) -> PyResult<Vec<(Py<PyAny>, u16)>> {
        self.shared.check()?;
        let (names, reasons) = py.detach(|| {
            let engine = self.shared.read_current();
            let found = engine.unshowable();
            let numbers = found.iter().map(|&(mem, _)| engine.memories().number(mem));
            (Names::of_numbers(&engine, numbers), found.iter().map(|&(_, reasons)| reasons).collect::<Vec<_>>())
        });
        Ok(names.list(py)?.iter().map(Bound::unbind).zip(reasons).collect())
    }

    /// How many messages stand above one; `None` where it is not attached.
    fn depth(&self, id: Name) -> PyResult<Option<u32>> {
        let engine = self.shared.checked()?;
        let node = Self::node(&engine, &id)?;
        Ok(engine.forest().is_attached(node).then(|| engine.forest().depth(node)))
    }

    /// How many messages stand above the deepest effective source of each memory, -1 where none is attached.
    fn depths_of_memories(&self, py: Python<'_>, ids: Vec<Name>) -> PyResult<Vec<i64>> {
        self.shared.check()?;
        py.detach(|| {
            let engine = self.shared.read_current();
            let depth = |id: &Name| {
                let mem = id.text().and_then(|id| convert::memory(&engine, id));
                let mem = mem.ok_or_else(|| UnknownEvent::new_err((id.shown().to_owned(), "memory")))?;
                Ok(engine.depth(mem))
            };
            ids.iter().map(depth).collect()
        })
    }

    fn is_attached(&self, id: Name) -> PyResult<bool> {
        let engine = self.shared.checked()?;
        Ok(engine.forest().is_attached(Self::node(&engine, &id)?))
    }

    /// How many messages before a position are not attached.
    fn orphans(&self, py: Python<'_>, before_seq: u32) -> PyResult<usize> {
        self.shared.check()?;
        Ok(py.detach(|| self.shared.read().orphans(before_seq)))
    }

    /// The memories that have an id among their own sources, in the order of the log.
    fn memories_from<'py>(&self, py: Python<'py>, source: Name) -> PyResult<Bound<'py, PyList>> {
        self.shared.check()?;
        let names = py.detach(|| {
            let mut engine = self.shared.write();
            let found = convert::number(&engine, &source).map(|number| engine.memories_from(number));
            let numbers = found.unwrap_or_default().into_iter().map(|mem| engine.memories().number(mem));
            Names::of_numbers(&engine, numbers)
        });
        names.list(py)
    }

    // Retractions, restorations, erasures.

    /// The ids of all events of a type but messages and memories, in the order of the log.
    fn ids_of<'py>(&self, py: Python<'py>, of: &str) -> PyResult<Bound<'py, PyList>> {
        let numbers: fn(&Core) -> Vec<Number> = match of {
            "retraction" => |engine| engine.changes().retractions.all().iter().map(|one| one.number).collect(),
            "restoration" => {
                |engine| engine.changes().retractions.restorations().iter().map(|one| one.number).collect()
            }
            "erasure" => |engine| engine.changes().erasures.all().iter().map(|one| one.number).collect(),
            _ => return Err(PyValueError::new_err("the types are retraction, restoration and erasure")),
        };
        self.listed(py, |engine| Names::of_numbers(engine, numbers(engine).into_iter()))
    }

    /// The retractions and restorations whose place is not known, though their scope asks for one.
    fn unplaced<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.listed(py, |engine| {
            let unplaced = engine.changes().unplaced(engine.ids(), engine.forest());
            Names::of_numbers(engine, unplaced.into_iter())
        })
    }

    /// The memories that replace each other in circles, each circle sorted by id.
    fn supersession_circles<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyList>>> {
        self.shared.check()?;
        let circles = py.detach(|| {
            let engine = self.shared.read();
            let name = |mem: &Mem| engine.ids().name(engine.memories().number(*mem));
            let mut circles = engine.changes().supersession.circles(engine.ids(), engine.memories());
            circles.iter_mut().for_each(|circle| circle.sort_unstable_by(|a, b| name(a).cmp(name(b))));
            circles.sort_unstable_by(|a, b| name(&a[0]).cmp(name(&b[0])));
            let numbers =
                |circle: &Vec<Mem>| circle.iter().map(|&mem| engine.memories().number(mem)).collect::<Vec<_>>();
            let names = circles.iter().map(|circle| Names::of_numbers(&engine, numbers(circle).into_iter()));
            names.collect::<Vec<_>>()
        });
        circles.iter().map(|names| names.list(py)).collect()
    }

    fn has_erasures(&self) -> PyResult<bool> {
        Ok(!self.shared.checked()?.changes().erasures.is_empty())
    }

    /// Whether the content of a message or memory of the log is gone.
    fn is_erased(&self, id: Name) -> PyResult<bool> {
        let engine = self.shared.checked()?;
        let number = convert::number(&engine, &id);
        Ok(number.is_some_and(|number| engine.changes().erasures.has(number, engine.ids())))
    }
}
