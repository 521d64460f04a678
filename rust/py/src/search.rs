//! `SearchIndex` and `Vectors`, as `branchmem.recall` drives them.

use crate::convert::{self, Name, Names, Ordinals, UnknownEvent};
use crate::engine::Engine;
use crate::shared::Shared;
use crate::view::View;
use branchmem_core::{Engine as Core, Mem};
use branchmem_search::Map;
use branchmem_search::conditions::{Condition, Field, Given, Operator};
use branchmem_search::content::Content;
use branchmem_search::fields::{Pace, Pacing};
use branchmem_search::index::Index;
use branchmem_search::ranking::{self, Fading, Hit, Own, Query};
use branchmem_search::shown::At;
use branchmem_search::vectors::Vectors as Rows;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyList, PyString};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

// Locks are taken in one order: index, engine, vectors. A reader who holds one and waits for another would else wait for
// a writer who waits for it.
const POISONED: &str = "the search index was left half-way through a change";

/// What a search ranks: all that a view shows, counted as it hands it out, or ordinals, ascending.
#[derive(FromPyObject)]
enum Shown<'py> {
    View(Bound<'py, View>),
    Ordinals(Bound<'py, PyAny>),
}

impl Shown<'_> {
    /// The ordinals, and that they are handed out.
    fn ordinals(&self) -> PyResult<Cow<'_, [u32]>> {
        if let Self::View(view) = self {
            view.get().count_all();
        }
        self.uncounted()
    }

    fn uncounted(&self) -> PyResult<Cow<'_, [u32]>> {
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

/// One text that fits, and the memories that say it.
#[pyclass(frozen, get_all, module = "branchmem._core")]
pub struct Ranked {
    ids: Vec<String>,
    id: String,
    score: f64,
    lexical: Option<(usize, f64)>,
    vector: Option<(usize, f64)>,
}

/// A condition as Python gives it: field, path within meta, operator, value.
type Asked<'py> = (String, Vec<String>, String, Bound<'py, PyAny>);
/// Now, half-life and floor, and those of kinds.
type Paces = (i64, (f64, f64), HashMap<String, (f64, f64)>);
/// Id, kind, key, canonical body.
type Draft = (PyBackedStr, PyBackedStr, Option<PyBackedStr>, PyBackedBytes);

/// The words and fields of a log's memories, by ordinal.
#[pyclass(frozen, module = "branchmem._core")]
pub struct SearchIndex {
    shared: Arc<Shared>,
    index: RwLock<Index>,
}

impl SearchIndex {
    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().expect(POISONED)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().expect(POISONED)
    }
}

#[pymethods]
impl SearchIndex {
    #[new]
    fn new(engine: &Engine, seed: [u8; 32]) -> Self {
        let (key, rest) = seed.split_at(16);
        let key = key.try_into().expect("16 of 32 bytes");
        let seed = u64::from_le_bytes(rest[..8].try_into().expect("8 of 16 bytes"));
        Self { shared: Arc::clone(engine.shared()), index: RwLock::new(Index::new(key, seed)) }
    }

    fn __len__(&self) -> usize {
        self.read().lexical.len()
    }

    fn behind(&self, py: Python<'_>, limit: usize) -> PyResult<Vec<(String, u32)>> {
        self.shared.check()?;
        Ok(py.detach(|| {
            let first = self.read().lexical.len();
            let engine = self.shared.read();
            let last = engine.memories().len().min(first.saturating_add(limit));
            (first..last).map(|at| placed(&engine, at as u32)).collect()
        }))
    }

    fn add(&self, py: Python<'_>, bodies: Vec<Option<PyBackedBytes>>) -> PyResult<()> {
        self.shared.check()?;
        py.detach(|| {
            let contents = bodies.iter().map(|body| match body {
                Some(body) => Content::read(body).map(Some),
                None => Some(None),
            });
            let contents = contents.collect::<Option<Vec<_>>>()?;
            let mut index = self.write();
            contents.iter().for_each(|content| index.push(content.as_ref()));
            Some(())
        })
        .ok_or_else(|| PyValueError::new_err("one of these is not the body of a memory"))
    }

    fn forget_erased(&self, py: Python<'_>) -> PyResult<usize> {
        self.shared.check()?;
        Ok(py.detach(|| self.write().forget_erased(&self.shared.read())))
    }

    #[pyo3(name = "use")]
    fn use_at(&self, py: Python<'_>, ids: Vec<Name>, at: Vec<i64>) -> PyResult<()> {
        self.shared.check()?;
        py.detach(|| {
            let ordinals = memories(&self.shared.read(), &ids)?;
            let mut index = self.write();
            ordinals.into_iter().zip(at).for_each(|(ordinal, at)| index.fields.use_at(ordinal, at));
            Ok(())
        })
    }

    fn effective<'py>(&self, py: Python<'py>, shown: Shown<'py>, fading: Paces) -> PyResult<Bound<'py, PyAny>> {
        self.shared.check()?;
        let (ordinals, fading) = (shown.ordinals()?, fading_of(fading));
        let bytes: Vec<u8> = py.detach(|| {
            let (index, engine) = (self.read(), self.shared.read());
            let left = |&ordinal: &u32| {
                let pace = || fading.pace(&engine, ordinal).pace;
                let left = index.lexical.has(ordinal).then(|| index.fields.effective(ordinal, pace(), fading.now));
                left.unwrap_or(f64::NAN)
            };
            ordinals.iter().flat_map(|ordinal| left(ordinal).to_ne_bytes()).collect()
        });
        convert::array(PyByteArray::new(py, &bytes), "float64")
    }

    #[pyo3(signature = (shown, query, k, *, conditions = None, fading = None, vectors = None, vector = None, near = None, own = None, own_vectors = None))]
    #[expect(clippy::too_many_arguments, reason = "each is a part of one question, named where it is asked")]
    fn search<'py>(
        &self,
        py: Python<'py>,
        shown: Shown<'py>,
        query: Option<Name>,
        k: usize,
        conditions: Option<Vec<Asked<'py>>>,
        fading: Option<Paces>,
        vectors: Option<&Vectors>,
        vector: Option<PyBuffer<f32>>,
        near: Option<Shown<'py>>,
        own: Option<Vec<Draft>>,
        own_vectors: Option<PyBuffer<f32>>,
    ) -> PyResult<(Vec<Ranked>, usize)> {
        self.shared.check()?;
        let ordinals = shown.ordinals()?;
        let near = near.as_ref().map(Shown::uncounted).transpose()?;
        let own = own.unwrap_or_default();
        let conditions = conditions.into_iter().flatten().map(condition).collect::<PyResult<Vec<_>>>()?;
        let fading = fading.map(fading_of);
        let vector = vector.map(|vector| vector.to_vec(py)).transpose()?;
        let own_vectors = own_vectors.map(|rows| rows.to_vec(py)).transpose()?;
        let dim = vectors.map_or(0, |vectors| vectors.read().dim());
        if vector.as_ref().is_some_and(|vector| vector.len() != dim)
            || own_vectors.as_ref().is_some_and(|rows| rows.len() != own.len() * dim)
        {
            return Err(PyValueError::new_err(format!("each vector must have {dim} numbers")));
        }
        py.detach(|| {
            let drafts = own.iter().enumerate().map(|(at, (id, kind, key, body))| {
                let vector = own_vectors.as_ref().map(|rows| &rows[at * dim..][..dim]);
                Some(Own { id, kind, key: key.as_deref(), content: Content::read(body)?, vector })
            });
            let own: Option<Vec<_>> = drafts.collect();
            let own = own.ok_or_else(|| PyValueError::new_err("one of these is not the body of a memory"))?;
            let (index, engine) = (self.read(), self.shared.read());
            let rows = vectors.map(Vectors::read);
            let query = Query {
                text: query.as_ref().map(Name::shown),
                vector: rows.as_deref().zip(vector.as_deref()),
                near: near.as_deref(),
                count: k,
                conditions: &conditions,
                fading: fading.as_ref(),
            };
            let (hits, faded) = ranking::search(&index, &engine, &ordinals, &own, &query);
            Ok((hits.iter().map(|hit| ranked(&engine, &own, hit)).collect(), faded))
        })
    }
}

/// The vectors of one embedder, by ordinal.
#[pyclass(frozen, module = "branchmem._core")]
pub struct Vectors {
    shared: Arc<Shared>,
    rows: RwLock<Rows>,
}

impl Vectors {
    fn read(&self) -> RwLockReadGuard<'_, Rows> {
        self.rows.read().expect(POISONED)
    }

    /// The nearest that a view shows to a vector of the right length; `None` where one of them has no vector.
    fn near<'py>(
        &self,
        py: Python<'py>,
        view: &View,
        vector: &[f32],
        k: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        self.shared.check()?;
        let find = || {
            let (engine, rows) = (self.shared.read(), self.read());
            let found = ranking::nearest(&rows, &engine, view.sorted(), vector, k)?;
            // One step for all, then the next: what is far away in memory is waited for once a step.
            let numbers: Vec<_> = found.iter().map(|&(_, ordinal)| engine.memories().number(Mem(ordinal))).collect();
            let ids: Vec<_> = numbers.iter().map(|&number| engine.ids().name(number)).collect();
            Some((Names::of(&ids), found.into_iter().map(|(cosine, _)| cosine).collect::<Vec<_>>()))
        };
        // Letting go of the interpreter costs as much as reading some hundred rows.
        let found = if view.sorted().len() * vector.len() < SHORT_NUMBERS { find() } else { py.detach(find) };
        let Some((ids, cosines)) = found else { return Ok(None) };
        view.count_all();
        let pairs: Vec<_> = ids.iter().zip(cosines).collect();
        Ok(Some(PyList::new(py, pairs)?))
    }

    /// As `near`, where this is all that a question needs: a sound vector, and a log that did not change.
    pub fn short<'py>(
        view: &Bound<'py, View>,
        vector: &Bound<'py, PyAny>,
        k: i64,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let py = view.py();
        let owner = view.get().owner().bind(py);
        let vectors = owner.getattr(pyo3::intern!(py, "_nearby"))?;
        let (Ok(vectors), Ok(buffer), Ok(k)) =
            (vectors.cast::<Self>(), PyBuffer::<f32>::get(vector), usize::try_from(k))
        else {
            return Ok(None);
        };
        if buffer.dimensions() != 1 || owner.call_method0(pyo3::intern!(py, "_changed"))?.is_truthy()? {
            return Ok(None);
        }
        let vectors = vectors.get();
        let numbers = buffer.to_vec(py)?;
        if numbers.len() != vectors.dim() || !numbers.iter().all(|number| number.is_finite()) {
            return Ok(None);
        }
        vectors.near(py, view.get(), &numbers, k)
    }
}

#[pymethods]
impl Vectors {
    #[new]
    fn new(engine: &Engine, dim: usize) -> Self {
        Self { shared: Arc::clone(engine.shared()), rows: RwLock::new(Rows::new(dim)) }
    }

    fn __len__(&self) -> usize {
        self.read().len()
    }

    #[getter]
    fn dim(&self) -> usize {
        self.read().dim()
    }

    fn missing(&self, py: Python<'_>, shown: Shown<'_>) -> PyResult<Vec<(String, u32)>> {
        self.shared.check()?;
        let ordinals = shown.uncounted()?;
        Ok(py.detach(|| {
            let (engine, rows) = (self.shared.read(), self.read());
            let erased = engine.changes().erasures.erased();
            let missing = ordinals.iter().copied().filter(|&at| rows.row(at).is_none() && !erased.has(Mem(at)));
            missing.map(|at| placed(&engine, at)).collect()
        }))
    }

    fn put(&self, py: Python<'_>, ids: Vec<Name>, rows: PyBuffer<f32>) -> PyResult<()> {
        self.shared.check()?;
        let numbers = rows.to_vec(py)?;
        let dim = self.dim();
        if numbers.len() != ids.len() * dim {
            return Err(PyValueError::new_err(format!("{} vectors of {dim} numbers are needed", ids.len())));
        }
        py.detach(|| {
            let engine = self.shared.read();
            let ordinals = memories(&engine, &ids)?;
            let mut rows = self.rows.write().expect(POISONED);
            let erased = engine.changes().erasures.erased();
            for (at, ordinal) in ordinals.into_iter().enumerate().filter(|&(_, ordinal)| !erased.has(Mem(ordinal))) {
                rows.put(ordinal, &numbers[at * dim..][..dim]);
            }
            Ok(())
        })
    }

    fn forget_erased(&self, py: Python<'_>) -> PyResult<usize> {
        self.shared.check()?;
        Ok(py.detach(|| {
            let engine = self.shared.read();
            let mut rows = self.rows.write().expect(POISONED);
            rows.forget(engine.changes().erasures.erased().iter().map(|mem| mem.0))
        }))
    }

    fn nearest<'py>(
        &self,
        py: Python<'py>,
        view: &Bound<'py, View>,
        vector: PyBuffer<f32>,
        k: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let vector = vector.to_vec(py)?;
        let dim = self.dim();
        if vector.len() != dim {
            return Err(PyValueError::new_err(format!("the vector must have {dim} numbers, not {}", vector.len())));
        }
        self.near(py, view.get(), &vector, k)
    }

    fn rows<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyAny>)> {
        self.shared.check()?;
        let (names, bytes, dim) = py.detach(|| {
            let (engine, rows) = (self.shared.read(), self.read());
            let numbers = rows.ordinals().iter().map(|&ordinal| engine.memories().number(Mem(ordinal)));
            let bytes = (0..rows.len()).flat_map(|row| rows.numbers(row)).flat_map(|number| number.to_ne_bytes());
            (Names::of_numbers(&engine, numbers), bytes.collect::<Vec<u8>>(), rows.dim())
        });
        let flat = convert::array(PyByteArray::new(py, &bytes), "float32")?;
        Ok((names.list(py)?, flat.call_method1("reshape", ((names.len(), dim),))?))
    }
}

/// So many numbers are read with the interpreter in hand.
const SHORT_NUMBERS: usize = 1 << 16;

/// BM25 of each text for a query, among these texts alone.
#[pyfunction]
pub fn rank_texts(py: Python<'_>, texts: Vec<PyBackedStr>, query: Name) -> Vec<f64> {
    let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
    py.detach(|| branchmem_search::lexical::rank_texts(&texts, query.shown()))
}

/// The id of a memory and its position in the log.
fn placed(engine: &Core, ordinal: u32) -> (String, u32) {
    let number = engine.memories().number(Mem(ordinal));
    (engine.ids().name(number).to_owned(), engine.ids().seq(number).unwrap_or_default())
}

/// The ordinals of memories that must be there.
fn memories(engine: &Core, ids: &[Name]) -> PyResult<Vec<u32>> {
    let find = |id: &Name| {
        let mem = id.text().and_then(|id| convert::memory(engine, id));
        mem.map(|mem| mem.0).ok_or_else(|| UnknownEvent::new_err((id.shown().to_owned(), "memory")))
    };
    ids.iter().map(find).collect()
}

fn ranked(engine: &Core, own: &[Own<'_>], hit: &Hit) -> Ranked {
    let id = |at: &At| match *at {
        At::Log(ordinal) => engine.ids().name(engine.memories().number(Mem(ordinal))).to_owned(),
        At::Own(at) => own[at].id.to_owned(),
    };
    let ids = hit.members.iter().map(id).collect();
    Ranked { ids, id: id(&hit.first), score: hit.score, lexical: hit.lexical, vector: hit.vector }
}

fn fading_of((now, pace, kinds): Paces) -> Fading {
    let pace_of = |(half_life, floor)| Pacing::new(Pace { half_life, floor });
    let kinds: Map<_, _> = kinds.into_iter().map(|(kind, pace)| (kind, pace_of(pace))).collect();
    Fading { now, pace: pace_of(pace), kinds }
}

fn condition((field, path, operator, value): Asked<'_>) -> PyResult<Condition> {
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
