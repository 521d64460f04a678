//! What a memory rests on: its effective sources, reduced to what can fail.
//!
//! All effective sources must lie on one path, so within a tree only the
//! deepest can fail. A memory whose sources are all attached and whose
//! upstreams are all settled is settled itself: parents never change, so its
//! reduction is final, and every memory is settled once. What is not settled
//! is hidden in strict anyway; its flags are brought up to date only when a
//! question needs them, since events that arrive in the worst order would
//! otherwise touch all downstream again and again.

use crate::circles;
use crate::event::{Block, Skeleton};
use crate::ids::{Ids, Mem, Node, Number};
use crate::reason::{
    DETACHED_SOURCE, LEGACY_SOURCE, MISSING_SOURCE, MISSING_UPSTREAM, NO_SOURCES, Reasons, UPSTREAM_CYCLE,
};
use crate::shape::{Packed, Shape};
use crate::topology::Forest;
use crate::{Map, Set};
use foldhash::fast::FixedState;

/// The most trees that a reduction holds the deepest source of: what is wide needs more anchors.
pub const MAX_TREES: usize = 8;
const NO_WORD: u32 = u32::MAX;

/// The reduction of a set of sources.
#[derive(Default)]
struct Reduction {
    homes: Vec<Node>,
    wide: bool,
    fork: bool,
}

impl Reduction {
    fn add(&mut self, forest: &Forest, node: Node) {
        let top = forest.top(node);
        match self.homes.iter().position(|&home| forest.top(home) == top) {
            Some(at) if forest.is_ancestor(self.homes[at], node) => self.homes[at] = node,
            Some(at) => self.fork |= !forest.is_ancestor(node, self.homes[at]),
            None if self.homes.len() < MAX_TREES => self.homes.push(node),
            None => self.wide = true,
        }
    }
}

/// The number of a word for each memory that has one. Takes no room until one does.
#[derive(Default)]
struct Words(Vec<u32>);

impl Words {
    fn get(&self, mem: Mem) -> Option<u32> {
        self.0.get(mem.at()).copied().filter(|&word| word != NO_WORD)
    }

    fn set(&mut self, mem: Mem, word: u32) {
        self.0.resize(self.0.len().max(mem.at() + 1), NO_WORD);
        self.0[mem.at()] = word;
    }
}

/// All memories. About 16 bytes a memory beside 4 a reference, and 8 where kinds and keys are in use.
#[derive(Default)]
pub struct Memories {
    numbers: Vec<Number>,
    /// Of each memory its sources, then its upstreams.
    refs: Vec<Number>,
    ends: Vec<u32>,
    own: Vec<u16>,
    labels: Words,
    keys: Words,
    words: Vec<Box<str>>,
    word_numbers: Map<Box<str>, u32>,
    /// Own sources not attached and upstreams not settled, of each memory that has any.
    open: Map<u32, u32>,
    flags: Vec<Reasons>,
    shapes: Vec<Packed>,
    several: Vec<Box<[Node]>>,
    free: Vec<u32>,
    /// Memories with a flag, as bits.
    irregular: Vec<u64>,
    waiting_for_source: Map<u32, Vec<Mem>>,
    waiting_for_upstream: Map<u32, Vec<Mem>>,
    /// Settled forks and wide memories, upstreams first.
    wide: Vec<Mem>,
    /// The same of what is not settled, circles together, as of the last update.
    wide_open: Vec<Vec<Mem>>,
    open_derived: Set<u32>,
    touched: Vec<Mem>,
    derived_touched: bool,
}

impl Memories {
    /// No memories. The hasher is for kinds and keys, which come from texts.
    #[must_use]
    pub fn new(hasher: FixedState) -> Self {
        Self { word_numbers: Map::with_hasher(hasher), ..Self::default() }
    }

    /// How many memories there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// How many references they hold in all.
    #[must_use]
    pub fn references(&self) -> usize {
        self.refs.len()
    }

    /// The number of a memory's id.
    #[must_use]
    pub fn number(&self, mem: Mem) -> Number {
        self.numbers[mem.at()]
    }

    /// The messages that a memory itself was derived from.
    #[must_use]
    pub fn sources(&self, mem: Mem) -> &[Number] {
        &self.all_refs(mem)[..usize::from(self.own[mem.at()])]
    }

    /// The memories that it was derived from.
    #[must_use]
    pub fn upstreams(&self, mem: Mem) -> &[Number] {
        &self.all_refs(mem)[usize::from(self.own[mem.at()])..]
    }

    fn all_refs(&self, mem: Mem) -> &[Number] {
        let start = if mem.0 == 0 { 0 } else { self.ends[mem.at() - 1] };
        &self.refs[start as usize..self.ends[mem.at()] as usize]
    }

    /// The kind of a memory, `None` for `fact`.
    #[must_use]
    pub fn label(&self, mem: Mem) -> Option<&str> {
        self.words.get(self.labels.get(mem)? as usize).map(AsRef::as_ref)
    }

    /// What a memory is about.
    #[must_use]
    pub fn key(&self, mem: Mem) -> Option<&str> {
        self.words.get(self.keys.get(mem)? as usize).map(AsRef::as_ref)
    }

    /// The flags of a memory that no anchor changes. Ask [`Self::is_current`] first.
    #[must_use]
    pub fn flags(&self, mem: Mem) -> Reasons {
        self.flags[mem.at()]
    }

    /// All flags, by ordinal.
    #[must_use]
    pub fn all_flags(&self) -> &[Reasons] {
        &self.flags
    }

    /// Where its sources lie. Ask [`Self::is_current`] first.
    #[must_use]
    pub fn shape(&self, mem: Mem) -> Shape {
        self.shapes[mem.at()].shape()
    }

    /// The deepest source in each tree, of a shape that holds them.
    #[must_use]
    pub fn homes<'a>(&'a self, shape: &'a Shape) -> &'a [Node] {
        match shape {
            Shape::Home(node) => std::slice::from_ref(node),
            Shape::Several(at) => &self.several[*at as usize],
            Shape::Nowhere | Shape::Wide | Shape::Fork => &[],
        }
    }

    /// Whether a memory is settled: its reduction is final.
    #[must_use]
    pub fn is_settled(&self, mem: Mem) -> bool {
        !self.open.contains_key(&mem.0)
    }

    /// Memories with a flag or not settled, by ordinal.
    pub fn irregular(&self) -> impl Iterator<Item = Mem> + '_ {
        self.irregular.iter().enumerate().flat_map(|(at, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(Mem(at as u32 * 64 + bit))
            })
        })
    }

    /// Settled forks and wide memories, upstreams first.
    #[must_use]
    pub fn wide(&self) -> &[Mem] {
        &self.wide
    }

    /// Forks and wide memories that are not settled, upstreams first, circles together.
    #[must_use]
    pub fn wide_open(&self) -> &[Vec<Mem>] {
        &self.wide_open
    }

    /// Whether the flags and shapes of what is not settled are up to date.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.touched.is_empty() && !self.derived_touched
    }

    /// Take in the next memory; `settled` gets it, and what it settles. Its id must bear it already.
    /// O(references).
    pub fn push(
        &mut self,
        skeleton: &Skeleton<'_>,
        block: &Block<'_>,
        ids: &Ids,
        forest: &Forest,
        settled: &mut Vec<Mem>,
    ) {
        let mem = Mem(self.numbers.len() as u32);
        self.numbers.push(skeleton.id);
        self.refs.extend_from_slice(&block.refs[skeleton.sources.clone()]);
        self.refs.extend_from_slice(&block.refs[skeleton.derived_from.clone()]);
        self.ends.push(self.refs.len() as u32);
        self.own.push(skeleton.sources.len() as u16);
        if let Some(label) = skeleton.label {
            let word = self.word(label);
            self.labels.set(mem, word);
        }
        if let Some(key) = skeleton.key {
            let word = self.word(key);
            self.keys.set(mem, word);
        }
        self.flags.push(0);
        self.shapes.push(Packed::of(Shape::Nowhere));
        if mem.at().is_multiple_of(64) {
            self.irregular.push(0);
        }
        let mut open = 0;
        for &source in &block.refs[skeleton.sources.clone()] {
            if !ids.message(source).is_some_and(|node| forest.is_attached(node)) {
                self.waiting_for_source.entry(source.0).or_default().push(mem);
                open += 1;
            }
        }
        for &upstream in &block.refs[skeleton.derived_from.clone()] {
            if !ids.memory(upstream).is_some_and(|up| up != mem && self.is_settled(up)) {
                self.waiting_for_upstream.entry(upstream.0).or_default().push(mem);
                open += 1;
            }
        }
        if open == 0 {
            self.settle(mem, ids, forest, settled);
            return;
        }
        self.open.insert(mem.0, open);
        self.set_irregular(mem, true);
        if !self.upstreams(mem).is_empty() {
            self.open_derived.insert(mem.0);
        }
        self.touch(mem);
    }

    /// A message is now attached: what waited for it alone is settled. O(1) each.
    pub fn message_attached(&mut self, number: Number, ids: &Ids, forest: &Forest, settled: &mut Vec<Mem>) {
        if self.waiting_for_source.is_empty() {
            return;
        }
        for mem in self.waiting_for_source.remove(&number.0).unwrap_or_default() {
            if self.is_last_open(mem) {
                self.settle(mem, ids, forest, settled);
            } else {
                self.touch(mem);
            }
        }
    }

    /// A message is now here, but not attached.
    pub fn message_detached(&mut self, number: Number) {
        if let Some(waiting) = self.waiting_for_source.get(&number.0).cloned() {
            waiting.into_iter().for_each(|mem| self.touch(mem));
        }
    }

    /// Count one of what a memory waits for as come, and say whether it was the last.
    fn is_last_open(&mut self, mem: Mem) -> bool {
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

    /// Note that the flags of a memory that is not settled, and of what derives from it, are out of date.
    fn touch(&mut self, mem: Mem) {
        if self.upstreams(mem).is_empty() {
            self.touched.push(mem);
            self.derived_touched |= self.waiting_for_upstream.contains_key(&self.numbers[mem.at()].0);
        } else {
            self.derived_touched = true;
        }
    }

    fn settle(&mut self, first: Mem, ids: &Ids, forest: &Forest, settled: &mut Vec<Mem>) {
        let mut next = vec![first];
        while let Some(mem) = next.pop() {
            self.open_derived.remove(&mem.0);
            let (flags, reduction) = self.reduced(&[mem], |up| up == mem, ids, forest);
            self.set(mem, flags, &reduction);
            if matches!(self.shape(mem), Shape::Wide | Shape::Fork) {
                self.wide.push(mem);
            }
            settled.push(mem);
            if self.waiting_for_upstream.is_empty() {
                continue;
            }
            for down in self.waiting_for_upstream.remove(&self.numbers[mem.at()].0).unwrap_or_default() {
                if self.is_last_open(down) {
                    next.push(down);
                } else {
                    self.derived_touched = true;
                }
            }
        }
    }

    /// The flags and sources of memories that derive from each other in a circle, or of one memory.
    ///
    /// What they derive from outside must be up to date.
    fn reduced(&self, group: &[Mem], inside: impl Fn(Mem) -> bool, ids: &Ids, forest: &Forest) -> (Reasons, Reduction) {
        let (mut flags, mut reduction) = (0, Reduction::default());
        let mut sourced = false;
        for &mem in group {
            for &source in self.sources(mem) {
                sourced = true;
                match ids.message(source) {
                    None => flags |= MISSING_SOURCE,
                    Some(node) if forest.is_legacy(node) => flags |= LEGACY_SOURCE,
                    Some(node) if !forest.is_attached(node) => flags |= DETACHED_SOURCE,
                    Some(node) => reduction.add(forest, node),
                }
            }
            for &upstream in self.upstreams(mem) {
                match ids.memory(upstream) {
                    None => flags |= MISSING_UPSTREAM,
                    Some(up) if inside(up) => flags |= UPSTREAM_CYCLE,
                    Some(up) => {
                        // An upstream without sources gives NO_SOURCES itself, by its flags.
                        sourced = true;
                        flags |= self.flags[up.at()];
                        let shape = self.shape(up);
                        reduction.fork |= shape == Shape::Fork;
                        reduction.wide |= shape == Shape::Wide;
                        self.homes(&shape).iter().for_each(|&node| reduction.add(forest, node));
                    }
                }
            }
        }
        (if sourced { flags } else { flags | NO_SOURCES }, reduction)
    }

    /// Bring the flags and shapes of what is not settled up to date. O(what is not settled).
    pub fn update(&mut self, ids: &Ids, forest: &Forest) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for mem in touched {
            if !self.is_settled(mem) {
                let (flags, reduction) = self.reduced(&[mem], |up| up == mem, ids, forest);
                self.set(mem, flags, &reduction);
            }
        }
        if std::mem::take(&mut self.derived_touched) {
            self.update_derived(ids, forest);
        }
    }

    fn update_derived(&mut self, ids: &Ids, forest: &Forest) {
        let mut open: Vec<_> = self.open_derived.iter().map(|&mem| Mem(mem)).collect();
        open.sort_unstable();
        let place: Map<u32, usize> = open.iter().enumerate().map(|(at, mem)| (mem.0, at)).collect();
        let mut edges = Vec::new();
        let mut ends = vec![0];
        for &mem in &open {
            let up = self.upstreams(mem).iter().filter_map(|&number| ids.memory(number));
            edges.extend(up.filter_map(|up| place.get(&up.0).copied()));
            ends.push(edges.len());
        }
        let groups = circles::groups(open.len(), |at, k| edges[ends[at]..ends[at + 1]].get(k).copied());
        let mut group_of = vec![0; open.len()];
        for (group, members) in groups.iter().enumerate() {
            members.iter().for_each(|&at| group_of[at] = group);
        }
        self.wide_open.clear();
        for (group, members) in groups.iter().enumerate() {
            let members: Vec<_> = members.iter().map(|&at| open[at]).collect();
            let inside = |up: Mem| place.get(&up.0).is_some_and(|&at| group_of[at] == group);
            let (flags, reduction) = self.reduced(&members, inside, ids, forest);
            for &mem in &members {
                self.set(mem, flags, &reduction);
            }
            if matches!(self.shape(members[0]), Shape::Wide | Shape::Fork) {
                self.wide_open.push(members);
            }
        }
    }

    fn set(&mut self, mem: Mem, flags: Reasons, reduction: &Reduction) {
        if let Shape::Several(at) = self.shape(mem) {
            self.free.push(at);
        }
        let shape = match &reduction.homes[..] {
            _ if reduction.fork => Shape::Fork,
            _ if reduction.wide => Shape::Wide,
            [] => Shape::Nowhere,
            [home] => Shape::Home(*home),
            homes => {
                let homes: Box<[Node]> = homes.into();
                let at = self.free.pop().unwrap_or(self.several.len() as u32);
                if at as usize == self.several.len() {
                    self.several.push(homes);
                } else {
                    self.several[at as usize] = homes;
                }
                Shape::Several(at)
            }
        };
        self.shapes[mem.at()] = Packed::of(shape);
        self.flags[mem.at()] = flags;
        self.set_irregular(mem, flags != 0);
    }

    fn set_irregular(&mut self, mem: Mem, irregular: bool) {
        let (word, bit) = (&mut self.irregular[mem.at() / 64], 1 << (mem.0 % 64));
        if irregular { *word |= bit } else { *word &= !bit }
    }

    fn word(&mut self, word: &str) -> u32 {
        if let Some(&number) = self.word_numbers.get(word) {
            return number;
        }
        let number = self.words.len() as u32;
        self.words.push(word.into());
        self.word_numbers.insert(word.into(), number);
        number
    }
}
