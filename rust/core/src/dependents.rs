//! Which memories refer to an id?
//!
//! Kept only from when the first retraction or erasure asks: then all memories are
//! indexed once, and later ones when somebody asks again.

use crate::ids::{Mem, Number};
use crate::provenance::Memories;

const NONE: u32 = u32::MAX;

/// How a memory refers to an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// As one of its sources.
    Source,
    /// It derives from it, or adopts it.
    Link,
}

struct Reference {
    /// The memory, and whether it is a link in the lowest bit.
    mem: u32,
    /// The one before it that refers to the same id.
    before: u32,
}

/// The references of all memories by the id that they name. 8 bytes a reference and 4 an id.
#[derive(Default)]
pub struct Dependents {
    references: Vec<Reference>,
    /// By number, the latest reference.
    latest: Vec<u32>,
    /// How many memories are indexed.
    seen: usize,
}

impl Dependents {
    /// Index the memories that came since it was last asked. O(their references).
    pub fn index(&mut self, memories: &Memories) {
        for at in self.seen..memories.len() {
            let mem = Mem(at as u32);
            memories.sources(mem).iter().for_each(|&source| self.add(source, mem.0 << 1));
            memories.links(mem).for_each(|link| self.add(link, mem.0 << 1 | 1));
        }
        self.seen = memories.len();
    }

    fn add(&mut self, number: Number, mem: u32) {
        if self.latest.len() <= number.at() {
            self.latest.resize(number.at() + 1, NONE);
        }
        let before = std::mem::replace(&mut self.latest[number.at()], self.references.len() as u32);
        self.references.push(Reference { mem, before });
    }

    /// The memories that refer to an id, among those that are indexed.
    pub fn of(&self, number: Number) -> impl Iterator<Item = (Mem, By)> + '_ {
        let mut at = self.latest.get(number.at()).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let reference = self.references.get(at as usize)?;
            at = reference.before;
            Some((Mem(reference.mem >> 1), if reference.mem & 1 == 0 { By::Source } else { By::Link }))
        })
    }

    /// The memories that derive from an id or adopt it.
    pub fn links(&self, number: Number) -> impl Iterator<Item = Mem> + '_ {
        self.of(number).filter(|&(_, by)| by == By::Link).map(|(mem, _)| mem)
    }
}
