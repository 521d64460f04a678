//! Which retractions cover a memory?
//!
//! A retraction covers what it names and all downstream of it, in every view alike; only
//! being in effect depends on the view. So each memory that something covers refers to
//! its *holder*: the nearest memory upstream, or itself, at which covers begin or meet. A
//! memory is covered in a view exactly when its holder is, so each holder is judged once a
//! view. A memory becomes a holder once and for good.

use crate::bits::Bits;
use crate::dependents::{By, Dependents};
use crate::ids::{Ids, Mem, Number};
use crate::provenance::Memories;
use crate::retraction::{Retraction, judged};
use crate::topology::Forest;
use crate::{Map, Set};

const NONE: u32 = u32::MAX;
/// A memory whose holder changed so often becomes one itself, so that no order of retractions moves it again and
/// again; in tests so seldom that small logs get there.
const MOST_MOVES: u8 = if cfg!(test) { 2 } else { 12 };

/// The retractions that name a key.
#[derive(Default)]
pub struct Keyed {
    /// All of them.
    pub all: Vec<u32>,
    /// Those that may be in effect wherever the view stands, as of when they came.
    pub anywhere: Vec<u32>,
    /// The others by the top of the tree of their place.
    pub by_tree: Map<u32, Vec<u32>>,
}

/// What all retractions cover. 5 bytes a memory once there is one.
#[derive(Default)]
pub struct Cover {
    /// Retractions by an id among their memories, and by one among their sources.
    named: Map<u32, Vec<u32>>,
    sourced: Map<u32, Vec<u32>>,
    keyed: Map<u32, Keyed>,
    /// Memories at which covers begin or meet, and those that have moved too often.
    holders: Bits,
    /// By holder, the retractions that name it, one of its own sources, or an id that it refers to and no memory bore.
    direct: Map<u32, Vec<u32>>,
    /// The holder of each memory, `NONE` where nothing covers it.
    holder_of: Vec<u32>,
    covered: Bits,
    /// By memory, how often its holder changed.
    moves: Vec<u8>,
    /// Memories whose holder may have changed.
    touched: Vec<Mem>,
    /// Memories that came and are covered.
    came: Vec<Mem>,
}

impl Cover {
    /// Whether any retraction may cover a memory.
    #[inline]
    #[must_use]
    pub fn may_cover(&self, mem: Mem) -> bool {
        self.covered.has(mem)
    }

    /// The memories that some retraction may cover.
    #[must_use]
    pub fn covered(&self) -> &Bits {
        &self.covered
    }

    fn is_unused(&self) -> bool {
        self.named.is_empty() && self.sourced.is_empty() && self.keyed.is_empty()
    }

    /// The memory upstream of this one, or itself, that is covered exactly where it is.
    #[must_use]
    pub fn holder_of(&self, mem: Mem) -> Option<Mem> {
        self.holder_of.get(mem.at()).filter(|&&holder| holder != NONE).map(|&holder| Mem(holder))
    }

    /// Take in a retraction. O(what it covers), and once for all O(references).
    pub fn retracted(
        &mut self,
        place: u32,
        retraction: &Retraction,
        ids: &Ids,
        forest: &Forest,
        memories: &Memories,
        dependents: &mut Dependents,
    ) {
        for &number in &retraction.memories {
            self.named.entry(number.0).or_default().push(place);
        }
        for &number in &retraction.sources {
            self.sourced.entry(number.0).or_default().push(place);
        }
        for mem in Self::named_by_id(retraction, ids, memories, dependents) {
            self.hold(mem, Some(place));
        }
        for &key in &retraction.keys {
            let keyed = self.keyed.entry(key).or_default();
            keyed.all.push(place);
            match judged(retraction, ids, forest) {
                None => keyed.anywhere.push(place),
                Some(node) => keyed.by_tree.entry(forest.top(node).0).or_default().push(place),
            }
            if keyed.all.len() == 1 {
                memories.keys().all(key).for_each(|mem| self.hold(mem, None));
            }
        }
        self.spread(ids, memories, dependents);
    }

    /// The memories that a retraction names by an id, as things are.
    pub fn named_by_id(
        retraction: &Retraction,
        ids: &Ids,
        memories: &Memories,
        dependents: &mut Dependents,
    ) -> Vec<Mem> {
        dependents.index(memories);
        let mut out = Vec::new();
        for &number in &retraction.memories {
            match ids.memory(number) {
                Some(mem) => out.push(mem),
                None => out.extend(dependents.links(number)),
            }
        }
        for &number in &retraction.sources {
            let own = dependents.of(number).filter(|&(_, by)| by == By::Source);
            out.extend(own.map(|(mem, _)| mem));
        }
        out
    }

    /// The memories that came since this was last asked and are covered.
    pub fn take_came(&mut self) -> Vec<Mem> {
        std::mem::take(&mut self.came)
    }

    /// Take in the next memory, whose id bears it already. O(its references), and what waited for it.
    pub fn remembered(&mut self, mem: Mem, ids: &Ids, memories: &Memories, dependents: &mut Dependents) {
        if self.is_unused() {
            return;
        }
        // Many retractions may name many of its sources.
        let mut direct: Set<u32> = Set::default();
        let named = |number: Number| self.named.get(&number.0).into_iter().flatten();
        direct.extend(named(memories.number(mem)));
        for link in memories.links(mem).filter(|&link| ids.memory(link).is_none()) {
            direct.extend(named(link));
        }
        for source in memories.sources(mem) {
            direct.extend(self.sourced.get(&source.0).into_iter().flatten());
        }
        direct.into_iter().for_each(|place| self.hold(mem, Some(place)));
        if memories.keys().get(mem).is_some_and(|key| self.keyed.contains_key(&key)) {
            self.hold(mem, None);
        }
        self.touched.push(mem);
        self.spread(ids, memories, dependents);
        if self.may_cover(mem) {
            self.came.push(mem);
        }
    }

    /// Make a memory a holder, and note a retraction that names it.
    fn hold(&mut self, mem: Mem, direct: Option<u32>) {
        if let Some(place) = direct {
            // A retraction may name several sources of one memory, all in one go.
            let direct = self.direct.entry(mem.0).or_default();
            if direct.last() != Some(&place) {
                direct.push(place);
            }
        }
        if self.holders.insert(mem) {
            self.touched.push(mem);
        }
    }

    /// Let what derives from or adopts a touched memory refer to its holder. O(what changes).
    fn spread(&mut self, ids: &Ids, memories: &Memories, dependents: &mut Dependents) {
        while let Some(mem) = self.touched.pop() {
            let before = self.holder_of(mem);
            if before == Some(mem) {
                continue;
            }
            let Some(holder) = self.find_holder(mem, ids, memories) else { continue };
            if before == Some(holder) {
                continue;
            }
            if self.holder_of.len() <= mem.at() {
                self.holder_of.resize(memories.len(), NONE);
                self.moves.resize(memories.len(), 0);
            }
            let moves = &mut self.moves[mem.at()];
            *moves += 1;
            let holder = if *moves > MOST_MOVES { mem } else { holder };
            if holder == mem {
                self.holders.insert(mem);
            }
            self.holder_of[mem.at()] = holder.0;
            self.covered.insert(mem);
            dependents.index(memories);
            self.touched.extend(dependents.links(memories.number(mem)));
        }
    }

    fn find_holder(&mut self, mem: Mem, ids: &Ids, memories: &Memories) -> Option<Mem> {
        if self.holders.has(mem) {
            return Some(mem);
        }
        let mut found = None;
        for up in memories.links(mem).filter_map(|link| ids.memory(link)) {
            match (self.holder_of(up), found) {
                (None, _) => {}
                (Some(holder), None) => found = Some(holder),
                (Some(holder), Some(other)) if holder == other => {}
                (Some(_), Some(_)) => {
                    self.holders.insert(mem);
                    return Some(mem);
                }
            }
        }
        found
    }

    /// The retractions that name a holder itself.
    #[must_use]
    pub fn direct(&self, holder: Mem) -> &[u32] {
        self.direct.get(&holder.0).map_or(&[], Vec::as_slice)
    }

    /// The retractions that name the key of a memory.
    #[must_use]
    pub fn keyed(&self, mem: Mem, memories: &Memories) -> Option<&Keyed> {
        if self.keyed.is_empty() { None } else { self.keyed.get(&memories.keys().get(mem)?) }
    }
}
