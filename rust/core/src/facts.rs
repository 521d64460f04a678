//! What is known, bundled for those who ask.

use crate::Set;
use crate::changes::Changes;
use crate::cover::Cover;
use crate::ids::{Ids, Mem};
use crate::provenance::Memories;
use crate::retraction::Retractions;
use crate::topology::Forest;
use crate::tour::Tour;

/// All that a question about visibility reads.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The ids.
    pub ids: &'a Ids,
    /// The messages.
    pub forest: &'a Forest,
    /// The tour over them.
    pub tour: &'a Tour,
    /// The memories.
    pub memories: &'a Memories,
    /// What later events changed about them.
    pub changes: &'a Changes,
}

impl<'a> Facts<'a> {
    /// Retractions and restorations.
    #[must_use]
    pub fn retractions(self) -> &'a Retractions {
        &self.changes.retractions
    }

    /// What retractions cover.
    #[must_use]
    pub fn cover(self) -> &'a Cover {
        &self.changes.cover
    }

    /// The memories of the log that a memory was derived from.
    pub fn upstreams(self, mem: Mem) -> impl Iterator<Item = Mem> + use<'a> {
        self.memories.upstreams(mem).iter().filter_map(move |&number| self.ids.memory(number))
    }

    /// All memories that a memory derives from at any remove, itself aside. O(these).
    #[must_use]
    pub fn all_upstreams(self, mem: Mem) -> Vec<Mem> {
        let (mut met, mut all) = (Set::from_iter([mem]), vec![mem]);
        let mut at = 0;
        while let Some(&mem) = all.get(at) {
            at += 1;
            all.extend(self.upstreams(mem).filter(|&up| met.insert(up)));
        }
        all.split_off(1)
    }
}
