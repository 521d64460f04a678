//! Events as they travel in bundles: checked, or taken apart.

use crate::convert;
use branchmem_core::BlockError;
use branchmem_core::records::{Record, Records};
use branchmem_core::skeleton::Type;
use foldhash::fast::FixedState;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};
use std::hash::BuildHasher;

/// The counts by type, how many without content, hashes of ids, and skeletons that stand apart.
type Checked<'py> = ([usize; 5], usize, Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>);

/// What was found in some records.
#[derive(Default)]
struct Found {
    /// Events by the code of their type.
    counts: [usize; 5],
    /// Events without their content.
    erased: usize,
    /// A hash an id, 8 bytes little-endian.
    hashes: Vec<u8>,
    /// Where the skeletons of erasures, and of events without content, begin and end.
    apart: Vec<(usize, usize)>,
}

/// Check that these bytes are canonical records, and count them: by type; without content; 8 bytes of a hash for
/// each id, seeded; the skeletons of erasures and of events without content.
#[pyfunction]
pub fn check_records(py: Python<'_>, payload: PyBackedBytes, seed: u64) -> PyResult<Checked<'_>> {
    let check = || {
        let (mut found, hasher) = (Found::default(), FixedState::with_seed(seed));
        for record in Records::new(&payload) {
            let Record { kind, id, skeleton, body } = record?;
            found.counts[kind as usize] += 1;
            found.erased += usize::from(body.is_none());
            found.hashes.extend_from_slice(&hasher.hash_one(id).to_le_bytes());
            if body.is_none() || kind == Type::Erasure {
                let start = skeleton.as_ptr() as usize - payload.as_ptr() as usize;
                found.apart.push((start, start + skeleton.len()));
            }
        }
        Ok::<_, BlockError>(found)
    };
    let found = py.detach(check).map_err(|error| convert::block_error(&error))?;
    let apart = found.apart.iter().map(|&(start, end)| PyBytes::new(py, &payload[start..end])).collect();
    Ok((found.counts, found.erased, PyBytes::new(py, &found.hashes), apart))
}

/// The canonical skeleton and body of each record, None for a body that was erased.
#[pyfunction]
pub fn split_records(py: Python<'_>, payload: PyBackedBytes) -> PyResult<(Bound<'_, PyList>, Bound<'_, PyList>)> {
    let split = || Records::new(&payload).collect::<Result<Vec<_>, BlockError>>();
    let records = py.detach(split).map_err(|error| convert::block_error(&error))?;
    let skeletons = PyList::new(py, records.iter().map(|record| PyBytes::new(py, record.skeleton)))?;
    let bodies = PyList::new(py, records.iter().map(|record| record.body.map(|body| PyBytes::new(py, body))))?;
    Ok((skeletons, bodies))
}
