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
    /// A retraction, a restoration or an erasure, by its place among these.
    Change(u32),
}

/// What bears an id, in the two highest bits beside its ordinal.
const MESSAGE: u32 = 1 << 30;
const MEMORY: u32 = 2 << 30;
const CHANGE: u32 = 3 << 30;
const ORDINAL: u32 = MESSAGE - 1;

/// What is known of one id, side by side.
struct Entry {
    /// Where its bytes begin, in units of [`ALIGNMENT`].
    start: u32,
    bearer: u32,
    seq: u32,
    len: u16,
}

/// What the hash table holds of one id: its number, and where its bytes begin, so that comparing
/// them waits for nothing else.
#[derive(Clone, Copy)]
struct Slot {
    number: u32,
    /// In units of [`ALIGNMENT`].
    start: u32,
}

/// The bytes of an id begin at a multiple of this, so that 32 bits address 16 GiB of them.
const ALIGNMENT: usize = 4;
/// So that ordinals and places fit their bits.
const MAX_IDS: usize = 1 << 30;
/// The most bytes that an id has.
const LONGEST: usize = 256;
/// How many ids are looked up together before they are added.
const AT_ONCE: usize = 1 << 12;
const MAX_BYTES: usize = (u32::MAX as usize - 1) * ALIGNMENT - 512;

/// All ids mentioned, with what bears each.
///
/// About 26 bytes an id beside its own bytes, and 4 a message; at most 2^30 ids, with 16 GiB of bytes.
pub struct Ids {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// By the ordinal of the message.
    messages: Vec<Number>,
    table: HashTable<Slot>,
    hasher: FixedState,
}

impl Ids {
    /// No ids. The seed keeps hostile ids from colliding; answers do not depend on it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            bytes: Vec::new(),
            entries: Vec::new(),
            messages: Vec::new(),
            table: HashTable::new(),
            hasher: FixedState::with_seed(seed),
        }
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
        std::str::from_utf8(self.bytes(number)).unwrap_or_default()
    }

    /// The bytes of an id, which sort as it does.
    #[must_use]
    pub fn bytes(&self, number: Number) -> &[u8] {
        slice(&self.bytes, &self.entries[number.at()])
    }

    /// The number of an id, if it was ever mentioned. O(length).
    #[must_use]
    pub fn find(&self, id: &str) -> Option<Number> {
        let id = id.as_bytes();
        self.find_hashed(self.hasher.hash_one(id), id)
    }

    fn find_hashed(&self, hash: u64, id: &[u8]) -> Option<Number> {
        // The bytes are compared before the length, so that neither waits for the other to be loaded.
        let is_it = |slot: &Slot| {
            let start = slot.start as usize * ALIGNMENT;
            self.bytes.get(start..start + id.len()).is_some_and(|bytes| bytes == id)
                && usize::from(self.entries[slot.number as usize].len) == id.len()
        };
        self.table.find(hash, is_it).map(|slot| Number(slot.number))
    }

    /// Whether no further id can be numbered after `more` of them, of any length.
    #[must_use]
    pub fn is_full_with(&self, more: usize) -> bool {
        self.len() + more >= MAX_IDS || self.bytes.len() + more * LONGEST > MAX_BYTES
    }

    /// Have the processor fetch what is known of these ids, many at a time, before one after the other is asked about.
    pub fn warm(&self, numbers: &[Number]) {
        let known = || numbers.iter().filter_map(|number| self.entries.get(number.at()));
        std::hint::black_box(known().fold(0, |sum: u32, entry| sum.wrapping_add(entry.start)));
        let first = |entry: &Entry| self.bytes.get(entry.start as usize * ALIGNMENT).copied().unwrap_or(0);
        std::hint::black_box(known().fold(0, |sum: u8, entry| sum.wrapping_add(first(entry))));
    }

    /// Keep room for so many more ids in all that is kept of each but its bytes.
    pub fn reserve(&mut self, more: usize) {
        let Self { bytes, entries, table, hasher, .. } = self;
        entries.reserve(more);
        table.reserve(more, |slot| hasher.hash_one(slice(bytes, &entries[slot.number as usize])));
    }

    /// Give the next numbers to ids that have none, in their order; false, and none is added, where
    /// one has a number already or stands there twice. There must be room for them.
    #[must_use]
    pub fn add_all<'a>(&mut self, ids: impl ExactSizeIterator<Item = &'a [u8]>) -> bool {
        self.reserve(ids.len());
        let before = self.len();
        let mut ids = ids.peekable();
        let mut hashed = Vec::with_capacity(AT_ONCE.min(ids.len()));
        while ids.peek().is_some() {
            hashed.clear();
            hashed.extend(ids.by_ref().take(AT_ONCE).map(|id| (self.hasher.hash_one(id), id)));
            // Before any of them is added, so that the processor may have many look-ups under way.
            let mut fresh = hashed.iter().all(|&(hash, id)| self.find_hashed(hash, id).is_none());
            for &(hash, id) in &hashed {
                fresh = fresh && self.find_hashed(hash, id).is_none();
                if !fresh {
                    self.truncate(before);
                    return false;
                }
                self.add(hash, id);
            }
        }
        true
    }

    fn add(&mut self, hash: u64, id: &[u8]) {
        let number = self.entries.len() as u32;
        let start = (self.bytes.len() / ALIGNMENT) as u32;
        self.bytes.extend_from_slice(id);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        self.entries.push(Entry { start, bearer: 0, seq: 0, len: id.len() as u16 });
        let Self { bytes, entries, table, hasher, .. } = self;
        let rehash = |slot: &Slot| hasher.hash_one(slice(bytes, &entries[slot.number as usize]));
        table.insert_unique(hash, Slot { number, start }, rehash);
    }

    /// Take the latest numbers back until `len` are left. They must bear nothing.
    pub fn truncate(&mut self, len: usize) {
        while self.entries.len() > len {
            let last = self.entries.len() - 1;
            let hash = self.hasher.hash_one(self.bytes(Number(last as u32)));
            if let Ok(slot) = self.table.find_entry(hash, |slot| slot.number as usize == last) {
                slot.remove();
            }
            self.bytes.truncate(self.entries[last].start as usize * ALIGNMENT);
            self.entries.pop();
        }
    }

    /// The number of a message's id.
    #[must_use]
    pub fn of_message(&self, node: Node) -> Number {
        self.messages[node.at()]
    }

    /// Say what bears an id, once; messages in the order of their ordinals.
    pub fn bear(&mut self, number: Number, bearer: Bearer, seq: u32) {
        let entry = &mut self.entries[number.at()];
        entry.seq = seq;
        entry.bearer = match bearer {
            Bearer::Nothing => 0,
            Bearer::Message(node) => {
                self.messages.push(number);
                MESSAGE | node.0
            }
            Bearer::Memory(mem) => MEMORY | mem.0,
            Bearer::Change(at) => CHANGE | at,
        };
    }

    /// What bears an id.
    #[must_use]
    pub fn bearer(&self, number: Number) -> Bearer {
        let bearer = self.entries[number.at()].bearer;
        match bearer & !ORDINAL {
            MESSAGE => Bearer::Message(Node(bearer & ORDINAL)),
            MEMORY => Bearer::Memory(Mem(bearer & ORDINAL)),
            CHANGE => Bearer::Change(bearer & ORDINAL),
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
}

fn slice<'a>(bytes: &'a [u8], entry: &Entry) -> &'a [u8] {
    &bytes[entry.start as usize * ALIGNMENT..][..usize::from(entry.len)]
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Ids {
        fn intern(&mut self, id: &str) -> Number {
            self.find(id).unwrap_or_else(|| {
                assert!(self.add_all([id.as_bytes()].into_iter()));
                Number(self.len() as u32 - 1)
            })
        }
    }

    #[test]
    fn numbers_follow_first_mention_and_can_be_taken_back() {
        let mut ids = Ids::new(7);
        assert_eq!(ids.find(""), None);
        assert_eq!((ids.intern("a"), ids.intern("b"), ids.intern("a")), (Number(0), Number(1), Number(0)));
        ids.bear(Number(0), Bearer::Message(Node(0)), 5);
        ids.truncate(1);
        assert_eq!((ids.find("b"), ids.len()), (None, 1));
        assert_eq!((ids.intern("c"), ids.name(Number(1))), (Number(1), "c"));
        assert_eq!((ids.seq(Number(0)), ids.seq(Number(1))), (Some(5), None));
        assert_eq!(ids.memory(Number(0)), None);
    }

    #[test]
    fn an_id_is_told_from_its_beginnings() {
        let mut ids = Ids::new(0);
        let all: Vec<String> = (1..200).map(|len| "x".repeat(len)).collect();
        let numbers: Vec<_> = all.iter().map(|id| ids.intern(id)).collect();
        for (id, number) in all.iter().zip(numbers) {
            assert_eq!((ids.find(id), ids.name(number)), (Some(number), id.as_str()));
        }
    }
}
