//! What is erased: its content is gone for good.
//!
//! An erasure takes what it names and, unless it is alone, all memories that came from
//! it, at any remove and whenever they arrive. What one erasure takes another cannot
//! give back, so each memory is taken once.

use crate::bits::Bits;
use crate::dependents::{By, Dependents};
use crate::ids::{Ids, Mem, Number};
use crate::provenance::Memories;
use crate::skeleton::{Block, Skeleton, Type};
use crate::{Map, Set};

/// An erasure.
pub struct Erasure {
    /// Its id.
    pub number: Number,
    /// What it names.
    pub targets: Box<[Number]>,
    /// Whether it takes only what it names.
    pub alone: bool,
}

/// All erasures, and what they take.
#[derive(Default)]
pub struct Erasures {
    all: Vec<Erasure>,
    /// The ids that are named, and whether by one that takes what came from them too.
    named: Map<u32, bool>,
    /// The memories whose content is gone.
    erased: Bits,
    /// Those of them from which others are taken.
    taken: Bits,
}

impl Erasures {
    /// The erasures, in the order of the log.
    #[must_use]
    pub fn all(&self) -> &[Erasure] {
        &self.all
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The memories whose content is gone.
    #[must_use]
    pub fn erased(&self) -> &Bits {
        &self.erased
    }

    /// Whether the content of the message or memory that bears an id is gone.
    #[must_use]
    pub fn has(&self, number: Number, ids: &Ids) -> bool {
        match ids.memory(number) {
            Some(mem) => self.erased.has(mem),
            None => self.named.contains_key(&number.0) && ids.message(number).is_some(),
        }
    }

    fn spreads(&self, number: Number) -> bool {
        self.named.get(&number.0) == Some(&true)
    }

    /// Take in an erasure. O(what it takes), and once for all O(references).
    pub fn push(
        &mut self,
        skeleton: &Skeleton<'_>,
        block: &Block<'_>,
        ids: &Ids,
        memories: &Memories,
        dependents: &mut Dependents,
    ) {
        let more = block.more(skeleton).cloned().unwrap_or_default();
        let targets: Box<[Number]> = block.refs[more.named].into();
        dependents.index(memories);
        let mut next = Vec::new();
        for &number in &targets {
            let spreads = !more.alone && !self.spreads(number);
            *self.named.entry(number.0).or_default() |= !more.alone;
            if let Some(mem) = ids.memory(number) {
                self.erased.insert(mem);
                next.extend(spreads.then_some(mem));
            }
            if spreads {
                next.extend(dependents.of(number).map(|(mem, _)| mem));
            }
        }
        self.all.push(Erasure { number: skeleton.id, targets, alone: more.alone });
        self.spread(next, memories, dependents);
    }

    /// Take in the next memory, whose id bears it already. O(its references), and what waited for it.
    pub fn remembered(&mut self, mem: Mem, ids: &Ids, memories: &Memories, dependents: &mut Dependents) {
        if self.is_empty() {
            return;
        }
        let number = memories.number(mem);
        if self.named.contains_key(&number.0) {
            self.erased.insert(mem);
        }
        let from = |link: Number| self.spreads(link) || ids.memory(link).is_some_and(|up| self.taken.has(up));
        if self.spreads(number)
            || memories.sources(mem).iter().any(|&source| self.spreads(source))
            || memories.links(mem).any(from)
        {
            dependents.index(memories);
            self.spread(vec![mem], memories, dependents);
        }
    }

    fn spread(&mut self, mut next: Vec<Mem>, memories: &Memories, dependents: &Dependents) {
        while let Some(mem) = next.pop() {
            if self.taken.insert(mem) {
                self.erased.insert(mem);
                next.extend(dependents.links(memories.number(mem)));
            }
        }
    }

    /// What would be erased if these events were appended, `dependents` being up to date. Ids beyond those of `ids`
    /// are new with them. O(what is newly taken, and the references of the events).
    #[must_use]
    pub fn foreseen(&self, block: &Block<'_>, ids: &Ids, memories: &Memories, dependents: &Dependents) -> Foreseen {
        let known = |number: Number| number.at() < ids.len();
        let is_new = |skeleton: &&Skeleton<'_>| !known(skeleton.id) || ids.seq(skeleton.id).is_none();
        let new = || block.skeletons.iter().filter(is_new);
        let mut out = Foreseen::default();
        let mut next = Vec::new();
        for skeleton in new().filter(|skeleton| skeleton.kind == Type::Erasure) {
            let Some(more) = block.more(skeleton) else { continue };
            for &number in &block.refs[more.named.clone()] {
                if !more.alone && !self.spreads(number) {
                    next.push((number, true));
                }
                out.named.insert(number);
            }
        }
        // Who of the batch refers to an id, and which memories of it derive from what is taken already.
        let mut batch: Map<Number, Vec<(Number, By)>> = Map::default();
        for skeleton in new().filter(|skeleton| skeleton.kind == Type::Memory) {
            let adopts = block.more(skeleton).and_then(|more| more.adopts);
            let links = block.refs[skeleton.derived_from.clone()].iter().copied().chain(adopts);
            let sources = block.refs[skeleton.sources.clone()].iter().copied();
            let taken = |up: Number| known(up) && ids.memory(up).is_some_and(|up| self.taken.has(up));
            if self.spreads(skeleton.id)
                || sources.clone().any(|source| self.spreads(source))
                || links.clone().any(|link| self.spreads(link) || taken(link))
            {
                next.push((skeleton.id, false));
            }
            sources.for_each(|source| batch.entry(source).or_default().push((skeleton.id, By::Source)));
            links.for_each(|link| batch.entry(link).or_default().push((skeleton.id, By::Link)));
        }
        let is_memory: Set<Number> =
            new().filter(|skeleton| skeleton.kind == Type::Memory).map(|skeleton| skeleton.id).collect();
        while let Some((number, named)) = next.pop() {
            let here = known(number).then(|| ids.memory(number)).flatten();
            let fresh = match here {
                Some(mem) => !self.taken.has(mem) && out.taken.insert(number),
                None if is_memory.contains(&number) => out.taken.insert(number),
                None => false,
            };
            // What is named spreads by its sources too, whether or not a memory bears it.
            if !(fresh || named && out.spread.insert(number)) {
                continue;
            }
            let stored = known(number).then(|| dependents.of(number)).into_iter().flatten();
            let stored = stored.map(|(mem, by)| (memories.number(mem), by));
            let among = batch.get(&number).into_iter().flatten().copied();
            next.extend(stored.chain(among).filter(|&(_, by)| named || by == By::Link).map(|(down, _)| (down, false)));
        }
        out
    }

    /// Whether an id is named.
    #[must_use]
    pub fn names(&self, number: Number) -> bool {
        self.named.contains_key(&number.0)
    }
}

/// What a batch would erase, beyond what is.
#[derive(Default)]
pub struct Foreseen {
    /// The ids that its erasures name.
    pub named: Set<Number>,
    /// The memories that are taken.
    pub taken: Set<Number>,
    spread: Set<Number>,
}
