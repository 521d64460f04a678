//! Which number an id has, and what bears it.
//!
//! An id is numbered at its first mention in the log, whether or not an event
//! bears it yet, so that everything behind this module works on integers.
//! Numbers, positions and ordinals never change and are never reused.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// The number of an id: its place in the order of first mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Number(pub u32);

/// The ordinal of a message: its place among the messages of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub u32);

/// The ordinal of a memory: its place among the memories of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mem(pub u32);

macro_rules! ordinal {
    ($name:ident) => {
        impl $name {
            /// The place in an array of one entry each.
            #[must_use]
            pub fn at(self) -> usize {
                self.0 as usize
            }
        }
    };
}
ordinal!(Number);
ordinal!(Node);
ordinal!(Mem);

/// What bears an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// Nothing yet: it was only mentioned.
    Nothing,
    /// A message.
    Message(Node),
    /// A memory.
    Memory(Mem),
}

/// What bears an id, in the two highest bits beside its ordinal.
const MESSAGE: u32 = 1 << 30;
const MEMORY: u32 = 2 << 30;
const ORDINAL: u32 = MESSAGE - 1;

/// What is known of one id, side by side.
struct Entry {
    /// Where its bytes end; they begin where those of the one before do.
    end: usize,
    bearer: u32,
    seq: u32,
}

/// All ids mentioned, with what bears each.
///
/// About 24 bytes an id beside its own bytes; at most 2^30 ordinals of a type.
pub struct Ids {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    table: HashTable<u32>,
    hasher: FixedState,
}

impl Ids {
    /// No ids. The seed keeps hostile ids from colliding; answers do not depend on it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { bytes: Vec::new(), entries: Vec::new(), table: HashTable::new(), hasher: FixedState::with_seed(seed) }
    }

    /// The hasher of ids, for tables of a batch.
    #[must_use]
    pub fn hasher(&self) -> FixedState {
        self.hasher.clone()
    }

    /// How many ids were mentioned.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The id with this number.
    #[must_use]
    pub fn name(&self, number: Number) -> &str {
        std::str::from_utf8(self.raw(number.at())).unwrap_or_default()
    }

    /// The number of an id, if it was ever mentioned. O(length).
    #[must_use]
    pub fn find(&self, id: &str) -> Option<Number> {
        let hash = self.hasher.hash_one(id.as_bytes());
        let found = self.table.find(hash, |&number| self.raw(number as usize) == id.as_bytes());
        found.map(|&number| Number(number))
    }

    /// The number of an id, given now if it has none. O(length).
    pub fn intern(&mut self, id: &str) -> Number {
        self.find(id).unwrap_or_else(|| self.add(id))
    }

    /// Give the next number to an id that has none.
    pub fn add(&mut self, id: &str) -> Number {
        let number = self.entries.len() as u32;
        let hash = self.hasher.hash_one(id.as_bytes());
        self.bytes.extend_from_slice(id.as_bytes());
        self.entries.push(Entry { end: self.bytes.len(), bearer: 0, seq: 0 });
        let Self { bytes, entries, table, hasher } = self;
        table.insert_unique(hash, number, |&other| hasher.hash_one(slice(bytes, entries, other as usize)));
        Number(number)
    }

    /// Take the latest numbers back until `len` are left. They must bear nothing.
    pub fn truncate(&mut self, len: usize) {
        while self.entries.len() > len {
            let last = self.entries.len() - 1;
            let hash = self.hasher.hash_one(self.raw(last));
            if let Ok(entry) = self.table.find_entry(hash, |&number| number as usize == last) {
                entry.remove();
            }
            self.entries.pop();
            self.bytes.truncate(self.entries.last().map_or(0, |entry| entry.end));
        }
    }

    /// Say what bears an id, once.
    pub fn bear(&mut self, number: Number, bearer: Bearer, seq: u32) {
        let entry = &mut self.entries[number.at()];
        entry.seq = seq;
        entry.bearer = match bearer {
            Bearer::Nothing => 0,
            Bearer::Message(node) => MESSAGE | node.0,
            Bearer::Memory(mem) => MEMORY | mem.0,
        };
    }

    /// What bears an id.
    #[must_use]
    pub fn bearer(&self, number: Number) -> Bearer {
        let bearer = self.entries[number.at()].bearer;
        match bearer & !ORDINAL {
            MESSAGE => Bearer::Message(Node(bearer & ORDINAL)),
            MEMORY => Bearer::Memory(Mem(bearer & ORDINAL)),
            _ => Bearer::Nothing,
        }
    }

    /// The message with this number, if it is one.
    #[must_use]
    pub fn message(&self, number: Number) -> Option<Node> {
        match self.bearer(number) {
            Bearer::Message(node) => Some(node),
            _ => None,
        }
    }

    /// The memory with this number, if it is one.
    #[must_use]
    pub fn memory(&self, number: Number) -> Option<Mem> {
        match self.bearer(number) {
            Bearer::Memory(mem) => Some(mem),
            _ => None,
        }
    }

    /// The position of the event that bears an id.
    #[must_use]
    pub fn seq(&self, number: Number) -> Option<u32> {
        (self.entries[number.at()].bearer != 0).then(|| self.entries[number.at()].seq)
    }

    fn raw(&self, number: usize) -> &[u8] {
        slice(&self.bytes, &self.entries, number)
    }
}

fn slice<'a>(bytes: &'a [u8], entries: &[Entry], number: usize) -> &'a [u8] {
    let start = if number == 0 { 0 } else { entries[number - 1].end };
    &bytes[start..entries[number].end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_first_mention_and_can_be_taken_back() {
        let mut ids = Ids::new(7);
        assert_eq!((ids.intern("a"), ids.intern("b"), ids.intern("a")), (Number(0), Number(1), Number(0)));
        ids.bear(Number(0), Bearer::Message(Node(0)), 5);
        ids.truncate(1);
        assert_eq!((ids.find("b"), ids.len()), (None, 1));
        assert_eq!((ids.intern("c"), ids.name(Number(1))), (Number(1), "c"));
        assert_eq!((ids.seq(Number(0)), ids.seq(Number(1))), (Some(5), None));
        assert_eq!(ids.memory(Number(0)), None);
    }
}
