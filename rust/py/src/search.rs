//! `SearchIndex`: words and fields, and what is ranked of them, as `branchmem.recall` drives it.

use crate::conditions::{Asked, condition};
use crate::convert::{self, Name};
use crate::engine::Engine;
use crate::shared::Shared;
use crate::shown::{POISONED, Shown, memories, placed};
use crate::vectors::Vectors;
use branchmem_core::{Engine as Core, Mem};
use branchmem_search::Map;
use branchmem_search::content::Content;
use branchmem_search::fields::{Pace, Pacing};
use branchmem_search::index::Index;
use branchmem_search::ranking::{self, Fading, Hit, Own, Query};
use branchmem_search::shown::At;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyByteArray;
use std::collections::HashMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// One text that fits, and the memories that say it.
#[pyclass(frozen, get_all, module = "branchmem._core")]
pub struct Ranked {
    ids: Vec<String>,
    id: String,
    score: f64,
    lexical: Option<(usize, f64)>,
    vector: Option<(usize, f64)>,
}

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

    fn saying(&self, py: Python<'_>, shown: Shown<'_>, text: Name) -> PyResult<Vec<String>> {
        self.shared.check()?;
        let ordinals = shown.uncounted()?;
        Ok(py.detach(|| {
            let (index, engine) = (self.read(), self.shared.read());
            let found = ranking::saying(&index, &ordinals, text.shown());
            let mut ids: Vec<_> = found.into_iter().map(|ordinal| placed(&engine, ordinal).0).collect();
            ids.sort_unstable();
            ids
        }))
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

/// BM25 of each text for a query, among these texts alone.
#[pyfunction]
pub fn rank_texts(py: Python<'_>, texts: Vec<PyBackedStr>, query: Name) -> Vec<f64> {
    let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
    py.detach(|| branchmem_search::lexical::rank_texts(&texts, query.shown()))
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
