//! The engine behind its lock, shared by everything that asks it.

use branchmem_core::Engine;
use branchmem_core::reason::Counters;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::convert::StoreForked;

/// One engine with its counters.
pub struct Shared {
    engine: RwLock<Engine>,
    pub counters: Counters,
    /// Verdicts that had to do without the tour since it was last frozen.
    slow: AtomicUsize,
    /// The path of the store, in the child of a fork.
    forsaken: OnceLock<String>,
}

impl Shared {
    pub fn new(seed: u64) -> Self {
        Self {
            engine: RwLock::new(Engine::new(seed)),
            counters: Counters::default(),
            slow: AtomicUsize::new(0),
            forsaken: OnceLock::new(),
        }
    }

    /// For questions. Poisoned only by a panic while folding: then no answer is to be trusted.
    pub fn read(&self) -> RwLockReadGuard<'_, Engine> {
        self.engine.read().expect("the engine was left half-way through a fold")
    }

    /// The same, refused in the child of a fork.
    pub fn checked(&self) -> PyResult<RwLockReadGuard<'_, Engine>> {
        self.check()?;
        Ok(self.read())
    }

    /// For folding. Call it detached from Python: a reader that waits may hold the interpreter.
    pub fn write(&self) -> RwLockWriteGuard<'_, Engine> {
        self.engine.write().expect("the engine was left half-way through a fold")
    }

    /// Refuse all use from now on: this is the child of a fork.
    pub fn forsake(&self, path: String) {
        self.forsaken.get_or_init(|| path);
    }

    /// `StoreForked` in the child of a fork, where the lock may be held by a thread that is not there.
    pub fn check(&self) -> PyResult<()> {
        self.forsaken.get().map_or(Ok(()), |path| Err(StoreForked::new_err((path.clone(),))))
    }

    /// Count a verdict that the tour did not decide: whether it is time to freeze the tour.
    pub fn wants_tour(&self, engine: &Engine) -> bool {
        let wants = engine.tour_pays(self.slow.fetch_add(1, Relaxed));
        if wants {
            self.slow.store(0, Relaxed);
        }
        wants
    }

    /// The lock for reading, with the tour pointing from what came after it where nobody else is asking:
    /// O(these) the first time. Waits for no reader, so it may be called with the interpreter in hand, and
    /// in the child of a fork; without the pointers a verdict goes by the chain labels.
    pub fn read_pointed(&self) -> RwLockReadGuard<'_, Engine> {
        let engine = self.read();
        if engine.is_pointed() {
            return engine;
        }
        drop(engine);
        if let Ok(mut engine) = self.engine.try_write() {
            engine.point();
        }
        self.read()
    }

    /// The lock for reading, with flags up to date. Call it detached from Python.
    pub fn read_current(&self) -> RwLockReadGuard<'_, Engine> {
        self.read_when(Engine::is_current, Engine::update)
    }

    /// The lock for reading, with the tour fresh and flags up to date. Call it detached from Python.
    pub fn read_prepared(&self) -> RwLockReadGuard<'_, Engine> {
        self.read_when(Engine::is_prepared, Engine::prepare)
    }

    /// The lock for a broad question under a policy: with the tour fresh, and with flags up to date
    /// where any are let through. Call it detached from Python.
    pub fn read_for(&self, admit: u16) -> RwLockReadGuard<'_, Engine> {
        if admit == 0 { self.read_when(Engine::is_toured, Engine::freeze) } else { self.read_prepared() }
    }

    /// The lock for reading, once the engine is ready; others may fold in between.
    fn read_when(&self, ready: fn(&Engine) -> bool, make_ready: fn(&mut Engine)) -> RwLockReadGuard<'_, Engine> {
        loop {
            let engine = self.read();
            if ready(&engine) {
                return engine;
            }
            drop(engine);
            make_ready(&mut self.write());
        }
    }
}
