//! `Vectors`: the vectors of one embedder, as `branchmem.recall` drives them.

use crate::convert::{self, Name, Names};
use crate::engine::Engine;
use crate::shared::Shared;
use crate::shown::{POISONED, Shown, memories, placed};
use crate::view::View;
use branchmem_core::Mem;
use branchmem_search::ranking;
use branchmem_search::vectors::Vectors as Rows;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyInt, PyList, PyTuple};
use std::sync::{Arc, RwLock, RwLockReadGuard};

/// So many are wanted where nobody says how many.
const DEFAULT_K: usize = 10;
/// So many numbers are read with the interpreter in hand.
const SHORT_NUMBERS: usize = 1 << 16;

/// The vectors of one embedder, by ordinal.
#[pyclass(frozen, module = "branchmem._core")]
pub struct Vectors {
    shared: Arc<Shared>,
    rows: RwLock<Rows>,
}

impl Vectors {
    pub fn read(&self) -> RwLockReadGuard<'_, Rows> {
        self.rows.read().expect(POISONED)
    }

    /// Refuse a vector of another dimension.
    fn refuse_other(&self, numbers: usize) -> PyResult<()> {
        let dim = self.read().dim();
        if numbers == dim {
            return Ok(());
        }
        Err(PyValueError::new_err(format!("the vector must have {dim} numbers, not {numbers}")))
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
    pub fn short<'py>(view: &Bound<'py, View>, args: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, PyList>>> {
        let py = view.py();
        let owner = view.get().owner().bind(py);
        let (vector, k) = match (args.get_item(0), args.get_item(1)) {
            (Ok(vector), Ok(k)) if args.len() == 2 && k.is_exact_instance_of::<PyInt>() => (vector, k.extract().ok()),
            (Ok(vector), Err(_)) => (vector, Some(DEFAULT_K)),
            _ => return Ok(None),
        };
        let vectors = owner.getattr(pyo3::intern!(py, "_nearby"))?;
        let (Ok(vectors), Ok(buffer), Some(k)) = (vectors.cast::<Self>(), PyBuffer::<f32>::get(&vector), k) else {
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
        self.refuse_other(vector.len())?;
        self.near(py, view.get(), &vector, k)
    }

    /// The cosine of each of some memories with a vector; `None` where one has none.
    fn cosines(&self, py: Python<'_>, ids: Vec<Name>, vector: PyBuffer<f32>) -> PyResult<Vec<Option<f64>>> {
        self.shared.check()?;
        let vector = vector.to_vec(py)?;
        self.refuse_other(vector.len())?;
        py.detach(|| {
            let (engine, vectors) = (self.shared.read(), self.read());
            let rows: Vec<_> = memories(&engine, &ids)?.into_iter().map(|ordinal| vectors.row(ordinal)).collect();
            let known: Vec<_> = rows.iter().copied().flatten().collect();
            let mut cosines = vectors.cosines(&known, &vector).into_iter().map(f64::from);
            Ok(rows.iter().map(|row| row.and_then(|_| cosines.next())).collect())
        })
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
