//! What is known, bundled for those who ask.

use crate::ids::{Ids, Mem};
use crate::provenance::Memories;
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
}

impl<'a> Facts<'a> {
    /// The memories of the log that a memory was derived from.
    pub fn upstreams(self, mem: Mem) -> impl Iterator<Item = Mem> + use<'a> {
        self.memories.upstreams(mem).iter().filter_map(move |&number| self.ids.memory(number))
    }
}
