//! What a memory rests on: its effective sources, reduced to what can fail.
//!
//! All effective sources must lie on one path, so within a tree only the
//! deepest can fail. A memory whose sources are all attached and whose
//! upstreams are all settled is settled itself: parents never change, so its
//! reduction is final, and every memory is settled once. What is not settled
//! is hidden in strict anyway; its flags are brought up to date only when a
//! question needs them, since events that arrive in the worst order would
//! otherwise touch all downstream again and again. A memory that adopts one
//! gets none of its sources, but is settled only when that one is linked.

use crate::bits::each_bit;
use crate::circles;
use crate::ids::{Ids, Mem, Node, Number};
use crate::links::Links;
use crate::reason::{DETACHED_SOURCE, LEGACY_SOURCE, MISSING_SOURCE, NO_SOURCES, Reasons};
use crate::shape::{Packed, Reduction, Shape};
use crate::skeleton::{Block, Skeleton};
use crate::topology::Forest;
use crate::waiting::{For, Waiting};
use crate::words::{WordOf, Words};
use crate::{Map, Set};
use foldhash::fast::FixedState;

/// What few memories have.
#[derive(Default)]
struct Rare {
    adopts: Option<Number>,
    supersedes: Box<[Number]>,
}

/// All memories. About 20 bytes a memory beside 4 a reference, and 16 where kinds and keys are in use.
#[derive(Default)]
pub struct Memories {
    numbers: Vec<Number>,
    /// Of each memory its sources, then its upstreams.
    refs: Vec<Number>,
    ends: Vec<u32>,
    own: Vec<u16>,
    rare: Map<u32, Rare>,
    labels: WordOf,
    keys: WordOf,
    words: Words,
    links: Links,
    waiting: Waiting,
    flags: Vec<Reasons>,
    shapes: Vec<Packed>,
    /// How deep the shallowest source lies; of interest for sources on one path.
    least: Vec<u32>,
    several: Vec<Box<[Node]>>,
    free: Vec<u32>,
    /// Memories with a flag, as bits.
    irregular: Vec<u64>,
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
        Self { words: Words::new(hasher), ..Self::default() }
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

    /// The memory that it takes over.
    #[must_use]
    pub fn adopts(&self, mem: Mem) -> Option<Number> {
        if self.rare.is_empty() { None } else { self.rare.get(&mem.0)?.adopts }
    }

    /// The memories that it replaces.
    #[must_use]
    pub fn supersedes(&self, mem: Mem) -> &[Number] {
        self.rare.get(&mem.0).map_or(&[], |rare| &rare.supersedes)
    }

    /// What it derives from or adopts.
    pub fn links(&self, mem: Mem) -> impl Iterator<Item = Number> + '_ {
        self.upstreams(mem).iter().copied().chain(self.adopts(mem))
    }

    /// Whether it derives from anything or adopts.
    fn is_derived(&self, mem: Mem) -> bool {
        !self.upstreams(mem).is_empty() || self.adopts(mem).is_some()
    }

    /// The kind of a memory, `None` for `fact`.
    #[must_use]
    pub fn label(&self, mem: Mem) -> Option<&str> {
        Some(self.words.text(self.labels.get(mem)?))
    }

    /// What a memory is about.
    #[must_use]
    pub fn key(&self, mem: Mem) -> Option<&str> {
        Some(self.words.text(self.keys.get(mem)?))
    }

    /// The words of all memories that are about something.
    #[must_use]
    pub fn keys(&self) -> &WordOf {
        &self.keys
    }

    /// The words that are used as kinds and keys.
    #[must_use]
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// The number of a word, given to it now if it has none.
    pub fn word(&mut self, word: &str) -> u32 {
        self.words.number(word)
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

    /// How deep the shallowest of its sources lies, where they lie on one path.
    #[must_use]
    pub fn least_depth(&self, mem: Mem) -> u32 {
        self.least[mem.at()]
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
        self.waiting.is_over(mem)
    }

    /// Memories with a flag or not settled, by ordinal.
    pub fn irregular(&self) -> impl Iterator<Item = Mem> + '_ {
        let words = self.irregular.iter().enumerate();
        words.flat_map(|(at, &word)| each_bit(word).map(move |bit| Mem(at as u32 * 64 + bit)))
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
        if let Some(more) = block.more(skeleton) {
            let rare = Rare { adopts: more.adopts, supersedes: block.refs[more.supersedes.clone()].into() };
            self.rare.insert(mem.0, rare);
        }
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
        self.least.push(u32::MAX);
        if mem.at().is_multiple_of(64) {
            self.irregular.push(0);
        }
        let mut linked = Vec::new();
        let links = block.refs[skeleton.derived_from.clone()].iter().copied().chain(self.adopts(mem));
        self.links.push(mem, links, ids, &self.numbers, &mut linked);
        self.derived_touched |= self.links.is_stale();
        for &source in &block.refs[skeleton.sources.clone()] {
            if !ids.message(source).is_some_and(|node| forest.is_attached(node)) {
                self.waiting.wait(mem, For::Source, source);
            }
        }
        for &upstream in &block.refs[skeleton.derived_from.clone()] {
            if !ids.memory(upstream).is_some_and(|up| up != mem && self.is_settled(up)) {
                self.waiting.wait(mem, For::Upstream, upstream);
            }
        }
        if let Some(adopted) = self.adopts(mem)
            && !ids.memory(adopted).is_some_and(|up| up != mem && self.links.is_linked(up))
        {
            self.waiting.wait(mem, For::Link, adopted);
        }
        if self.waiting.is_over(mem) {
            self.settle(mem, ids, forest, settled);
        } else {
            self.set_irregular(mem, true);
            if self.is_derived(mem) {
                self.open_derived.insert(mem.0);
            }
            self.touch(mem);
        }
        if !self.waiting.nobody(For::Link) {
            linked.into_iter().for_each(|mem| self.linked(mem, ids, forest, settled));
        }
    }

    /// A memory is now linked: what adopts it and waited for this alone is settled.
    fn linked(&mut self, mem: Mem, ids: &Ids, forest: &Forest, settled: &mut Vec<Mem>) {
        for adopter in self.waiting.take(For::Link, self.numbers[mem.at()]) {
            if self.waiting.came(adopter) {
                self.settle(adopter, ids, forest, settled);
            } else {
                self.touch(adopter);
            }
        }
    }

    /// A message is now attached: what waited for it alone is settled. O(1) each.
    pub fn message_attached(&mut self, number: Number, ids: &Ids, forest: &Forest, settled: &mut Vec<Mem>) {
        for mem in self.waiting.take(For::Source, number) {
            if self.waiting.came(mem) {
                self.settle(mem, ids, forest, settled);
            } else {
                self.touch(mem);
            }
        }
    }

    /// A message is now here, but not attached.
    pub fn message_detached(&mut self, number: Number) {
        let waiting = self.waiting.who(For::Source, number).to_vec();
        waiting.into_iter().for_each(|mem| self.touch(mem));
    }

    /// Note that the flags of a memory that is not settled, and of what derives from it, are out of date.
    fn touch(&mut self, mem: Mem) {
        if self.is_derived(mem) {
            self.derived_touched = true;
        } else {
            self.touched.push(mem);
            self.derived_touched |= !self.waiting.who(For::Upstream, self.numbers[mem.at()]).is_empty();
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
            for down in self.waiting.take(For::Upstream, self.numbers[mem.at()]) {
                if self.waiting.came(down) {
                    next.push(down);
                } else {
                    self.derived_touched = true;
                }
            }
        }
    }

    /// The source flags and sources of memories that derive from each other in a circle, or of one memory.
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
                let Some(up) = ids.memory(upstream).filter(|&up| !inside(up)) else { continue };
                // An upstream without sources gives NO_SOURCES itself, by its flags.
                sourced = true;
                flags |= self.flags[up.at()];
                let shape = self.shape(up);
                reduction.fork |= shape == Shape::Fork;
                reduction.wide |= shape == Shape::Wide;
                self.homes(&shape).iter().for_each(|&node| reduction.add(forest, node));
                if self.least[up.at()] != u32::MAX {
                    reduction.reach(self.least[up.at()]);
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
        let mut links = std::mem::take(&mut self.links);
        links.update(|mem| self.links(mem).map(|number| ids.memory(number)));
        self.links = links;
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
                self.set(mem, flags | self.links.flags(mem), &reduction);
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
        self.least[mem.at()] = reduction.least.unwrap_or(u32::MAX);
        self.set_irregular(mem, flags != 0);
    }

    fn set_irregular(&mut self, mem: Mem, irregular: bool) {
        let (word, bit) = (&mut self.irregular[mem.at() / 64], 1 << (mem.0 % 64));
        if irregular { *word |= bit } else { *word &= !bit }
    }
}
