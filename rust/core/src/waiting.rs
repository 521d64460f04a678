//! What do memories wait for before they are settled?

use crate::Map;
use crate::ids::{Mem, Number};

/// What becomes of the id that a memory waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// A message that is attached bears it.
    Source,
    /// A memory that is settled bears it.
    Upstream,
    /// A memory that is linked bears it.
    Link,
}

/// Who waits. Takes no room for who does not.
#[derive(Default)]
pub struct Waiting {
    /// How much each memory waits for.
    open: Map<u32, u32>,
    /// Who waits for an id, each time.
    who: [Map<u32, Vec<Mem>>; 3],
}

impl Waiting {
    /// Note that a memory waits for an id.
    pub fn wait(&mut self, mem: Mem, what: For, number: Number) {
        self.who[what as usize].entry(number.0).or_default().push(mem);
        *self.open.entry(mem.0).or_default() += 1;
    }

    /// Whether a memory waits for nothing.
    #[must_use]
    pub fn is_over(&self, mem: Mem) -> bool {
        !self.open.contains_key(&mem.0)
    }

    /// Whether nobody waits for such.
    #[must_use]
    pub fn nobody(&self, what: For) -> bool {
        self.who[what as usize].is_empty()
    }

    /// Who waits for an id.
    #[must_use]
    pub fn who(&self, what: For, number: Number) -> &[Mem] {
        if self.nobody(what) { &[] } else { self.who[what as usize].get(&number.0).map_or(&[], Vec::as_slice) }
    }

    /// Who waited for an id that has come; each is to be told by [`Self::came`].
    pub fn take(&mut self, what: For, number: Number) -> Vec<Mem> {
        if self.nobody(what) { Vec::new() } else { self.who[what as usize].remove(&number.0).unwrap_or_default() }
    }

    /// Count one of what a memory waits for as come, and say whether it was the last.
    pub fn came(&mut self, mem: Mem) -> bool {
        match self.open.get_mut(&mem.0) {
            Some(left) if *left > 1 => {
                *left -= 1;
                false
            }
            _ => {
                self.open.remove(&mem.0);
                true
            }
        }
    }
}
