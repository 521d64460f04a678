//! Which memories are visible: a walk along the path, or a scan of all spans.
//!
//! A memory whose sources lie on one path hangs on the deepest of them, its
//! home. What is visible is what hangs on the path, so the walk costs the
//! chains of the path and the memories found, however many others there are.
//! On chains that hold a good part of all memories some places are marked: what is
//! visible there is kept as bits, and the walk ends at the first mark that it comes to.
//! Where much is found without a mark, comparing every span is faster. All give one set.

use crate::Map;
use crate::bits::each_bit;
use crate::chains::Chain;
use crate::facts::Facts;
use crate::ids::{Mem, Node};
use crate::provenance::Memories;
use crate::runs::{Hanging, Hung};
use crate::shape::Shape;
use crate::spans::{Span, mark_covering};
use crate::stand::Stand;
use crate::topology::Forest;
use crate::tour::Tour;
use crate::visible::Visible;

/// Marks a memory that has homes in other trees too.
const SEVERAL: u32 = 1 << 31;

/// What is visible at one depth of a chain, as it was when the tour was frozen.
struct Mark {
    depth: u32,
    /// One bit a memory that hangs there or above; one with sources in several trees is still to be checked.
    words: Box<[u64]>,
}

/// Marks are at least so many memories of one chain apart; in tests so few that small logs have some.
const LEAST_STRIDE: usize = if cfg!(test) { 2 } else { 1024 };
/// So many marks at most, so that they take 8 bytes a memory.
const MOST_MARKS: usize = 64;
/// So many memories at most may be hung above marks before these are given up.
const MOST_AMENDED: usize = if cfg!(test) { 2 } else { 256 };

/// What a walk has come upon.
struct Found<'a> {
    memories: Vec<&'a [u32]>,
    /// Memories that are covered from a message of the path on.
    covered: Vec<&'a [u32]>,
    marks: Vec<&'a [u64]>,
    /// What it may still cost, in memories found.
    budget: usize,
}

impl Default for Found<'_> {
    fn default() -> Self {
        Self { memories: Vec::new(), covered: Vec::new(), marks: Vec::new(), budget: usize::MAX }
    }
}

impl Found<'_> {
    /// Set the bits of all; those that have sources in several trees are still to be checked.
    fn set_bits(&self, words: &mut [u64]) {
        for mark in &self.marks {
            words.iter_mut().zip(*mark).for_each(|(word, mark)| *word |= mark);
        }
        for &mem in self.memories.iter().copied().flatten() {
            let mem = mem & !SEVERAL;
            words[mem as usize / 64] |= 1 << (mem % 64);
        }
    }
}

/// Where every settled memory without a flag hangs.
pub struct Index {
    /// By memory, and a last one that covers nothing; [`Span::NEVER`] where one anchor can never show
    /// it in strict.
    spans: Vec<Span>,
    /// Memories whose home is not in the tour.
    later: Vec<(Node, Mem)>,
    /// The same as bits.
    is_later: Vec<u64>,
    hanging: Hanging,
    several: Vec<Mem>,
    /// The same as bits.
    is_several: Vec<u64>,
    /// By chain, from the top down.
    marks: Map<u32, Vec<Mark>>,
    /// Where marks lie in the tour, ascending.
    marked: Vec<u32>,
    /// Memories that were hung at or above a mark after it was made.
    amended: Vec<(Node, Mem)>,
    /// How many were hung since the tour was rebuilt.
    hung: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            spans: vec![Span::NEVER],
            later: Vec::new(),
            is_later: Vec::new(),
            hanging: Hanging::default(),
            several: Vec::new(),
            is_several: Vec::new(),
            marks: Map::default(),
            marked: Vec::new(),
            amended: Vec::new(),
            hung: 0,
        }
    }
}

impl Index {
    /// How many memories there are.
    fn len(&self) -> usize {
        self.spans.len() - 1
    }

    /// Keep room for one more memory.
    pub fn push(&mut self) {
        self.spans.push(Span::NEVER);
        self.is_later.resize(self.len().div_ceil(64), 0);
        self.is_several.resize(self.len().div_ceil(64), 0);
    }

    /// Hang a memory that is settled. O(1) in order, O(log memories) amortised out of order.
    pub fn hang(&mut self, mem: Mem, facts: Facts<'_>) {
        let Facts { forest, tour, memories, .. } = facts;
        if memories.flags(mem) != 0 {
            return;
        }
        let shape = memories.shape(mem);
        let (home, mark) = match shape {
            Shape::Home(home) => {
                self.set_span(mem, home, tour);
                self.amend(mem, home, tour.span(home));
                (home, 0)
            }
            Shape::Several(_) => {
                let home = memories.homes(&shape)[0];
                self.several.push(mem);
                self.is_several[mem.at() / 64] |= 1 << (mem.0 % 64);
                self.amend(mem, home, tour.span(home));
                (home, SEVERAL)
            }
            Shape::Nowhere | Shape::Wide | Shape::Fork => return,
        };
        self.hung += 1;
        self.hanging.push(home, mem.0 | mark, forest);
    }

    fn set_span(&mut self, mem: Mem, home: Node, tour: &Tour) {
        let span = tour.span(home);
        let toured = if span.size > 0 { span } else { Span::LATER };
        self.spans[mem.at()] = toured;
        if span.size == 0 {
            self.later.push((home, mem));
            self.is_later[mem.at() / 64] |= 1 << (mem.0 % 64);
        }
    }

    /// Note a memory that marks do not have, though they lie at or below its home.
    fn amend(&mut self, mem: Mem, home: Node, span: Span) {
        let next = self.marked.partition_point(|&at| at < span.start);
        if self.marked.get(next).is_some_and(|&at| span.covers(at)) {
            self.amended.push((home, mem));
            if self.amended.len() > MOST_AMENDED.max(self.len() / 256) {
                self.unmark();
            }
        }
    }

    fn unmark(&mut self) {
        self.marks.clear();
        self.marked.clear();
        self.amended.clear();
    }

    /// A message got its first child, and so its chain: what hangs on it moves there.
    pub fn joined(&mut self, forest: &Forest, node: Node) {
        self.hanging.joined(forest, node);
    }

    /// Take the spans anew after the tour was rebuilt, and mark long chains. O(memories), and for each of at
    /// most 64 marks what is visible there and the chains above as far as the next mark.
    pub fn rebuilt(&mut self, forest: &Forest, tour: &Tour, memories: &Memories) {
        self.later.clear();
        self.is_later.fill(0);
        self.hung = 0;
        for at in 0..self.len() {
            let mem = Mem(at as u32);
            match memories.shape(mem) {
                Shape::Home(home) if memories.is_settled(mem) && memories.flags(mem) == 0 => {
                    self.set_span(mem, home, tour);
                }
                _ => {}
            }
        }
        self.unmark();
        // A chain begins after the one that it hangs on, so that marks build on each other.
        for chain in 0..self.hanging.chains() {
            self.mark(Chain(chain as u32), forest, tour, memories);
        }
        self.marked.sort_unstable();
    }

    /// Mark a chain wherever as many of its own memories as a stride hang below the last mark on it.
    fn mark(&mut self, chain: Chain, forest: &Forest, tour: &Tour, memories: &Memories) {
        let stride = LEAST_STRIDE.max(self.len() / MOST_MARKS);
        self.hanging.of_chain(chain).merge();
        let mut next = stride - 1;
        while let Some(hung) = self.hanging.on_chain(chain) {
            let run = &hung.first;
            let Some(&depth) = run.depths.get(next) else { break };
            let shape = memories.shape(Mem(run.memories[next] & !SEVERAL));
            next = run.down_to(depth).len() + stride - 1;
            // A mark whose place nobody knew could not be amended.
            let home = memories.homes(&shape).iter().find(|&&home| forest.chain(home) == Some(chain));
            let Some(&home) = home else { continue };
            let mut words = vec![0; self.len().div_ceil(64)];
            let mut found = Found::default();
            self.climb(chain, depth, forest, None, &mut found);
            found.set_bits(&mut words);
            self.marks.entry(chain.0).or_default().push(Mark { depth, words: words.into() });
            self.marked.push(tour.span(home).start);
        }
    }

    /// The spans of all memories, and a last one that covers nothing.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// How many memories were hung since the tour was rebuilt: no mark has them, and the homes of some are not in it.
    #[must_use]
    pub fn hung(&self) -> usize {
        self.hung
    }

    /// How many memories have a home that is not in the tour.
    #[must_use]
    pub fn later(&self) -> usize {
        self.later.len()
    }

    /// Whether the home of a memory, by any ordinal, is not in the tour.
    #[must_use]
    pub fn is_later(&self, mem: u32) -> bool {
        self.is_later.get(mem as usize / 64).is_some_and(|word| word & 1 << (mem % 64) != 0)
    }

    /// The span of a memory's home.
    #[must_use]
    pub fn span(&self, mem: Mem) -> Span {
        self.spans[mem.at()]
    }

    /// The memories without a flag that are on the path, and, where these are few, those of them that are covered from a
    /// message of the path on. At least one anchor must be usable.
    #[must_use]
    pub fn on_path<'a>(&'a self, stand: &Stand, facts: Facts<'a>) -> (Visible, Vec<&'a [u32]>) {
        match self.found(stand, facts) {
            None => (self.scan(stand, facts), Vec::new()),
            Some(found) if found.marks.is_empty() => {
                (Visible::Sparse(self.sparse(&found, stand, facts)), found.covered)
            }
            Some(found) => {
                let mut words = vec![0; self.len().div_ceil(64)];
                found.set_bits(&mut words);
                Self::add_checked(&self.amended, &mut words, stand, facts);
                self.keep_several(&mut words, stand, facts);
                (Visible::Dense(words), Vec::new())
            }
        }
    }

    /// The same where it is little; `None` where a mark or a scan is faster than listing it.
    #[must_use]
    pub fn walk<'a>(&'a self, stand: &Stand, facts: Facts<'a>) -> Option<(Vec<u32>, Vec<&'a [u32]>)> {
        let found = self.found(stand, facts).filter(|found| found.marks.is_empty())?;
        Some((self.sparse(&found, stand, facts), found.covered))
    }

    /// What hangs on the path; `None` where that is so much that a scan is faster.
    fn found<'a>(&'a self, stand: &Stand, facts: Facts<'a>) -> Option<Found<'a>> {
        // A scan costs about a sixteenth of what a memory found does, for each anchor; a step to
        // the next chain as much as four memories found.
        let budget = self.len() * stand.anchors().len() / 16 + 64;
        let mut found = Found { memories: Vec::with_capacity(32), budget, ..Found::default() };
        let forest = facts.forest;
        let covers = facts.changes.covered.hanging();
        for anchor in stand.anchors() {
            if forest.chain(anchor).is_none() {
                found.memories.push(self.hanging.on_leaf(anchor));
                found.covered.extend(covers.map(|covers| covers.on_leaf(anchor)));
            }
            if let Some((chain, depth)) = forest.chain_above(anchor) {
                self.climb(chain, depth, forest, covers, &mut found)?;
            }
        }
        Some(found)
    }

    fn sparse(&self, found: &Found<'_>, stand: &Stand, facts: Facts<'_>) -> Vec<u32> {
        let mut out = found.memories.concat();
        if !self.several.is_empty() {
            out.retain(|&mem| mem & SEVERAL == 0 || Self::shows(Mem(mem & !SEVERAL), stand, facts));
            out.iter_mut().for_each(|mem| *mem &= !SEVERAL);
        }
        out
    }

    /// Find what hangs on the way up from a depth of a chain, as far as the first mark; `None` where
    /// the budget does not reach.
    fn climb<'a>(
        &'a self,
        chain: Chain,
        depth: u32,
        forest: &Forest,
        covers: Option<&'a Hanging>,
        found: &mut Found<'a>,
    ) -> Option<()> {
        let mut at = Some((chain, depth));
        while let Some((chain, depth)) = at {
            let marks = if self.marks.is_empty() { None } else { self.marks.get(&chain.0) };
            let mark = marks.and_then(|marks| marks.iter().rev().find(|mark| mark.depth <= depth));
            if let Some(hung) = covers.and_then(|covers| covers.on_chain(chain)) {
                for run in hung.runs() {
                    let covered = run.down_to(depth);
                    if !covered.is_empty() {
                        found.covered.push(covered);
                    }
                }
            }
            for run in self.hanging.on_chain(chain).into_iter().flat_map(Hung::runs) {
                let memories = mark.map_or_else(|| run.down_to(depth), |mark| run.between(mark.depth, depth));
                found.budget = found.budget.checked_sub(memories.len())?;
                found.memories.push(memories);
            }
            if let Some(mark) = mark {
                found.marks.push(&mark.words);
                break;
            }
            found.budget = found.budget.checked_sub(4)?;
            at = forest.chains().above(chain);
        }
        Some(())
    }

    /// Set the bits of those whose home is on the path.
    fn add_checked(homes: &[(Node, Mem)], words: &mut [u64], stand: &Stand, facts: Facts<'_>) {
        for (_, mem) in homes.iter().filter(|(home, _)| stand.is_on_path(facts, *home)) {
            words[mem.at() / 64] |= 1 << (mem.0 % 64);
        }
    }

    fn add_several(&self, words: &mut [u64], stand: &Stand, facts: Facts<'_>) {
        // Each has sources in two trees or more, and one anchor shows those of one.
        if stand.anchors().len() < 2 {
            return;
        }
        for mem in self.several.iter().filter(|&&mem| Self::shows(mem, stand, facts)) {
            words[mem.at() / 64] |= 1 << (mem.0 % 64);
        }
    }

    /// Clear the bits of those whose sources lie in several trees and not all on the path.
    fn keep_several(&self, words: &mut [u64], stand: &Stand, facts: Facts<'_>) {
        if self.several.is_empty() {
            return;
        }
        for (at, (word, several)) in words.iter_mut().zip(&self.is_several).enumerate() {
            for bit in each_bit(*word & several) {
                if !Self::shows(Mem(at as u32 * 64 + bit), stand, facts) {
                    *word &= !(1 << bit);
                }
            }
        }
    }

    fn shows(mem: Mem, stand: &Stand, facts: Facts<'_>) -> bool {
        let shape = facts.memories.shape(mem);
        facts.memories.homes(&shape).iter().all(|&home| stand.is_on_path(facts, home))
    }

    /// The same by way of all spans.
    #[must_use]
    pub fn scan(&self, stand: &Stand, facts: Facts<'_>) -> Visible {
        let mut words = vec![0; self.len().div_ceil(64)];
        for anchor in stand.anchors() {
            mark_covering(&self.spans, facts.tour.position(facts.forest, anchor), &mut words);
        }
        Self::add_checked(&self.later, &mut words, stand, facts);
        self.add_several(&mut words, stand, facts);
        Visible::Dense(words)
    }
}
