//! Between Python's values and the engine's.

use branchmem_core::reason::{Counts, bits};
use branchmem_core::skeleton::Scope;
use branchmem_core::{BlockError, Engine, Mem, Node, Number};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyDict, PyInt, PyList, PyString, PyTuple};
use std::sync::atomic::AtomicU32;

pyo3::import_exception!(branchmem.errors, AmbiguousAnchor);
pyo3::import_exception!(branchmem.errors, BadAnchor);
pyo3::import_exception!(branchmem.errors, StoreForked);
pyo3::import_exception!(branchmem.errors, UnknownEvent);

/// The ordinal of what is not in the log, in arrays.
pub const UNKNOWN: u32 = u32::MAX;

/// No wildcard arm: a new variant does not compile until it is told apart.
pub fn block_error(error: &BlockError) -> PyErr {
    let newer = match error {
        BlockError::Damaged(_) | BlockError::Gap(_) => false,
        BlockError::TooNew(_) => true,
    };
    crate::BlockError::new_err((error.to_string(), newer))
}

/// An id as text; a string that is no valid UTF-8 is no id of any log.
pub fn text<'a>(id: &'a Bound<'_, PyString>) -> Option<&'a str> {
    id.to_str().ok()
}

/// An id, to be read without Python.
fn backed(id: Bound<'_, PyString>) -> Option<PyBackedStr> {
    PyBackedStr::try_from(id).ok()
}

/// A name as Python gives it. One that is no valid UTF-8 is that of nothing.
pub struct Name(Result<PyBackedStr, String>);

impl Name {
    pub fn text(&self) -> Option<&str> {
        self.0.as_deref().ok()
    }

    /// For people.
    pub fn shown(&self) -> &str {
        self.0.as_deref().unwrap_or_else(String::as_str)
    }
}

impl<'py> FromPyObject<'_, 'py> for Name {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let name = object.cast::<PyString>()?.to_owned();
        Ok(Self(PyBackedStr::try_from(name.clone()).map_err(|_| name.to_string_lossy().into_owned())))
    }
}

/// The anchors of a view: one id, several without repeats, or none.
pub fn anchors<'py>(anchor: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let py = anchor.py();
    if anchor.is_none() {
        return Ok(PyTuple::empty(py));
    }
    if anchor.is_instance_of::<PyString>() {
        return PyTuple::new(py, [anchor]);
    }
    let refuse = || PyTypeError::new_err("an anchor is an id, a list of ids (one a tree), or None");
    let ids = PyDict::new(py);
    for id in anchor.try_iter().map_err(|_| refuse())? {
        ids.set_item(id?.cast_into::<PyString>().map_err(|_| refuse())?, py.None())?;
    }
    PyTuple::new(py, ids.keys())
}

/// The anchors of a view, as text to be looked up without Python.
pub fn anchor_texts(anchor: &Bound<'_, PyAny>) -> PyResult<Vec<Option<PyBackedStr>>> {
    match anchor.cast::<PyString>() {
        Ok(id) => Ok(vec![backed(id.clone())]),
        Err(_) => anchors(anchor)?.iter().map(|id| Ok(backed(id.cast_into::<PyString>()?))).collect(),
    }
}

/// The numbers of ids; `None` where one was never mentioned.
pub fn numbers<S: AsRef<str>>(engine: &Engine, ids: &[Option<S>]) -> Vec<Option<Number>> {
    ids.iter().map(|id| id.as_ref().and_then(|id| engine.ids().find(id.as_ref()))).collect()
}

/// The number of an id, if it was ever mentioned.
pub fn number(engine: &Engine, id: &Name) -> Option<Number> {
    id.text().and_then(|id| engine.ids().find(id))
}

/// The memory with this id, if it is one.
pub fn memory(engine: &Engine, id: &str) -> Option<Mem> {
    engine.ids().find(id).and_then(|number| engine.ids().memory(number))
}

/// The message with this id, if it is one.
pub fn message(engine: &Engine, id: &str) -> Option<Node> {
    engine.ids().find(id).and_then(|number| engine.ids().message(number))
}

/// The strings of a list of ids. Anything but strings is a `TypeError`.
pub fn strings(ids: &Bound<'_, PyAny>) -> PyResult<Vec<Option<PyBackedStr>>> {
    let refuse = || PyTypeError::new_err("a list of ids is needed: put a single id into brackets, [id]");
    if ids.is_instance_of::<PyString>() {
        return Err(refuse());
    }
    let ids = ids.try_iter().map_err(|_| refuse())?;
    ids.map(|id| Ok(backed(id?.cast_into::<PyString>().map_err(|_| refuse())?))).collect()
}

/// A number of memories that is as good as any larger one where it does not fit.
pub fn limit(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    let refuse = || PyValueError::new_err("limit is a number of memories, 0 or more, or None");
    match given.extract() {
        Ok(limit) => Ok(limit),
        Err(_) if given.is_instance_of::<PyInt>() && given.gt(0)? => Ok(usize::MAX),
        Err(_) => Err(refuse()),
    }
}

/// Texts copied out of the engine, to become Python strings without its lock.
#[derive(Default)]
pub struct Names {
    bytes: String,
    ends: Vec<usize>,
}

impl Names {
    pub fn push(&mut self, name: &str) {
        self.bytes.push_str(name);
        self.ends.push(self.bytes.len());
    }

    pub fn of_numbers(engine: &Engine, numbers: impl Iterator<Item = Number>) -> Self {
        let mut out = Self::default();
        numbers.for_each(|number| out.push(engine.ids().name(number)));
        out
    }

    pub fn of_nodes(engine: &Engine, nodes: impl Iterator<Item = Node>) -> Self {
        Self::of_numbers(engine, nodes.map(|node| engine.ids().of_message(node)))
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn of(names: &[&str]) -> Self {
        let mut out = Self::default();
        names.iter().for_each(|name| out.push(name));
        out
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    pub fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.iter().collect::<Vec<_>>())
    }
}

/// A contiguous array of uint32, read where it lies.
pub struct Ordinals(PyBuffer<u32>);

impl Ordinals {
    pub fn new(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(array.extract()?))
    }

    /// The numbers, which another thread may be writing to while they are read.
    pub fn as_slice(&self) -> &[AtomicU32] {
        self.0.as_slice_ptr().map_or(&[], |numbers| {
            // SAFETY: the buffer stays exported, so its memory stays, while `self` lives; AtomicU32 has
            // the size and alignment of u32, which PyBuffer has checked, and allows for other writers.
            #[expect(unsafe_code, reason = "copying a million ordinals costs as much as judging them")]
            unsafe {
                std::slice::from_raw_parts(numbers.as_ptr().cast::<AtomicU32>(), numbers.len())
            }
        })
    }
}

/// The bytes of a contiguous array that nothing else refers to yet.
pub fn fresh_bytes(buffer: &mut PyBuffer<u8>) -> &mut [u8] {
    buffer.as_slice_ptr().map_or(&mut [], |mut bytes| {
        // SAFETY: callers have just made the array, so nobody else reads or writes it, and the
        // exported buffer keeps its memory while it is borrowed.
        #[expect(unsafe_code, reason = "filling numpy's own pages saves a copy of every bulk answer")]
        unsafe {
            bytes.as_mut()
        }
    })
}

/// The name of a scope.
pub fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Branch => "branch",
        Scope::Tree => "tree",
        Scope::Everywhere => "everywhere",
    }
}

/// A numpy array over bytes that nothing else refers to.
pub fn array<'py>(bytes: Bound<'py, PyByteArray>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
    static FROMBUFFER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = bytes.py();
    FROMBUFFER.import(py, "numpy", "frombuffer")?.call1((bytes, dtype))
}

/// A numpy array of uint32.
pub fn array_u32<'py>(py: Python<'py>, values: &[u32]) -> PyResult<Bound<'py, PyAny>> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    array(PyByteArray::new(py, &bytes), "uint32")
}

/// A member of an enumeration of `branchmem.verdict`, by its bits.
pub fn reason(py: Python<'_>, bits: u16) -> PyResult<Bound<'_, PyAny>> {
    static REASON: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    REASON.import(py, "branchmem.verdict", "Reason")?.call1((bits,))
}

/// Counts by reason, those that are not zero.
pub fn by_reason<'py>(py: Python<'py>, counts: &Counts) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for bit in bits(u16::MAX).filter(|&bit| counts[bit] > 0) {
        out.set_item(reason(py, 1 << bit)?, counts[bit])?;
    }
    Ok(out)
}

/// The bits that a `Policy` lets through.
pub fn policy_bits(policy: &Bound<'_, PyAny>) -> PyResult<u16> {
    static STRICT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if policy.is(STRICT.import(policy.py(), "branchmem.verdict", "STRICT")?) {
        return Ok(0);
    }
    let admit = policy.getattr(pyo3::intern!(policy.py(), "admit"));
    admit.and_then(|admit| admit.extract()).map_err(|_| {
        PyTypeError::new_err("a policy is branchmem.STRICT, branchmem.COMPAT or branchmem.Policy(admit=…)")
    })
}

/// `ValueError` for arrays that are to be read pairwise and differ in length.
pub fn same_length(memories: usize, anchors: usize) -> PyResult<()> {
    if memories == anchors {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("memories and anchors are read pairwise: {memories} and {anchors} differ")))
}
